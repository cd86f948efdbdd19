"""`VariBADConfig`: variBAD, for `RunConfig.algorithm`."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from yamame.algorithms.base import Algorithm
from yamame.algorithms.ppo.agent import PPOAgent
from yamame.algorithms.ppo.config import PPOConfig
from yamame.algorithms.varibad.agent import VariBADAgent, VariBADAgentConfig
from yamame.algorithms.varibad.learner import VariBAD
from yamame.algorithms.varibad.settings import VariBADLearnerConfig


@dataclass(frozen=True, kw_only=True)
class VariBADConfig(PPOConfig):
    """PPO on observation and belief, which a variational autoencoder learns (Zintgraf et al. 2020, arXiv 1910.08348).

    Policies, values, export and settings of a run are those of PPO.
    """

    AGENT: ClassVar[type[PPOAgent]] = VariBADAgent
    LEARNER: ClassVar[Callable[..., Algorithm]] = VariBAD

    agent: VariBADAgentConfig = field(default_factory=VariBADAgentConfig)
    learner: VariBADLearnerConfig = field(default_factory=VariBADLearnerConfig)
