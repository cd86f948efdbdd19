"""Agents of PettingZoo's parallel environments: rows of one policy, each with a memory and a trajectory of its own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("pettingzoo")
from pettingzoo import AECEnv
from shared_environments import AGENTS, LENGTHS, Secrets, SecretsOnly

import yamame
from yamame.collect.collector import Collector, RandomPolicy
from yamame.collect.exploration import Explorer, NoExploration
from yamame.collect.faults import FaultToleranceConfig
from yamame.data.trajectory import Trajectory
from yamame.envs.env_fn import EnvFnConfig, env_config
from yamame.errors import UserError
from yamame.training.evaluate import EvalResult, evaluate_policy


def collected(make: Any, horizon: int, vector_size: int, steps: int) -> list[tuple[int, Trajectory]]:
    envs = EnvFnConfig(env_fn=make, horizon=horizon, vector_size=vector_size).build(vector_size, seed=0)
    explorer = Explorer(NoExploration(), envs.action_space, envs.num_envs, np.random.default_rng(0))
    collector = Collector(envs, "", explorer, FaultToleranceConfig(max_restarts=0))
    policy = RandomPolicy(envs.action_space, np.random.default_rng(1))
    trials = [trial for _ in range(steps) for trial in collector.step(policy, deterministic=False)]
    collector.close()
    return trials


def seen(trial: Trajectory) -> np.ndarray:
    return trial.read_observation("observation", 0, len(trial) + 1)


@pytest.mark.parametrize("horizon", [10, 3])
@pytest.mark.parametrize("with_absences", [False, True])
def test_each_agent_has_trajectories_of_its_own(horizon: int, with_absences: bool) -> None:
    trials = collected(lambda: Secrets(with_absences), horizon, vector_size=6, steps=40)
    episodes: dict[int, list[Any]] = {}
    for row, trial in trials:
        agent, observations = AGENTS[row % 3], seen(trial)
        length = min(LENGTHS[agent], horizon)
        assert len(trial) == length
        assert (observations[:, 2] == row % 3).all()
        np.testing.assert_array_equal(observations[:, 3], np.arange(length + 1) / 4)
        assert len(set(observations[:, 4])) == 1, "a trial of two episodes"
        assert (trial.terminated[-1], trial.truncated[-1]) == (length == LENGTHS[agent], length == horizon)
        right = trial.action[-1] == observations[0, 0]
        assert trial.reward.tolist() == [0.0] * (length - 1) + [float(right and trial.terminated[-1])]
        episodes.setdefault(row, []).append(int(observations[0, 4]))
    steps_per_episode = min(4, horizon)
    for row, numbers in episodes.items():
        every = 2 if with_absences and AGENTS[row % 3] == "b" else 1
        assert numbers == list(range(1, 1 + every * len(numbers), every)), "an episode was left out"
        assert len(numbers) >= 40 // steps_per_episode // every - 1


class OneArrayOfAllCopies(Secrets):
    """All copies show an agent the same array."""

    arrays = {agent: np.zeros(5, np.float32) for agent in AGENTS}  # noqa: RUF012
    shared = True

    def _look(self, agent: str) -> np.ndarray:
        shown = super()._look(agent)
        shown[:2] = self.bits[agent]  # at all steps
        if not self.shared:
            return shown
        self.arrays[agent][:] = shown
        return self.arrays[agent]


def test_copies_may_return_one_array_together() -> None:
    class Apart(OneArrayOfAllCopies):
        shared = False

    runs = [collected(make, 10, vector_size=6, steps=20) for make in (Apart, OneArrayOfAllCopies)]
    assert [row for row, _ in runs[0]] == [row for row, _ in runs[1]]
    for (_, trial), (_, other) in zip(*runs, strict=True):
        np.testing.assert_array_equal(seen(trial), seen(other))


def test_a_success_that_is_neither_true_nor_false_is_refused() -> None:
    class HalfSuccess(Secrets):
        def step(self, actions: dict[str, Any]) -> Any:
            *parts, infos = super().step(actions)
            return *parts, {agent: {"success": 0.5} for agent in infos}

    with pytest.raises(UserError, match=r"info\['success'\] is .*, expected True or False"):
        collected(HalfSuccess, 10, vector_size=3, steps=4)


@pytest.mark.slow
def test_a_game_of_the_package_trains_and_acts(tmp_path: Path) -> None:
    game = make_game()
    env = env_config(make_game, horizon=10, attempts=1)
    assert isinstance(env, EnvFnConfig) and env.vector_size == 24
    run = yamame.train(make_game, horizon=10, run_dir=tmp_path / "run", env_steps=300, size="tiny", eval=SMALL_EVAL)
    assert run.result["env_steps"] >= 300
    policy = yamame.load(run.directory, num_envs=2)
    observations, _ = game.reset(seed=0)
    actions = policy.act(np.stack([observations[agent] for agent in game.agents]))
    game.step(dict(zip(game.agents, actions, strict=True)))


@pytest.mark.slow
def test_a_shared_policy_remembers_for_each_agent(tmp_path: Path) -> None:
    run = yamame.train(SecretsOnly, horizon=4, run_dir=tmp_path / "run", env_steps=6_000, size="tiny", **SETTINGS)
    assert run.result["success_rate"] >= 0.9 > 0.5
    assert run.config.num_envs == 24


SMALL_EVAL = {"trials": 4, "final_trials": 4, "interval_env_steps": 0}
SETTINGS: dict[str, Any] = {
    "seed": 0,
    "updates_per_env_step": 0.1,
    "learner.learning_rate": 2e-3,
    "compute": {"device": "cpu"},
    "eval": {"interval_env_steps": 1_000, "trials": 48, "final_trials": 96, "stop_return": 0.95},
}


def make_game() -> Any:
    """Rock, paper, scissors: needs pygame, which Gymnasium installs for Box2D."""
    return pytest.importorskip("pettingzoo.classic.rps_v2").parallel_env(max_cycles=10)


class TurnBased(AECEnv):
    pass


class OtherSpaces(Secrets):
    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(3 if agent == "c" else 2)


class Vanishing(Secrets):
    def step(self, actions: dict[str, Any]) -> Any:
        observations, rewards, _, truncated, infos = super().step(actions)
        return observations, rewards, dict.fromkeys(observations, False), truncated, infos


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (TurnBased, {}, "agents take turns: pass its parallel_env"),
        (OtherSpaces, {}, "agents 'a' and 'c' have different spaces"),
        (Vanishing, {}, "agent 'a' left without being terminated or truncated"),
        (Secrets, {"attempts": 2}, "cannot repeat a task: use attempts=1"),
        (Secrets, {"horizon": None, "attempts": None}, "pass horizon="),
    ],
)
def test_what_cannot_be_shared_is_refused(make: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        yamame.check_env(make, **{"horizon": 10, **settings})
    assert "\n" not in str(caught.value)


class NeverThere(Secrets):
    possible_agents = [*AGENTS, "never there"]  # noqa: RUF012


def evaluated(make: Any, rows: int) -> EvalResult:
    envs = EnvFnConfig(env_fn=make, horizon=10, vector_size=rows).build(rows, seed=0)
    policy = RandomPolicy(envs.action_space, np.random.default_rng(0))
    return evaluate_policy(policy, envs, trials=2 * rows, deterministic=False)


def test_an_evaluation_does_not_wait_for_an_agent_that_never_takes_part() -> None:
    assert evaluated(lambda: Secrets(with_absences=True), 6).trials == 12
    with pytest.raises(
        UserError, match=r"^row 3 of 4 \(from 0\) ended no trial in 10,000 steps .*possible_agents"
    ) as caught:
        evaluated(NeverThere, 4)
    assert "\n" not in str(caught.value)


def test_rows_are_a_multiple_of_the_agents() -> None:
    with pytest.raises(UserError, match="7 rows are no multiple of 3 agents"):
        EnvFnConfig(env_fn=Secrets, horizon=4, vector_size=7).build(7, seed=0)
