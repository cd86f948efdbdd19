"""A run's policy as a film."""

from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Shaped

from yamame.environments.goal_config import GoalEnvironmentConfig, told
from yamame.environments.trials import Trials
from yamame.model.policy import Policy
from yamame.records.errors import UserError
from yamame.records.goals import COMPLETED, INSTRUCTION_LEAF
from yamame.records.interfaces import RenderedEnvironments
from yamame.rollout.camera import Camera
from yamame.rollout.evaluate import Evaluation, evaluate
from yamame.rollout.video import check_video, recording
from yamame.run.config import RunConfig
from yamame.run.judge import EVALUATION_SEED
from yamame.run.session import NEWEST, load_agent, read_config


def film_run(
    directory: Path,
    path: Path,
    *,
    instruction: str = "",
    trials: int = 1,
    seed: int | None = None,
    checkpoint: str = NEWEST,
    config: RunConfig | None = None,
) -> Evaluation:
    """Film the greedy policy of a run's checkpoint: `trials` of what it is judged on, from `seed`.

    `instruction` is what to do, instead of what the task would draw. Raises `UserError` for a file that cannot be
    written, for a task that has no pictures, and for an instruction that nobody can follow there. `checkpoint` and
    `config` are as in `evaluate_run`. Returns how the filmed trials went.
    """
    check_video(path)
    if trials < 1:
        raise UserError(f"cannot film {trials} trials: give at least 1")
    env = told((config or read_config(directory)).env.for_evaluation(), instruction)
    agent, _ = load_agent(directory, checkpoint)
    seed = EVALUATION_SEED if seed is None else seed
    with closing(env.build_rendered(seed)) as plain:
        if not isinstance(plain, Trials) or not isinstance(plain.environments, RenderedEnvironments):
            raise UserError(f"{env.task} cannot be filmed: it has no pictures")
        with recording(path, plain.environments.frames_per_second) as video:
            describe = partial(_describe, env) if isinstance(env, GoalEnvironmentConfig) else None
            camera = Camera(plain.environments, video.add, trials=trials, describe=describe)
            filmed = Trials(camera, horizon=plain.horizon, attempts=plain.attempts)
            generator = torch.Generator(agent.discounts_G.device).manual_seed(seed)
            policy = Policy(agent, num_envs=camera.num_envs, generator=generator)
            return evaluate(policy, filmed, trials=trials * camera.num_envs, deterministic=True)


def _describe(env: GoalEnvironmentConfig, seen: Mapping[str, Shaped[np.ndarray, "..."]]) -> str:
    """How far the instruction is followed; nothing where there is none."""
    if INSTRUCTION_LEAF not in seen:
        return ""
    instruction = seen[INSTRUCTION_LEAF]
    completed = int((instruction == COMPLETED).all(axis=1).sum())
    open_goals = [env.goal_text(goal) for goal in instruction if goal.min() >= 0]
    return f"{completed} done; " + ("now " + ", then ".join(open_goals) if open_goals else "that was all")
