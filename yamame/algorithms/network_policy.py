"""`NetworkPolicy`: a frozen copy of the agent's acting networks, with a memory."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor
from typing_extensions import override

from yamame.algorithms.acting_model import ActingModel
from yamame.algorithms.base import model_device
from yamame.algorithms.functional_policy import OBSERVATION, without_prefix
from yamame.data.action_distribution import PolicyParameters, SupportsDistribution
from yamame.data.actions import ACTION_MASK_KEY
from yamame.data.batch import ACTING_LOG_PROB
from yamame.data.step import PolicyInput
from yamame.errors import UserError
from yamame.nets.blocks import freeze_for_inference
from yamame.nets.heads.actor import NO_CLIP, PolicyDistribution, distribution_tensors, with_tensors
from yamame.nets.heads.tanh_gaussian import TanhGaussianPolicy
from yamame.nets.ops import load_generator_state
from yamame.nets.sequence.base import SupportsStaticStep
from yamame.nets.static_step import StaticStep
from yamame.nets.torch_defaults import with_torch_defaults
from yamame.types import State

STATIC_DEVICES = ("cuda",)
"""Types of devices on which each step is a `StaticStep`: there, launching kernels takes longer than running them."""


def acting_networks(
    agent: ActingModel, *, clips: bool, gamma_index: int, fast: bool = True, averaged: bool = True
) -> tuple[Any, Any, Any]:
    """Return copies of timestep encoder, trajectory encoder and the actor of one gamma, for inference.

    Args:
        agent: Networks.
        clips: As in `NetworkPolicy`.
        gamma_index: As in `NetworkPolicy`.
        fast: As in `freeze_for_inference`.
        averaged: As in `NetworkPolicy`.
    """
    timestep_encoder, trajectory_encoder = (
        freeze_for_inference(agent.acting_module(name) if averaged else getattr(agent, name), fast=fast)
        for name in ("timestep_encoder", "trajectory_encoder")
    )
    actor = freeze_for_inference(agent.actor_of_gamma(gamma_index, averaged=averaged), fast=fast)
    if not clips:
        actor.clip = NO_CLIP
    return timestep_encoder, trajectory_encoder, actor


class NetworkPolicy(SupportsDistribution):
    """Acts in E environments at different timesteps by one batched forward pass, on the device of the agent.

    `load_weights` copies the encoders, with sigma reparametrization folded into the weights, and the actor of one
    gamma. Memory is kept: timesteps encoded with old weights remain in it until their trial ends.

    Args:
        agent: Networks.
        num_envs: E.
        generator: Samples the actions; on the device of the agent.
        records_log_prob: Return the log-probabilities of executed actions as extras.
        clips: Clip the probabilities of discrete actions, see `ActorConfig.probability_clip`.
        gamma_index: Index of the gamma whose policy acts; -1: the acting gamma.
        cuda_graph: On a GPU, replay the step as a CUDA graph. The random numbers are the same as without.
        averaged: Act with the moving averages of the weights, if the agent has them.
        mode_only: Act with the mode, whatever `act` asks for.
        action_noise: Standard deviation of the normal noise that samples of continuous actions get.
    """

    explores_E: Bool[np.ndarray, "E"] | None = None

    @with_torch_defaults
    def __init__(
        self,
        agent: ActingModel,
        *,
        num_envs: int,
        generator: torch.Generator,
        records_log_prob: bool = False,
        clips: bool = True,
        gamma_index: int = -1,
        cuda_graph: bool = False,
        averaged: bool = True,
        mode_only: bool = False,
        action_noise: float = 0.0,
    ) -> None:
        self.num_envs = num_envs
        self.generator = generator
        self.version = 0
        self._records_log_prob = records_log_prob
        self._clips = clips
        self._gamma_index = gamma_index
        self._cuda_graph = cuda_graph
        self._averaged = averaged
        self._mode_only = mode_only
        self._action_noise = action_noise
        self._last: tuple[PolicyDistribution, bool] | None = None
        self.device = model_device(agent)
        self.horizon = torch.tensor([float(agent.horizon)], device=self.device)
        self.timestep_encoder, self.trajectory_encoder, self.actor = acting_networks(
            agent, clips=clips, gamma_index=gamma_index, averaged=averaged
        )
        self.reset()

    @with_torch_defaults
    def load_weights(self, agent: ActingModel, *, version: int) -> None:
        """Copy the present weights of an agent. `version` is its number of updates."""
        self.version = version
        networks = acting_networks(agent, clips=self._clips, gamma_index=self._gamma_index, averaged=self._averaged)
        if not self._static_steps:
            self.timestep_encoder, self.trajectory_encoder, self.actor = networks
            return
        # in place, since a captured step reads the weights where they were
        for own, new in zip((self.timestep_encoder, self.trajectory_encoder, self.actor), networks, strict=True):
            torch._foreach_copy_([*own.parameters(), *own.buffers()], [*new.parameters(), *new.buffers()])

    @with_torch_defaults
    @torch.inference_mode()
    def extras(
        self,
        action: Shaped[np.ndarray, "E ..."],
        epsilon_E: Float[np.ndarray, "E"],
        repeated_E: Bool[np.ndarray, "E"],
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """Return the log-probabilities of the executed actions, if they are recorded. Computed on the host."""
        if not self._records_log_prob or self._last is None:
            return {}
        policy, deterministic = self._last
        epsilon = torch.from_numpy(epsilon_E.astype(np.float32))
        log_prob_E1 = policy.acting_log_prob(torch.from_numpy(action), epsilon, deterministic=deterministic)
        log_prob_E = log_prob_E1[:, 0].numpy()
        if np.issubdtype(action.dtype, np.integer):
            log_prob_E[repeated_E] = 0.0
        return {ACTING_LOG_PROB: log_prob_E}

    @with_torch_defaults
    def reset(self) -> None:
        """Clear the memory of all environments."""
        self.memory = self.trajectory_encoder.initial_state(self.num_envs)
        self._static_steps: dict[bool, StaticStep] = {}
        """For sampled actions and for the mode. Captured steps change this memory in place."""
        if self.device.type in STATIC_DEVICES and isinstance(self.trajectory_encoder, SupportsStaticStep):
            for deterministic in (False, True):
                self._static_steps[deterministic] = StaticStep(self.generator, captures=self._cuda_graph)

    def state_dict(self) -> State:
        """Return memory and random state; the weights belong to the agent."""
        memory = None if self.memory is None else self.memory.state_dict()
        return {"memory": memory, "generator": self.generator.get_state()}

    @with_torch_defaults
    @torch.inference_mode()
    def load_state_dict(self, state: State) -> None:
        """Restore the result of `state_dict`."""
        self.reset()
        if state["memory"] is not None:
            self.memory.load_state_dict(state["memory"])
        load_generator_state(self.generator, state["generator"])

    @with_torch_defaults
    @torch.inference_mode()
    def act(self, step: PolicyInput, *, deterministic: bool = False) -> Shaped[np.ndarray, "E ..."]:
        """Return actions: integers `[E]` or `[E, C]`, or float32 `[E, A]` in [-1, 1].

        They are the mode of `distribution` if `deterministic`, else a sample.
        """
        deterministic = deterministic or self._mode_only
        if not self._static_steps:
            policy = self.distribution(step)
            if self._records_log_prob:
                on_host = {name: tensor.cpu() for name, tensor in distribution_tensors(policy).items()}
                self._last = with_tensors(policy, on_host), deterministic
            else:
                self._last = policy, deterministic
            return self._choose(policy, deterministic=deterministic).cpu().numpy()
        function = partial(self._act_on_device, deterministic=deterministic)
        results = dict(self._static_steps[deterministic](function, _arrays(step)))
        action: Shaped[np.ndarray, "E ..."] = results.pop("action").copy()
        if self._records_log_prob:
            on_host = {name: torch.from_numpy(array) for name, array in results.items()}
            self._last = with_tensors(self._distribution_on_device, on_host), deterministic
        return action

    @override
    def last_parameters(self) -> PolicyParameters:
        if self._last is None:
            raise UserError("the policy keeps no action distribution: call act before, on the CPU")
        policy, _ = self._last
        if isinstance(policy, TanhGaussianPolicy):
            mean_EA, std_EA = (each[:, 0].float().cpu().numpy() for each in (policy.mean_NGA, policy.log_std_NGA.exp()))
            return PolicyParameters(mean_EA=mean_EA, std_EA=std_EA)
        return PolicyParameters(probability_EA=policy.probability_NGA[:, 0].float().cpu().numpy())

    @torch.inference_mode()
    def distribution(self, step: PolicyInput) -> PolicyDistribution:
        """Add a timestep to the memory; return the action distribution."""
        inputs = self._inputs(step)
        state_ED = self.trajectory_encoder.step(self._timestep(inputs), step.time, self.memory)
        return self._distribution(state_ED, inputs)

    @with_torch_defaults
    @torch.inference_mode()
    def state(self, step: PolicyInput) -> Tensor:
        """Add a timestep to the memory; return the states `[E, D]`."""
        state_ED: Tensor = self.trajectory_encoder.step(self._timestep(self._inputs(step)), step.time, self.memory)
        return state_ED

    def _act_on_device(
        self, inputs: Mapping[str, Shaped[Tensor, "E ..."]], *, deterministic: bool
    ) -> dict[str, Shaped[Tensor, "E ..."]]:
        """Add a timestep to the memory; return the actions, and the distribution if log-probabilities are recorded."""
        state_ED = self.trajectory_encoder.static_step(self._timestep(inputs), inputs["time"], self.memory)
        policy = self._distribution_on_device = self._distribution(state_ED, inputs)
        tensors = distribution_tensors(policy) if self._records_log_prob else {}
        return {"action": self._choose(policy, deterministic=deterministic), **tensors}

    def _inputs(self, step: PolicyInput) -> dict[str, Shaped[Tensor, "E ..."]]:
        return {name: torch.from_numpy(array).to(self.device) for name, array in _arrays(step).items()}

    def _timestep(self, inputs: Mapping[str, Shaped[Tensor, "E ..."]]) -> Float[Tensor, "E D"]:
        timestep_ED: Tensor = self.timestep_encoder(self._features(inputs), without_prefix(OBSERVATION, inputs))
        return timestep_ED

    def _features(self, inputs: Mapping[str, Shaped[Tensor, "E ..."]]) -> Float[Tensor, "E F"]:
        names = ("previous_action", "previous_reward", "episode_start", "time")
        features_EF: Tensor = self.timestep_encoder.features(
            observation=without_prefix(OBSERVATION, inputs),
            horizon=self.horizon,
            **{name: inputs[name] for name in names},
        )
        return features_EF

    def _distribution(
        self, state_ED: Float[Tensor, "E D"], inputs: Mapping[str, Shaped[Tensor, "E ..."]]
    ) -> PolicyDistribution:
        policy: PolicyDistribution = self.actor(state_ED, inputs.get(OBSERVATION + ACTION_MASK_KEY))
        return policy

    def _choose(self, policy: PolicyDistribution, *, deterministic: bool) -> Shaped[Tensor, "E ..."]:
        action: Tensor = policy.mode() if deterministic else policy.sample(self.generator)
        if self._action_noise and not deterministic:
            noise = torch.randn(action.shape, generator=self.generator, dtype=action.dtype, device=action.device)
            action = (action + self._action_noise * noise).clamp(-1.0, 1.0)
        return action[:, 0]


def _arrays(step: PolicyInput) -> dict[str, Shaped[np.ndarray, "E ..."]]:
    return {
        "previous_action": step.previous_action,
        "previous_reward": step.previous_reward,
        "episode_start": step.episode_start,
        "time": step.time,
        **{f"{OBSERVATION}{name}": leaf for name, leaf in step.observation.items()},
    }
