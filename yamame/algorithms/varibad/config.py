"""`VariBADConfig`: variBAD, for `RunConfig.algorithm`."""

from dataclasses import dataclass, field

import torch
from torch import nn
from typing_extensions import override

from yamame.algorithms.base import Algorithm
from yamame.algorithms.ppo.config import PPOConfig
from yamame.algorithms.varibad.agent import VariBADAgent, VariBADAgentConfig
from yamame.algorithms.varibad.learner import VariBAD
from yamame.algorithms.varibad.settings import VariBADLearnerConfig
from yamame.data.actions import policy_action_space, strip_action_mask
from yamame.data.schema import TaskSpec
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.errors import UserError
from yamame.nets.compute import Compute


@dataclass(frozen=True, kw_only=True)
class VariBADConfig(PPOConfig):
    """PPO on observation and belief, which a variational autoencoder learns (Zintgraf et al. 2020, arXiv 1910.08348).

    Policies, values, export and settings of a run are those of PPO.
    """

    agent: VariBADAgentConfig = field(default_factory=VariBADAgentConfig)
    learner: VariBADLearnerConfig = field(default_factory=VariBADLearnerConfig)

    @override
    def build_model(self, task: TaskSpec, *, context_length: int) -> VariBADAgent:
        return VariBADAgent(
            self.agent,
            observation_space=strip_action_mask(task.observation_space, task.action_mask_key),
            action_space=policy_action_space(task.action_space),
            context_length=context_length,
            horizon=task.horizon,
        )

    @override
    def build(
        self,
        model: nn.Module,
        *,
        compute: Compute,
        generator: torch.Generator,
        distributed: DistributedContext = SINGLE_PROCESS,
    ) -> Algorithm:
        assert isinstance(model, VariBADAgent)
        if not distributed.is_single_process:
            raise UserError("varibad learns in one process: leave out --num-learners")
        return VariBAD(model, self.learner, context_length=model.context_length, generator=generator, compute=compute)
