"""`VariBADLearnerConfig`: losses and optimizers of policy and belief."""

from dataclasses import dataclass

from yamame.algorithms.ppo.learner import PPOLearnerConfig
from yamame.errors import check_range


@dataclass(frozen=True, kw_only=True)
class VariBADLearnerConfig(PPOLearnerConfig):
    """Losses of PPO and of the variational autoencoder."""

    vae_updates_per_iteration: int = 3
    """Updates of belief and decoder after those of PPO."""
    trials_per_vae_batch: int = 25
    """Stored trials of such an update."""
    vae_learning_rate: float = 1e-3
    """Learning rate of Adam for belief and decoder."""
    vae_max_grad_norm: float = 1.0
    """Maximum global norm of their gradient."""
    kl_weight: float = 0.01
    """Weight of the KL divergence of each belief from the one before it, against the sum of the squared errors of all
    rewards of the trial, in deviations of the reward, that are predicted from it (variBAD: 0.01 to 0.1)."""
    max_decoded_steps: int = 50
    """Beliefs of a trial, chosen at random, from which its rewards are predicted; in shorter trials all are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "vae_updates_per_iteration", "trials_per_vae_batch", "max_decoded_steps", ge=1)
        check_range(self, "vae_learning_rate", "vae_max_grad_norm", gt=0)
        check_range(self, "kl_weight", ge=0)
