"""Parts of Dict spaces are matched by name, whatever their order: in training, evaluation, resumed runs and acting."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from tiny import TINY_RUN

import yamame

pytestmark = pytest.mark.slow


class Arm(gymnasium.Env[Any, Any]):
    """Rewards depend on names alone. Observations and actions are nested."""

    order: tuple[str, ...] = ("joints", "a")
    joints: tuple[Any, Any] = ("turn", "grip")
    """Keys of the two joints, in the order in which the space declares them."""
    turn, grip = joints
    sides: tuple[Any, Any] = ("near", "far")

    def __init__(self) -> None:
        joints = spaces.Dict([(key, spaces.Discrete(3)) for key in self.joints])
        parts = {"joints": spaces.Tuple([joints, spaces.Discrete(2)]), "a": spaces.Discrete(4)}
        self.action_space = spaces.Dict([(name, parts[name]) for name in self.order])
        sides = [(key, spaces.Box(0, 1, (1 + (key == min(self.sides)),))) for key in self.sides]
        self.observation_space = spaces.Dict(
            [("seen", spaces.Tuple([spaces.Dict(sides)])), ("bit", spaces.Discrete(2))]
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.time += 1
        joints, last = action["joints"]
        assert [type(key) for key in joints] == [type(self.turn)] * 2
        reward = (joints[self.turn] == 2) + 2.0 * (joints[self.grip] == 0) + 4.0 * last + 8.0 * (action["a"] == 3)
        return self.observe(), float(reward), self.time == 4, False, {}

    def observe(self) -> dict[str, Any]:
        seen = {key: self.np_random.random(1 + (key == min(self.sides))) for key in sorted(self.sides)}
        return {"bit": int(self.np_random.integers(2)), "seen": (seen,)}


class Same(Arm):
    """The same spaces in another order."""

    order = ("a", "joints")
    joints = ("grip", "turn")
    sides = ("far", "near")


class Numbered(Arm):
    """Keys of integers, in no order."""

    joints = turn, grip = 7, 3
    sides = (10, 2)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> yamame.Run:
    return train(Arm, tmp_path_factory.mktemp("arm") / "run")


def train(env: Any, run_dir: Path) -> yamame.Run:
    settings = {**TINY_RUN, "learning_starts": 16}
    return yamame.train(env, horizon=4, env_steps=64, seed=0, run_dir=run_dir, env={"num_workers": 0}, **settings)


def test_the_spaces_are_equal_and_in_another_order() -> None:
    one, other = Arm(), Same()
    assert one.action_space == other.action_space and one.observation_space == other.observation_space
    assert list(one.action_space.spaces) != list(other.action_space.spaces)


def test_training_does_not_depend_on_the_order(run: yamame.Run, tmp_path: Path) -> None:
    again = train(Same, tmp_path / "run")
    for key in ("return_mean", "return_ci95", "random_baseline"):
        assert again.result[key] == run.result[key]


def test_evaluation_and_acting_do_not_depend_on_it(run: yamame.Run) -> None:
    assert run.evaluate(16, env_fn=Same) == run.evaluate(16, env_fn=Arm)
    policy, actions = run.load(), []
    for make in (Arm, Same):
        env = make()
        policy.reset()
        observation, _ = env.reset(seed=3)
        for _ in range(4):
            action = policy.act(observation, deterministic=True)
            actions.append(action)
            observation, *_ = env.step(action)
    assert actions[:4] == actions[4:]


def test_resumed_runs_do_not_depend_on_it(run: yamame.Run, tmp_path: Path) -> None:
    results = []
    for env in (Arm, Same):
        directory = tmp_path / env.__name__
        shutil.copytree(run.directory, directory)
        resumed = yamame.resume(directory, env_fn=env, env_steps=128)
        results.append((resumed.result["return_mean"], resumed.evaluate(16, env_fn=Arm)["return_mean"]))
    assert results[0] == results[1]


def test_keys_that_are_integers_stay_integers(tmp_path: Path) -> None:
    run = train(Numbered, tmp_path / "run")
    assert run.evaluate(8, env_fn=Numbered)["trials"] == 8
    policy, env = yamame.load(run.directory), Numbered()
    assert policy.action_space == env.action_space and policy.observation_space == env.observation_space
    observation, _ = env.reset(seed=0)
    action = policy.act(observation)
    assert env.action_space.contains(action) and set(action["joints"][0]) == {3, 7}
    assert yamame.resume(run.directory, env_fn=Numbered, env_steps=128).result["env_steps"] == 128


@pytest.mark.parametrize("key", [("arm", 0), 2.5, True, None])
def test_other_keys_are_refused_at_the_start(key: Any, tmp_path: Path) -> None:
    class Keyed(Arm):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Dict({key: spaces.Discrete(2)})

    with pytest.raises(
        yamame.UserError, match=r"a Dict space has the key .*: expected names \(str\) or numbers \(int\)"
    ):
        train(Keyed, tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Masked(gymnasium.Env[Any, Any]):
    """A flat mask has the entries of the parts in the order that the space declares."""

    observation_space = spaces.Box(0, 1, (1,))

    def __init__(self, names: tuple[str, ...] = ("turn", "grip")) -> None:
        sizes = {"turn": 3, "grip": 2}
        self.action_space = spaces.Dict([(name, spaces.Discrete(sizes[name])) for name in names])
        masks = {"turn": [0, 0, 1], "grip": [1, 0]}
        self.info = {"action_mask": np.concatenate([masks[name] for name in names])}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.zeros(1, np.float32), self.info

    def step(self, action: Any) -> Any:
        assert action["turn"] == 2 and action["grip"] == 0
        return np.zeros(1, np.float32), 1.0, True, False, self.info


@pytest.mark.parametrize("make", [Masked, lambda: Masked(("grip", "turn"))])
def test_flat_masks_follow_the_space_of_their_environment(make: Callable[[], Any]) -> None:
    yamame.check_env(make, horizon=1)  # raises if a forbidden action is taken
