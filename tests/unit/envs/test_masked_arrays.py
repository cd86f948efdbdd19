"""Masked entries of NumPy's masked arrays are no numbers: each is refused in one line."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from yamame.data.observations import ObservationParser, OutOfSpaceError
from yamame.envs.vector.gymnasium_adapter import GymnasiumVectorAdapter
from yamame.envs.vector.serial import SerialVectorEnv
from yamame.errors import UserError

EVERY = np.ones(2, np.bool_)
HIDDEN = np.ma.array([1.0, 5.0], mask=[False, True])
SHOWN = np.ma.array([1.0, 5.0], mask=[False, False])


class Returns(gymnasium.Env[Any, Any]):
    """Returns what it is made with, in every step."""

    observation_space = spaces.Dict(a=spaces.Box(-9.0, 9.0, (2,), np.float32))
    action_space = spaces.Discrete(2)

    def __init__(self, observation: Any = SHOWN, reward: Any = 1.0, mask: Any = (1, 1), ends: Any = False) -> None:
        self.observation, self.reward, self.mask, self.ends = observation, reward, mask, ends

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return {"a": np.zeros(2, np.float32)}, {"action_mask": np.ones(2)}

    def step(self, action: Any) -> Any:
        return {"a": self.observation}, self.reward, self.ends, False, {"action_mask": self.mask}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"observation": HIDDEN},
            r"environment 1 at step 1 of its episode: observation 'a' has masked entries \(numpy.ma\).*fill them",
        ),
        ({"reward": np.ma.masked}, r"a reward is masked \(numpy.ma\)"),
        ({"reward": np.ma.array([2.0], mask=[True])}, "a reward is masked"),
        ({"ends": np.ma.masked}, "terminated is masked"),
        ({"mask": np.ma.array([1, 0], mask=[False, True])}, r"an action mask has masked entries.*filled\(0\)"),
    ],
)
def test_a_masked_entry_ends_the_run(settings: dict[str, Any], message: str) -> None:
    envs = SerialVectorEnv([Returns(), Returns(**settings)], 0, env_fn=Returns)
    envs.reset(EVERY, EVERY)
    with pytest.raises(UserError, match=message) as error:
        envs.step(np.zeros(2, np.int64))
    assert "\n" not in str(error.value)


def test_masked_arrays_without_masked_entries_are_arrays() -> None:
    reward = np.ma.array([2.0], mask=[False])
    envs = SerialVectorEnv([Returns(), Returns(reward=reward, mask=np.ma.array([1, 0]))], 0)
    envs.reset(EVERY, EVERY)
    step = envs.step(np.zeros(2, np.int64))
    assert step.reward.tolist() == [1.0, 2.0] and step.observation["a"].tolist() == [[1.0, 5.0]] * 2


def test_batches_have_no_masked_entries_in_rows_that_count() -> None:
    parser = ObservationParser(spaces.Box(-9.0, 9.0, (2,), np.float32))
    batch = np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[False, False], [True, False]])
    with pytest.raises(OutOfSpaceError, match="masked entries"):
        parser.split(batch)
    first = parser.split(batch, np.array([True, False]))["observation"]
    assert first[0].tolist() == [1.0, 2.0]


class Batch(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """A vector environment with one masked reward."""

    metadata: ClassVar = {"autoreset_mode": gymnasium.vector.AutoresetMode.DISABLED}
    num_envs = 2
    single_observation_space = spaces.Box(-9.0, 9.0, (2,), np.float32)
    single_action_space = spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.zeros((2, 2), np.float32), {}

    def step(self, actions: Any) -> Any:
        never = np.zeros(2, np.bool_)
        return np.zeros((2, 2), np.float32), np.ma.array([1.0, 2.0], mask=[False, True]), never, never, {}


def test_a_vector_environment_returns_no_masked_reward() -> None:
    envs = GymnasiumVectorAdapter(Batch(), 0)
    envs.reset(EVERY, EVERY)
    with pytest.raises(UserError, match="a reward is masked"):
        envs.step(np.zeros(2, np.int64))
