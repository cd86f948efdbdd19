"""Recording of one trial: frames, actions, rewards, texts, and the analysis of the agent if its algorithm has one.

T transitions, T + 1 timesteps: action t is chosen at timestep t; timestep T is where the last action led.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import blake2b
from io import BytesIO

import numpy as np
from jaxtyping import Bool, Int64, Shaped, UInt8
from PIL import Image
from typing_extensions import override

from yamame.algorithms.analysis import AgentAnalysis, SupportsAnalysis
from yamame.collect.collector import Collector, Policy
from yamame.collect.exploration import Explorer, NoExploration
from yamame.collect.faults import FaultToleranceConfig
from yamame.data.actions import ACTION_MASK_KEY, NativeActionSpace, PolicyActionSpace, first_choices, num_choices
from yamame.data.goals import COMPLETED, INSTRUCTION_KEY
from yamame.data.spaces import DEFAULT_KEY
from yamame.data.step import VectorStep
from yamame.data.trajectory import Trajectory
from yamame.envs.base import EpisodeVectorEnv, TrialVectorEnv
from yamame.envs.config import EnvConfig, GoalEnvConfig, apply_instruction
from yamame.envs.working_directory import kept_working_directory
from yamame.envs.wrappers.base import VectorEnvWrapper
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError
from yamame.training.evaluate import EVALUATION_SEED, check_seed
from yamame.training.trained_run import TrainedRun

MAX_TRIAL_LENGTH = 2000
"""Transitions after which a recorded trial is truncated, so that a page can show it."""
MAX_VALUES = 12
"""Observation leaves with more values are described by their shape and range."""


@dataclass(frozen=True, kw_only=True)
class TrialRecording:
    """One trial of a run's checkpoint."""

    task: str
    checkpoint: str
    """Name of its folder."""
    updates: int
    """Updates of the checkpoint."""
    seed: int
    instruction: str
    """Instruction given by the user; empty: sampled by the task."""
    deterministic: bool
    """Whether actions are the mode of the policy instead of samples."""
    truncated: bool
    """Whether the recording ends before the trial does."""
    trajectory: Trajectory
    frames: tuple[bytes | None, ...]
    """PNG of each timestep; None if the environment renders no frames."""
    attempt_end_frames: Mapping[int, bytes]
    """Last transition of each attempt but the last -> PNG of its final observation."""
    observation_texts: tuple[str, ...]
    """Observation of each timestep in words."""
    env_action_space: NativeActionSpace
    """Action space of the environment."""
    num_choices: tuple[int, ...]
    """Choices of each component of a discrete action; empty if continuous."""
    action_names: tuple[str, ...]
    """Names of the choices, or of the dimensions of a continuous action."""
    sub_goals: tuple[str, ...]
    """Sub-goals of the instruction in words; empty without an instruction."""
    goals_completed: Int64[np.ndarray, "timesteps"]
    """Number of completed sub-goals."""
    analysis: AgentAnalysis | None
    """None if the algorithm has no analysis."""

    def __len__(self) -> int:
        """Return the number of transitions T."""
        return len(self.trajectory)

    @property
    def attempt(self) -> Int64[np.ndarray, "timesteps"]:
        """Number of the attempt of each timestep, from 1."""
        return np.cumsum(self.trajectory.episode_start)


class FrameRecorder(VectorEnvWrapper):
    """Wraps an `EpisodeVectorEnv` and keeps PNGs of the first trial of its first environment.

    `frames` are those of the timesteps at which an action is chosen, then the last one; `attempt_end_frames` those of
    the final observation of an attempt, by the index of the transition. A trial that an environment fault cuts short
    is dropped; the next one is recorded instead.
    """

    def __init__(self, env: EpisodeVectorEnv, *, enabled: bool = True) -> None:
        super().__init__(env)
        self.frames: list[bytes | None] = []
        self.attempt_end_frames: dict[int, bytes] = {}
        self._enabled = enabled
        self._done = False
        self._encoded: dict[bytes, bytes] = {}

    @override
    def reset(
        self, reset_mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        observation = self.env.reset(reset_mask, new_task)
        self._done |= bool(new_task[0] and self.frames)
        if reset_mask[0] and not self._done:
            end = self.frames.pop() if self.frames else None
            if end is not None:
                self.attempt_end_frames[len(self.frames) - 1] = end
            self.frames.append(self._render())
        return observation

    @override
    def step(self, action: Shaped[np.ndarray, "E ..."]) -> VectorStep:
        step = self.env.step(action)
        if self._done:
            return step
        if step.failed is not None and step.failed[0]:
            self.frames.clear()
            self.attempt_end_frames.clear()
        elif not step.is_transition[0] and self.frames:
            self.frames.pop()  # the reset of an attempt
        self.frames.append(self._render())
        return step

    def _render(self) -> bytes | None:
        if not self._enabled:
            return None
        try:
            frame = self.render()
        except UserError:
            self._enabled = False
            return None
        digest = blake2b(frame.tobytes(), digest_size=16).digest()
        if digest not in self._encoded:
            self._encoded[digest] = encode_png(frame)
        return self._encoded[digest]


def encode_png(frame: UInt8[np.ndarray, "height width 3"]) -> bytes:
    """Encode a frame as PNG at the fastest compression level."""
    file = BytesIO()
    Image.fromarray(frame).save(file, "PNG", compress_level=1)
    return file.getvalue()


def describe_observation(observation: Mapping[str, Shaped[np.ndarray, "..."] | np.generic]) -> str:
    """Describe one observation leaf by leaf, without instruction and action mask. A leaf of one number is a scalar."""
    shown = {name: leaf for name, leaf in observation.items() if name not in (INSTRUCTION_KEY, ACTION_MASK_KEY)}
    return "   ".join(_leaf(leaf) if name == DEFAULT_KEY else f"{name} {_leaf(leaf)}" for name, leaf in shown.items())


def _leaf(leaf: Shaped[np.ndarray, "..."] | np.generic) -> str:
    if leaf.ndim == 0:
        return f"{leaf.item():.3g}"
    if leaf.size <= MAX_VALUES:
        return "[" + ", ".join(f"{number:.3g}" for number in leaf.flatten().tolist()) + "]"
    shape = " × ".join(map(str, leaf.shape))
    return f"{shape} numbers from {float(leaf.min()):.3g} to {float(leaf.max()):.3g}"


def _build(env: EnvConfig, seed: int) -> TrialVectorEnv:
    """Build the environments of a recording, without frames if they cannot be made for rendering."""
    try:
        return env.build_for_rendering(seed)
    except UserError:
        return env.build(env.required_num_envs or 1, seed)


@kept_working_directory()
def record_trial(
    run: TrainedRun,
    *,
    seed: int | None = None,
    instruction: str = "",
    deterministic: bool | None = None,
    frames: bool = True,
    keep: int | None = None,
    max_length: int = MAX_TRIAL_LENGTH,
) -> TrialRecording:
    """Record one trial of the run's evaluation task.

    Args:
        run: The run.
        seed: Seed of task and actions; None: that of evaluations.
        instruction: Instruction of the trial; empty: sampled by the task.
        deterministic: Whether actions are the mode of the policy; None: as in the run's evaluations.
        frames: Whether to render frames.
        keep: Attention weights kept per timestep (see `SupportsAnalysis.analyze`).
        max_length: Transitions after which the recording ends.

    Raises:
        UserError: If the task does not take the instruction.
    """
    if max_length < 1:
        raise UserError(f"cannot record {max_length} steps: pass at least 1")
    seed = EVALUATION_SEED if seed is None else seed
    check_seed(seed)
    config = run.config
    env = apply_instruction(config.env.eval_config(), instruction)
    deterministic = config.deterministic_actions if deterministic is None else deterministic
    with closing(_build(env, seed)) as plain:
        if not isinstance(plain, TrialWrapper):
            raise UserError(f"{env.task_name} cannot be recorded: its trials do not consist of attempts")
        recorder = FrameRecorder(plain.env, enabled=frames)
        trials = TrialWrapper(recorder, horizon=min(plain.horizon, max_length), attempts=plain.attempts)
        policy = run.policy(num_envs=trials.num_envs, seed=seed)
        trajectory = _first_trial(policy, trials, config.fault_tolerance, deterministic=deterministic)
        sizes, env_action_space = num_choices(trials.action_space), trials.env_action_space
        action_names = _action_names(env, trials.action_space, first_choices(env_action_space))
    trajectory = replace(trajectory.decompressed(), task=env.task_name, horizon=plain.horizon)
    sub_goals, goals_completed = _instruction(env, trajectory)
    analysis: AgentAnalysis | None = None
    if isinstance(config.algorithm, SupportsAnalysis):
        acting_only = run.checkpoint.has_acting_weights_only
        analysis = config.algorithm.analyze(run.model, trajectory, keep=keep, acting_only=acting_only)
    return TrialRecording(
        task=env.task_name,
        checkpoint=run.checkpoint.path.name,
        updates=run.checkpoint.step,
        seed=seed,
        instruction=instruction,
        deterministic=deterministic,
        truncated=len(trajectory) == max_length < plain.horizon and not trajectory.terminated[-1],
        trajectory=trajectory,
        frames=tuple(recorder.frames[: len(trajectory) + 1]),
        attempt_end_frames=recorder.attempt_end_frames,
        observation_texts=tuple(
            describe_observation({name: leaf[time] for name, leaf in trajectory.observation.items()})
            for time in range(len(trajectory) + 1)
        ),
        env_action_space=env_action_space,
        num_choices=sizes,
        action_names=action_names,
        sub_goals=sub_goals,
        goals_completed=goals_completed,
        analysis=analysis,
    )


def _first_trial(
    policy: Policy, trials: TrialWrapper, faults: FaultToleranceConfig, *, deterministic: bool
) -> Trajectory:
    """Return the first trial of the first environment, without exploration."""
    explorer = Explorer(NoExploration(), trials.action_space, trials.num_envs, np.random.default_rng(0))
    collector = Collector(trials, "", explorer, replace(faults, on_fault="drop"))
    while True:
        for env, trajectory in collector.step(policy, deterministic=deterministic):
            if env == 0:
                return trajectory


def _instruction(env: EnvConfig, trajectory: Trajectory) -> tuple[tuple[str, ...], Int64[np.ndarray, "timesteps"]]:
    """Return the sub-goals in words and the number of completed ones at each timestep."""
    shown: Shaped[np.ndarray, "timesteps slots goal"] | None = trajectory.observation.get(INSTRUCTION_KEY)
    if shown is None or trajectory.goals is None:
        return (), np.zeros(len(trajectory) + 1, np.int64)
    text = env.goal_text if isinstance(env, GoalEnvConfig) else _plain_text
    return tuple(map(text, trajectory.goals.instruction)), (shown == COMPLETED).all(axis=2).sum(axis=1)


def _plain_text(goal: Shaped[np.ndarray, "goal"]) -> str:
    return "(" + ", ".join(f"{number:g}" for number in goal) + ")"


def _action_names(env: EnvConfig, action_space: PolicyActionSpace, starts: Sequence[int]) -> tuple[str, ...]:
    """Return the task's names of its actions; if it has none, the numbers that the environment gets, from `starts`."""
    sizes = num_choices(action_space)
    if len(sizes) > 1:
        components = enumerate(zip(starts, sizes, strict=True))
        return tuple(
            f"{component}: {start + choice}" for component, (start, size) in components for choice in range(size)
        )
    count = sizes[0] if sizes else int(np.prod(action_space.shape or (1,)))
    start = starts[0] if sizes else 0
    return env.action_names if len(env.action_names) == count else tuple(map(str, range(start, start + count)))
