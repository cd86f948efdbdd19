"""Trajectories with goals for the tests of relabeling: whatever random actions do in an environment."""

from functools import cache

import numpy as np
from collecting import collect_trials

from yamame.collect.collector import Collector, RandomPolicy
from yamame.collect.exploration import Explorer, NoExploration
from yamame.data.goals import INSTRUCTION_KEY, Goals, instruction_observations
from yamame.data.trajectory import Trajectory
from yamame.envs.config import EnvConfig


@cache
def random_trajectories(config: EnvConfig, count: int, num_envs: int = 16) -> tuple[Trajectory, ...]:
    """At least `count` trials of random actions."""
    trials = config.build(num_envs, seed=3)
    rng = np.random.default_rng(4)
    collector = Collector(trials, config.task_name, Explorer(NoExploration(), trials.action_space, num_envs, rng))
    policy = RandomPolicy(trials.action_space, rng)
    steps = -(-count // num_envs) * num_envs * config.max_trial_steps
    found = tuple(collect_trials(collector, policy, steps))
    trials.close()
    return found


def made(instruction: list[int], achieved: list[tuple[int, int]], *, length: int = 12, slots: int = 4) -> Trajectory:
    """A trajectory that nobody lived: one number a goal, a different observation and action at every step."""
    goals = Goals(
        instruction=np.array(instruction, np.float32)[:, None],
        achieved_step=np.array([step for step, _ in achieved], np.int64),
        achieved_goal=np.array([[goal] for _, goal in achieved], np.float32).reshape(-1, 1),
    )
    completed = goals.completion_steps()
    assert len(completed) < len(instruction), "this one needs no relabeling"
    shown = instruction_observations(goals.instruction, slots=slots, hide_future_goals=False)
    reward = np.zeros(length, np.float32)
    reward[completed] = 1.0
    return Trajectory(
        reward=reward,
        action=np.arange(length),
        terminated=np.zeros(length, np.bool_),
        truncated=np.arange(length) == length - 1,
        episode_start=np.arange(length + 1) == 0,
        observation={
            "seen": np.arange(length + 1, dtype=np.float32)[:, None],
            INSTRUCTION_KEY: shown[np.searchsorted(completed, np.arange(length + 1))],
        },
        success=np.zeros(length, np.bool_),
        goals=goals,
        horizon=length,
    )
