"""`HyperXLearnerConfig`: losses, optimizers and bonuses."""

from dataclasses import dataclass

from yamame.algorithms.varibad.settings import VariBADLearnerConfig
from yamame.errors import check_range


@dataclass(frozen=True, kw_only=True)
class HyperXLearnerConfig(VariBADLearnerConfig):
    """Those of variBAD, and of the bonuses. Weights are in deviations of the task's own discounted return."""

    novelty_weight: float = 10.0
    """Weight of the novelty of hyper-states (HyperX: 0.01 to 10); 0: none."""
    reconstruction_weight: float = 1.0
    """Weight of the error of the reward that is predicted from the belief (HyperX: 0.01 to 1); 0: none."""
    bonus_clip: float = 10.0
    """Largest bonus, before its weight, in deviations of its own discounted return."""
    reward_clip: float = 10.0
    """Largest size of a reward of the task that advantages are computed from, in deviations of its discounted return:
    the first rewards of a run are many deviations."""
    bonus_anneal_env_steps: int = 0
    """Environment steps, of trials learned from, over which both bonuses fall linearly to 0; 0: they stay."""
    novelty_updates: int = 10
    """Updates of the predictor with each batch of stored trials, after that of belief and decoder. It needs about a
    thousand until its error is a tenth where it was trained (HyperX: 1, of 60,000 in a run)."""
    novelty_batch_size: int = 128
    """Hyper-states of such an update."""
    novelty_learning_rate: float = 1e-4
    """Learning rate of Adam for the predictor."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "novelty_weight", "reconstruction_weight", "bonus_anneal_env_steps", ge=0)
        check_range(self, "novelty_updates", "novelty_batch_size", ge=1)
        check_range(self, "bonus_clip", "reward_clip", "novelty_learning_rate", gt=0)

    def bonus_scale_at(self, env_steps: int) -> float:
        """Return the factor of both bonuses after trials of so many steps."""
        return max(0.0, 1.0 - env_steps / self.bonus_anneal_env_steps) if self.bonus_anneal_env_steps else 1.0
