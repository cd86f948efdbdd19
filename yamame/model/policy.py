"""The agent as it acts: a frozen copy of what acting needs, with its memory."""

import copy

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from yamame.model.agent import Agent
from yamame.model.blocks.sigma_linear import fold_weights
from yamame.records.step import PolicyInput


class Policy:
    """Acts for E environments at different times by one batched forward pass.

    Made from an agent by `refresh`: weights are copied with sigma folded in, and of the actor only the acting
    discount's rows. Memory outlives a refresh: what was remembered under old weights is kept until its trial ends.
    """

    def __init__(self, agent: Agent, *, num_envs: int, generator: torch.Generator) -> None:
        self.num_envs = num_envs
        self.generator = generator
        self.horizon = agent.horizon
        self.refresh(agent, version=0)
        self.reset()

    def refresh(self, agent: Agent, *, version: int) -> None:
        """Take over the agent's present weights."""
        self.version = version
        self.timestep_encoder = copy.deepcopy(agent.timestep_encoder).eval().requires_grad_(False)
        self.trajectory_encoder = copy.deepcopy(agent.trajectory_encoder).eval().requires_grad_(False)
        fold_weights(self.trajectory_encoder)
        self.actor = agent.actor.only(agent.acting).eval().requires_grad_(False)

    def reset(self) -> None:
        """Forget everything, in all environments."""
        self.memory = self.trajectory_encoder.initial_state(self.num_envs)  # type: ignore[operator]

    @torch.inference_mode()
    def act(self, step: PolicyInput, *, deterministic: bool = False) -> Shaped[np.ndarray, "E ..."]:
        """Actions: integers `[E]` or float32 `[E, A]` in [-1, 1]; the mode if `deterministic`, else a sample."""
        policy = self.actor(self.state(step))
        action: Tensor = policy.mode() if deterministic else policy.sample(self.generator)
        return action[:, 0].numpy()

    @torch.inference_mode()
    def state(self, step: PolicyInput) -> Tensor:
        """States `[E, D]` after one more timestep, which is remembered."""
        time = torch.from_numpy(step.time)
        features = self.timestep_encoder.features(
            observation={name: torch.from_numpy(value) for name, value in step.observation.items()},
            previous_action=torch.from_numpy(step.previous_action),
            previous_reward=torch.from_numpy(step.previous_reward),
            episode_start=torch.from_numpy(step.episode_start),
            time=time,
            horizon=torch.tensor([float(self.horizon)]),
        )
        return self.trajectory_encoder.step(self.timestep_encoder(features), time, self.memory)  # type: ignore[operator]
