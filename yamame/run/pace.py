"""How much is learned for how much is seen: a setting of the algorithm, whatever the speed of the machine."""

from dataclasses import dataclass

from yamame.records.limits import check_range


@dataclass(frozen=True, kw_only=True)
class PaceConfig:
    """Rounds of collecting, then updating."""

    updates_per_env_step: float = 0.05
    """Gradient updates for each environment step (summed over environments)."""
    round_env_steps: int = 0
    """Environment steps collected between updates; 0: the length of one trial in every environment."""
    start_env_steps: int = 0
    """Environment steps collected before the first update; they are not caught up on."""

    def __post_init__(self) -> None:
        check_range(self, "updates_per_env_step", "env_steps_per_iteration", "learning_starts", ge=0)

    def updates_due(self, *, env_steps: int, updates: int) -> int:
        """Updates to make now, after so many environment steps and updates in all."""
        return max(0, int((env_steps - self.start_env_steps) * self.updates_per_env_step) - updates)
