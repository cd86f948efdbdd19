"""`ExplorationBonuses`: rewards that PPO learns from, with bonuses for novelty and errors of the belief."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from yamame.algorithms.base import Metrics, Replay
from yamame.algorithms.divergence import NonfiniteCounter, check_divergence
from yamame.algorithms.hyperx.agent import HyperXAgent
from yamame.algorithms.hyperx.return_deviation import ReturnDeviation
from yamame.algorithms.hyperx.settings import HyperXLearnerConfig
from yamame.algorithms.on_policy import NewTrials
from yamame.algorithms.optimizer import ClippedAdamW
from yamame.algorithms.varibad.vae import BeliefLearner
from yamame.data.batch import Batch
from yamame.nets.compute import Compute
from yamame.nets.layouts import PaddedLayout

NOVELTY, RECONSTRUCTION = "novelty", "reconstruction"
"""Names of the bonuses."""
_NO_CLIP = 1e9
"""Norm to which gradients of the predictor are clipped: the source does not clip them."""

_PerTrial = dict[int, Float64[np.ndarray, "_"]]


class ExplorationBonuses:
    """Rewards for exploration, in training alone (Zintgraf et al. 2021, section 4).

    The bonus of a transition is of the hyper-state that it leads to: how new that is (`NoveltyNetworks`), and how wrong
    the reward of the transition is when it is predicted from one sample of the belief there. Rewards of the task and
    both bonuses are each divided by the deviation of their own discounted return so far and clipped. The weighted sum
    of the bonuses falls linearly to 0 over the run. Values are those of the sum, in deviations of the task's return.

    Differs from the source: observations are not predicted by variBAD here, so that their error is no part of the
    second bonus; at the end of an attempt the hyper-state has the first observation of the next one.

    Args:
        agent: Networks, on the device of `compute`.
        config: Weights and the optimizer of the predictor.
        vae: Its running statistics normalize rewards.
        compute: Device and precision.
        seed: Of the samples of beliefs and hyper-states.
    """

    def __init__(
        self, agent: HyperXAgent, config: HyperXLearnerConfig, *, vae: BeliefLearner, compute: Compute, seed: int
    ) -> None:
        self.agent, self.config, self.vae, self.compute, self.seed = agent, config, vae, compute, seed
        self.optimizer = ClippedAdamW(
            list(agent.novelty.predictor.parameters()), weight_decay=0.0, max_grad_norm=_NO_CLIP
        )
        self.optimizer.lr.fill_(config.novelty_learning_rate)
        self.task = ReturnDeviation(agent.gamma)
        self.deviations = {name: ReturnDeviation(agent.gamma) for name in (NOVELTY, RECONSTRUCTION)}
        self.num_updates = 0
        self.nonfinite = NonfiniteCounter(compute.device)
        """Updates of the predictor."""
        self.nonfinite_bonuses = NonfiniteCounter(compute.device)
        """Iterations with a bonus that was not finite."""
        self._of_iteration: dict[str, float] = {}
        self._last_batch: Batch | None = None

    @torch.no_grad()
    def training_rewards(self, replay: Replay, trials: NewTrials) -> _PerTrial:
        """Update the deviations by the new trials; return the normalized rewards of each of them, with bonuses.

        A bonus with a number that is not finite is left out of the iteration, which is counted.
        """
        rewards = {
            trial: replay.store.get(trial, lazy=True).reward.astype(np.float64)
            for trial in dict.fromkeys(window.trajectory_id for window in trials.windows)
        }
        self.task.update(list(rewards.values()))
        unit, scale = self.task.std or 1.0, self.config.bonus_scale_at(trials.transitions)
        weights = {NOVELTY: self.config.novelty_weight, RECONSTRUCTION: self.config.reconstruction_weight}
        total = {trial: _clipped(reward / unit, self.config.reward_clip) for trial, reward in rewards.items()}
        self._of_iteration = {"bonus/scale": scale}
        is_finite = True
        for name, bonus in self._raw(replay, trials).items():
            if not all(np.isfinite(each).all() for each in bonus.values()):
                is_finite = False
                continue
            self.deviations[name].update(list(bonus.values()))
            divisor = self.deviations[name].std or 1.0
            added = {
                trial: scale * weights[name] * _clipped(each / divisor, self.config.bonus_clip)
                for trial, each in bonus.items()
            }
            for trial, each in added.items():
                total[trial] += each
            self._of_iteration[f"bonus/{name}"] = float(np.concatenate(list(added.values())).mean())
        self.nonfinite_bonuses.count(torch.tensor(is_finite, device=self.compute.device))
        return total

    def _raw(self, replay: Replay, trials: NewTrials) -> dict[str, _PerTrial]:
        """Return both bonuses of every transition, before normalization.

        There is no error of a reward before the first update of the belief, until which rewards have no unit.
        """
        parts = trials.minibatches(0)
        rng = np.random.default_rng([self.seed, trials.iterations, 0])
        self._last_batch = None
        for batch in replay.sampler.iter_windows(parts, {}):
            on_device = batch.to(self.compute.device)
            features_NF = self.agent.features(on_device)
            self.agent.novelty.encoder.update_normalizers(features_NF, on_device.observation, on_device.token_mask)
        found: dict[str, dict[int, dict[int, np.ndarray]]] = {NOVELTY: {}, RECONSTRUCTION: {}}
        for windows, batch in zip(parts, replay.sampler.iter_windows(parts, {}), strict=True):
            self._last_batch = batch
            novelty_N, error_N = self._of_tokens(batch.to(self.compute.device), rng)
            for window, start in zip(windows, batch.cu_seqlens.tolist(), strict=False):
                reached = slice(start + 1, start + 1 + window.length)
                for name, bonus_N in ((NOVELTY, novelty_N), (RECONSTRUCTION, error_N)):
                    found[name].setdefault(window.trajectory_id, {})[window.start] = bonus_N[reached]
        joined = {
            name: {trial: np.concatenate([by[start] for start in sorted(by)]) for trial, by in per_trial.items()}
            for name, per_trial in found.items()
        }
        return joined if self.vae.num_updates else {NOVELTY: joined[NOVELTY]}

    def _of_tokens(
        self, batch: Batch, rng: np.random.Generator
    ) -> tuple[Float64[np.ndarray, "N"], Float64[np.ndarray, "N"]]:
        """Return novelty of every token, and squared error of the reward that led to it, in squared units of reward.

        Those of the first token of a window are arbitrary.
        """
        agent, layout = self.agent, PaddedLayout.from_batch(batch)
        features_NF = agent.features(batch)
        with self.compute.autocast():
            belief = agent.belief(features_NF, batch)
            transition_BLH = agent.decoder.transitions(features_NF, batch, layout)
        moments_NM = agent.trajectory_encoder.normalized(belief)
        novelty_N = agent.novelty(agent.novelty.hyper_states(features_NF, batch, moments_NM))
        noise_NZ = torch.from_numpy(rng.standard_normal(belief.mean_NZ.shape)).to(belief.mean_NZ)
        latent_NZ = belief.mean_NZ + noise_NZ * (0.5 * belief.log_variance_NZ).exp()
        # each belief decodes one transition: rows of one latent and one transition
        latent_RZ, transition_RH = layout.pad(latent_NZ)[:, 1:].flatten(0, 1), transition_BLH.flatten(0, 1)
        with self.compute.autocast():
            predicted_R = agent.decoder(latent_RZ[:, None], transition_RH[:, None])[:, 0, 0]
        reward_BL = layout.pad(self.vae.normalize_rewards(batch)[:, None])[:, :-1, 0]
        error_BL = (predicted_R.to(reward_BL.dtype).view_as(reward_BL) - reward_BL).square()
        error_N = layout.unpad(torch.nn.functional.pad(error_BL, (1, 0))[:, :, None])[:, 0]
        return novelty_N.double().cpu().numpy(), error_N.double().cpu().numpy() * self.vae.reward_scale**2

    def update(self, batch: Batch) -> Metrics:
        """Train the predictor on random hyper-states of a batch of trials. No gradient reaches another network."""
        self._last_batch = batch
        hyper_state_KH = self._reached(batch.to(self.compute.device, non_blocking=True))
        losses = []
        for _ in range(self.config.novelty_updates):
            rng = np.random.default_rng([self.seed, self.num_updates, 1])
            self.num_updates += 1
            chosen = rng.integers(len(hyper_state_KH), size=self.config.novelty_batch_size)
            self.optimizer.zero_grad()
            loss = self.agent.novelty(hyper_state_KH[torch.from_numpy(chosen).to(hyper_state_KH.device)]).mean()
            loss.backward()
            _, finite = self.optimizer.step(loss.detach())
            self.nonfinite.count(finite)
            losses.append(loss.detach())
        return {"loss/novelty": torch.stack(losses).mean()}

    @torch.no_grad()
    def _reached(self, batch: Batch) -> Float[Tensor, "K hyper_state"]:
        """Return the hyper-states after all transitions of a batch."""
        agent, features_NF = self.agent, self.agent.features(batch)
        with self.compute.autocast():
            belief = agent.belief(features_NF, batch)
        moments_NM = agent.trajectory_encoder.normalized(belief)
        hyper_state_NH = agent.novelty.hyper_states(features_NF, batch, moments_NM)
        return hyper_state_NH[batch.token_mask & (batch.position_ids > 0)]

    def metrics(self) -> dict[str, float]:
        """Return the mean bonuses of the last iteration, in deviations of the discounted return of the task."""
        return dict(self._of_iteration)

    def raise_if_diverged(self) -> None:
        """Raise `UserError` after `max_nonfinite_updates` consecutive bonuses or updates that were not finite."""
        for each in (self.nonfinite, self.nonfinite_bonuses):
            check_divergence(each.consecutive, self.config.max_nonfinite_updates, self._last_batch)

    def state_dict(self) -> dict[str, Any]:
        """Return what the next bonus depends on, besides weights."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "task": self.task.state_dict(),
            "deviations": {name: each.state_dict() for name, each in self.deviations.items()},
            "updates": self.num_updates,
            **self.nonfinite.state_dict(),
            "nonfinite_bonuses": self.nonfinite_bonuses.state_dict(),
            "of_iteration": dict(self._of_iteration),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.task.load_state_dict(state["task"])
        for name, each in self.deviations.items():
            each.load_state_dict(state["deviations"][name])
        self.num_updates = state["updates"]
        self.nonfinite.load_state_dict(state)
        if "nonfinite_bonuses" in state:  # not in earlier checkpoints
            self.nonfinite_bonuses.load_state_dict(state["nonfinite_bonuses"])
        self._of_iteration = dict(state["of_iteration"])


def _clipped(numbers: Float64[np.ndarray, "T"], limit: float) -> Float64[np.ndarray, "T"]:
    return np.clip(numbers, -limit, limit)
