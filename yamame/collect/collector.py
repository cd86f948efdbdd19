"""Collection: a policy acts in environments; completed trials become trajectories."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Shaped
from typing_extensions import override

from yamame.collect.exploration import Explorer
from yamame.collect.faults import FaultMonitor, FaultToleranceConfig
from yamame.collect.frame_buffer import FrameBuffer
from yamame.collect.reward_range import RewardRange
from yamame.collect.rollout_buffer import RolloutBuffer
from yamame.data.actions import (
    ACTION_MASK_KEY,
    PolicyActionSpace,
    action_shape,
    num_choices,
    sample_uniform_actions,
    zero_action,
)
from yamame.data.goals import INSTRUCTION_KEY, Goals
from yamame.data.step import GoalStep, PolicyInput, VectorStep
from yamame.data.trajectory import CompressedFrames, Trajectory
from yamame.envs.base import TrialVectorEnv
from yamame.envs.vector.faults import ENV_ERRORS, first_reset_error
from yamame.nets.num_threads import kept_num_threads
from yamame.types import State, Stateful, load_nested_state_dict, nested_state_dict


@runtime_checkable
class Policy(Protocol):
    """Chooses actions for E environments, with a memory of each one's trial."""

    version: int
    """Number of gradient updates of the acting weights."""
    explores_E: Bool[np.ndarray, "E"] | None = None
    """Where the policy explores by itself in the present trial, so that its actions get no noise; None: nowhere."""

    def extras(
        self,
        action: Shaped[np.ndarray, "E ..."],
        epsilon_E: Float[np.ndarray, "E"],
        repeated_E: Bool[np.ndarray, "E"],
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """Return what learning needs to know of the last act (log-probability, value); stored in `Trajectory.extras`.

        Args:
            action: Actions that were executed, with exploration noise.
            epsilon_E: Level of the noise.
            repeated_E: Where the action repeats earlier noise, and so has probability 1 (Box: where the noise is).
        """
        return {}

    def act(self, step: PolicyInput, *, deterministic: bool) -> Shaped[np.ndarray, "E ..."]:
        """Return actions: integers `[E]` or `[E, C]`, or float32 `[E, A]` in [-1, 1].

        Actions that the observation leaf `ACTION_MASK_KEY` forbids are never returned.
        """
        ...


class RandomPolicy(Policy):
    """Uniform over the allowed choices of every component, or over [-1, 1] in every dimension."""

    version = 0

    def __init__(self, action_space: PolicyActionSpace, rng: np.random.Generator) -> None:
        self._shape = action_shape(action_space)
        self._sizes = num_choices(action_space)
        self._rng = rng

    @override
    def act(self, step: PolicyInput, *, deterministic: bool) -> Shaped[np.ndarray, "E ..."]:
        num_envs = len(step.time)
        if not self._sizes:
            return self._rng.uniform(-1.0, 1.0, (num_envs, *self._shape)).astype(np.float32)
        uniform_EC = self._rng.random((num_envs, len(self._sizes)))
        mask_EA = step.observation.get(ACTION_MASK_KEY)
        return sample_uniform_actions(uniform_EC, self._sizes, mask_EA).reshape(num_envs, *self._shape)


_COUNTERS = ("_row", "_first_row_E", "_version_E", "_reports_success")
"""Attributes that are saved with the active trials."""
_EXTRAS = "extras/"
"""Prefix of the columns of `Trajectory.extras` in the buffer."""


class Collector:
    """Steps a policy in E environments and returns completed trials as trajectories.

    Between two calls it holds the next input of the policy and the rows of the active trials. Pass the same policy in
    every call and use it nowhere else meanwhile: its memory belongs to these trials.

    Args:
        environments: E trials stepped together.
        task: Name of the task, stored in trajectories.
        explorer: Adds exploration noise to actions.
        faults: Handling of environments that fail; None: the default.
    """

    def __init__(
        self,
        environments: TrialVectorEnv,
        task: str,
        explorer: Explorer,
        faults: FaultToleranceConfig | None = None,
    ) -> None:
        self.environments = environments
        self.task = task
        self.explorer = explorer
        self.faults = FaultMonitor(faults or FaultToleranceConfig())
        self.rewards = RewardRange()
        self.env_steps = 0
        """Transitions so far, summed over environments. Exploration is scheduled by it."""
        self.remote_env_steps = 0
        """Transitions made by other processes of the run. Exploration counts them, too."""
        self.reset_trials()

    @property
    def has_active_trials(self) -> bool:
        """Whether a trial has begun and not ended."""
        return self._input is not None and bool(self._input.time.any())

    def close(self) -> None:
        """Close the environments."""
        self.environments.close()

    def reset_trials(self) -> None:
        """Drop the active trials. The next step starts new ones."""
        self._input: PolicyInput | None = None
        self._row = 0
        self._first_row_E = np.zeros(self.environments.num_envs, np.int64)
        self._version_E = np.zeros(self.environments.num_envs, np.int64)
        self._reports_success = False
        self._last_goals: GoalStep | None = None
        self._observations, self._transitions = RolloutBuffer(), RolloutBuffer()
        self._frames: dict[str, FrameBuffer] = {}
        """Of the leaves that are images; `_observations` has the others."""

    def state_dict(self) -> State:
        """Return the counters, and the active trials if the environments are `Stateful`."""
        trials = nested_state_dict(self.environments, self, _COUNTERS)
        if trials is not None:
            rows = (self._row, self._first_row_E)
            trials = {
                **trials,
                "input": vars(self._input) if self._input else None,
                "last_goals": vars(self._last_goals) if self._last_goals else None,
                "buffers": [buffer.state_dict(*rows) for buffer in (self._observations, self._transitions)],
                "frames": {name: buffer.state_dict() for name, buffer in self._frames.items()},
                "explorer": self.explorer.state_dict(),
            }
        return {"env_steps": self.env_steps, "faults": self.faults.state_dict(), "active_trials": trials}

    def load_state_dict(self, state: State) -> bool:
        """Restore the result of `state_dict`; return whether the active trials continue. If not, new ones start."""
        self.env_steps = state["env_steps"]
        self.faults.load_state_dict(state["faults"])
        self.reset_trials()
        trials = state["active_trials"]
        if trials is None or not isinstance(self.environments, Stateful):
            return False
        load_nested_state_dict(self.environments, self, trials)
        observations, transitions = trials["buffers"]
        if "frames" not in trials:  # of an earlier version
            observations = self._take_frames(observations, transitions["columns"]["is_transition"])
        self._observations.load_state_dict(observations)
        self._transitions.load_state_dict(transitions)
        for name, saved in trials.get("frames", {}).items():
            self._frames[name] = FrameBuffer()
            self._frames[name].load_state_dict(saved)
        self._input = PolicyInput(**trials["input"]) if trials["input"] else None
        self._last_goals = GoalStep(**trials["last_goals"]) if trials["last_goals"] else None
        self.explorer.load_state_dict(trials["explorer"])
        return True

    def step(self, policy: Policy, *, deterministic: bool) -> list[tuple[int, Trajectory]]:
        """Make one vector step; return the trials that completed, each with the index of its environment.

        Raises `UserError` if environments fail too often.
        """
        # 1. act and step
        now = self._input or self._start_first()
        action = policy.act(now, deterministic=deterministic)
        mask = now.observation.get(ACTION_MASK_KEY)
        total_env_steps = self.env_steps + self.remote_env_steps
        action = self.explorer.add_noise(
            action, now.time, self.environments.horizon, total_env_steps, mask, policy.explores_E
        )
        self._version_E[now.time == 0] = policy.version
        # before the environments step: they may reuse the arrays that they returned
        self._write_observation(now.observation)
        with kept_num_threads():
            step = self.environments.step(action)
        for frames in self._frames.values():
            frames.keep(step.is_transition)
        self._write_transition(now, action, policy, step)
        # 2. cut the trials that ended out of the rows
        self.env_steps += int(np.count_nonzero(step.is_transition))
        ended_E = (step.terminated | step.truncated) & step.is_transition
        self._row += 1
        completed = [(env, self._trajectory(env, step)) for env in np.flatnonzero(ended_E).tolist()]
        # 3. count faults, and truncate or drop the trials that they interrupted
        worked = bool(step.is_transition.any())
        self.faults.record_faults(step.faults, finished=len(completed), worked=worked)
        if step.failed is not None:
            if self.faults.config.on_fault != "drop":
                interrupted = np.flatnonzero(step.failed & (now.time > 0)).tolist()
                completed += [(env, self._trajectory(env, step, is_interrupted=True)) for env in interrupted]
            ended_E |= step.failed
        # 4. forget the rows of the trials that ended, and prepare the next input
        self._first_row_E[ended_E | ((now.time == 0) & ~step.is_transition)] = self._row
        for frames in self._frames.values():
            frames.clear(ended_E)
        self._last_goals = step.goals
        self._input = _next_input(now, action, step, ended_E)
        return completed

    def start(self) -> PolicyInput:
        """Return the next input of the policy. Resets the environments if there are no active trials."""
        if self._input is None:
            num_envs = self.environments.num_envs
            with kept_num_threads():
                observation = self.environments.reset()
            self._input = PolicyInput(
                time=np.zeros(num_envs, np.int64),
                observation=observation,
                previous_action=zero_action(self.environments.action_space, num_envs),
                previous_reward=np.zeros(num_envs, np.float32),
                episode_start=np.ones(num_envs, np.bool_),
            )
        return self._input

    def _start_first(self) -> PolicyInput:
        """Return the result of `start`. Raises `UserError` if the environments cannot be reset."""
        try:
            return self.start()
        except ENV_ERRORS as error:
            raise first_reset_error(error) from error

    def _write_observation(self, observation: Mapping[str, Shaped[np.ndarray, "E ..."]]) -> None:
        if self._row == 0:
            self._frames = {name: FrameBuffer() for name, leaf in observation.items() if _is_image(name, leaf)}
        if self._frames:
            for name, frames in self._frames.items():
                frames.write(observation[name])
            observation = {name: leaf for name, leaf in observation.items() if name not in self._frames}
        self._observations.write(self._row, observation, self._first_row_E)

    def _take_frames(self, observations: State, is_transition_RE: Bool[np.ndarray, "rows E"]) -> State:
        """Move the images of a saved `RolloutBuffer` into `_frames`; return its other columns."""
        columns = dict(observations["columns"])
        for name, rows in observations["columns"].items():
            if len(rows) and _is_image(name, rows[0]):
                frames = self._frames[name] = FrameBuffer()
                for row, values in enumerate(columns.pop(name)):
                    frames.write(values)
                    frames.keep(is_transition_RE[row] & (self._first_row_E <= observations["first_row"] + row))
        return {**observations, "columns": columns}

    def _write_transition(
        self, now: PolicyInput, action: Shaped[np.ndarray, "E ..."], policy: Policy, step: VectorStep
    ) -> None:
        """Write a row. The trial's own flags are not stored: they are false until its last transition."""
        extras = policy.extras(action, self.explorer.epsilon_E, self.explorer.repeated_E)
        row = {
            "action": action,
            "reward": step.reward,
            "episode_start": now.episode_start,
            "is_transition": step.is_transition,
            **{_EXTRAS + name: value for name, value in extras.items()},
        }
        if step.success is not None:
            row["success"] = step.success
            self._reports_success = True
        if step.goals is not None:
            row["achieved"] = step.goals.achieved
        self._transitions.write(self._row, row, self._first_row_E)

    def _trajectory(self, env: int, step: VectorStep, *, is_interrupted: bool = False) -> Trajectory:
        """Return the trial of an environment that `step` ended.

        If a fault interrupted it, it ends before the action that failed, neither terminated nor truncated: values are
        bootstrapped from its last observation.
        """
        rows = env, int(self._first_row_E[env]), self._row
        is_transition = self._transitions.read("is_transition", *rows)

        def read(column: str) -> Shaped[np.ndarray, "T ..."]:
            return self._transitions.read(column, *rows)[is_transition]

        if is_interrupted:
            observed = is_transition.copy()
            observed[-1] = True
            observation = {name: self._observations.read(name, *rows)[observed] for name in self._observations.columns}
            frames = {name: buffer.read(env, None) for name, buffer in self._frames.items()}
            episode_start = self._transitions.read("episode_start", *rows)[observed]
            goals, terminated, truncated = self._last_goals, False, False
        else:
            observation = {
                name: np.concatenate([self._observations.read(name, *rows)[is_transition], final[env : env + 1]])
                for name, final in step.final_observation.items()
                if name not in self._frames
            }
            frames = {
                name: buffer.read(env, step.final_observation[name][env]) for name, buffer in self._frames.items()
            }
            # the last observation starts no attempt, though the next input of the policy does
            episode_start = np.append(read("episode_start"), False)
            goals, terminated, truncated = step.goals, bool(step.terminated[env]), bool(step.truncated[env])
        # images of few timesteps are not compressed
        leaves = observation | {name: leaf for name, leaf in frames.items() if isinstance(leaf, np.ndarray)}
        exact_reward = read("reward")
        reward = exact_reward.astype(np.float32)
        self.rewards.record(exact_reward)
        is_last = np.arange(len(reward)) == len(reward) - 1
        return Trajectory(
            reward=reward,
            action=read("action"),
            terminated=is_last & terminated,
            truncated=is_last & truncated,
            episode_start=episode_start,
            observation={name: leaves[name] for name in step.final_observation if name in leaves},
            lazy_observation={name: leaf for name, leaf in frames.items() if isinstance(leaf, CompressedFrames)},
            success=read("success") if self._reports_success else None,
            goals=None
            if goals is None
            else Goals.from_steps(
                goals.instruction[env],
                read("achieved"),
                tolerance=goals.tolerance,
                hide_future_goals=goals.hide_future_goals,
            ),
            task=self.task,
            horizon=self.environments.horizon,
            policy_version=int(self._version_E[env]),
            noise_scale=float(self.explorer.noise_scale_E[env]),
            extras={
                name.removeprefix(_EXTRAS): read(name) for name in self._transitions.columns if name.startswith(_EXTRAS)
            },
        )


def _is_image(name: str, leaf: Shaped[np.ndarray, "E ..."]) -> bool:
    return FrameBuffer.suits(leaf) and name != INSTRUCTION_KEY


def _next_input(
    now: PolicyInput, action: Shaped[np.ndarray, "E ..."], step: VectorStep, ended_E: Bool[np.ndarray, "E"]
) -> PolicyInput:
    """Return the next input of the policy, with the action and reward that led to it.

    After the end of a trial the next input starts another. Environments without a transition keep their time and
    previous action.
    """
    moved_E = step.is_transition
    time_E = np.where(ended_E, 0, now.time + moved_E)
    previous_action = np.where(moved_E.reshape(-1, *[1] * (action.ndim - 1)), action, now.previous_action)
    previous_reward = np.where(moved_E, step.reward.astype(np.float32), now.previous_reward)
    previous_action[ended_E] = 0
    previous_reward[ended_E] = 0.0
    return PolicyInput(
        time=time_E,
        observation=step.observation,
        previous_action=previous_action,
        previous_reward=previous_reward,
        episode_start=step.episode_start | (time_E == 0),
        is_repeated=~moved_E & ~ended_E,
    )
