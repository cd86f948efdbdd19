"""A number of vector steps of a collector, as `LocalExperience.collect` makes them."""

from collections.abc import Iterator

from yamame.collect.collector import Collector, Policy
from yamame.data.trajectory import Trajectory


def collect_trials(
    collector: Collector, policy: Policy, env_steps: int, *, deterministic: bool = False
) -> Iterator[Trajectory]:
    """Each trial that completes in `ceil(env_steps / E)` vector steps. Active ones continue in the next call."""
    for _ in range(-(-env_steps // collector.environments.num_envs)):
        for _, trajectory in collector.step(policy, deterministic=deterministic):
            yield trajectory
