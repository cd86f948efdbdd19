"""Auxiliary world model: a head that predicts the change of the observation, and its loss."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from yamame.data.actions import PolicyActionSpace, action_size, num_choices
from yamame.data.batch import Batch, LossOutput, Predictions
from yamame.errors import check_range
from yamame.nets.blocks import MLP, InputNormalizer, at_least_float32, concat_one_hot
from yamame.nets.heads.critic import CriticConfig


@dataclass(frozen=True, kw_only=True)
class WorldModelLoss:
    """(prediction - delta)^2, averaged over the numbers of an observation; delta is the next one minus this one.

    Deltas are normalized: predicting their mean has a loss of 1 (less if some never change), a perfect model 0. Images,
    texts, instructions and embedded leaves are not predicted. At the end of an attempt the next observation is the
    first one of the next attempt. Paper: appendix, MazeRunner, "w/ World Model". Differs from the paper: it predicts
    the delta, not the next observation.
    """

    name: ClassVar[str] = "world_model"

    weight: float = 0.0
    """Weight in the sum of losses; 0: no such loss and no such head."""

    def __post_init__(self) -> None:
        check_range(self, "weight", ge=0)

    def __call__(self, batch: Batch, predictions: Predictions) -> LossOutput:
        """Return the squared error of every token."""
        predicted_delta_NO, target_delta_NO = predictions.predicted_delta_NO, predictions.target_delta_NO
        assert predicted_delta_NO is not None and target_delta_NO is not None
        return LossOutput(per_token=(predicted_delta_NO - target_delta_NO).square().mean(dim=1), metrics={})


class WorldModel(nn.Module):
    """[state, action] -> normalized observation deltas, by an MLP as wide and as deep as a critic.

    An auxiliary target for the encoders, which is not used for acting. Paper: the ablation "w/ World Model" of the
    appendix, MazeRunner. The paper specifies neither the target nor the network, and the authors' code does not have
    one: both are choices of this implementation. The target is the delta, since most of an observation does not change.
    """

    def __init__(
        self, config: CriticConfig, *, input_size: int, output_size: int, action_space: PolicyActionSpace
    ) -> None:
        super().__init__()
        self.num_choices = num_choices(action_space)
        self.output_size = output_size
        self.normalizer = InputNormalizer(output_size)
        """Running moments of the deltas of the network's normalized inputs."""
        self.every_action = len(self.num_choices) == 1
        """Whether the network predicts the delta of each action from the state alone, as discrete critics do."""
        num_predictions = self.num_choices[0] if self.every_action else 1
        input_size += 0 if self.every_action else action_size(action_space)
        self.mlp = MLP(input_size, config.hidden_sizes, num_predictions * output_size, config.activation)

    def forward(self, state_ND: Float[Tensor, "N D"], action: Shaped[Tensor, "N ..."]) -> Float[Tensor, "N O"]:
        """Return the predicted delta for each token's action, which has the format of `Batch.action`."""
        if self.every_action:
            delta_NAO = self.mlp(state_ND).unflatten(1, (-1, self.output_size))
            index_N1O = action.long().reshape(-1, 1, 1).expand(-1, 1, self.output_size)
            return at_least_float32(delta_NAO.gather(1, index_N1O).squeeze(1))
        action_NA = concat_one_hot(action, self.num_choices) if self.num_choices else action
        return at_least_float32(self.mlp(torch.cat([state_ND, action_NA.to(state_ND.dtype)], dim=1)))
