"""Auxiliary world model: predict the change of the observation."""

from dataclasses import dataclass
from typing import ClassVar

from yamame.data.batch import Batch, LossOutput, Predictions
from yamame.errors import check_range


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
