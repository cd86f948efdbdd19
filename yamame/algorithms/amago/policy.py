"""The agent as it acts: a frozen copy of what acting needs, with its memory."""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from yamame.algorithms.amago.agent import Agent
from yamame.data.actions import ACTION_MASK_KEY
from yamame.data.step import PolicyInput
from yamame.nets.blocks import freeze_for_inference
from yamame.nets.heads.actor import PolicyDistribution
from yamame.nets.ops import load_generator_state
from yamame.types import State


class Policy:
    """Acts for E environments at different times by one batched forward pass, on the device of the agent's weights.

    Made from an agent by `refresh`: weights are copied with sigma folded in, and of the actor only the acting
    discount's rows. Memory outlives a refresh: what was remembered under old weights is kept until its trial ends.
    """

    def __init__(self, agent: Agent, *, num_envs: int, generator: torch.Generator) -> None:
        self.num_envs = num_envs
        self.generator = generator
        self.device = agent.gammas_G.device
        self.horizon = torch.tensor([float(agent.horizon)], device=self.device)
        self.load_weights(agent, version=0)
        self.reset()

    def load_weights(self, agent: Agent, *, version: int) -> None:
        """Take over the agent's present weights."""
        self.version = version
        self.timestep_encoder = freeze_for_inference(agent.timestep_encoder)
        self.trajectory_encoder = freeze_for_inference(agent.trajectory_encoder)
        self.actor = freeze_for_inference(agent.actor.for_gamma(agent.acting_index))

    @property
    def extras(self) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """Nothing: off-policy learning needs actions alone."""
        return {}

    def reset(self) -> None:
        """Forget everything, in all environments."""
        self.memory = self.trajectory_encoder.initial_state(self.num_envs)

    def state_dict(self) -> State:
        """What it remembers and where its random stream is; weights are the agent's."""
        memory = None if self.memory is None else self.memory.state_dict()
        return {"memory": memory, "generator": self.generator.get_state()}

    @torch.inference_mode()
    def load_state_dict(self, state: State) -> None:
        """Go on where `state_dict` was taken."""
        self.reset()
        if state["memory"] is not None:
            self.memory.load_state_dict(state["memory"])
        load_generator_state(self.generator, state["generator"])

    @torch.inference_mode()
    def act(self, step: PolicyInput, *, deterministic: bool = False) -> Shaped[np.ndarray, "E ..."]:
        """Actions: integers `[E]` or `[E, C]`, or float32 `[E, A]` in [-1, 1].

        The mode of `distribution` if `deterministic`, else a sample.
        """
        policy = self.distribution(step)
        action: Tensor = policy.mode() if deterministic else policy.sample(self.generator)
        return action[:, 0].cpu().numpy()

    @torch.inference_mode()
    def distribution(self, step: PolicyInput) -> PolicyDistribution:
        """What it might do after one more timestep, which is remembered: for the acting discount alone."""
        mask = step.observation.get(ACTION_MASK_KEY)
        policy: PolicyDistribution = self.actor(self.state(step), None if mask is None else self._tensor(mask))
        return policy

    @torch.inference_mode()
    def state(self, step: PolicyInput) -> Tensor:
        """States `[E, D]` after one more timestep, which is remembered."""
        observation = {name: self._tensor(value) for name, value in step.observation.items()}
        features = self.timestep_encoder.features(
            observation=observation,
            previous_action=self._tensor(step.previous_action),
            previous_reward=self._tensor(step.previous_reward),
            episode_start=self._tensor(step.episode_start),
            time=self._tensor(step.time),
            horizon=self.horizon,
        )
        timestep_ED: Tensor = self.timestep_encoder(features, observation)
        state_ED: Tensor = self.trajectory_encoder.step(timestep_ED, step.time, self.memory)
        return state_ED

    def _tensor(self, value: Shaped[np.ndarray, "E ..."]) -> Shaped[Tensor, "E ..."]:
        return torch.from_numpy(value).to(self.device)
