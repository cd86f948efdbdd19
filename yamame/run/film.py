"""A run's policy as a film."""

from contextlib import closing
from pathlib import Path

import torch

from yamame.environments.trials import Trials
from yamame.model.policy import Policy
from yamame.records.errors import UserError
from yamame.records.interfaces import RenderedEnvironments
from yamame.rollout.camera import Camera
from yamame.rollout.evaluate import evaluate
from yamame.rollout.video import check_video, recording
from yamame.run.config import RunConfig
from yamame.run.judge import EVALUATION_SEED
from yamame.run.session import load_agent, read_config


def film_run(
    directory: Path, path: Path, *, trials: int = 1, seed: int | None = None, config: RunConfig | None = None
) -> None:
    """Film the greedy policy of a run's newest checkpoint: `trials` of what it is judged on, from `seed`.

    Raises `UserError` for a file that cannot be written, and for a task that has no pictures. `config` is as in
    `evaluate_run`.
    """
    check_video(path)
    if trials < 1:
        raise UserError(f"cannot film {trials} trials: give at least 1")
    env = (config or read_config(directory)).env.for_evaluation()
    agent, _ = load_agent(directory)
    seed = EVALUATION_SEED if seed is None else seed
    with closing(env.build_rendered(seed)) as plain:
        if not isinstance(plain, Trials) or not isinstance(plain.environments, RenderedEnvironments):
            raise UserError(f"{env.task} cannot be filmed: it has no pictures")
        with recording(path, plain.environments.frames_per_second) as video:
            camera = Camera(plain.environments, video.add, trials=trials)
            filmed = Trials(camera, horizon=plain.horizon, attempts=plain.attempts)
            generator = torch.Generator(agent.discounts_G.device).manual_seed(seed)
            policy = Policy(agent, num_envs=camera.num_envs, generator=generator)
            evaluate(policy, filmed, trials=trials * camera.num_envs, deterministic=True)
