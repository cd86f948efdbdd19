"""The named sizes: networks of the paper's experiments, with spaces as theirs."""

from collections.abc import Mapping
from dataclasses import dataclass

import gymnasium
import numpy as np
from gymnasium import spaces

from yamame.environments.factory import EnvFnConfig
from yamame.model.agent import AgentConfig
from yamame.model.trajectory_encoders.gru import GRUConfig
from yamame.model.trajectory_encoders.transformer import TransformerConfig
from yamame.records.trajectory import Trajectory
from yamame.run.sizes import SIZES as NETWORKS
from yamame.run.sizes import NetworkSize


@dataclass(frozen=True, kw_only=True)
class BenchNetwork(NetworkSize):
    """A network (paper, appendix, table 3) and what it sees and does. 4 critics and 18 discounts throughout."""

    observation: int
    """Numbers in an observation."""
    actions: int
    """Discrete actions."""

    def agent(self, encoder: str) -> AgentConfig:
        """The network with a Transformer or, as wide and as deep, a GRU."""
        return self.apply_to(AgentConfig(trajectory_encoder=GRUConfig() if encoder == "gru" else TransformerConfig()))

    def task(self, length: int) -> EnvFnConfig:
        """A task with this size's spaces whose trials have `length` steps."""
        return EnvFnConfig(env_fn=lambda: _Noise(self.observation, self.actions), horizon=length)

    def random_trajectory(self, rng: np.random.Generator, length: int, horizon: int) -> Trajectory:
        """A trial of that task as it is stored: noise of the right form."""
        last = np.arange(length) == length - 1
        return Trajectory(
            reward=rng.normal(size=length).astype(np.float32),
            action=rng.integers(self.actions, size=length),
            terminated=np.zeros(length, np.bool_),
            truncated=last,
            episode_start=np.arange(length + 1) == 0,
            observation={"observation": rng.normal(size=(length + 1, self.observation)).astype(np.float32)},
            horizon=horizon,
        )


SIZES: Mapping[str, BenchNetwork] = {
    "popgym": BenchNetwork(observation=16, actions=8, **vars(NETWORKS["base"])),
    "delivery": BenchNetwork(
        observation=35,  # 3 of the road, 32 of the embedded instruction
        actions=8,
        timestep_hidden=(128, 128),
        timestep_width=128,
        d_model=128,
        d_ff=512,
        num_layers=3,
        num_heads=8,
    ),
    "tmaze": BenchNetwork(
        observation=2,
        actions=4,
        timestep_hidden=(128, 128),
        timestep_width=128,
        d_model=128,
        d_ff=512,
        num_layers=2,
        num_heads=8,
    ),
    "crafter": BenchNetwork(
        observation=273,  # 7 x 9 embedded textures of 4 numbers, 21 of the inventory
        actions=17,
        **vars(NETWORKS["large"]),
    ),
}


class _Noise(gymnasium.Env[np.ndarray, np.int64]):
    """Observations are noise, rewards zero, and nothing ever ends."""

    def __init__(self, observation: int, actions: int) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (observation,), np.float32)
        self.action_space = spaces.Discrete(actions)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        return self._observe(), 0.0, False, False, {}

    def _observe(self) -> np.ndarray:
        return self.np_random.standard_normal(self.observation_space.shape, np.float32)
