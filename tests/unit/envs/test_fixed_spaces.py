"""Spaces that change after an environment was made end the run in one line that names both."""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from yamame.envs.vector.fixed_spaces import FixedSpaces
from yamame.envs.vector.gymnasium_adapter import GymnasiumVectorAdapter
from yamame.envs.vector.serial import SerialVectorEnv
from yamame.errors import UserError

EVERY = np.ones(2, np.bool_)


class Still(gymnasium.Env[Any, Any]):
    """Episodes of two steps."""

    observation_space: Any = spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(0.0, 1.0, (1,)))
    action_space: Any = spaces.Discrete(2)

    def __init__(self) -> None:
        self.episode = 0
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episode, self.time = self.episode + 1, 0
        self.change()
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return self.observe(), 0.0, False, self.time == 2, {}

    def observe(self) -> Any:
        return {"a": 0, "b": np.zeros(1, np.float32)}

    def change(self) -> None:
        pass


class Assigns(Still):
    def change(self) -> None:
        self.action_space = spaces.Discrete(1 + self.episode)


class Sets(Still):
    def change(self) -> None:
        self.action_space.n = 1 + self.episode


class Computes(Still):
    @property
    def action_space(self) -> Any:  # type: ignore[override]
        return spaces.Discrete(max(2, 1 + self.episode))

    @action_space.setter
    def action_space(self, space: Any) -> None:
        pass


class InSteps(Still):
    def step(self, action: Any) -> Any:
        self.action_space = spaces.Discrete(3)
        return super().step(action)

    def change(self) -> None:
        self.action_space = spaces.Discrete(2)


class Observes(Still):
    def change(self) -> None:
        low = spaces.Box(0.0, 1.0, (self.episode,))
        self.observation_space = spaces.Dict(a=spaces.Discrete(2), b=low)


class Alike(Still):
    @property
    def observation_space(self) -> Any:  # type: ignore[override]
        return spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(0.0, 1.0, (1,)))


CHANGES = {
    Assigns: "changed its action_space from Discrete(2) to Discrete(3) after it was made: declare one space for all",
    Sets: "changed its action_space from Discrete(2) to Discrete(3)",
    Computes: "changed its action_space from Discrete(2) to Discrete(3)",
    InSteps: "changed its action_space from Discrete(2) to Discrete(3)",
    Observes: "changed its observation_space from Dict('a': Discrete(2), 'b': Box(0.0, 1.0, (1,), float32)) to",
}


def build(kind: str, make: Any) -> Any:
    if kind == "serial":
        return SerialVectorEnv([Still(), make()], 0, env_fn=make)
    return GymnasiumVectorAdapter(SyncVectorEnv([Still, make], autoreset_mode=AutoresetMode[kind]), 0)


def play(envs: Any, steps: int) -> None:
    envs.reset(EVERY, EVERY)
    for _ in range(steps):
        step = envs.step(np.zeros(2, np.int64))
        ended = step.terminated | step.truncated
        if ended.any():
            envs.reset(ended, ended)


@pytest.mark.parametrize("kind", ["serial", "DISABLED", "NEXT_STEP"])
@pytest.mark.parametrize("changes", CHANGES)
def test_a_change_is_named(kind: str, changes: Any) -> None:
    with pytest.raises(UserError) as error:
        play(build(kind, changes), 8)
    assert str(error.value).startswith(f"environment 1 {CHANGES[changes]}") and "\n" not in str(error.value)


@pytest.mark.parametrize("changes", [Assigns, Sets, Computes])
def test_a_change_in_another_process_is_named(changes: Any) -> None:
    envs = GymnasiumVectorAdapter(AsyncVectorEnv([Still, changes], autoreset_mode=AutoresetMode.DISABLED), 0)
    try:
        with pytest.raises(UserError) as error:
            play(envs, 8)
    finally:
        envs.close()
    assert str(error.value).startswith("environment 1 changed its action_space from Discrete(2) to Discrete(")


@pytest.mark.parametrize("kind", ["serial", "DISABLED", "NEXT_STEP", "SAME_STEP"])
@pytest.mark.parametrize("same", [Still, Alike])
def test_equal_spaces_are_the_same(kind: str, same: Any) -> None:
    play(build(kind, same), 8)


def test_equal_spaces_in_other_processes_are_the_same() -> None:
    envs = GymnasiumVectorAdapter(AsyncVectorEnv([Still, Alike], autoreset_mode=AutoresetMode.DISABLED), 0)
    play(envs, 8)
    envs.close()


def test_a_vector_environment_may_not_change_its_own_either() -> None:
    sync = SyncVectorEnv([Still, Still], autoreset_mode=AutoresetMode.DISABLED)
    envs = GymnasiumVectorAdapter(sync, 0)
    play(envs, 4)
    sync.single_action_space = spaces.Discrete(5)
    with pytest.raises(UserError, match=r"the vector environment changed its action_space from Discrete\(2\) to"):
        play(envs, 4)


def test_the_same_objects_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    env = Still()
    fixed_spaces = FixedSpaces(env, "environment 0")
    monkeypatch.setattr(spaces.Dict, "__eq__", partial(pytest.fail, "compared"))
    fixed_spaces.check()
