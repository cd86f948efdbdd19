"""`CollectingPolicy`: in some training trials the policy of novelty acts, or that of the separate gamma."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from typing_extensions import override

from yamame.algorithms.acting_model import ActingModel
from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.amago.novelty import NoveltyPolicy
from yamame.algorithms.functional_policy import OBSERVATION, without_prefix
from yamame.algorithms.network_policy import STATIC_DEVICES, NetworkPolicy
from yamame.data.actions import ACTION_MASK_KEY
from yamame.data.step import PolicyInput
from yamame.nets.blocks import freeze_for_inference
from yamame.nets.heads.actor import Actor, PolicyDistribution, distribution_tensors, with_tensors
from yamame.nets.torch_defaults import with_torch_defaults
from yamame.types import State


class CollectingPolicy(NetworkPolicy):
    """`NetworkPolicy` in which other policies of the agent act in fractions of the trials of each environment.

    With a fraction of 1/4 these are every fourth trial, and in each environment others than in the next one; a trial
    that both would have is that of novelty. Its actions get no exploration noise, with which it would not return to
    what is far away. The memory of the agent sees all trials. While `NoveltyPolicy.acts` is false, it acts in none.

    Args:
        agent: Networks.
        novelty_fraction: Fraction of the trials of `Agent.novelty`; no effect without one.
        separate_fraction: Fraction of the trials of `Agent.separate`; no effect without one.
        options: Arguments of `NetworkPolicy`.
    """

    def __init__(self, agent: Agent, *, novelty_fraction: float, separate_fraction: float, **options: Any) -> None:
        self._novelty, self._separate_actor = _copies_of_others(agent)
        self._novelty_fraction = 0.0 if self._novelty is None else novelty_fraction
        self._separate_fraction = 0.0 if self._separate_actor is None else separate_fraction
        super().__init__(agent, **options)
        self._trial_E = np.arange(self.num_envs) - 1
        """Index of the present trial of each environment. Those of the first trials differ, and so do their turns."""
        self._acts_for_novelty_E, self._acts_separately_E = (
            torch.zeros(self.num_envs, dtype=torch.bool, device=self.device) for _ in range(2)
        )

    @override
    @with_torch_defaults
    def load_weights(self, agent: ActingModel, *, version: int) -> None:
        assert isinstance(agent, Agent)
        super().load_weights(agent, version=version)
        others = (self._novelty, self._separate_actor)
        for own, new in zip(others, _copies_of_others(agent), strict=True):
            if own is not None and new is not None:
                # in place, as what a captured step reads
                torch._foreach_copy_([*own.parameters(), *own.buffers()], [*new.parameters(), *new.buffers()])
        self._take_turns()

    @override
    def act(self, step: PolicyInput, *, deterministic: bool = False) -> Shaped[np.ndarray, "E ..."]:
        starts_E = step.time == 0 if step.is_repeated is None else (step.time == 0) & ~step.is_repeated
        if starts_E.any():
            self._trial_E += starts_E
            self._take_turns()
        return super().act(step, deterministic=deterministic)

    def _take_turns(self) -> None:
        """Set in which environments the others act; in place, as what a captured step reads."""
        novelty_E = _is_turn(self._trial_E, self._novelty_fraction)
        self._acts_for_novelty_E.copy_(torch.from_numpy(novelty_E))
        if self._novelty is not None:
            self._acts_for_novelty_E.logical_and_(self._novelty.acts)
        self.explores_E = self._acts_for_novelty_E.cpu().numpy().copy()
        # three trials before those of novelty would be, so that the default's quarter and eighth do not meet
        separately_E = _is_turn(self._trial_E + 3, self._separate_fraction) & ~self.explores_E
        self._acts_separately_E.copy_(torch.from_numpy(separately_E))

    @override
    def state_dict(self) -> State:
        return {**super().state_dict(), "trials": torch.from_numpy(self._trial_E.copy())}

    @override
    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._trial_E = state["trials"].numpy().copy()
        self._take_turns()

    @override
    def _distribution(
        self, state_ED: Float[Tensor, "E D"], inputs: Mapping[str, Shaped[Tensor, "E ..."]]
    ) -> PolicyDistribution:
        policy, is_static = super()._distribution(state_ED, inputs), self.device.type in STATIC_DEVICES
        mask = inputs.get(OBSERVATION + ACTION_MASK_KEY)
        if self._separate_actor is not None and (is_static or self._acts_separately_E.any()):
            policy = self._merged(self._separate_actor(state_ED, mask), policy, self._acts_separately_E)
        if self._novelty is not None and (is_static or self._acts_for_novelty_E.any()):
            normalized = self.timestep_encoder.normalized(self._features(inputs))
            novel = self._novelty.act(normalized, without_prefix(OBSERVATION, inputs), mask)
            policy = self._merged(novel, policy, self._acts_for_novelty_E)
        return policy

    def _merged(
        self, other: PolicyDistribution, own: PolicyDistribution, is_other_E: Shaped[Tensor, "E"]
    ) -> PolicyDistribution:
        """Return the rows of either; an action of C components has C rows an environment."""
        of_other, merged = distribution_tensors(other), {}
        for name, tensor in distribution_tensors(own).items():
            rows_M = is_other_E.repeat_interleave(len(tensor) // self.num_envs)
            merged[name] = torch.where(rows_M.view(-1, *[1] * (tensor.dim() - 1)), of_other[name], tensor)
        return with_tensors(own, merged)


def _copies_of_others(agent: Agent) -> tuple[NoveltyPolicy | None, Actor | None]:
    novelty = None if agent.novelty is None else freeze_for_inference(agent.novelty)
    separate = None if agent.separate is None else freeze_for_inference(agent.separate.acting_actor.for_gamma(0))
    return novelty, separate


def _is_turn(trial_E: Shaped[np.ndarray, "E"], fraction: float) -> Shaped[np.ndarray, "E"]:
    """Return in which environments `floor(trial * fraction)` rises with the next trial."""
    return np.asarray(np.floor((trial_E + 1) * fraction) > np.floor(trial_E * fraction))
