"""The paper's ablations and baselines: functions from a config to a config, chosen by `--variant`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from yamame.environments.goal_config import GoalEnvConfig
from yamame.model.trajectory_encoders.feedforward import FeedForwardConfig
from yamame.model.trajectory_encoders.gru import GRUConfig
from yamame.model.trajectory_encoders.transformer import TransformerConfig
from yamame.records.errors import UserError
from yamame.run.config import RunConfig


def no_multi_gamma(config: RunConfig) -> RunConfig:
    """Train for the acting discount alone."""
    return replace(config, agent=replace(config.agent, multi_gamma=False))


def no_popart(config: RunConfig) -> RunConfig:
    """Leave values on the scale of the rewards."""
    return replace(config, agent=replace(config.agent, popart=False))


def no_filtered_imitation(config: RunConfig) -> RunConfig:
    """Policy gradient alone."""
    learner = config.learner
    return replace(config, learner=replace(learner, filtered_bc=replace(learner.filtered_bc, weight=0.0)))


def no_memory(config: RunConfig) -> RunConfig:
    """A feed-forward network in place of the sequence model, as wide and as deep."""
    width, layers = _size(config)
    encoder = FeedForwardConfig(d_model=width, num_layers=layers)
    return replace(config, agent=replace(config.agent, trajectory_encoder=encoder))


def gru(config: RunConfig) -> RunConfig:
    """A GRU in place of the Transformer, as wide and as deep."""
    width, layers = _size(config)
    return replace(config, agent=replace(config.agent, trajectory_encoder=GRUConfig(d_model=width, num_layers=layers)))


def naive(config: RunConfig) -> RunConfig:
    """The paper's naive agent: plain pre-LayerNorm Transformer (GELU), ReLU networks, 2 critics, discount 0.99."""
    agent = config.agent
    encoder = agent.trajectory_encoder
    if isinstance(encoder, TransformerConfig):
        encoder = replace(
            encoder, sigma_reparam=False, normformer=False, head_scaling=False, token_shift=False, activation="gelu"
        )
    plain = replace(
        agent,
        trajectory_encoder=encoder,
        timestep_encoder=replace(agent.timestep_encoder, activation="relu"),
        actor=replace(agent.actor, activation="relu"),
        critic=replace(agent.critic, activation="relu", num_critics=2),
        multi_gamma=False,
        acting_gamma=0.99,
    )
    return replace(config, agent=plain)


def world_model(config: RunConfig) -> RunConfig:
    """Predict how the observation will change beside all else, at weight 1 where a recipe does not yet."""
    return _world_model(config, weight=config.learner.world_model.weight or 1.0)


def no_world_model(config: RunConfig) -> RunConfig:
    """Predict nothing, where a recipe has a world model."""
    return _world_model(config, weight=0.0)


def no_token_shift(config: RunConfig) -> RunConfig:
    """Let each token carry its own timestep alone, where a recipe gives it the one before as well."""
    encoder = config.agent.trajectory_encoder
    if not isinstance(encoder, TransformerConfig):
        return config
    return replace(config, agent=replace(config.agent, trajectory_encoder=replace(encoder, token_shift=False)))


def no_relabeling(config: RunConfig) -> RunConfig:
    """Learn from what was asked for alone."""
    return _relabeling(config, mode="none")


def relabel_all(config: RunConfig) -> RunConfig:
    """Replace all sub-goals that were missed, wherever as many goals were achieved."""
    return _relabeling(config, mode="all")


def uniform_relabeling(config: RunConfig) -> RunConfig:
    """Relabel without importance sampling: all achieved goals are alike."""
    return _relabeling(config, importance_sampling=False)


def single_goal(config: RunConfig) -> RunConfig:
    """Instructions of one sub-goal, while training and while evaluating."""
    return _instructions(config, max_goals=1)


def hidden_plan(config: RunConfig) -> RunConfig:
    """Show no sub-goal after the active one."""
    return _instructions(config, hide_future_goals=True)


VARIANTS: Mapping[str, Callable[[RunConfig], RunConfig]] = {
    "no-multi-gamma": no_multi_gamma,
    "no-popart": no_popart,
    "no-filtered-bc": no_filtered_imitation,
    "no-memory": no_memory,
    "gru": gru,
    "naive": naive,
    "world-model": world_model,
    "no-world-model": no_world_model,
    "no-token-shift": no_token_shift,
    "no-relabeling": no_relabeling,
    "relabel-all": relabel_all,
    "no-goal-importance-sampling": uniform_relabeling,
    "no-multi-goal": single_goal,
    "no-planning": hidden_plan,
}


def apply_variants(config: RunConfig, names: Sequence[str]) -> RunConfig:
    """The config with each variant applied in turn; `UserError` for an unknown name."""
    for name in names:
        if name not in VARIANTS:
            raise UserError(f"unknown variant {name!r}: choose among {', '.join(VARIANTS)}")
        config = VARIANTS[name](config)
    return config


def _instructions(config: RunConfig, **changes: Any) -> RunConfig:
    if not isinstance(config.env, GoalEnvConfig):
        raise UserError(f"{config.env.task_name} has no instructions: this variant is for tasks that have")
    return replace(config, env=replace(config.env, **changes))


def _world_model(config: RunConfig, *, weight: float) -> RunConfig:
    learner = config.learner
    return replace(config, learner=replace(learner, world_model=replace(learner.world_model, weight=weight)))


def _relabeling(config: RunConfig, **changes: Any) -> RunConfig:
    relabel = replace(_instructions(config).replay.relabel, **changes)
    return replace(config, replay=replace(config.replay, relabel=relabel))


def _size(config: RunConfig) -> tuple[int, int]:
    encoder = config.agent.trajectory_encoder
    return encoder.state_size, getattr(encoder, "num_layers", 2)
