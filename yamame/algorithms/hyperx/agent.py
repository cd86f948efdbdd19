"""`HyperXAgent`: the agent of variBAD with the networks that tell how new a hyper-state is."""

from dataclasses import dataclass, field

from gymnasium import spaces
from torch import nn
from typing_extensions import override

from yamame.algorithms.hyperx.novelty import NoveltyConfig, NoveltyNetworks
from yamame.algorithms.varibad.agent import VariBADAgent, VariBADAgentConfig
from yamame.data.actions import PolicyActionSpace
from yamame.data.spaces import flatten_space


@dataclass(frozen=True, kw_only=True)
class HyperXAgentConfig(VariBADAgentConfig):
    """Architecture of the agent."""

    novelty: NoveltyConfig = field(default_factory=NoveltyConfig)


class HyperXAgent(VariBADAgent):
    """`VariBADAgent`, whose arguments it takes, with `novelty`, which is no part of what acts."""

    def __init__(
        self,
        config: HyperXAgentConfig,
        *,
        observation_space: spaces.Space,
        action_space: PolicyActionSpace,
        context_length: int,
        horizon: int,
    ) -> None:
        super().__init__(
            config,
            observation_space=observation_space,
            action_space=action_space,
            context_length=context_length,
            horizon=horizon,
        )
        encoder = config.build_present_encoder(
            flatten_space(observation_space),
            action_space,
            (),
            1,  # the output is not used
            sees_action=False,
            sees_time=False,
        )
        self.novelty = NoveltyNetworks(config.novelty, encoder, latent_size=config.latent_size)

    @override
    def policy_parameters(self) -> list[nn.Parameter]:
        of_novelty = {id(each) for each in self.novelty.parameters()}
        return [each for each in super().policy_parameters() if id(each) not in of_novelty]
