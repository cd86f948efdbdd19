"""World-model head: what will be seen next."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from yamame.model.blocks.mlp import MLP
from yamame.model.blocks.one_hots import one_hots
from yamame.model.blocks.precision import at_least_float32
from yamame.model.heads.critic import CriticConfig
from yamame.records.action_spaces import PolicyActionSpace, action_size, choices


class WorldModel(nn.Module):
    """[state, action] -> the numbers of the next observation, on the scale of the network's own inputs.

    One MLP, as wide and as deep as a critic. It teaches the encoders and nothing acts by it. Source: the ablation
    "w/ World Model" of the paper's appendix, MazeRunner. The paper does not say what exactly is predicted nor by which
    network, and the authors' code does not have it: both are our choice.
    """

    def __init__(self, config: CriticConfig, *, inputs: int, outputs: int, action_space: PolicyActionSpace) -> None:
        super().__init__()
        self.choices = choices(action_space)
        self.outputs = outputs
        self.mlp = MLP(inputs + action_size(action_space), config.hidden, outputs, config.activation)

    def forward(self, state_ND: Float[Tensor, "N D"], action: Shaped[Tensor, "N ..."]) -> Float[Tensor, "N O"]:
        """What each token's action will lead to. `action` is in the form of `Batch.action`."""
        action_NA = one_hots(action, self.choices) if self.choices else action
        return at_least_float32(self.mlp(torch.cat([state_ND, action_NA.to(state_ND.dtype)], dim=1)))
