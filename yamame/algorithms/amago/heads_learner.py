"""`HeadsLearner`: TD targets and gradients of heads, from states."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from yamame.algorithms.amago.chunks import part, split_tokens
from yamame.algorithms.amago.heads import Heads
from yamame.algorithms.amago.losses.base import Loss
from yamame.algorithms.amago.losses.td import TargetValues, TDLoss
from yamame.algorithms.base import Metrics
from yamame.data.batch import Batch
from yamame.nets.compute import Compute
from yamame.nets.ops import masked_mean


class HeadsLearner:
    """Computes TD targets, losses and gradients of heads.

    Heads process tokens independently, in chunks, so that the activations of one chunk are in memory at a time: most of
    the memory of an update at long context.

    Args:
        heads: On the device of `compute`.
        td: Definition of the targets.
        losses: All losses of the sum.
        is_pessimistic: Targets are minima over critics.
        policy_gradient: A loss uses the gradient of the policy's value.
        compute: Precision, compilation and size of chunks.
    """

    def __init__(
        self,
        heads: Heads,
        *,
        td: TDLoss,
        losses: Sequence[Loss],
        is_pessimistic: bool,
        policy_gradient: bool,
        compute: Compute,
    ) -> None:
        self._heads, self._td, self._losses, self._compute = heads, td, losses, compute
        self._is_pessimistic, self._policy_gradient = is_pessimistic, policy_gradient
        compiled: Callable[[Any], Any] = torch.compile if compute.compile else lambda function: function
        self._target_values = compiled(heads.target_values)
        self._losses_of_tokens = compiled(self._sum_losses)

    def chunks(self, batch: Batch) -> Sequence[slice]:
        """Return the chunks of the tokens of a batch."""
        return split_tokens(len(batch.reward), self._compute.chunk_tokens)

    def td_target(
        self,
        batch: Batch,
        state_ND: Float[Tensor, "N D"],
        noise: Shaped[Tensor, "N G _"] | None,
        generator: torch.Generator,
    ) -> Float[Tensor, "N G"]:
        """Return the TD targets of all tokens, in units of scaled reward.

        Args:
            batch: On the device of the heads.
            state_ND: States without gradient.
            noise: That of `Actor.sample_noise` for the target actor.
            generator: Samples the subsets of critics.
        """
        mask, action = batch.action_mask, batch.action if self._td.uses_traces(batch) else None
        with self._compute.autocast():
            values = [
                self._target_values(
                    state_ND[chunk],
                    part(mask, chunk),
                    part(noise, chunk),
                    part(action, chunk),
                )
                for chunk in self.chunks(batch)
            ]
        return self._td.td_target(
            batch,
            TargetValues.concatenate(values),
            self._heads.gammas_G,
            generator,
            pessimistic=self._is_pessimistic,
        )

    def backward(
        self,
        batch: Batch,
        state_ND: Float[Tensor, "N D"],
        td_target_NG: Float[Tensor, "N G"],
        target_delta_NO: Float[Tensor, "N O"] | None,
        *,
        noise: Shaped[Tensor, "N G _"] | None,
        num_transitions: Float[Tensor, ""],
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "N D"], Metrics]:
        """Return the loss, its gradient with respect to the states, and metrics; accumulate the heads' gradients.

        All are this rank's terms of a sum over ranks.

        Args:
            batch: On the device of the heads.
            state_ND: States without gradient.
            td_target_NG: Normalized TD targets.
            target_delta_NO: That of `Agent.observation_deltas`.
            noise: That of `Heads.policy_noise`.
            num_transitions: Those of all ranks' batches.
        """
        total, gradients = state_ND.new_zeros(()), []
        names: Sequence[str] = ()
        means: Tensor | float = 0.0
        for chunk in self.chunks(batch):
            tokens, state = batch.slice_tokens(chunk), state_ND[chunk].requires_grad_()
            with self._compute.autocast():
                loss, chunk_metrics = self._losses_of_tokens(
                    state,
                    tokens,
                    td_target_NG[chunk],
                    part(noise, chunk),
                    part(target_delta_NO, chunk),
                )
            fraction = tokens.loss_mask.sum() / num_transitions
            (loss * fraction).backward()
            gradients.append(state.grad if state.grad is not None else torch.zeros_like(state))
            total = total + loss.detach() * fraction
            names, means = tuple(chunk_metrics), means + torch.stack(list(chunk_metrics.values())) * fraction
        assert isinstance(means, Tensor)
        return total, torch.cat(gradients), dict(zip(names, means.detach().unbind(), strict=True))

    def _sum_losses(
        self,
        state_ND: Float[Tensor, "N D"],
        batch: Batch,
        td_target_NG: Float[Tensor, "N G"],
        noise_NGA: Float[Tensor, "N G _"] | None,
        target_delta_NO: Float[Tensor, "N O"] | None,
    ) -> tuple[Float[Tensor, ""], Metrics]:
        """Return the weighted sum of all losses, averaged over the tokens with a transition."""
        predictions = self._heads.predict(
            state_ND,
            batch,
            td_target_NG,
            noise_NGA,
            target_delta_NO,
            policy_gradient=self._policy_gradient,
        )
        outputs = [loss(batch, predictions) for loss in self._losses]
        means = masked_mean(torch.stack([output.per_token for output in outputs], dim=1), batch.loss_mask).unbind()
        total = state_ND.new_zeros(())
        metrics: Metrics = {}
        for loss, output, mean in zip(self._losses, outputs, means, strict=True):
            total = total + loss.weight * mean
            metrics |= {f"loss/{loss.name}": mean.detach(), **output.metrics}
        return total, metrics
