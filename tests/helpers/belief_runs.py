"""Tiny agents with a belief (variBAD, HyperX), and the parts of a run of one with trials in its store."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from yamame.algorithms.base import Metrics
from yamame.algorithms.varibad.decoder import DecoderConfig
from yamame.nets.heads.actor import ActorConfig
from yamame.nets.sequence.gru import GRUConfig
from yamame.nets.timestep.encoder import TimestepEncoderConfig
from yamame.run_config import RunConfig
from yamame.training.components import TrainingComponents, build_components

TINY_AGENT: dict[str, Any] = {
    "timestep_encoder": TimestepEncoderConfig(hidden_sizes=(16,), output_size=12),
    "trajectory_encoder": GRUConfig(d_model=8, num_layers=1),
    "actor": ActorConfig(hidden_sizes=(8,)),
    "latent_size": 2,
    "present_hidden_sizes": (8,),
    "present_size": 6,
    "decoder": DecoderConfig(feature_hidden_sizes=(8,), feature_size=4, hidden_sizes=(8, 6)),
}
"""Arguments of `VariBADAgentConfig`."""
TINY_BELIEF_RUN: dict[str, Any] = {
    "agent.timestep_encoder": {"hidden_sizes": (8,), "output_size": 8},
    "agent.trajectory_encoder.d_model": 8,
    "agent.actor.hidden_sizes": (8,),
    "agent.value.hidden_sizes": (8,),
    "agent.present_hidden_sizes": (8,),
    "agent.present_size": 8,
    "agent.decoder.hidden_sizes": (8, 8),
    "env_steps": 640,
    "num_envs": 4,
    "env_steps_per_iteration": 64,
    "learner.passes.minibatch_transitions": 16,
    "learner.trials_per_vae_batch": 5,
    "eval": {"trials": 4, "final_trials": 4, "num_envs": 4, "interval_env_steps": 0},
}
"""Overrides of a run."""


@contextmanager
def builder(folder: Path) -> Iterator[Callable[[RunConfig], TrainingComponents]]:
    """Yield what builds the parts of a run, with the trials of 96 steps in the store; they are closed in the end."""
    opened: list[TrainingComponents] = []

    def build(config: RunConfig) -> TrainingComponents:
        components = build_components(config, folder / str(len(opened)), restarts=0)
        opened.append(components)
        collect(components)
        return components

    yield build
    for each in opened:
        each.close()


def collect(components: TrainingComponents) -> None:
    """Store the trials of 24 steps of each environment with the present weights."""
    components.experience.load_weights(components.algorithm.model, version=components.algorithm.num_updates)
    trials, _ = components.experience.collect(24, lambda: False)
    components.replay.store.extend(trials)


def make_updates(components: TrainingComponents) -> list[Metrics]:
    """Make the updates that the new trials allow; return the metrics of each."""
    algorithm, replay = components.algorithm, components.replay
    due = algorithm.updates_due(replay)
    assert due is not None
    return [dict(algorithm.update(batch)) for batch in algorithm.batches(replay, due)]
