"""`BeliefLearner`: one update of belief and decoder is a step towards the rewards of whole stored trials."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from yamame.algorithms.base import Metrics, Replay
from yamame.algorithms.divergence import NonfiniteCounter, check_divergence
from yamame.algorithms.optimizer import ClippedAdamW
from yamame.algorithms.ppo.advantages import RunningMoments
from yamame.algorithms.varibad.agent import VariBADAgent
from yamame.algorithms.varibad.losses import belief_kl, reconstruction_error
from yamame.algorithms.varibad.settings import VariBADLearnerConfig
from yamame.data.batch import Batch
from yamame.data.codec import CorruptedRecordError
from yamame.data.sampler import StoredWindow
from yamame.data.store import ReplayStore
from yamame.errors import UserError
from yamame.nets.compute import Compute
from yamame.nets.layouts import PaddedLayout
from yamame.nets.ops import masked_mean

_MAX_ATTEMPTS = 100
"""Attempts for each trial of a batch to find one that can be read."""
_REWARD_RATE = 0.01
"""Update rate, once an update, of mean and deviation by which rewards are normalized."""
_MIN_RELATIVE_DEVIATION = 1e-6
"""Least divisor of rewards, as a fraction of their mean."""


class BeliefLearner:
    """Variational autoencoder over trials (Zintgraf et al. 2020, equations 5 to 8).

    From a sample of the belief after each token of a window, the rewards of all its transitions are predicted, past and
    future. Rewards are normalized by running statistics of the batches, so that their unit does not matter.

    Args:
        agent: Networks, on the device of `compute`.
        config: Loss and optimizer.
        context_length: Maximum number of transitions of a window.
        generator: Samples latents and the beliefs that are decoded.
        compute: Device and precision.
    """

    def __init__(
        self,
        agent: VariBADAgent,
        config: VariBADLearnerConfig,
        *,
        context_length: int,
        generator: torch.Generator,
        compute: Compute,
    ) -> None:
        self.agent, self.config, self.compute, self.generator = agent, config, compute, generator
        self.context_length, self.seed = context_length, generator.initial_seed() % 2**32
        self.optimizer = ClippedAdamW(
            agent.belief_parameters(), weight_decay=0.0, max_grad_norm=config.vae_max_grad_norm
        )
        self.optimizer.lr.fill_(config.vae_learning_rate)
        self.reward_stats = RunningMoments(_REWARD_RATE)
        self.num_updates = 0
        self.nonfinite = NonfiniteCounter(compute.device)
        self._last_batch: Batch | None = None

    def batches(self, replay: Replay, count: int) -> Iterator[Batch]:
        """Yield the next `count` batches of whole trials, sampled uniformly with replacement.

        Of a trial that is longer than the context, it is one of the windows that cover the trial end to end.
        """
        numbers = range(self.num_updates, self.num_updates + count)
        parts = [self._sample(replay.store, np.random.default_rng([self.seed, number])) for number in numbers]
        yield from replay.sampler.iter_windows(parts, {})

    def _sample(self, store: ReplayStore, rng: np.random.Generator) -> list[StoredWindow]:
        ids, windows = store.ids(), list[StoredWindow]()
        for _ in range(_MAX_ATTEMPTS * self.config.trials_per_vae_batch):
            trial = ids[int(rng.integers(len(ids)))]
            try:
                length = len(store.get(trial, lazy=True))
            except (CorruptedRecordError, KeyError):
                continue
            start = self.context_length * int(rng.integers(-(-length // self.context_length)))
            windows.append(StoredWindow(trial, start, min(self.context_length, length - start)))
            if len(windows) == self.config.trials_per_vae_batch:
                return windows
        attempts = _MAX_ATTEMPTS * self.config.trials_per_vae_batch
        raise UserError(
            f"the replay store returned only {len(windows)} readable trials in {attempts} attempts: check its disk"
        )

    def update(self, batch: Batch) -> Metrics:
        """Make one gradient step. One whose loss or gradient is not finite changes no weight."""
        self.num_updates += 1
        self._last_batch = batch
        target_N = self._normalized_rewards(batch).to(self.compute.device)
        batch = batch.to(self.compute.device, non_blocking=True)
        agent, layout = self.agent, PaddedLayout.from_batch(batch)
        features_NF = agent.features(batch)
        agent.decoder.encoder.update_normalizers(features_NF, batch.observation, batch.token_mask)
        self.optimizer.zero_grad()
        with self.compute.autocast():
            belief = agent.belief(features_NF, batch)
            transition_BLH = agent.decoder.transitions(features_NF, batch, layout)
        token_BS = _token_mask(batch)
        index_BM, decoded_BM = self._choose(token_BS)
        mean_BMZ, log_variance_BMZ = (layout.pad(each).take_along_dim(index_BM[:, :, None], dim=1) for each in belief)
        noise_BMZ = torch.randn(mean_BMZ.shape, generator=self.generator, dtype=mean_BMZ.dtype, device=mean_BMZ.device)
        with self.compute.autocast():
            prediction_BML = agent.decoder(mean_BMZ + noise_BMZ * (0.5 * log_variance_BMZ).exp(), transition_BLH)
        error, count = reconstruction_error(
            prediction_BML.to(target_N.dtype), layout.pad(target_N[:, None])[:, :-1, 0], decoded_BM, token_BS[:, 1:]
        )
        kl_N = belief_kl(belief, batch.position_ids == 0)
        kl_BM = layout.pad(kl_N[:, None])[:, :, 0].take_along_dim(index_BM, dim=1)
        # the sums of the source, divided by the number of predictions: Adam's steps do not depend on it
        loss = (error + self.config.kl_weight * torch.where(decoded_BM, kl_BM, 0.0).sum()) / count
        loss.backward()
        norm, finite = self.optimizer.step(loss.detach())
        self.nonfinite.count(finite)
        return {
            "loss/reconstruction": (error / count).detach(),
            "loss/belief_kl": masked_mean(kl_N.detach(), batch.token_mask),
            "optim/grad_norm_belief": norm,
        }

    def _choose(self, token_BS: Bool[Tensor, "B S"]) -> tuple[Int64[Tensor, "B M"], Bool[Tensor, "B M"]]:
        """Return the tokens of each window whose beliefs are decoded, without repetition, and which are not padding."""
        rows, length = token_BS.shape
        if length <= self.config.max_decoded_steps:
            return torch.arange(length, device=token_BS.device).expand(rows, -1), token_BS
        key_BS = torch.rand(token_BS.shape, generator=self.generator, device=token_BS.device)
        index_BM = key_BS.masked_fill(~token_BS, -1.0).topk(self.config.max_decoded_steps, dim=1).indices
        return index_BM, token_BS.take_along_dim(index_BM, dim=1)

    def _normalized_rewards(self, batch: Batch) -> Float[Tensor, "N"]:
        """Return (reward - mean) / deviation of all tokens, after the statistics were updated by the batch."""
        reward_N = batch.reward.double()
        rewards = reward_N[batch.loss_mask].cpu().numpy()
        if np.isfinite(rewards).all():
            self.reward_stats.update(rewards)
        return self.normalize_rewards(batch)

    def normalize_rewards(self, batch: Batch) -> Float[Tensor, "N"]:
        """Return (reward - mean) / deviation of all tokens, by the statistics of the batches of updates so far."""
        reward_N = batch.reward.double()
        return ((reward_N - self.reward_stats.mean) / self.reward_scale).to(batch.reward.dtype)

    @property
    def reward_scale(self) -> float:
        """The deviation by which rewards are divided; 1 before the first reward."""
        return max(self.reward_stats.std, _MIN_RELATIVE_DEVIATION * abs(self.reward_stats.mean)) or 1.0

    def raise_if_diverged(self) -> None:
        """Raise `UserError` after `max_nonfinite_updates` consecutive non-finite updates."""
        check_divergence(self.nonfinite.consecutive, self.config.max_nonfinite_updates, self._last_batch)

    def state_dict(self) -> dict[str, Any]:
        """Return what the next update depends on, besides weights and generator."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "rewards": self.reward_stats.state_dict(),
            "updates": self.num_updates,
            **self.nonfinite.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.reward_stats.load_state_dict(state["rewards"])
        self.num_updates = state["updates"]
        self.nonfinite.load_state_dict(state)


def _token_mask(batch: Batch) -> Bool[Tensor, "B S"]:
    """Return which slots of each window's row have a token."""
    length_B = batch.cu_seqlens.diff()
    return torch.arange(batch.max_seqlen, device=length_B.device) < length_B[:, None]
