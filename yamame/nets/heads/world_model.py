"""World-model head: how what is seen will change."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from yamame.data.actions import PolicyActionSpace, action_size, num_choices
from yamame.nets.blocks import MLP, InputNormalizer, at_least_float32, concat_one_hot
from yamame.nets.heads.critic import CriticConfig


class WorldModel(nn.Module):
    """[state, action] -> by how much the numbers of an observation will change, in deviations of such changes.

    One MLP, as wide and as deep as a critic. It teaches the encoders and nothing acts by it. Source: the ablation
    "w/ World Model" of the paper's appendix, MazeRunner. The paper does not say what exactly is predicted nor by which
    network, and the authors' code does not have it: both are our choice. Changes and not what will be seen, since
    most of that is seen already, and what an action does would hardly count beside it.
    """

    def __init__(self, config: CriticConfig, *, inputs: int, outputs: int, action_space: PolicyActionSpace) -> None:
        super().__init__()
        self.num_choices = num_choices(action_space)
        self.outputs = outputs
        self.normalizer = InputNormalizer(outputs)
        """Of changes of the network's own inputs."""
        self.every_action = len(self.num_choices) == 1
        """Whether the network looks at the state alone and says what each action would do, as discrete critics do."""
        actions = self.num_choices[0] if self.every_action else 1
        inputs += 0 if self.every_action else action_size(action_space)
        self.mlp = MLP(inputs, config.hidden_sizes, actions * outputs, config.activation)

    def forward(self, state_ND: Float[Tensor, "N D"], action: Shaped[Tensor, "N ..."]) -> Float[Tensor, "N O"]:
        """What each token's action will change. `action` is in the form of `Batch.action`."""
        if self.every_action:
            change_NAO = self.mlp(state_ND).unflatten(1, (-1, self.outputs))
            index_N1O = action.long().reshape(-1, 1, 1).expand(-1, 1, self.outputs)
            return at_least_float32(change_NAO.gather(1, index_N1O).squeeze(1))
        action_NA = concat_one_hot(action, self.num_choices) if self.num_choices else action
        return at_least_float32(self.mlp(torch.cat([state_ND, action_NA.to(state_ND.dtype)], dim=1)))
