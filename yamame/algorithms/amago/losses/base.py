"""Interface of loss functions."""

from typing import ClassVar, Protocol, runtime_checkable

from yamame.data.batch import Batch, LossOutput, Predictions


@runtime_checkable
class Loss(Protocol):
    """Maps predictions to one number per token. Reduction over tokens and the optimizer are the learner's."""

    name: ClassVar[str]
    """Name in metrics: `loss/<name>`."""

    @property
    def weight(self) -> float:
        """Factor of the loss in the sum of all losses."""
        ...

    def __call__(self, batch: Batch, predictions: Predictions) -> LossOutput:
        """Return the unweighted loss of every token."""
        ...
