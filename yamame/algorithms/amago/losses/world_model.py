"""World modelling as an auxiliary loss: predict how what is seen will change."""

from dataclasses import dataclass

from yamame.data.batch import Batch, LossOutput, Predictions
from yamame.errors import check_range


@dataclass(frozen=True, kw_only=True)
class WorldModelLoss:
    """(prediction - change)^2, averaged over the numbers of an observation, the next one minus this one.

    Changes are normalised, so that 1 is what guessing their mean scores (less where some never change) and 0 is
    perfect: what stays as it is asks for nothing, and what an action brings about is all there is to learn. Pictures,
    texts, instructions and embedded leaves are not predicted. What an attempt's end leads to is the first observation
    of the next one, as the agent sees it: a soft reset is a part of its trial like any other. Source: the paper's
    appendix, MazeRunner, "w/ World Model", which made no difference there.
    """

    weight: float = 0.0
    """Weight of this loss in the sum; 0: there is no such loss and no such network, as in all other experiments."""

    def __post_init__(self) -> None:
        check_range(self, "weight", ge=0)

    def __call__(self, batch: Batch, predictions: Predictions) -> LossOutput:
        """The squared error of every token."""
        predicted_delta_NO, target_delta_NO = predictions.predicted_delta_NO, predictions.target_delta_NO
        assert predicted_delta_NO is not None and target_delta_NO is not None
        return LossOutput(per_token=(predicted_delta_NO - target_delta_NO).square().mean(dim=1), metrics={})
