"""The default agent learns the same whatever the units of rewards and observations are."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from tiny_agents import DISCRETE, HORIZON, TINY_AGENT, random_windows, tiny_agent

from yamame.algorithms.amago.learner import Learner
from yamame.data.batch import Batch, pack
from yamame.envs.gymnasium import GymnasiumConfig
from yamame.recipes.settings.presets import amago_config, default_config

UPDATES = 15
DEFAULT = amago_config(default_config(GymnasiumConfig(id="CartPole-v1", horizon=HORIZON)))


def batch_in_units(seed: int, *, scale: float, offset: float, dtype: type[np.floating], reward: float) -> Batch:
    """Random windows whose observations, multiples of 1/4, are `scale` (x + `offset`)."""
    windows = []
    for window in random_windows(seed, [9, 12, 5, 12]):
        trajectory = window.trajectory
        vector = np.round(4 * trajectory.observation["vector"].astype(np.float64)) / 4
        windows.append(
            replace(
                window,
                trajectory=replace(
                    trajectory,
                    observation=trajectory.observation | {"vector": (scale * (vector + offset)).astype(dtype)},
                    reward=(trajectory.reward.astype(np.float64) * reward).astype(np.float32),
                ),
            )
        )
    return pack(windows)


@cache
def learned(
    *, scale: float = 1.0, offset: float = 0.0, dtype: type[np.floating] = np.float64, reward: float = 1.0
) -> dict[str, float]:
    """Metrics and action probabilities after some updates of the default agent, of a tiny size."""
    config = replace(
        TINY_AGENT,
        timestep_encoder=replace(TINY_AGENT.timestep_encoder, normalize_time=False),
        critic=replace(TINY_AGENT.critic, value_code=DEFAULT.agent.critic.value_code),
    )
    agent = tiny_agent(config, DISCRETE, dtype=torch.float32, averaged=True)
    agent.timestep_encoder.normalizer.double()
    learner = Learner(agent, DEFAULT.learner, generator=torch.Generator().manual_seed(0))
    units = {"scale": scale, "offset": offset, "dtype": dtype, "reward": reward}
    for update in range(UPDATES):
        metrics = learner.update(batch_in_units(update, **units))
    batch = batch_in_units(99, **units)
    with torch.no_grad():
        probability_NGA = agent.actor(agent.encode(agent.features(batch), batch), None).probability_NGA
    in_rewards = ("critic/td_target_mean", "critic/popart_std")
    numbers = {name: float(value) / (reward if name in in_rewards else 1.0) for name, value in metrics.items()}
    probabilities = probability_NGA[batch.token_mask][::7, -1, 0].tolist()
    return numbers | {f"probability {index}": value for index, value in enumerate(probabilities)}


@pytest.mark.parametrize("reward", [1e-6, 1e-3, 1e6])
def test_the_unit_of_rewards_does_not_matter(reward: float) -> None:
    assert learned(reward=reward) == pytest.approx(learned(), rel=1e-2, abs=1e-3)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e6])
@pytest.mark.parametrize("offset", [0.0, -1e6, 1e6, 1e9])
def test_neither_unit_nor_offset_of_an_observation_matters(scale: float, offset: float) -> None:
    assert learned(scale=scale, offset=offset) == pytest.approx(learned(), rel=1e-2, abs=1e-3)


@pytest.mark.parametrize(("scale", "offset"), [(2.0**-13, 0.0), (2.0**-13, -(2.0**20)), (2.0**20, 2.0**20)])
def test_of_float32_observations_neither(scale: float, offset: float) -> None:
    """All numbers are exact in float32."""
    assert learned(scale=scale, offset=offset, dtype=np.float32) == pytest.approx(learned(), rel=1e-2, abs=1e-3)


def test_what_is_observed_matters() -> None:
    """The comparisons above can fail."""
    assert learned(scale=0.0) != pytest.approx(learned(), rel=1e-2, abs=1e-3)
