"""A run's policy as a film."""

from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Shaped

from yamame.environments.goal_config import GoalEnvConfig, apply_instruction
from yamame.environments.trials import TrialWrapper
from yamame.model.policy import Policy
from yamame.records.errors import UserError
from yamame.records.goals import COMPLETED, INSTRUCTION_LEAF
from yamame.records.interfaces import RenderableVectorEnv
from yamame.rollout.camera import VideoRecorder
from yamame.rollout.evaluate import EvalResult, evaluate
from yamame.rollout.video import validate_video_path, open_video
from yamame.run.config import RunConfig
from yamame.run.judge import EVALUATION_SEED
from yamame.run.session import LATEST, load_agent, read_config


def record_video(
    directory: Path,
    path: Path,
    *,
    instruction: str = "",
    trials: int = 1,
    seed: int | None = None,
    checkpoint: str = LATEST,
    config: RunConfig | None = None,
) -> EvalResult:
    """Film the greedy policy of a run's checkpoint: `trials` of what it is judged on, from `seed`.

    `instruction` is what to do, instead of what the task would draw. Raises `UserError` for a file that cannot be
    written, for a task that has no pictures, and for an instruction that nobody can follow there. `checkpoint` and
    `config` are as in `evaluate_run`. Returns how the filmed trials went.
    """
    validate_video_path(path)
    if trials < 1:
        raise UserError(f"cannot film {trials} trials: give at least 1")
    env = apply_instruction((config or read_config(directory)).env.eval_config(), instruction)
    agent, _ = load_agent(directory, checkpoint)
    seed = EVALUATION_SEED if seed is None else seed
    with closing(env.build_for_rendering(seed)) as plain:
        if not isinstance(plain, TrialWrapper) or not isinstance(plain.environments, RenderableVectorEnv):
            raise UserError(f"{env.task_name} cannot be filmed: it has no pictures")
        with open_video(path, plain.environments.render_fps) as video:
            describe = partial(_describe, env) if isinstance(env, GoalEnvConfig) else None
            camera = VideoRecorder(plain.environments, video.add, trials=trials, describe=describe)
            filmed = TrialWrapper(camera, horizon=plain.horizon, attempts=plain.attempts)
            generator = torch.Generator(agent.gammas_G.device).manual_seed(seed)
            policy = Policy(agent, num_envs=camera.num_envs, generator=generator)
            return evaluate(policy, filmed, trials=trials * camera.num_envs, deterministic=True)


def _describe(env: GoalEnvConfig, seen: Mapping[str, Shaped[np.ndarray, "..."]]) -> str:
    """How far the instruction is followed; nothing where there is none."""
    if INSTRUCTION_LEAF not in seen:
        return ""
    instruction = seen[INSTRUCTION_LEAF]
    completed = int((instruction == COMPLETED).all(axis=1).sum())
    open_goals = [env.goal_text(goal) for goal in instruction if goal.min() >= 0]
    return f"{completed} done; " + ("now " + ", then ".join(open_goals) if open_goals else "that was all")
