"""`record`: let a checkpoint of a run act through one trial, and look into it."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64, Shaped

from yamame.environments.config import EnvConfig
from yamame.environments.goal_config import GoalEnvConfig, apply_instruction
from yamame.environments.trials import TrialWrapper
from yamame.inspection.insight import analyze_trajectory
from yamame.inspection.pictures import FrameRecorder
from yamame.inspection.recording import TrialRecording
from yamame.inspection.seeing import describe_observation
from yamame.model.agent import Agent
from yamame.model.policy import Policy
from yamame.records.action_spaces import PolicyActionSpace, num_choices
from yamame.records.errors import UserError
from yamame.records.goals import COMPLETED, INSTRUCTION_LEAF
from yamame.records.trajectory import Trajectory
from yamame.rollout.collect import Collector
from yamame.rollout.exploration import Explorer, NoExploration
from yamame.rollout.faults import FaultToleranceConfig
from yamame.run.config import RunConfig
from yamame.run.judge import EVALUATION_SEED
from yamame.run.session import LATEST, load_agent, read_config

MAX_TRIAL_LENGTH = 2000
"""Transitions after which a trial is cut, so that a recording stays small enough to be looked at."""


def record_trial(
    directory: Path,
    *,
    checkpoint: str = LATEST,
    seed: int | None = None,
    instruction: str = "",
    deterministic: bool | None = None,
    pictures: bool = True,
    keep: int | None = None,
    longest: int = MAX_TRIAL_LENGTH,
    config: RunConfig | None = None,
) -> TrialRecording:
    """One trial of what the run is judged on, begun from `seed` (evaluations' own if None).

    `checkpoint` and `config` are as in `evaluate_run`, `instruction` is what to do instead of what the task would draw,
    `deterministic` whether the most likely action is taken (None: as the run's evaluations do). `keep` is as of
    `insight`. Raises `UserError` where there is no such checkpoint, and for an instruction that nobody can
    follow there.
    """
    if longest < 1:
        raise UserError(f"cannot record {longest} steps: give at least 1")
    seed = EVALUATION_SEED if seed is None else seed
    if seed < 0:
        raise UserError(f"cannot record from seed {seed}: give at least 0")
    config = config or read_config(directory)
    env = apply_instruction(config.env.eval_config(), instruction)
    agent, loaded = load_agent(directory, checkpoint)
    deterministic = config.deterministic_actions if deterministic is None else deterministic
    with closing(env.build_for_rendering(seed)) as plain:
        if not isinstance(plain, TrialWrapper):
            raise UserError(f"{env.task_name} cannot be recorded: its trials are not made of attempts")
        kept = FrameRecorder(plain.environments, wanted=pictures)
        trials = TrialWrapper(kept, horizon=min(plain.horizon, longest), attempts=plain.attempts)
        trajectory = _first_trial(agent, trials, config.fault_tolerance, seed=seed, deterministic=deterministic)
        names = _action_names(env, trials.action_space)
    trajectory = replace(trajectory, task=env.task_name, horizon=plain.horizon)
    texts, done = _instruction(env, trajectory)
    return TrialRecording(
        task=env.task_name,
        checkpoint=loaded.path.name,
        updates=loaded.step,
        seed=seed,
        instruction=instruction,
        deterministic=deterministic,
        truncated=len(trajectory) == longest < plain.horizon and not trajectory.terminated[-1],
        trajectory=trajectory,
        frames=tuple(kept.frames[: len(trajectory) + 1]),
        attempt_end_frames=kept.ends,
        observation_texts=tuple(
            describe_observation({name: leaf[moment] for name, leaf in trajectory.observation.items()})
            for moment in range(len(trajectory) + 1)
        ),
        action_names=names,
        sub_goals=texts,
        goals_completed=done,
        insight=analyze_trajectory(agent, trajectory, reward_scale=config.learner.td.reward_scale, keep=keep),
    )


def _first_trial(agent: Agent, trials: TrialWrapper, faults: FaultToleranceConfig, *, seed: int, deterministic: bool) -> Trajectory:
    """The first trial of the first environment, without exploration."""
    generator = torch.Generator(agent.gammas_G.device).manual_seed(seed)
    policy = Policy(agent, num_envs=trials.num_envs, generator=generator)
    explorer = Explorer(NoExploration(), trials.action_space, trials.num_envs, np.random.default_rng(0))
    collector = Collector(trials, "", explorer, replace(faults, on_fault="drop"))
    while True:
        for env, trajectory in collector.step(policy, deterministic=deterministic):
            if env == 0:
                return trajectory


def _instruction(
    env: EnvConfig, trajectory: Trajectory
) -> tuple[tuple[str, ...], Int64[np.ndarray, "moments"]]:
    """The sub-goals for people to read, and how many of them were completed at each moment."""
    shown: Shaped[np.ndarray, "moments slots goal"] | None = trajectory.observation.get(INSTRUCTION_LEAF)
    if shown is None or trajectory.goals is None:
        return (), np.zeros(len(trajectory) + 1, np.int64)
    text = env.goal_text if isinstance(env, GoalEnvConfig) else _plain_text
    return tuple(map(text, trajectory.goals.instruction)), (shown == COMPLETED).all(axis=2).sum(axis=1)


def _plain_text(goal: Shaped[np.ndarray, "goal"]) -> str:
    return "(" + ", ".join(f"{number:g}" for number in goal) + ")"


def _action_names(env: EnvConfig, action_space: PolicyActionSpace) -> tuple[str, ...]:
    """What the task calls its actions, numbers where it has no names for them."""
    sizes = num_choices(action_space)
    if len(sizes) > 1:
        return tuple(f"{component}: {choice}" for component, size in enumerate(sizes) for choice in range(size))
    count = sizes[0] if sizes else int(np.prod(action_space.shape or (1,)))
    return env.action_names if len(env.action_names) == count else tuple(map(str, range(count)))
