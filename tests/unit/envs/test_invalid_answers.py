"""Answers of environments that are no answers: a fault of the trial, or one line at the start."""

import sys
from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from yamame.envs.env_fn import EnvFnConfig
from yamame.envs.vector.construction import make_envs
from yamame.envs.vector.faults import InvalidEnvOutputError, fault_from_exception, nonfinite_rows, validate_finite
from yamame.envs.vector.gymnasium_adapter import GymnasiumVectorAdapter
from yamame.envs.vector.serial import SerialVectorEnv
from yamame.envs.wrappers.restarting import RestartingVectorEnv
from yamame.errors import UserError

Answer = Callable[[tuple[Any, ...]], Any]


class UnreadableError(Exception):
    """An exception whose text raises."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def exits(_: Any) -> Any:
    sys.exit(0)


def raises(_: Any) -> Any:
    raise UnreadableError


ANSWERS: dict[str, tuple[Answer, str]] = {
    "info None": (lambda step: (*step[:4], None), "info is a NoneType"),
    "info list": (lambda step: (*step[:4], [1]), "info is a list"),
    "terminated of shape (2,)": (lambda step: (*step[:2], np.ones(2, bool), *step[3:]), "terminated has shape (2,)"),
    "terminated text": (lambda step: (*step[:2], "False", *step[3:]), "terminated is not a number"),
    "terminated NaN": (lambda step: (*step[:2], np.nan, *step[3:]), "terminated is neither True nor False"),
    "truncated 2": (lambda step: (*step[:3], 2, step[4]), "truncated is neither True nor False"),
    "truncated None": (lambda step: (*step[:3], None, step[4]), "truncated is not a number"),
    "reward of 401 digits": (lambda step: (step[0], 10**400, *step[2:]), "a reward is not a number"),
    "reward infinite": (lambda step: (step[0], -np.inf, *step[2:]), "returned infinity as reward at step"),
    "reward text": (lambda step: (step[0], "1.0", *step[2:]), "a reward is not a number"),
    "reward of shape (2,)": (lambda step: (step[0], np.ones(2), *step[2:]), "a reward has shape (2,)"),
    "mask NaN": (lambda step: (*step[:4], {"action_mask": [np.nan, 1.0]}), "an action mask has entries"),
    "four values": (lambda step: step[:4], "is it made for old Gym?"),
    "nothing": (lambda _: None, "is it made for old Gym?"),
    "sys.exit": (exits, "raised SystemExit: 0"),
    "unreadable exception": (raises, "raised UnreadableError"),
}

REFUSED: dict[str, tuple[Answer, str]] = {
    "success text": (lambda step: (*step[:4], {"success": "yes"}), "info['success'] is 'yes', expected True or False"),
    "success count": (lambda step: (*step[:4], {"is_success": 2}), "info['is_success'] is 2, expected True or False"),
    "success NaN": (lambda step: (*step[:4], {"success": np.nan}), "info['success'] is nan, expected True or False"),
    "success array": (lambda step: (*step[:4], {"success": np.ones(2)}), "info['success'] is an array of shape (2,)"),
    "mask text": (lambda step: (*step[:4], {"action_mask": "both"}), "an action mask is or has 'both'"),
    "mask set": (lambda step: (*step[:4], {"action_mask": {0}}), "an action mask is or has {0}"),
}
"""No number of restarts mends these: without such trials, another task is learned."""


class Answering(gymnasium.Env[np.ndarray, int]):
    """The second of the environments that were made answers its second step in another way, once."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, answer: Answer, at_step: int = 2) -> None:
        self.answer, self.at_step, self.steps = answer, at_step, 0
        self.has_masks = answer in (ANSWERS["mask NaN"][0], REFUSED["mask text"][0], REFUSED["mask set"][0])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, Any]:
        self.steps = 0
        if self.at_step == 0:
            result: tuple[np.ndarray, Any] = self.answer((np.zeros(1, np.float32), {}))
            return result
        return np.zeros(1, np.float32), self.info()

    def step(self, action: int) -> Any:
        self.steps += 1
        step = np.full(1, 0.5, np.float32), 1.0, False, False, self.info()
        return self.answer(step) if self.steps == self.at_step else step

    def info(self) -> dict[str, Any]:
        return {"action_mask": [1, 1]} if self.has_masks else {}

    def close(self) -> None:
        raise UnreadableError


def valid(step: tuple[Any, ...]) -> Any:
    return step


@pytest.mark.parametrize("name", ANSWERS)
def test_an_invalid_answer_is_a_fault_of_its_trial(name: str) -> None:
    answer, message = ANSWERS[name]
    made = [Answering(valid), Answering(answer)]
    for env in made:
        env.has_masks = made[1].has_masks

    def replacement() -> Answering:
        made.append(Answering(valid))
        made[-1].has_masks = made[1].has_masks
        return made[-1]

    envs = SerialVectorEnv(made[:2], 0, env_fn=replacement)
    everything = np.ones(2, np.bool_)
    envs.reset(everything, everything)
    steps = [envs.step(np.zeros(2, np.int64)) for _ in range(4)]
    assert [step.failed is None for step in steps] == [True, False, True, True]
    assert steps[1].failed is not None and steps[1].failed.tolist() == [False, True]
    (fault,) = steps[1].faults
    assert message in fault.message and "\n" not in fault.message
    assert [step.reward.tolist() for step in steps] == [[1.0, 1.0], [1.0, 0.0], [1.0, 1.0], [1.0, 1.0]]
    assert len(made) == 3


@pytest.mark.parametrize("name", REFUSED)
def test_a_signal_of_another_kind_ends_the_run(name: str) -> None:
    answer, message = REFUSED[name]
    made = [Answering(valid), Answering(answer)]
    for env in made:
        env.has_masks = made[1].has_masks
    envs = SerialVectorEnv(made, 0, env_fn=lambda: Answering(valid))
    everything = np.ones(2, np.bool_)
    envs.reset(everything, everything)
    envs.step(np.zeros(2, np.int64))
    with pytest.raises(UserError) as error:
        envs.step(np.zeros(2, np.int64))
    assert message in str(error.value) and "\n" not in str(error.value)
    assert not isinstance(error.value, InvalidEnvOutputError)


@pytest.mark.parametrize("name", sorted(ANSWERS.keys() - {"sys.exit", "unreadable exception", "nothing"}))
def test_without_replacements_it_is_one_line(name: str) -> None:
    answer, message = ANSWERS[name]
    envs = SerialVectorEnv([Answering(answer, at_step=1)], 0)
    envs.reset(np.ones(1, np.bool_), np.ones(1, np.bool_))
    with pytest.raises(InvalidEnvOutputError) as error:
        envs.step(np.zeros(1, np.int64))
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda _: None, "is it made for old Gym?"),
        (lambda reset: reset[0], "is it made for old Gym?"),
        (lambda reset: (reset[0], None), "info is a NoneType, not a dict"),
        (lambda reset: (reset[0], [{}]), "info is a list, not a dict"),
        (exits, "environment 0 called sys.exit(0)"),
    ],
)
def test_an_invalid_first_reset_is_one_line(answer: Answer, message: str) -> None:
    envs = SerialVectorEnv([Answering(answer, at_step=0)], 0, env_fn=lambda: Answering(valid))
    with pytest.raises(UserError) as error:
        envs.reset(np.ones(1, np.bool_), np.ones(1, np.bool_))
    assert message in str(error.value) and "\n" not in str(error.value)


VECTOR_ANSWERS: dict[str, tuple[Answer, str]] = {
    "info None": (lambda step: (*step[:4], None), "info is a NoneType"),
    "terminated of shape (2, 1)": (lambda step: (*step[:2], np.ones((2, 1)), *step[3:]), "terminated has shape (2, 1)"),
    "terminated text": (lambda step: (*step[:2], ["False", "False"], *step[3:]), "terminated is not a number"),
    "truncated NaN": (lambda step: (*step[:3], np.array([0, np.nan]), step[4]), "truncated is neither True nor False"),
    "one truncated": (lambda step: (*step[:3], False, step[4]), "truncated has shape ()"),
    "reward of 401 digits": (lambda step: (step[0], [1.0, 10**400], *step[2:]), "a reward is not a number"),
    "reward text": (lambda step: (step[0], ["1.0", "1.0"], *step[2:]), "a reward is not a number"),
    "three rewards": (lambda step: (step[0], np.ones(3), *step[2:]), "reward has shape (3,)"),
    "one observation": (lambda step: (np.zeros((1, 1), np.float32), *step[1:]), "observation 'observation' has shape"),
    "mask NaN": (lambda step: (*step[:4], {"action_mask": np.full((2, 2), np.nan)}), "an action mask has entries"),
    "four values": (lambda step: step[:4], "step does not return (observation, reward"),
    "nothing": (lambda _: None, "step does not return (observation, reward"),
    "sys.exit": (exits, "raised SystemExit: 0"),
    "unreadable exception": (raises, "raised UnreadableError"),
}


class VectorAnswering(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Two environments; their second step is answered in another way."""

    num_envs = 2
    single_observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    single_action_space = spaces.Discrete(2)
    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.DISABLED}

    def __init__(self, answer: Answer, at_step: int = 2, *, has_masks: bool = False) -> None:
        self.answer, self.at_step, self.steps = answer, at_step, 0
        self.infos = {"action_mask": np.ones((2, 2))} if has_masks else {}

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        reset = np.zeros((2, 1), np.float32), self.infos
        return self.answer(reset) if self.at_step == 0 else reset

    def close(self, **kwargs: Any) -> None:
        raise UnreadableError

    def step(self, actions: np.ndarray) -> Any:
        self.steps += 1
        no = np.zeros(2, np.bool_)
        step = np.full((2, 1), 0.5, np.float32), np.ones(2), no, no, self.infos
        return self.answer(step) if self.steps == self.at_step else step


@pytest.mark.parametrize("name", VECTOR_ANSWERS)
def test_a_vector_environment_with_an_invalid_answer_is_restarted(name: str) -> None:
    answer, message = VECTOR_ANSWERS[name]
    answers = iter([answer, valid])

    def make(seed: int) -> GymnasiumVectorAdapter:
        return GymnasiumVectorAdapter(VectorAnswering(next(answers), has_masks="mask" in name), seed)

    envs = RestartingVectorEnv(make, 0)
    envs.reset(np.ones(2, np.bool_), np.ones(2, np.bool_))
    steps = [envs.step(np.zeros(2, np.int64)) for _ in range(4)]
    assert [step.failed is None for step in steps] == [True, False, True, True]
    (fault,) = steps[1].faults
    assert message in fault.message and "\n" not in fault.message
    assert [step.reward.tolist() for step in steps] == [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    ("success", "message"),
    [
        (["yes", "no"], r"info\['success'\] is 'yes', expected True or False"),
        (np.ones((2, 2)), r"info\['success'\] is an array of shape \(2,\)"),
        (True, r"info\['success'\] has shape \(\): its first dimension must be 2"),
        (np.ones(3), r"info\['success'\] has shape \(3,\): its first dimension must be 2"),
    ],
)
def test_a_success_of_another_kind_in_a_vector_environment_ends_the_run(success: Any, message: str) -> None:
    def answer(step: Any) -> Any:
        return *step[:4], {"success": success}

    envs = RestartingVectorEnv(lambda seed: GymnasiumVectorAdapter(VectorAnswering(answer), seed), 0)
    envs.reset(np.ones(2, np.bool_), np.ones(2, np.bool_))
    envs.step(np.zeros(2, np.int64))
    with pytest.raises(UserError, match=message):
        envs.step(np.zeros(2, np.int64))


@pytest.mark.parametrize("masks", [np.ones(3), np.ones((3, 2)), 1])
def test_masks_of_another_number_of_environments_end_the_run(masks: Any) -> None:
    def answer(step: Any) -> Any:
        return *step[:4], {"action_mask": masks}

    envs = GymnasiumVectorAdapter(VectorAnswering(answer, 1, has_masks=True), 0)
    envs.reset(np.ones(2, np.bool_), np.ones(2, np.bool_))
    with pytest.raises(UserError, match="has not one action mask for each of 2 environments"):
        envs.step(np.zeros(2, np.int64))


def test_masks_that_are_missing_at_the_reset_are_reported_there() -> None:
    def answer(step: Any) -> Any:
        return *step[:4], {"action_mask": np.ones((2, 2))}

    envs = GymnasiumVectorAdapter(VectorAnswering(answer, 1), 0)
    envs.reset(np.ones(2, np.bool_), np.ones(2, np.bool_))
    with pytest.raises(UserError, match="missing in environment 0 at step 0 of its episode"):
        envs.step(np.zeros(2, np.int64))


def test_infos_of_ended_episodes_of_another_form_end_the_run() -> None:
    class SameStep(VectorAnswering):
        metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def answer(step: Any) -> Any:
        infos = {"final_obs": step[0], "final_info": np.array([{}, {}], np.object_)}
        return *step[:2], np.ones(2, np.bool_), step[3], infos

    envs = GymnasiumVectorAdapter(SameStep(answer, 1), 0)
    envs.reset(np.ones(2, np.bool_), np.ones(2, np.bool_))
    with pytest.raises(UserError, match=r"info\['final_info'\] of the vector environment is a ndarray"):
        envs.step(np.zeros(2, np.int64))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda reset: reset[0], r"reset does not return \(observation, info\)"),
        (lambda reset: (reset[0], None), "info is a NoneType"),
        (lambda reset: (reset[0][:1], {}), "its first dimension must be 2"),
        (exits, r"the vector environment called sys\.exit\(0\)"),
    ],
)
def test_an_invalid_first_reset_of_a_vector_environment_is_one_line(answer: Answer, message: str) -> None:
    envs = RestartingVectorEnv(lambda seed: GymnasiumVectorAdapter(VectorAnswering(answer, 0), seed), 0)
    with pytest.raises(UserError, match=message) as error:
        envs.reset(np.ones(2, np.bool_), np.ones(2, np.bool_))
    assert "\n" not in str(error.value)


def test_sys_exit_while_it_is_made_ends_no_process() -> None:
    with pytest.raises(RuntimeError, match=r"env_fn called sys\.exit\(0\)"):
        make_envs(lambda: exits(None), 1)
    with pytest.raises(RuntimeError, match=r"env_fn called sys\.exit\(0\)"):
        EnvFnConfig(env_fn=lambda: exits(None), horizon=3, vector_size=2).build(2, seed=0)


def test_close_closes_all_whatever_they_raise(capsys: pytest.CaptureFixture[str]) -> None:
    SerialVectorEnv([Answering(valid), Answering(valid)], 0).close()
    assert capsys.readouterr().err.splitlines() == [
        f"environment {row} could not be closed (UnreadableError)" for row in (0, 1)
    ]
    GymnasiumVectorAdapter(VectorAnswering(valid), 0).close()
    assert capsys.readouterr().err == "the vector environment could not be closed (UnreadableError)\n"


def test_an_unreadable_exception_has_a_message() -> None:
    fault = fault_from_exception(UnreadableError(), "environment 3")
    assert fault.message == "environment 3 raised UnreadableError" and "UnreadableError" in fault.traceback


@pytest.mark.parametrize(
    "reward",
    [
        np.array(2.0),
        np.array([2.0]),
        np.array([[2]]),
        [2.0],
        torch.tensor(2.0),
        torch.tensor(2.0, requires_grad=True),
        torch.full((1,), 2.0, requires_grad=True) * 1,
    ],
    ids=repr,
)
def test_a_reward_may_be_an_array_or_tensor_of_one_number(reward: Any) -> None:
    envs = SerialVectorEnv([Answering(valid), Answering(lambda step: (step[0], reward, *step[2:]), at_step=1)], 0)
    envs.reset(np.ones(2, np.bool_), np.ones(2, np.bool_))
    assert envs.step(np.zeros(2, np.int64)).reward.tolist() == [1.0, 2.0]


def test_an_observation_that_requires_gradients_is_named() -> None:
    envs = SerialVectorEnv([Answering(lambda step: (torch.zeros(1, requires_grad=True), *step[1:]), at_step=1)], 0)
    envs.reset(np.ones(1, np.bool_), np.ones(1, np.bool_))
    with pytest.raises(UserError, match=r"observation 'observation' is no array .* requires grad"):
        envs.step(np.zeros(1, np.int64))


def test_a_vector_environment_calls_only_infinity_infinity() -> None:
    def returns(value: float) -> GymnasiumVectorAdapter:
        answering = VectorAnswering(lambda step: (np.array([[0.5], [value]]), *step[1:]), at_step=1)
        envs = GymnasiumVectorAdapter(answering, 0)
        envs.reset(np.ones(2, np.bool_), np.ones(2, np.bool_))
        return envs

    (fault,) = returns(np.inf).step(np.zeros(2, np.int64)).faults
    assert "environment 1 returned infinity" in fault.message
    with pytest.raises(UserError, match=r"environment 1 at step 1 .* is 1e\+200 at \[0\] of Box"):
        returns(1e200).step(np.zeros(2, np.int64))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_is_found_in_floats_of_any_size(dtype: type[np.floating[Any]]) -> None:
    observation, reward = {"position": np.array([[0.0], [np.nan]], dtype)}, np.zeros(2, np.float32)
    assert nonfinite_rows(observation, reward).tolist() == [False, True]
    with pytest.raises(InvalidEnvOutputError, match="environment 1 returned NaN in observation 'position'"):
        validate_finite(observation, reward, np.zeros(2, np.int64))


def test_a_vector_environment_may_stack_successes_of_one_number() -> None:
    answering = VectorAnswering(lambda step: (*step[:4], {"success": np.array([[True], [False]])}), at_step=1)
    envs = GymnasiumVectorAdapter(answering, 0)
    envs.reset(np.ones(2, np.bool_), np.ones(2, np.bool_))
    success = envs.step(np.zeros(2, np.int64)).success
    assert success is not None and success.tolist() == [True, False]
