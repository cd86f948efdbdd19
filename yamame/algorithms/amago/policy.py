"""`AMAGOPolicy`: a frozen copy of the agent's acting networks, with a memory."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.amago.losses.td import ACTING_LOG_PROB
from yamame.data.actions import ACTION_MASK_KEY
from yamame.data.step import PolicyInput
from yamame.nets.blocks import freeze_for_inference
from yamame.nets.heads.actor import PolicyDistribution
from yamame.nets.ops import load_generator_state
from yamame.types import State


class HostToDevice:
    """Copies arrays to a GPU by one transfer from pinned memory. On a CPU, tensors share memory with the arrays.

    The host must have waited for the device between two calls, which share the pinned memory.
    """

    ALIGNMENT = 16
    """Of each array in the buffer, in bytes; at least the size of every dtype."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._packs = device.type == "cuda"
        self._buffer = torch.empty(0, dtype=torch.uint8)

    def __call__(self, arrays: Mapping[str, Shaped[np.ndarray, "..."]]) -> dict[str, Shaped[Tensor, "..."]]:
        """Return tensors on the device by the same names."""
        if not self._packs:
            return {name: torch.from_numpy(array).to(self._device) for name, array in arrays.items()}
        sizes = [-(-array.nbytes // self.ALIGNMENT) * self.ALIGNMENT for array in arrays.values()]
        if sum(sizes) > len(self._buffer):
            self._buffer = torch.empty(sum(sizes), dtype=torch.uint8, pin_memory=self._device.type == "cuda")
        host = self._buffer.numpy()
        starts = [sum(sizes[:index]) for index in range(len(sizes))]
        for start, array in zip(starts, arrays.values(), strict=True):
            host[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        there = self._buffer[: sum(sizes)].to(self._device, non_blocking=True, copy=True)
        return {
            name: there[start : start + array.nbytes].view(torch.from_numpy(array[:0]).dtype).view(array.shape)
            for start, (name, array) in zip(starts, arrays.items(), strict=True)
        }


def acting_networks(agent: Agent, *, clips: bool, fast: bool = True) -> tuple[Any, Any, Any]:
    """Return copies of timestep encoder, trajectory encoder and the actor of the acting gamma, for inference.

    Args:
        agent: Networks.
        clips: As in `AMAGOPolicy`.
        fast: As in `freeze_for_inference`.
    """
    timestep_encoder = freeze_for_inference(agent.acting_module("timestep_encoder"), fast=fast)
    trajectory_encoder = freeze_for_inference(agent.acting_module("trajectory_encoder"), fast=fast)
    actor = freeze_for_inference(agent.acting_module("actor").for_gamma(agent.acting_index), fast=fast)
    if not clips:
        actor.clip = (0.0, 1.0)
    return timestep_encoder, trajectory_encoder, actor


class AMAGOPolicy:
    """Acts in E environments at different timesteps by one batched forward pass, on the device of the agent.

    `load_weights` copies the encoders, with sigma reparametrization folded into the weights, and the actor of the
    acting gamma. Memory is kept: timesteps encoded with old weights remain in it until their trial ends.

    Args:
        agent: Networks.
        num_envs: E.
        generator: Samples the actions; on the device of the agent.
        records_log_prob: Return the log-probabilities of executed actions as extras.
        clips: Clip the probabilities of discrete actions, see `ActorConfig.probability_clip`.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        num_envs: int,
        generator: torch.Generator,
        records_log_prob: bool = False,
        clips: bool = True,
    ) -> None:
        self.num_envs = num_envs
        self.generator = generator
        self._records_log_prob = records_log_prob
        self._clips = clips
        self._last: tuple[PolicyDistribution, bool] | None = None
        self.device = agent.gammas_G.device
        self._to_device = HostToDevice(self.device)
        self.horizon = torch.tensor([float(agent.horizon)], device=self.device)
        self.load_weights(agent, version=0)
        self.reset()

    def load_weights(self, agent: Agent, *, version: int) -> None:
        """Copy the present weights of an agent. `version` is its number of updates."""
        self.version = version
        self.timestep_encoder, self.trajectory_encoder, self.actor = acting_networks(agent, clips=self._clips)

    @torch.inference_mode()
    def extras(
        self,
        action: Shaped[np.ndarray, "E ..."],
        epsilon_E: Float[np.ndarray, "E"],
        repeated_E: Bool[np.ndarray, "E"],
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """Return the log-probabilities of the executed actions, if they are recorded."""
        if not self._records_log_prob or self._last is None:
            return {}
        policy, deterministic = self._last
        there = self._to_device({"action": action, "epsilon": epsilon_E.astype(np.float32)})
        log_prob_E1 = policy.acting_log_prob(there["action"], there["epsilon"], deterministic=deterministic)
        log_prob_E = log_prob_E1[:, 0].cpu().numpy()
        if np.issubdtype(action.dtype, np.integer):
            log_prob_E[repeated_E] = 0.0
        return {ACTING_LOG_PROB: log_prob_E}

    def reset(self) -> None:
        """Clear the memory of all environments."""
        self.memory = self.trajectory_encoder.initial_state(self.num_envs)

    def state_dict(self) -> State:
        """Return memory and random state; the weights belong to the agent."""
        memory = None if self.memory is None else self.memory.state_dict()
        return {"memory": memory, "generator": self.generator.get_state()}

    @torch.inference_mode()
    def load_state_dict(self, state: State) -> None:
        """Restore the result of `state_dict`."""
        self.reset()
        if state["memory"] is not None:
            self.memory.load_state_dict(state["memory"])
        load_generator_state(self.generator, state["generator"])

    @torch.inference_mode()
    def act(self, step: PolicyInput, *, deterministic: bool = False) -> Shaped[np.ndarray, "E ..."]:
        """Return actions: integers `[E]` or `[E, C]`, or float32 `[E, A]` in [-1, 1].

        They are the mode of `distribution` if `deterministic`, else a sample.
        """
        policy = self.distribution(step)
        self._last = policy, deterministic
        action: Tensor = policy.mode() if deterministic else policy.sample(self.generator)
        return action[:, 0].cpu().numpy()

    @torch.inference_mode()
    def distribution(self, step: PolicyInput) -> PolicyDistribution:
        """Add a timestep to the memory; return the action distribution of the acting gamma."""
        state_ED, observation = self._advance(step)
        policy: PolicyDistribution = self.actor(state_ED, observation.get(ACTION_MASK_KEY))
        return policy

    @torch.inference_mode()
    def state(self, step: PolicyInput) -> Tensor:
        """Add a timestep to the memory; return the states `[E, D]`."""
        return self._advance(step)[0]

    def _advance(self, step: PolicyInput) -> tuple[Float[Tensor, "E D"], Mapping[str, Shaped[Tensor, "E ..."]]]:
        """Add a timestep to the memory; return the states, and the observation on the device."""
        there = self._to_device(
            {
                "previous_action": step.previous_action,
                "previous_reward": step.previous_reward,
                "episode_start": step.episode_start,
                "time": step.time,
                **{f"observation/{name}": value for name, value in step.observation.items()},
            }
        )
        observation = {name: there.pop(f"observation/{name}") for name in step.observation}
        features = self.timestep_encoder.features(observation=observation, horizon=self.horizon, **there)
        timestep_ED: Tensor = self.timestep_encoder(features, observation)
        state_ED: Tensor = self.trajectory_encoder.step(timestep_ED, step.time, self.memory)
        return state_ED, observation
