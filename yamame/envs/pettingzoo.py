"""Agents of PettingZoo's parallel environments, each a row of a vector environment: one policy, a memory for each."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Shaped, UInt8
from typing_extensions import override

from yamame.data.actions import (
    ACTION_MASK_KEY,
    check_action_space,
    policy_action_space,
    split_env_actions,
    to_env_action,
)
from yamame.data.observations import ObservationParser, OutOfSpaceError, copy_arrays
from yamame.data.step import VectorStep
from yamame.envs.base import RenderableVectorEnv
from yamame.envs.rendering import render_fps, render_frame
from yamame.envs.vector.action_masks import ActionMaskExtractor
from yamame.envs.vector.faults import (
    InvalidEnvOutputError,
    close_envs,
    out_of_space_error,
    reset_seeds,
    stack_flags,
    stack_rewards,
    stack_successes,
    success_entry,
    validate_finite,
    validate_infos,
)
from yamame.envs.vector.fixed_spaces import check_spaces_unchanged
from yamame.envs.wrappers.instruction import is_goal_env
from yamame.errors import UserError

ROWS = 24
"""Agents of all copies of an environment together, at least those of one copy."""


def is_parallel_env(env: Any) -> bool:
    """Return whether this is a `pettingzoo.ParallelEnv`. Raises `UserError` for PettingZoo's turn-based interface."""
    pettingzoo = sys.modules.get("pettingzoo")  # imported where such an environment was made
    if pettingzoo is None:
        return False
    if isinstance(env, pettingzoo.AECEnv):
        raise UserError(
            "expected a parallel environment of PettingZoo, got one whose agents take turns: pass its parallel_env, or "
            "convert it with pettingzoo.utils.aec_to_parallel"
        )
    return isinstance(env, pettingzoo.ParallelEnv)


def default_vector_size(env: Any) -> int:
    """Return the number of rows of as many copies of a parallel environment as have about `ROWS` agents."""
    num_agents = len(_possible_agents(env))
    return num_agents * max(1, ROWS // num_agents)


class AgentVectorEnv(RenderableVectorEnv):
    """`EpisodeVectorEnv` whose rows are the agents of copies of a `pettingzoo.ParallelEnv`, copy by copy.

    Every agent's episode is its own: it ends when the agent terminates, is truncated or reaches the horizon. An agent
    that leaves early waits, in steps without transition, until all agents of its copy have ended. Then the copy is
    reset, and `reset` returns the first observations of all its agents, those that waited included. Agents that take no
    part in an episode wait through it.

    Args:
        envs: Copies of one environment.
        seed: The seeds of all copies are derived from it.
        action_mask_key: See `ActionMaskExtractor`.

    Raises:
        UserError: If agents or copies have different spaces, or spaces that are not supported.
    """

    def __init__(self, envs: Sequence[Any], seed: int, *, action_mask_key: str = ACTION_MASK_KEY) -> None:
        self._agents = _possible_agents(envs[0])
        self._envs = list(envs)
        self.num_envs = len(envs) * len(self._agents)
        first = self._agents[0]
        self.observation_space = envs[0].observation_space(first)
        self.env_action_space = check_action_space(envs[0].action_space(first))
        self.action_space = policy_action_space(self.env_action_space)
        for env in envs:
            self._check_spaces(env)
        self._parser = ObservationParser(self.observation_space)
        self._masks = ActionMaskExtractor(action_mask_key, self.observation_space, self.env_action_space)
        self._seeds: list[int | None] = [*reset_seeds(np.random.SeedSequence(seed), len(envs))]
        if is_goal_env(self.observation_space):
            raise UserError("goals are not supported where agents share an environment: rename achieved_goal")
        self._observations: list[Any] = [None] * self.num_envs
        self._infos: list[Mapping[str, Any]] = [{}] * self.num_envs
        self._waiting = np.ones(self.num_envs, np.bool_)
        """Rows without an episode: their agent has left, or takes no part in this one."""
        self._step = np.zeros(self.num_envs, np.int64)
        self._reports_success = False

    @override
    def reset(
        self, reset_mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        if (reset_mask & ~new_task).any():
            raise UserError("agents that share an environment cannot repeat a task: use attempts=1")
        self._waiting = self._waiting | reset_mask
        self._step[reset_mask] = 0
        for copy in range(len(self._envs)):
            if self._waiting[self._rows(copy)].all():
                self._reset_copy(copy)
        return self._observe()

    @override
    def step(self, action: Shaped[np.ndarray, "E ..."]) -> VectorStep:
        native = split_env_actions(self.env_action_space, to_env_action(self.env_action_space, action))
        is_transition = np.zeros(self.num_envs, np.bool_)
        rewards: list[Any] = [0.0] * self.num_envs
        terminated: list[Any] = [False] * self.num_envs
        truncated: list[Any] = [False] * self.num_envs
        for copy, env in enumerate(self._envs):
            rows = self._rows(copy)
            actions = dict(zip(self._agents, native[rows], strict=True))
            # copies of the environment may return the same arrays
            result = copy_arrays(env.step({agent: actions[agent] for agent in env.agents}))
            for row, agent in enumerate(self._agents, start=rows.start):
                if not self._waiting[row]:
                    is_transition[row] = True
                    self._observations[row], rewards[row], terminated[row], truncated[row], self._infos[row] = _parts(
                        result, agent
                    )
        self._step += is_transition
        flags = stack_flags("terminated", terminated), stack_flags("truncated", truncated)
        ended = flags[0] | flags[1]
        self._check_agents(ended)
        reward = stack_rewards(rewards)
        success = self._success(is_transition)
        observation = self._observe(reward, ended)
        return VectorStep(
            reward=reward,
            terminated=flags[0],
            truncated=flags[1],
            is_transition=is_transition,
            final_observation=observation,
            observation=observation,
            episode_start=~is_transition,
            success=success,
        )

    @property
    @override
    def render_fps(self) -> float:
        return render_fps(self._envs[0])

    @override
    def render(self) -> UInt8[np.ndarray, "height width 3"]:
        return render_frame(self._envs[0])

    @override
    def close(self) -> None:
        close_envs(self._envs)

    def _rows(self, copy: int) -> slice:
        return slice(copy * len(self._agents), (copy + 1) * len(self._agents))

    def _reset_copy(self, copy: int) -> None:
        env, rows = self._envs[copy], self._rows(copy)
        seed, self._seeds[copy] = self._seeds[copy], None
        observations, infos = copy_arrays(env.reset(seed=seed))
        validate_infos([infos, *infos.values()])
        for agent in env.agents:
            found = env.observation_space(agent), env.action_space(agent)
            if found[0] is not self.observation_space or found[1] is not self.env_action_space:
                check_spaces_unchanged(f"agent {agent!r}", found, (self.observation_space, self.env_action_space))
        for row, agent in enumerate(self._agents, start=rows.start):
            self._waiting[row] = agent not in env.agents
            if not self._waiting[row]:
                self._observations[row], self._infos[row] = observations[agent], infos.get(agent, {})
            elif self._observations[row] is None:  # nothing is learned from it, but it needs a valid one
                self._observations[row] = next(iter(observations.values()))
        if self._waiting[rows].all():
            raise UserError("a parallel environment was reset without any agent: it needs at least one")

    def _observe(
        self, reward: Float[np.ndarray, "E"] | None = None, ended: Bool[np.ndarray, "E"] | None = None
    ) -> dict[str, np.ndarray]:
        try:
            observation = self._parser.stack(self._observations)
        except OutOfSpaceError as error:
            raise out_of_space_error(error, error.row, int(self._step[error.row])) from error
        validate_finite(observation, reward, self._step)
        idle = self._waiting if ended is None else self._waiting | ended
        return self._masks.add_to(observation, self._masks.from_infos(self._infos), self._step, idle)

    def _check_agents(self, ended: Bool[np.ndarray, "E"]) -> None:
        """Raise unless the agents that are there are those whose episode has not ended."""
        for copy, env in enumerate(self._envs):
            rows = self._rows(copy)
            for row, agent in enumerate(self._agents, start=rows.start):
                if agent not in env.agents and not (self._waiting[row] or ended[row]):
                    message = f"agent {agent!r} left without being terminated or truncated"
                    raise InvalidEnvOutputError("shape_mismatch", message)

    def _success(self, is_transition: Bool[np.ndarray, "E"]) -> Bool[np.ndarray, "E"] | None:
        values = [success_entry(info) for info in self._infos]
        self._reports_success |= any(value is not None for value in values)
        if not self._reports_success:
            return None
        return stack_successes(self._infos) & is_transition

    def _check_spaces(self, env: Any) -> None:
        if _possible_agents(env) != self._agents:
            raise UserError("copies of the environment have different agents: make them all alike")
        for agent in self._agents:
            found = env.observation_space(agent), env.action_space(agent)
            if found != (self.observation_space, self.env_action_space):
                raise UserError(
                    f"agents {self._agents[0]!r} and {agent!r} have different spaces: one policy needs the same ones "
                    "(SuperSuit's pad_observations_v0 and pad_action_space_v0 make them so)"
                )


def _possible_agents(env: Any) -> tuple[Any, ...]:
    agents = tuple(getattr(env, "possible_agents", ()))
    if not agents:
        raise UserError("the parallel environment does not list its possible_agents: define them")
    return agents


def _parts(result: Any, agent: Any) -> tuple[Any, ...]:
    """Return observation, reward, terminated, truncated and info of an agent in the result of a step."""
    if not (isinstance(result, tuple) and len(result) == 5):
        message = "the environment's step does not return (observations, rewards, terminations, truncations, infos)"
        raise InvalidEnvOutputError("shape_mismatch", message)
    missing = [part for part in result[:4] if agent not in part]
    if missing:
        raise InvalidEnvOutputError("shape_mismatch", f"a step returns no values for agent {agent!r}, which took part")
    info = result[4].get(agent, {})
    validate_infos([info])
    return (*(part[agent] for part in result[:4]), info)
