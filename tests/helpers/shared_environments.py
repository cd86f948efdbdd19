"""Parallel environments of PettingZoo whose agents have secrets of their own and leave at different times."""

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

AGENTS = ("a", "b", "c")
LENGTHS = {"a": 2, "b": 3, "c": 4}


class Secrets(ParallelEnv):
    """Shows each agent a bit of its own at step 0; its last action earns 1 for repeating it. Then it leaves.

    Agents stay for 2, 3 and 4 steps. `b` takes no part in every second episode if `with_absences`. Observed: the bit as
    one of two, which agent this is, the step of its episode, and a number of the episode.
    """

    metadata = {"name": "secrets"}  # noqa: RUF012
    possible_agents = list(AGENTS)  # noqa: RUF012

    def __init__(self, with_absences: bool = False) -> None:
        self.with_absences, self.episode = with_absences, 0
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-1.0, 1e6, (5,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert not self.agents or self.time, "reset before a step"
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.episode += 1
        absent = {"b"} if self.with_absences and self.episode % 2 == 0 else set()
        self.agents = [agent for agent in AGENTS if agent not in absent]
        self.bits, self.time = {agent: int(self.rng.integers(2)) for agent in AGENTS}, 0
        return {agent: self._look(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        assert set(actions) == set(self.agents) and all(action in (0, 1) for action in actions.values())
        self.time += 1
        there = list(self.agents)
        over = {agent: self.time == LENGTHS[agent] for agent in there}
        right = {agent: over[agent] and actions[agent] == self.bits[agent] for agent in there}
        self.agents = [agent for agent in there if not over[agent]]
        observations = {agent: self._look(agent) for agent in there}
        infos = {agent: {"success": right[agent]} for agent in there}
        return observations, {agent: float(right[agent]) for agent in there}, over, dict.fromkeys(there, False), infos

    def _look(self, agent: str) -> np.ndarray:
        shown = [self.bits[agent], 1 - self.bits[agent]] if self.time == 0 else [0, 0]
        return np.array([*shown, AGENTS.index(agent), self.time / 4, self.episode], np.float32)


class SecretsOnly(Secrets):
    """Without the number of the episode, which grows."""

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-1.0, 2.0, (4,), np.float32)

    def _look(self, agent: str) -> np.ndarray:
        return super()._look(agent)[:4]
