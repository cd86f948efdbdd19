"""From a config to the parts of a run."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from yamame.learning.compute import Compute, resolve
from yamame.learning.learner import Learner
from yamame.model.policy import Policy
from yamame.ops.ranks import ALONE, Ranks
from yamame.records.batch import Batch
from yamame.records.interfaces import TrialEnvironments
from yamame.records.trajectory import Trajectory
from yamame.replay.relabel import Relabeler
from yamame.replay.repair import complete_repair
from yamame.replay.sampler import Sampler
from yamame.replay.store import LMDBStore
from yamame.replay.task import TaskSpaces
from yamame.rollout.collect import Collector
from yamame.rollout.exploration import Explorer
from yamame.rollout.statistics import Statistics
from yamame.run.cluster.connect import Connection
from yamame.run.cluster.fleet import Fleet
from yamame.run.cluster.stand_in import Broadcast, RemoteCollectors
from yamame.run.config import RunConfig
from yamame.run.new_agent import new_agent
from yamame.run.offline import Clock, open_offline
from yamame.run.run_directory import OFFLINE
from yamame.run.shares import compute_of_rank

_STREAMS = 6
"""Random streams of a learner."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Everything that a run in one process is made of, or one of a run's learners."""

    learner: Learner
    policy: Policy | Broadcast
    collector: Collector | Clock | RemoteCollectors
    store: LMDBStore
    offline: LMDBStore | None
    """What others experienced; None where the run learns from its own alone."""
    sampler: Sampler
    statistics: Statistics
    generator: torch.Generator
    """Draws the policy's actions."""
    rng: np.random.Generator
    """Draws exploration."""

    def step(self, *, deterministic: bool) -> list[tuple[int, Trajectory]] | None:
        """A vector step: see `Collector.step`, or `RemoteCollectors.step` where it is made elsewhere."""
        if isinstance(self.collector, RemoteCollectors):
            return self.collector.step(deterministic=deterministic)
        assert isinstance(self.policy, Policy)
        return self.collector.step(self.policy, deterministic=deterministic)

    def close(self) -> None:
        """Close environments and store."""
        self.collector.close()
        self.store.close()
        if self.offline is not None:
            self.offline.close()


def build(
    config: RunConfig,
    replay_directory: Path,
    *,
    restarts: int,
    ranks: Ranks = ALONE,
    connection: Connection | None = None,
) -> Parts:
    """All parts, from independent random streams of the config's seed.

    `restarts` counts earlier processes of the same run: environments cannot be restored, so each process gives them
    seeds of its own. With several `ranks`, `config` is that of this one's share, and its streams are its own; those of
    the first rank are what a run in one process has. With a `connection` collectors of its cluster act.
    """
    root = np.random.SeedSequence(config.seed)
    root = root.spawn(_STREAMS + ranks.rank)[-1] if ranks.rank else root
    weights, learning, acting, exploring, sampling, environments = root.spawn(_STREAMS)
    environment_seed = int(environments.spawn(restarts + 1)[-1].generate_state(1)[0])
    acts_here = not (config.offline.alone or connection)
    num_envs = config.num_envs if acts_here else config.env.fixed_num_envs or 1
    trials = config.env.build(num_envs, environment_seed)
    agent = new_agent(
        config,
        trials.observation_space,
        trials.action_space,
        trials.horizon,
        seed=int(weights.generate_state(1)[0]),
    )
    compute = resolve_compute(config, ranks)
    learner = Learner(
        agent,
        config.learner,
        generator=_torch_generator(learning, compute.device),
        compute=compute,
        ranks=ranks,
    )
    generator = _torch_generator(acting, compute.device)
    rng = np.random.default_rng(exploring)
    task = TaskSpaces(
        observation_space=trials.observation_space,
        action_space=trials.native_action_space,
        horizon=trials.horizon,
        mask_key=config.env.mask_key,
    )
    complete_repair(replay_directory)
    store = LMDBStore(
        replay_directory,
        capacity_trajectories=config.replay.capacity_trajectories,
        capacity_bytes=config.replay.capacity_bytes,
        cache_bytes=config.replay.cache_bytes,
        max_bytes=config.replay.max_bytes,
        compression_level=config.replay.compression_level,
        held_syncs=config.keep_checkpoints,
        form=task.form,
    )
    offline = open_offline(replay_directory.with_name(OFFLINE), config, task) if config.offline.data else None
    policy: Policy | Broadcast
    collector: Collector | Clock | RemoteCollectors
    if connection:
        collector = _collectors(config, trials, connection, rank=ranks.rank, restarts=restarts)
        policy = Broadcast(collector)
    else:
        collector = _collector(config, trials, rng)
        policy = Policy(agent, num_envs=config.num_envs, generator=generator)
    return Parts(
        learner=learner,
        policy=policy,
        collector=collector,
        store=store,
        offline=offline,
        sampler=Sampler(
            store,
            config=config.replay,
            context_length=config.context,
            rng=np.random.default_rng(sampling),
            relabel=Relabeler(config.replay.relabel),
            prepare=Batch.pin if compute.device.type == "cuda" else None,
            offline=offline,
            offline_windows=config.offline.windows(config.replay.batch_size),
        ),
        statistics=Statistics(),
        generator=generator,
        rng=rng,
    )


def _collector(config: RunConfig, trials: TrialEnvironments, rng: np.random.Generator) -> Collector | Clock:
    if config.offline.alone:
        return Clock(trials, env_steps=config.env_steps, num_envs=config.num_envs)
    explorer = Explorer(config.exploration, trials.action_space, config.num_envs, rng)
    return Collector(trials, config.env.task, explorer, config.faults)


def _collectors(
    config: RunConfig, trials: TrialEnvironments, connection: Connection, *, rank: int, restarts: int
) -> RemoteCollectors:
    return RemoteCollectors(Fleet(config, connection, rank=rank, restarts=restarts), trials, config)


def resolve_compute(config: RunConfig, ranks: Ranks = ALONE) -> Compute:
    """What a run, or one of its learners, learns with on this machine."""
    compute = config.compute if ranks.alone else compute_of_rank(config.compute, ranks.local_rank, ranks.local_world)
    return resolve(compute, width=config.agent.trajectory_encoder.state_size, updates=config.updates)


def _torch_generator(seed: np.random.SeedSequence, device: torch.device) -> torch.Generator:
    return torch.Generator(device).manual_seed(int(seed.generate_state(1, np.uint64)[0] >> np.uint64(1)))
