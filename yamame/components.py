"""From a config to the parts of a run."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from yamame.algorithms.amago.learner import Learner
from yamame.algorithms.amago.policy import Policy
from yamame.algorithms.amago.relabeling import Relabeler
from yamame.build_agent import build_agent
from yamame.collect.collector import Collector
from yamame.collect.exploration import Explorer
from yamame.collect.statistics import TrialStats
from yamame.config import RunConfig
from yamame.data.batch import Batch
from yamame.data.offline import OfflineCollector, open_offline_store
from yamame.data.sampler import Sampler
from yamame.data.schema import TaskSpec
from yamame.data.store import LMDBReplayStore
from yamame.data.trajectory import Trajectory
from yamame.data.verify import finish_interrupted_repair
from yamame.distributed.ray.collector import RayCollector, WeightPublisher
from yamame.distributed.ray.connection import RayConnection
from yamame.distributed.ray.pool import CollectorPool
from yamame.distributed.sharding import compute_for_rank
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.envs.base import TrialVectorEnv
from yamame.nets.compute import Compute, resolve_compute
from yamame.run_dir import OFFLINE

_STREAMS = 6
"""Random streams of a learner."""


@dataclass(frozen=True, kw_only=True)
class TrainingComponents:
    """Everything that a run in one process is made of, or one of a run's learners."""

    learner: Learner
    policy: Policy | WeightPublisher
    collector: Collector | OfflineCollector | RayCollector
    store: LMDBReplayStore
    offline: LMDBReplayStore | None
    """What others experienced; None where the run learns from its own alone."""
    sampler: Sampler
    statistics: TrialStats
    generator: torch.Generator
    """Draws the policy's actions."""
    rng: np.random.Generator
    """Draws exploration."""

    def collect_step(self, *, deterministic: bool) -> list[tuple[int, Trajectory]] | None:
        """A vector step: see `Collector.step`, or `RayCollector.step` where it is made elsewhere."""
        if isinstance(self.collector, RayCollector):
            return self.collector.step(deterministic=deterministic)
        assert isinstance(self.policy, Policy)
        return self.collector.step(self.policy, deterministic=deterministic)

    def close(self) -> None:
        """Close environments and store."""
        self.collector.close()
        self.store.close()
        if self.offline is not None:
            self.offline.close()


def build_components(
    config: RunConfig,
    replay_directory: Path,
    *,
    restarts: int,
    ranks: DistributedContext = SINGLE_PROCESS,
    connection: RayConnection | None = None,
) -> TrainingComponents:
    """All parts, from independent random streams of the config's seed.

    `restarts` counts earlier processes of the same run: environments cannot be restored, so each process gives them
    seeds of its own. With several `ranks`, `config` is that of this one's share, and its streams are its own; those of
    the first rank are what a run in one process has. With a `connection` collectors of its cluster act.
    """
    root = np.random.SeedSequence(config.seed)
    root = root.spawn(_STREAMS + ranks.rank)[-1] if ranks.rank else root
    weights, learning, acting, exploring, sampling, environments = root.spawn(_STREAMS)
    environment_seed = int(environments.spawn(restarts + 1)[-1].generate_state(1)[0])
    acts_here = not (config.offline.is_offline_only or connection)
    num_envs = config.num_envs if acts_here else config.env.required_num_envs or 1
    trials = config.env.build(num_envs, environment_seed)
    agent = build_agent(
        config,
        trials.observation_space,
        trials.action_space,
        trials.horizon,
        seed=int(weights.generate_state(1)[0]),
    )
    compute = resolve_run_compute(config, ranks)
    learner = Learner(
        agent,
        config.learner,
        generator=_torch_generator(learning, compute.device),
        compute=compute,
        ranks=ranks,
    )
    generator = _torch_generator(acting, compute.device)
    rng = np.random.default_rng(exploring)
    task = TaskSpec(
        observation_space=trials.observation_space,
        action_space=trials.env_action_space,
        horizon=trials.horizon,
        action_mask_key=config.env.action_mask_key,
    )
    finish_interrupted_repair(replay_directory)
    store = LMDBReplayStore(
        replay_directory,
        capacity_trajectories=config.replay.capacity_trajectories,
        capacity_bytes=config.replay.capacity_bytes,
        cache_bytes=config.replay.cache_bytes,
        max_bytes=config.replay.max_disk_bytes,
        compression_level=config.replay.compression_level,
        retained_checkpoints=config.checkpoint.keep_latest_k,
        schema=task.schema,
    )
    offline = open_offline_store(replay_directory.with_name(OFFLINE), config, task) if config.offline.data else None
    policy: Policy | WeightPublisher
    collector: Collector | OfflineCollector | RayCollector
    if connection:
        collector = _collectors(config, trials, connection, rank=ranks.rank, restarts=restarts)
        policy = WeightPublisher(collector)
    else:
        collector = _collector(config, trials, rng)
        policy = Policy(agent, num_envs=config.num_envs, generator=generator)
    return TrainingComponents(
        learner=learner,
        policy=policy,
        collector=collector,
        store=store,
        offline=offline,
        sampler=Sampler(
            store,
            config=config.replay,
            context_length=config.resolved_context_length,
            rng=np.random.default_rng(sampling),
            relabel=Relabeler(config.replay.relabel),
            prepare=Batch.pin_memory if compute.device.type == "cuda" else None,
            offline=offline,
            offline_windows=config.offline.num_windows(config.replay.batch_size),
        ),
        statistics=TrialStats(),
        generator=generator,
        rng=rng,
    )


def _collector(config: RunConfig, trials: TrialVectorEnv, rng: np.random.Generator) -> Collector | OfflineCollector:
    if config.offline.is_offline_only:
        return OfflineCollector(trials, env_steps=config.env_steps, num_envs=config.num_envs)
    explorer = Explorer(config.exploration, trials.action_space, config.num_envs, rng)
    return Collector(trials, config.env.task_name, explorer, config.fault_tolerance)


def _collectors(
    config: RunConfig, trials: TrialVectorEnv, connection: RayConnection, *, rank: int, restarts: int
) -> RayCollector:
    return RayCollector(CollectorPool(config, connection, rank=rank, restarts=restarts), trials, config)


def resolve_run_compute(config: RunConfig, ranks: DistributedContext = SINGLE_PROCESS) -> Compute:
    """What a run, or one of its learners, learns with on this machine."""
    compute = (
        config.compute
        if ranks.is_single_process
        else compute_for_rank(config.compute, ranks.local_rank, ranks.local_world_size)
    )
    return resolve_compute(compute, width=config.agent.trajectory_encoder.state_size, updates=config.total_updates)


def _torch_generator(seed: np.random.SeedSequence, device: torch.device) -> torch.Generator:
    return torch.Generator(device).manual_seed(int(seed.generate_state(1, np.uint64)[0] >> np.uint64(1)))
