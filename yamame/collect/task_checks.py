"""Whether the episodes of a trial are on one task: a check of environments with several attempts."""

from contextlib import closing
from typing import Any

import numpy as np

from yamame.collect.collector import Policy
from yamame.collect.episode_checks import MAX_STEPS, OwnEnvConfig, RepeatedActions
from yamame.data.step import PolicyInput
from yamame.envs.wrappers.trials import TrialWrapper

_EPISODES = 24


def task_findings(config: OwnEnvConfig, seed: int) -> list[str]:
    """Return a finding if `reset` samples the same episodes whether or not it is told to keep the task.

    Both sequences of episodes have the same seed and, in each episode, the same actions. An environment that keeps its
    task draws other random numbers than one that samples it anew, or its later episodes differ. Nothing is said of an
    environment whose rewards are the same in all these episodes: its task may be one that these actions do not show.

    Args:
        config: Makes the environments; its `attempts` are more than one.
        seed: Seed of the environment.
    """
    told, not_told = (_play_episodes(config, seed, keeps_task=keeps_task) for keeps_task in (True, False))
    if told != not_told or len({rewards for rewards, _ in told}) == 1:
        return []
    return [
        "reset with options['new_task'] False gives the same episodes as without it, and their rewards vary: if tasks "
        "vary, keep the task then, else the attempts of a trial share nothing"
    ]


def _play_episodes(config: OwnEnvConfig, seed: int, *, keeps_task: bool) -> list[tuple[bytes, bytes]]:
    """Return rewards and observations of each of the first episodes of environment 0.

    Args:
        config: As in `task_findings`.
        seed: As in `task_findings`.
        keeps_task: Reset later episodes with `options["new_task"]` False.
    """
    episodes: list[tuple[bytes, bytes]] = []
    with closing(config.build(config.required_num_envs or 1, seed)) as trials:
        assert isinstance(trials, TrialWrapper)
        envs = trials.env
        policy: Policy = RepeatedActions(envs.action_space, 0)
        everywhere = np.ones(envs.num_envs, np.bool_)
        observation: Any = envs.reset(everywhere, everywhere)
        time = np.zeros(envs.num_envs, np.int64)
        rewards, seen = b"", b""
        while len(episodes) < _EPISODES:
            action = policy.act(_input(time, observation), deterministic=False)
            step = envs.step(action)
            time += 1
            rewards += step.reward[:1].tobytes()
            seen += b"".join(leaf[0].tobytes() for leaf in step.observation.values())
            ended = step.terminated | step.truncated | (time >= MAX_STEPS)
            if ended[0]:
                episodes.append((rewards, seen))
                rewards, seen = b"", b""
            time[ended] = 0
            observation = envs.reset(ended, ended & (not keeps_task)) if ended.any() else step.observation
    return episodes


def _input(time: np.ndarray, observation: Any) -> PolicyInput:
    zeros = np.zeros(len(time), np.float32)
    return PolicyInput(
        time=time.copy(), observation=observation, previous_action=zeros, previous_reward=zeros, episode_start=time == 0
    )
