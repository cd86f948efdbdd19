"""Division of a run among learner and collector processes."""

from dataclasses import replace

import torch

from yamame.errors import UserError
from yamame.nets.compute import ComputeConfig
from yamame.run_config import RunConfig


def resolve_parallelism(config: RunConfig) -> RunConfig:
    """Resolve `num_envs` and validate the numbers of processes. `UserError` if they do not divide evenly."""
    learners, collectors = config.num_learners, config.ray.num_collectors
    if config.ray.address and not collectors:
        raise UserError(f"--ray.address {config.ray.address} requires collectors: pass --ray.num-collectors N")
    if collectors and not config.ray.address:
        raise UserError(
            f"--ray.num-collectors {collectors} requires a cluster: pass --ray.address local, or its address"
        )
    if config.ray.num_envs_per_collector and not collectors:
        raise UserError(
            "--ray.num-envs-per-collector requires collectors: pass --ray.address local --ray.num-collectors N"
        )
    if config.offline.data and (collectors or learners > 1):
        raise UserError("--offline.data requires a single process: pass no --ray.address and --num-learners 1")
    if config.ray.num_envs_per_collector:
        config = replace(config, num_envs=collectors * config.ray.num_envs_per_collector)
    _require_multiple("--ray.num-collectors", collectors, "learners", learners)
    _require_multiple("--num-envs", config.num_envs, "collectors", collectors or 1)
    _require_multiple("--num-envs", config.num_envs, "learners", learners)
    _require_multiple("--replay.batch-size", config.replay.batch_size, "learners", learners)
    return config


def shard_config(config: RunConfig) -> RunConfig:
    """Return the config of one of `config.num_learners` processes: its shard of environments, collectors and replay.

    What counts steps of the whole run, such as `env_steps` and `updates_per_env_step`, is unchanged.
    """
    learners, replay = config.num_learners, config.replay
    return replace(
        config,
        num_envs=config.num_envs // learners,
        env_steps_per_iteration=-(-config.env_steps_per_iteration // learners),
        ray=replace(config.ray, num_collectors=config.ray.num_collectors // learners),
        replay=replace(
            replay,
            batch_size=replay.batch_size // learners,
            min_batch_transitions=-(-replay.min_batch_transitions // learners),
            capacity_trajectories=max(1, replay.capacity_trajectories // learners),
            capacity_bytes=-(-replay.capacity_bytes // learners),
            cache_bytes=replay.cache_bytes // learners,
        ),
    )


def compute_for_rank(compute: ComputeConfig, local_rank: int, local_world_size: int) -> ComputeConfig:
    """Return the compute config of one of `local_world_size` learners on this machine: one GPU each, or the CPU.

    Raises:
        UserError: If there are fewer GPUs than learners, or if the config selects a single GPU.
    """
    device, gpus = compute.device, torch.cuda.device_count()
    if device == "cpu" or (device == "auto" and not gpus):
        return replace(compute, device="cpu")
    if device not in ("auto", "cuda"):
        raise UserError(f"--compute.device {device} cannot be shared by {local_world_size} learners: pass cuda or cpu")
    if gpus < local_world_size:
        raise UserError(
            f"{local_world_size} learners require a GPU each, and PyTorch finds {gpus}: pass --compute.device cpu"
        )
    return replace(compute, device=f"cuda:{local_rank}")


def _require_multiple(flag: str, value: int, processes: str, count: int) -> None:
    if value % count:
        raise UserError(
            f"{flag} {value} cannot be divided evenly among {count} {processes}: pass a multiple of {count}"
        )
