"""`Collector`: a policy acts in environments; completed trials become trajectories."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Shaped

from yamame.collect.exploration import Explorer
from yamame.collect.faults import FaultMonitor, FaultToleranceConfig
from yamame.collect.policy import Policy
from yamame.collect.rollout_buffer import RolloutBuffer
from yamame.data.actions import ACTION_MASK_KEY, zero_action
from yamame.data.goals import Goals
from yamame.data.step import GoalStep, PolicyInput, VectorStep
from yamame.data.trajectory import Observation, Trajectory
from yamame.envs.base import TrialVectorEnv
from yamame.types import State, Stateful, load_nested_state_dict, nested_state_dict

_COUNTERS = ("_row", "_first_row_E", "_version_E", "_reports_success")
_EXTRAS = "extras/"


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
        self.env_steps = 0
        """Transitions so far, summed over environments. Exploration is scheduled by it."""
        self.remote_env_steps = 0
        """Transitions made by other processes of the run. Exploration counts them, too."""
        self.reset_trials()

    def close(self) -> None:
        """Close the environments."""
        self.environments.close()

    def counts(self) -> dict[str, float]:
        """Return the numbers of faults by kind, to be summed over ranks."""
        return self.faults.metrics()

    def metrics(self) -> dict[str, float]:
        """Return other metrics: none."""
        return {}

    def reset_trials(self) -> None:
        """Drop the active trials. The next step starts new ones."""
        self._input: PolicyInput | None = None
        self._row = 0
        self._first_row_E = np.zeros(self.environments.num_envs, np.int64)
        self._version_E = np.zeros(self.environments.num_envs, np.int64)
        self._reports_success = False
        self._last_goals: GoalStep | None = None
        self._observations, self._transitions = RolloutBuffer(), RolloutBuffer()

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
                "noise_scale": self.explorer.noise_scale_E.copy(),
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
        for buffer, saved in zip((self._observations, self._transitions), trials["buffers"], strict=True):
            buffer.load_state_dict(saved)
        self._input = PolicyInput(**trials["input"]) if trials["input"] else None
        self._last_goals = GoalStep(**trials["last_goals"]) if trials["last_goals"] else None
        self.explorer.noise_scale_E[:] = trials["noise_scale"]
        return True

    def collect(self, policy: Policy, env_steps: int, deterministic: bool) -> Iterator[Trajectory]:
        """Act for `ceil(env_steps / E)` vector steps and yield each trial when it completes.

        Active trials continue in the next call. Closing the generator early loses the other trials that completed in
        the same vector step.
        """
        for _ in range(-(-env_steps // self.environments.num_envs)):
            for _, trajectory in self.step(policy, deterministic=deterministic):
                yield trajectory

    def step(self, policy: Policy, *, deterministic: bool) -> list[tuple[int, Trajectory]]:
        """Make one vector step; return the trials that completed, each with the index of its environment.

        Raises `UserError` if environments fail too often.
        """
        now = self._input or self._reset()
        action = policy.act(now, deterministic=deterministic)
        mask = now.observation.get(ACTION_MASK_KEY)
        total_env_steps = self.env_steps + self.remote_env_steps
        action = self.explorer.add_noise(action, now.time, self.environments.horizon, total_env_steps, mask)
        is_first_E = now.time == 0
        if is_first_E.any():
            self._version_E[is_first_E] = policy.version
        # before the environments step: they may reuse the arrays that they returned
        self._observations.reserve(self._row, self._first_row_E)
        self._observations.write(self._row, now.observation)
        step = self.environments.step(action)
        self._write_transition(now, action, policy, step)

        self.env_steps += int(np.count_nonzero(step.is_transition))
        ended_E = (step.terminated | step.truncated) & step.is_transition
        self._row += 1
        completed = [(int(env), self._completed_trial(int(env), step)) for env in np.flatnonzero(ended_E)]
        self.faults.record_step(step, finished=len(completed))
        if step.failed is not None:
            completed += self._truncated_trials(step.failed)
            ended_E |= step.failed
        self._first_row_E[ended_E] = self._row
        self._last_goals = step.goals
        self._input = _next_input(now, action, step, ended_E)
        return completed

    def _reset(self) -> PolicyInput:
        num_envs = self.environments.num_envs
        return PolicyInput(
            time=np.zeros(num_envs, np.int64),
            observation=self.environments.reset(),
            previous_action=zero_action(self.environments.action_space, num_envs),
            previous_reward=np.zeros(num_envs, np.float32),
            episode_start=np.ones(num_envs, np.bool_),
        )

    def _write_transition(
        self, now: PolicyInput, action: Shaped[np.ndarray, "E ..."], policy: Policy, step: VectorStep
    ) -> None:
        """Write a row. The trial's own flags are not stored: they are false until its last transition."""
        row = {
            "action": action,
            "reward": step.reward,
            "episode_start": now.episode_start,
            "is_transition": step.is_transition,
            **{_EXTRAS + name: value for name, value in policy.extras.items()},
        }
        if step.success is not None:
            row["success"] = step.success
            self._reports_success = True
        if step.goals is not None:
            row["achieved"] = step.goals.achieved
        self._transitions.reserve(self._row, self._first_row_E)
        self._transitions.write(self._row, row)

    def _completed_trial(self, env: int, step: VectorStep) -> Trajectory:
        """Return the trial of environment `env`, which `step` ended."""
        rows = self._rows(env)
        is_transition = self._transitions.read("is_transition", *rows)
        observation = {
            name: np.concatenate([self._observations.read(name, *rows)[is_transition], final[env : env + 1]])
            for name, final in step.final_observation.items()
        }
        # the last observation starts no attempt, though the next input of the policy does
        episode_start = np.append(self._transitions.read("episode_start", *rows)[is_transition], False)
        terminated, truncated = bool(step.terminated[env]), bool(step.truncated[env])
        return self._trajectory(env, observation, episode_start, step.goals, terminated, truncated)

    def _truncated_trials(self, failed_E: Bool[np.ndarray, "E"]) -> list[tuple[int, Trajectory]]:
        """Return the trials that a fault interrupted in the last row, if they are to be kept."""
        if self.faults.config.on_fault == "drop":
            return []
        return [(env, self._truncated_trial(env)) for env in np.flatnonzero(failed_E).tolist() if self._length(env)]

    def _truncated_trial(self, env: int) -> Trajectory:
        """Return the trial of environment `env`, truncated before the action that failed."""
        rows = self._rows(env)
        observed = self._transitions.read("is_transition", *rows).copy()
        observed[-1] = True
        observation = {name: self._observations.read(name, *rows)[observed] for name in self._observations.columns}
        episode_start = self._transitions.read("episode_start", *rows)[observed]
        return self._trajectory(env, observation, episode_start, self._last_goals, False, True)

    def _trajectory(
        self,
        env: int,
        observation: Observation,
        episode_start: Bool[np.ndarray, "_"],
        goals: GoalStep | None,
        terminated: bool,
        truncated: bool,
    ) -> Trajectory:
        """Return the transitions in the buffer of environment `env` with the given observations and flags."""
        rows, length = self._rows(env), self._length(env)
        is_transition = self._transitions.read("is_transition", *rows)
        is_last = np.arange(length) == length - 1
        extras = [name for name in self._transitions.columns if name.startswith(_EXTRAS)]
        return Trajectory(
            reward=self._transitions.read("reward", *rows)[is_transition],
            action=self._transitions.read("action", *rows)[is_transition],
            terminated=is_last & terminated,
            truncated=is_last & truncated,
            episode_start=episode_start,
            observation=observation,
            success=self._transitions.read("success", *rows)[is_transition] if self._reports_success else None,
            goals=None if goals is None else self._goals(env, goals, is_transition),
            task=self.task,
            horizon=self.environments.horizon,
            policy_version=int(self._version_E[env]),
            noise_scale=float(self.explorer.noise_scale_E[env]),
            extras={name.removeprefix(_EXTRAS): self._transitions.read(name, *rows)[is_transition] for name in extras},
        )

    def _rows(self, env: int) -> tuple[int, int, int]:
        """Return the arguments of `RolloutBuffer.read` for the active trial of environment `env`."""
        return env, int(self._first_row_E[env]), self._row

    def _length(self, env: int) -> int:
        return int(np.count_nonzero(self._transitions.read("is_transition", *self._rows(env))))

    def _goals(self, env: int, goals: GoalStep, is_transition: Bool[np.ndarray, "rows"]) -> Goals:
        return Goals.from_steps(
            goals.instruction[env],
            self._transitions.read("achieved", *self._rows(env))[is_transition],
            tolerance=goals.tolerance,
            hide_future_goals=goals.hide_future_goals,
        )


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
    previous_reward = np.where(moved_E, step.reward, now.previous_reward)
    previous_action[ended_E] = 0
    previous_reward[ended_E] = 0.0
    return PolicyInput(
        time=time_E,
        observation=step.observation,
        previous_action=previous_action,
        previous_reward=previous_reward,
        episode_start=step.episode_start | (time_E == 0),
    )
