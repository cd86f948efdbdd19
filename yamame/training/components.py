"""Components of a run, built from its config."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from yamame.algorithms.base import Algorithm, Replay, build_model
from yamame.collect.collector import Collector
from yamame.collect.experience import Experience, LocalExperience, StoredExperience
from yamame.collect.exploration import Explorer
from yamame.collect.statistics import TrialStats, TrialSummary
from yamame.data.batch import Batch
from yamame.data.codec import CorruptedRecordError
from yamame.data.offline import open_offline_store
from yamame.data.relabeling import Relabeler
from yamame.data.sampler import Sampler
from yamame.data.store import ReplayStore
from yamame.data.verify import finish_interrupted_repair
from yamame.distributed.ray.connection import RayConnection
from yamame.distributed.ray.experience import RayExperience
from yamame.distributed.ray.pool import CollectorPool
from yamame.distributed.sharding import compute_for_rank
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.envs.base import TrialVectorEnv
from yamame.envs.vector.faults import restart_seed, restart_with_retries
from yamame.nets.compute import Compute, resolve_compute, use_deterministic_algorithms, use_device
from yamame.nets.num_threads import kept_num_threads
from yamame.nets.torch_defaults import torch_defaults
from yamame.run_config import RunConfig
from yamame.runs.directory import OFFLINE, absolute_if_exists, replay_dirs
from yamame.training.decision import RankReport
from yamame.training.memory_estimate import check_memory

_NUM_STREAMS = 6
"""Random streams of a learner."""


@dataclass(frozen=True, kw_only=True)
class TrainingComponents:
    """Components of one learner of a run."""

    algorithm: Algorithm
    experience: Experience
    replay: Replay
    offline_store: ReplayStore | None
    """Trajectories of `offline.data`; None without offline data."""
    statistics: TrialStats

    def report(self, trials: Sequence[TrialSummary], vector_steps_left: int, signal: str) -> RankReport:
        """Return the state of this rank, after `trials` have completed."""
        store = self.replay.store
        return RankReport(
            env_steps=self.experience.env_steps,
            vector_steps_left=vector_steps_left,
            can_update=self.replay.sampler.is_ready,
            updates_due=self.algorithm.updates_due(self.replay),
            needs_checkpoint=store.needs_checkpoint,
            signal=signal,
            can_pause=self.experience.can_pause,
            trials=trials,
            counts={
                **self.experience.counts(),
                "replay/trajectories": float(len(store)),
                "replay/num_corrupted": float(store.num_corrupted),
            },
        )

    def policy_age(self) -> dict[str, float]:
        """Return the metric of the updates since the policy that collected the median stored trajectory."""
        store = self.replay.store
        ids = store.ids()
        if not ids:
            return {}
        try:
            median = store.get(ids[len(ids) // 2], lazy=True)
        except (CorruptedRecordError, KeyError):
            return {}
        return {"replay/median_age_updates": float(self.algorithm.num_updates - median.policy_version)}

    def close(self) -> None:
        """Close environments and stores."""
        self.experience.close()
        self.replay.store.close()
        if self.offline_store is not None:
            self.offline_store.close()


def build_components(
    config: RunConfig,
    replay_directory: Path,
    *,
    restarts: int,
    distributed: DistributedContext = SINGLE_PROCESS,
    connection: RayConnection | None = None,
) -> TrainingComponents:
    """Build all components of one learner, with independent random streams of the config's seed.

    Args:
        config: The learner's shard of the config.
        replay_directory: Directory of the learner's replay store.
        restarts: Number of earlier processes of the run. It changes the seed of the environments, since not all
            environments can be restored.
        distributed: This process among the learners. The main rank has the random streams of a single process.
        connection: Ray cluster that collects; None: this process collects.
    """
    with ExitStack() as opened:  # if anything raises, what was opened before is closed
        # 1. random streams and environments
        sources = [
            absolute_if_exists(source) for source in config.offline.data
        ]  # environments may change the directory
        root = np.random.SeedSequence(config.seed)
        root = root.spawn(_NUM_STREAMS + distributed.rank)[-1] if distributed.rank else root
        weights, learning, acting, exploring, sampling, environments = root.spawn(_NUM_STREAMS)
        env_seed = int(environments.spawn(restarts + 1)[-1].generate_state(1)[0])
        steps_envs = not (config.offline.is_offline_only or connection)
        num_envs = config.num_envs if steps_envs else config.env.required_num_envs or 1
        build = partial(config.env.build, num_envs, env_seed)
        # where only one can exist: the port of the one made to read its limits may take a moment to become free
        closes = config.closes_training_envs
        with kept_num_threads():
            envs = restart_with_retries(build, "the training environment", []) if closes else build()
        opened.callback(envs.close)
        # 2. networks, on their device, and the algorithm
        task = config.env.task_spec(envs)
        check_memory(config, task)
        context_length = config.resolved_context_length
        model = build_model(
            config.algorithm, task, context_length=context_length, seed=int(weights.generate_state(1)[0])
        )
        compute = resolve_run_compute(config, distributed)
        use_device(compute.device)
        if compute.deterministic:
            use_deterministic_algorithms()
        with torch_defaults():
            algorithm = config.algorithm.build(
                model, compute=compute, generator=_torch_generator(learning, compute.device), distributed=distributed
            )
        # 3. stores of the run's own and of offline trajectories
        finish_interrupted_repair(replay_directory)
        store = ReplayStore(
            replay_directory,
            capacity_trajectories=config.replay.capacity_trajectories,
            capacity_bytes=config.replay.capacity_bytes,
            cache_bytes=config.replay.cache_bytes,
            compression_level=config.replay.compression_level,
            retained_checkpoints=config.checkpoint.keep_latest_k,
            schema=task.schema,
        )
        opened.callback(store.close)
        offline: ReplayStore | None = None
        if config.offline.data:
            offline = open_offline_store(
                replay_directory.with_name(OFFLINE),
                sources=sources,
                task=task,
                replay=config.replay,
                find_stores=replay_dirs,
                may_copy=not restarts,
            )
            opened.callback(offline.close)
        # 4. where trajectories come from
        experience: Experience
        if connection:
            pool = CollectorPool(config, connection, rank=distributed.rank, restarts=restarts)
            opened.callback(pool.close)
            experience = RayExperience(pool, envs, config)
        elif config.offline.is_offline_only:
            experience = StoredExperience(envs, env_steps=config.env_steps, num_envs=config.num_envs)
        else:
            rng = np.random.default_rng(exploring)
            explorer = Explorer(config.exploration, envs.action_space, config.num_envs, rng)
            experience = LocalExperience(
                Collector(envs, config.env.task_name, explorer, config.fault_tolerance),
                config.algorithm.build_policy(
                    model,
                    num_envs=config.num_envs,
                    generator=_torch_generator(acting, compute.device),
                    collects=True,
                    cuda_graph=compute.cuda_graph,
                ),
                deterministic=config.deterministic_actions,
                rng=rng,
                remake=partial(_remake, config, int(environments.generate_state(1)[0])),
            )
        # 5. batches; where a task may be repeated, a relabeled success would end trials that go on
        has_single_attempt = getattr(config.env, "attempts", 1) == 1
        sampler = Sampler(
            store,
            config=config.replay,
            context_length=context_length,
            rng=np.random.default_rng(sampling),
            relabel=Relabeler(config.replay.relabel) if has_single_attempt else None,
            prepare=partial(_pin_memory, device=compute.device) if compute.device.type == "cuda" else None,
            offline=offline,
            offline_fraction=config.offline.batch_fraction,
            cuda_graphs=compute.cuda_graph,
            rank=distributed.rank,
        )
        opened.pop_all()  # all is built: the components close them
        return TrainingComponents(
            algorithm=algorithm,
            experience=experience,
            replay=Replay(store=store, sampler=sampler),
            offline_store=offline,
            statistics=TrialStats(),
        )


def resolve_run_compute(config: RunConfig, distributed: DistributedContext = SINGLE_PROCESS) -> Compute:
    """Return the device, dtypes and compilation of a run, or of one of its learners, on this machine."""
    compute = config.compute if config.algorithm.compiles else replace(config.compute, compile="off")
    if not distributed.is_single_process:
        compute = compute_for_rank(compute, distributed.local_rank, distributed.local_world_size)
    return resolve_compute(compute, width=config.algorithm.model_width, updates=config.total_updates)


@kept_num_threads()
def _remake(config: RunConfig, seed: int, count: int) -> TrialVectorEnv:
    """Return the training environments anew, of which `count` came before; `seed`: of all that are made so."""
    return config.env.build(config.num_envs, restart_seed(seed, 0, count))


def _pin_memory(batch: Batch, device: torch.device) -> Batch:
    """Pin a batch in the sampler's thread, whose current device would be the first GPU."""
    use_device(device)
    return batch.pin_memory()


def _torch_generator(seed: np.random.SeedSequence, device: torch.device) -> torch.Generator:
    return torch.Generator(device).manual_seed(int(seed.generate_state(1, np.uint64)[0] >> np.uint64(1)))
