"""`Collector`: environments and a policy in, finished trajectories out."""

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

_FLIGHT = ("_row", "_first_row_E", "_version_E", "_announces_success")


class Collector:
    """Lets a policy act in E environments and hands over every trial when it has ended.

    Holds what lies between two calls: what the policy sees next and the tape of the trials in flight. Use the same
    policy object in every call, and in nothing else meanwhile: its memory belongs to these trials.

    The trial of an environment that failed is dropped, or cut before the step that failed, as `faults` says. Raises
    `UserError` where that happens too often.
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
        """Transitions so far, summed over environments: the clock of exploration. Set it to go on from a checkpoint."""
        self.remote_env_steps = 0
        """Transitions that other processes of the run made; on the clock of exploration they count as well."""
        self.reset_trials()

    def close(self) -> None:
        """Close the environments."""
        self.environments.close()

    def counts(self) -> dict[str, float]:
        """How often the environments failed, by key."""
        return self.faults.metrics()

    def metrics(self) -> dict[str, float]:
        """What else there is to log: nothing."""
        return {}

    def reset_trials(self) -> None:
        """Drop the trials in flight: the next step begins new ones everywhere."""
        self._input: PolicyInput | None = None
        self._row = 0
        self._first_row_E = np.zeros(self.environments.num_envs, np.int64)
        self._version_E = np.zeros(self.environments.num_envs, np.int64)
        self._announces_success = False
        self._goals_before: GoalStep | None = None
        self._observations, self._transitions = RolloutBuffer(), RolloutBuffer()

    def state_dict(self) -> State:
        """The clock, and the trials in flight if the environments can be put back into them (see `Resumable`)."""
        flight = nested_state_dict(self.environments, self, _FLIGHT)
        if flight is not None:
            written = (self._row, self._first_row_E)
            flight = {
                **flight,
                "input": vars(self._input) if self._input else None,
                "goals_before": vars(self._goals_before) if self._goals_before else None,
                "buffers": [tape.state_dict(*written) for tape in (self._observations, self._transitions)],
                "noise_scale": self.explorer.noise_scale_E.copy(),
            }
        return {"env_steps": self.env_steps, "faults": self.faults.state_dict(), "active_trials": flight}

    def load_state_dict(self, state: State) -> bool:
        """Go on where `state_dict` was taken; whether the trials in flight do as well, or else new ones begin."""
        self.env_steps = state["env_steps"]
        self.faults.load_state_dict(state["faults"])
        self.reset_trials()
        flight = state["active_trials"]
        if flight is None or not isinstance(self.environments, Stateful):
            return False
        load_nested_state_dict(self.environments, self, flight)
        for tape, kept in zip((self._observations, self._transitions), flight["buffers"], strict=True):
            tape.load_state_dict(kept)
        self._input = PolicyInput(**flight["input"]) if flight["input"] else None
        self._goals_before = GoalStep(**flight["goals_before"]) if flight["goals_before"] else None
        self.explorer.noise_scale_E[:] = flight["noise_scale"]
        return True

    def collect(self, policy: Policy, env_steps: int, deterministic: bool) -> Iterator[Trajectory]:
        """Act for `ceil(env_steps / E)` vector steps, lazily; yields each trial when it finishes.

        Trials in flight at the end go on in the next call. Leaving the generator early leaves only whole vector steps
        behind, but loses other trials that ended in the very same one.
        """
        for _ in range(-(-env_steps // self.environments.num_envs)):
            for _, trajectory in self.step(policy, deterministic=deterministic):
                yield trajectory

    def step(self, policy: Policy, *, deterministic: bool) -> list[tuple[int, Trajectory]]:
        """One vector step: the trials that it finished, each with the index of its environment."""
        now = self._input or self._begin()
        action = policy.act(now, deterministic=deterministic)
        mask = now.observation.get(ACTION_MASK_KEY)
        clock = self.env_steps + self.remote_env_steps
        action = self.explorer.add_noise(action, now.time, self.environments.horizon, clock, mask)
        begins_E = now.time == 0
        if begins_E.any():
            self._version_E[begins_E] = policy.version
        # before the environments move on: they may reuse the arrays that they gave us
        self._write_observation(now)
        step = self.environments.step(action)
        self._write_transition(now, action, step)

        self.env_steps += int(np.count_nonzero(step.is_transition))
        ended_E = (step.terminated | step.truncated) & step.is_transition
        self._row += 1
        finished = [(int(env), self._finished(int(env), step)) for env in np.flatnonzero(ended_E)]
        self.faults.record_step(step, finished=len(finished))
        if step.failed is not None:
            finished += self._cut_short(step.failed)
            ended_E |= step.failed
        self._first_row_E[ended_E] = self._row
        self._goals_before = step.goals
        self._input = _next_input(now, action, step, ended_E)
        return finished

    def _begin(self) -> PolicyInput:
        num_envs = self.environments.num_envs
        return PolicyInput(
            time=np.zeros(num_envs, np.int64),
            observation=self.environments.reset(),
            previous_action=zero_action(self.environments.action_space, num_envs),
            previous_reward=np.zeros(num_envs, np.float32),
            episode_start=np.ones(num_envs, np.bool_),
        )

    def _write_observation(self, now: PolicyInput) -> None:
        self._observations.reserve(self._row, self._first_row_E)
        self._observations.write(self._row, now.observation)

    def _write_transition(self, now: PolicyInput, action: Shaped[np.ndarray, "E ..."], step: VectorStep) -> None:
        """Flags of the trial itself need no tape: they are false until its last transition."""
        row = {"action": action, "reward": step.reward, "episode_start": now.episode_start, "live": step.is_transition}
        if step.success is not None:
            row["success"] = step.success
            self._announces_success = True
        if step.goals is not None:
            row["achieved"] = step.goals.achieved
        self._transitions.reserve(self._row, self._first_row_E)
        self._transitions.write(self._row, row)

    def _finished(self, env: int, step: VectorStep) -> Trajectory:
        """The trial of environment `env`, which `step` has ended."""
        rows = self._rows(env)
        live = self._transitions.read("live", *rows)
        observation = {
            name: np.concatenate([self._observations.read(name, *rows)[live], final[env : env + 1]])
            for name, final in step.final_observation.items()
        }
        # the last observation begins nothing, though the one that the policy sees next does
        episode_start = np.append(self._transitions.read("episode_start", *rows)[live], False)
        terminated, truncated = bool(step.terminated[env]), bool(step.truncated[env])
        return self._trajectory(env, observation, episode_start, step.goals, terminated, truncated)

    def _cut_short(self, failed_E: Bool[np.ndarray, "E"]) -> list[tuple[int, Trajectory]]:
        """What there is to keep of trials that broke off in the row of the tape that was written last."""
        if self.faults.config.on_fault == "drop":
            return []
        return [(env, self._until_fault(env)) for env in np.flatnonzero(failed_E).tolist() if self._length(env)]

    def _until_fault(self, env: int) -> Trajectory:
        """The trial of environment `env` as truncated where the action was chosen that was never answered."""
        rows = self._rows(env)
        seen = self._transitions.read("live", *rows).copy()
        seen[-1] = True
        observation = {name: self._observations.read(name, *rows)[seen] for name in self._observations.columns}
        episode_start = self._transitions.read("episode_start", *rows)[seen]
        return self._trajectory(env, observation, episode_start, self._goals_before, False, True)

    def _trajectory(
        self,
        env: int,
        observation: Observation,
        episode_start: Bool[np.ndarray, "slots"],
        goals: GoalStep | None,
        terminated: bool,
        truncated: bool,
    ) -> Trajectory:
        """What is on the tape of environment `env`, with the observations around it and how it ended."""
        rows = self._rows(env)
        live = self._transitions.read("live", *rows)
        length = self._length(env)
        only_last = np.arange(length) == length - 1
        return Trajectory(
            reward=self._transitions.read("reward", *rows)[live],
            action=self._transitions.read("action", *rows)[live],
            terminated=only_last & terminated,
            truncated=only_last & truncated,
            episode_start=episode_start,
            observation=observation,
            success=self._transitions.read("success", *rows)[live] if self._announces_success else None,
            goals=self._goals(env, goals, rows, live),
            task=self.task,
            horizon=self.environments.horizon,
            policy_version=int(self._version_E[env]),
            noise_scale=float(self.explorer.noise_scale_E[env]),
        )

    def _rows(self, env: int) -> tuple[int, int, int]:
        """Where the trial in flight of environment `env` is on the tape."""
        return env, int(self._first_row_E[env]), self._row

    def _length(self, env: int) -> int:
        return int(np.count_nonzero(self._transitions.read("live", *self._rows(env))))

    def _goals(
        self, env: int, step: GoalStep | None, rows: tuple[int, int, int], live: Bool[np.ndarray, "rows"]
    ) -> Goals | None:
        if step is None:
            return None
        return Goals.from_steps(
            step.instruction[env],
            self._transitions.read("achieved", *rows)[live],
            tolerance=step.tolerance,
            hide_future_goals=step.hide_future_goals,
        )


def _next_input(
    now: PolicyInput, action: Shaped[np.ndarray, "E ..."], step: VectorStep, ended_E: Bool[np.ndarray, "E"]
) -> PolicyInput:
    """What the policy sees after a vector step: each timestep carries the action and reward that led to it.

    Where trials have ended, others begin. Rows that are not live made no transition: they stay at their time, with
    another observation.
    """
    live_E = step.is_transition
    time_E = np.where(ended_E, 0, now.time + live_E)
    previous_action = np.where(live_E.reshape(-1, *[1] * (action.ndim - 1)), action, now.previous_action)
    previous_reward = np.where(live_E, step.reward, now.previous_reward)
    previous_action[ended_E] = 0
    previous_reward[ended_E] = 0.0
    return PolicyInput(
        time=time_E,
        observation=step.observation,
        previous_action=previous_action,
        previous_reward=previous_reward,
        episode_start=step.episode_start | (time_E == 0),
    )
