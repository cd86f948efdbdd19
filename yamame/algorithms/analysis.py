"""What recordings and figures show of an algorithm along a trajectory, if it supports that."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32
from torch import Tensor, nn

from yamame.data.step import PolicyInput
from yamame.data.trajectory import Trajectory
from yamame.nets.heads.actor import PolicyDistribution
from yamame.nets.heads.distributions import CategoricalPolicy, FactoredPolicy, SampledCategoricalPolicy
from yamame.nets.heads.tanh_gaussian import TanhGaussianPolicy
from yamame.nets.introspection import AttentionWeights


@dataclass(frozen=True, kw_only=True)
class ActionDistributions:
    """The policy of the gamma that acts in evaluations, at every timestep."""

    num_choices: tuple[int, ...] = ()
    """Number of choices of each component of a discrete action, side by side in A; empty if continuous."""
    probability_TA: Float32[np.ndarray, "timesteps A"] | None = None
    """Probability of each choice, clipped as for acting, 0 where masked. None for continuous actions."""
    mean_TA: Float32[np.ndarray, "timesteps A"] | None = None
    """Mean of the Gaussian whose tanh is a continuous action. None for discrete actions."""
    std_TA: Float32[np.ndarray, "timesteps A"] | None = None
    """Its standard deviation."""


def action_distributions(policy: PolicyDistribution, gamma_index: int) -> ActionDistributions:
    """Return the parameters of the action distributions of one gamma, for a policy of all timesteps of a trajectory."""
    match policy:
        case CategoricalPolicy() | SampledCategoricalPolicy():
            probability = policy.probability_NGA
            sizes: tuple[int, ...] = (probability.shape[2],)
            return ActionDistributions(num_choices=sizes, probability_TA=_numpy(probability[:, gamma_index]))
        case FactoredPolicy(components=components, categorical=categorical):
            sizes = tuple(components.is_choice_CK.sum(1).tolist())
            probability = components.unpad(categorical.probability_NGA)
            return ActionDistributions(num_choices=sizes, probability_TA=_numpy(probability[:, gamma_index]))
        case TanhGaussianPolicy():
            std = policy.log_std_NGA.exp()
            return ActionDistributions(
                mean_TA=_numpy(policy.mean_NGA[:, gamma_index]), std_TA=_numpy(std[:, gamma_index])
            )


def _numpy(x: Float[Tensor, "N A"]) -> np.ndarray:
    return x.float().cpu().numpy()


@dataclass(frozen=True, kw_only=True)
class AgentAnalysis:
    """Action distributions, values and attention of one forward pass over a trajectory.

    T transitions, T + 1 timesteps: action t is chosen at timestep t, the last timestep is where the last action led.
    G gammas (the acting one last), A actions, L layers.
    """

    gammas_G: Float32[np.ndarray, "G"]
    q_TG: Float32[np.ndarray, "T G"] | None
    """Value of the action taken, mean over the critics, in units of the task's reward. None without critics."""
    value_TG: Float32[np.ndarray, "timesteps G"] | None
    """Value of the policy of each gamma: the expectation over a discrete action, or the value of the mode. None without
    critics."""
    action_distributions: ActionDistributions
    attention: AttentionWeights | None
    """Its tokens are timesteps. None if the trajectory encoder has no attention."""
    max_abs_LPT: Float32[np.ndarray, "L P timesteps"] | None
    """Largest absolute activation at each of `PROBE_POINTS` of each layer (paper, figure 14); None like `attention`."""


class SupportsAnalysis(ABC):
    """Mix-in of an `AlgorithmConfig` whose models explain their actions."""

    @abstractmethod
    def analyze(
        self, model: nn.Module, trajectory: Trajectory, *, keep: int | None = None, acting_only: bool = False
    ) -> AgentAnalysis:
        """Return action distributions, values and attention of a model along a trajectory.

        Args:
            model: The networks. They are left in evaluation mode.
            trajectory: A trajectory of the task.
            keep: Number of largest attention weights kept per timestep; None: limited to a few megabytes.
            acting_only: The model has only the weights of `acting_state`: there are no values.
        """


class ValueFunction(ABC):
    """Values of E environments while a policy acts in them, with a memory of its own."""

    gammas: tuple[float, ...]
    """The G discount factors; the last is that of the policy that acts in training."""

    @abstractmethod
    def step(self, step: PolicyInput) -> Float32[np.ndarray, "E G"]:
        """Add a timestep to the memory; return the value of the policy of each gamma, in units of the task's reward.

        As in `AgentAnalysis.value_TG`. A timestep that is passed twice replaces its first version. Values that were
        learned from scaled rewards with bonuses keep that unit.
        """


class SupportsValues(ABC):
    """Mix-in of an `AlgorithmConfig` whose models estimate values."""

    @abstractmethod
    def value_function(self, model: nn.Module, *, num_envs: int) -> ValueFunction:
        """Return the values of a model, with empty memory. The model is left in evaluation mode."""
