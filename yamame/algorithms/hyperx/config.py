"""`HyperXConfig`: HyperX, for `RunConfig.algorithm`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from typing_extensions import override

from yamame.algorithms.base import Algorithm, AlgorithmConfig
from yamame.algorithms.hyperx.agent import HyperXAgent, HyperXAgentConfig
from yamame.algorithms.hyperx.learner import HyperX
from yamame.algorithms.hyperx.settings import HyperXLearnerConfig
from yamame.algorithms.ppo.agent import PPOAgent
from yamame.algorithms.varibad.config import VariBADConfig
from yamame.envs.config import EnvConfig


@dataclass(frozen=True, kw_only=True)
class HyperXConfig(VariBADConfig):
    """variBAD that explores hyper-states (Zintgraf et al. 2021, arXiv 2010.01062).

    Policies, values and export are those of PPO.
    """

    AGENT: ClassVar[type[PPOAgent]] = HyperXAgent
    LEARNER: ClassVar[Callable[..., Algorithm]] = HyperX

    agent: HyperXAgentConfig = field(default_factory=HyperXAgentConfig)
    learner: HyperXLearnerConfig = field(default_factory=HyperXLearnerConfig)

    @override
    def run_settings(self, recipe: AlgorithmConfig, env: EnvConfig, *, env_steps: int) -> Mapping[str, Any]:
        """Return the settings of a run of PPO, in which both bonuses are annealed over the whole run."""
        settings = super().run_settings(recipe, env, env_steps=env_steps)
        return {**settings, "learner.bonus_anneal_env_steps": env_steps}
