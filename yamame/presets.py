"""A small agent that learns on a CPU, and settings for a task that nobody has tuned: a user's own environment."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from yamame.algorithms.amago.agent import SHORT_GAMMAS, AgentConfig
from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.amago.learner import LearnerConfig
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.collect.exploration import BilevelEpsilonGreedy
from yamame.config import EvalConfig, RunConfig
from yamame.envs.config import EnvConfig, GoalEnvConfig
from yamame.errors import UserError
from yamame.nets.heads.actor import ActorConfig
from yamame.nets.sequence.base import model_config
from yamame.nets.sequence.transformer import TransformerConfig
from yamame.nets.timestep.base import LeafEncoderConfig
from yamame.nets.timestep.image import ImageEncoderConfig
from yamame.nets.timestep.instruction import InstructionEncoderConfig


@dataclass(frozen=True, kw_only=True)
class NetworkSize:
    """Widths and depths of all parts of a network; of what kind they are is another matter."""

    timestep_hidden: tuple[int, ...]
    timestep_width: int
    encoder_size: str = ""
    """Name of the size that the trajectory encoder takes (`TrajectoryEncoderConfig.SIZES`); empty: as it is."""
    head_hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of actor and critics."""
    leaf_width: int = ImageEncoderConfig.output_size
    """Width of what is made of an image, of tokens or of a text."""
    image_channels: tuple[int, ...] = ImageEncoderConfig.channels
    residual_blocks: int = ImageEncoderConfig.num_residual_blocks

    def apply_to(self, agent: AgentConfig) -> AgentConfig:
        """Return the agent at this size."""
        timestep = agent.timestep_encoder.map_leaf_encoders(self._resize)
        return replace(
            agent,
            timestep_encoder=replace(timestep, hidden_sizes=self.timestep_hidden, output_size=self.timestep_width),
            trajectory_encoder=agent.trajectory_encoder.at_size(self.encoder_size),
            actor=replace(agent.actor, hidden_sizes=self.head_hidden),
            critic=replace(agent.critic, hidden_sizes=self.head_hidden),
        )

    def _resize(self, encoder: LeafEncoderConfig) -> LeafEncoderConfig:
        if isinstance(encoder, InstructionEncoderConfig):
            return encoder
        if isinstance(encoder, ImageEncoderConfig):
            encoder = replace(encoder, channels=self.image_channels, num_residual_blocks=self.residual_blocks)
        return replace(encoder, output_size=self.leaf_width)


SIZES: Mapping[str, NetworkSize] = {
    "tiny": NetworkSize(
        timestep_hidden=(32,),
        timestep_width=32,
        encoder_size="tiny",
        head_hidden=(64, 64),
        leaf_width=32,
        image_channels=(8, 16),
        residual_blocks=0,
    ),
    "small": NetworkSize(
        timestep_hidden=(64,),
        timestep_width=64,
        encoder_size="small",
        head_hidden=(128, 128),
        leaf_width=64,
        residual_blocks=0,
    ),
    "base": NetworkSize(timestep_hidden=(512, 512), timestep_width=200, encoder_size="base"),
    "large": NetworkSize(
        timestep_hidden=(384,),
        timestep_width=384,
        encoder_size="large",
        head_hidden=(400, 400),
        leaf_width=256,
        image_channels=(32, 64, 64),
        residual_blocks=2,
    ),
}
"""`small` is what a CPU can train; `base` and `large` are the paper's for POPGym and Crafter (appendix, table 3)."""


def apply_size(config: RunConfig, name: str | None) -> RunConfig:
    """The config with a network of a named size; as it is for None. `UserError` for an unknown name."""
    if name is None:
        return config
    if name not in SIZES:
        raise UserError(f"unknown size {name!r}: choose among {', '.join(SIZES)}")
    amago = amago_config(config)
    return replace(config, algorithm=replace(amago, agent=SIZES[name].apply_to(amago.agent)))


def apply_model(config: RunConfig, name: str | None) -> RunConfig:
    """Return the config with the trajectory encoder of `yamame/nets/sequence/<name>.py`; unchanged for None.

    The encoder is as wide and as deep as the one that it replaces. Raises `UserError` for an unknown name.
    """
    if name is None:
        return config
    encoder = model_config(name, like=amago_config(config).agent.trajectory_encoder)
    return replace_agent(config, trajectory_encoder=encoder)


MAX_CONTEXT = 256


def small_agent(
    *,
    acting_gamma: float,
    gammas: tuple[float, ...] = SHORT_GAMMAS,
    head_width: int = 128,
    probability_clip: tuple[float, float] = ActorConfig.probability_clip,
    token_shift: bool = False,
) -> AgentConfig:
    """Two Transformer layers of width 64 under heads of two hidden layers: sizes that a CPU can train."""
    agent = AgentConfig(
        trajectory_encoder=TransformerConfig(token_shift=token_shift),
        actor=ActorConfig(probability_clip=probability_clip),
        gammas=gammas,
        acting_gamma=acting_gamma,
    )
    return replace(SIZES["small"], head_hidden=(head_width, head_width)).apply_to(agent)


def default_config(env: EnvConfig, *, env_steps: int = 300_000) -> RunConfig:
    """A small agent, a whole trial of memory (at most 256 steps), noise that fades over the first half of the run."""
    context = min(env.max_trial_steps, MAX_CONTEXT)
    return RunConfig(
        env=env,
        num_envs=24,
        env_steps=env_steps,
        context_length=context,
        algorithm=AMAGOConfig(
            agent=small_agent(acting_gamma=0.99),
            learner=LearnerConfig(td=TDLoss(reward_scale=10.0), learning_rate=5e-4, lr_warmup_updates=100),
        ),
        exploration=BilevelEpsilonGreedy(anneal_env_steps=max(1, env_steps // 2)),
        updates_per_env_step=2.0 / context,
        env_steps_per_iteration=24 * context,
        eval=EvalConfig(interval_env_steps=max(1, env_steps // 20), trials=32),
    )


def no_multi_gamma(config: RunConfig) -> RunConfig:
    """Train for the acting discount alone."""
    return replace_agent(config, multi_gamma=False)


def no_popart(config: RunConfig) -> RunConfig:
    """Leave values on the scale of the rewards."""
    return replace_agent(config, popart=False)


def no_filtered_imitation(config: RunConfig) -> RunConfig:
    """Policy gradient alone."""
    learner = amago_config(config).learner
    return replace_learner(config, filtered_bc=replace(learner.filtered_bc, weight=0.0))


def no_memory(config: RunConfig) -> RunConfig:
    """A feed-forward network in place of the sequence model, as wide and as deep."""
    return apply_model(config, "feedforward")


def gru(config: RunConfig) -> RunConfig:
    """A GRU in place of the Transformer, as wide and as deep."""
    return apply_model(config, "gru")


def naive(config: RunConfig) -> RunConfig:
    """The paper's naive agent: plain pre-LayerNorm Transformer (GELU), ReLU networks, 2 critics, discount 0.99."""
    agent = amago_config(config).agent
    encoder = agent.trajectory_encoder
    if isinstance(encoder, TransformerConfig):
        encoder = replace(
            encoder, sigma_reparam=False, normformer=False, head_scaling=False, token_shift=False, activation="gelu"
        )
    return replace_agent(
        config,
        trajectory_encoder=encoder,
        timestep_encoder=replace(agent.timestep_encoder, activation="relu"),
        actor=replace(agent.actor, activation="relu"),
        critic=replace(agent.critic, activation="relu", num_critics=2),
        multi_gamma=False,
        acting_gamma=0.99,
    )


def world_model(config: RunConfig) -> RunConfig:
    """Predict how the observation will change beside all else, at weight 1 where a recipe does not yet."""
    return _world_model(config, weight=amago_config(config).learner.world_model.weight or 1.0)


def no_world_model(config: RunConfig) -> RunConfig:
    """Predict nothing, where a recipe has a world model."""
    return _world_model(config, weight=0.0)


def no_token_shift(config: RunConfig) -> RunConfig:
    """Let each token carry its own timestep alone, where a recipe gives it the one before as well."""
    encoder = amago_config(config).agent.trajectory_encoder
    if not isinstance(encoder, TransformerConfig):
        return config
    return replace_agent(config, trajectory_encoder=replace(encoder, token_shift=False))


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
    learner = amago_config(config).learner
    return replace_learner(config, world_model=replace(learner.world_model, weight=weight))


def _relabeling(config: RunConfig, **changes: Any) -> RunConfig:
    relabel = replace(_instructions(config).replay.relabel, **changes)
    return replace(config, replay=replace(config.replay, relabel=relabel))


def amago_config(config: RunConfig) -> AMAGOConfig:
    """Return the algorithm's config. Raises `UserError` if the algorithm is not AMAGO."""
    if not isinstance(config.algorithm, AMAGOConfig):
        raise UserError("this size or variant is for the algorithm AMAGO")
    return config.algorithm


def replace_agent(config: RunConfig, **changes: Any) -> RunConfig:
    """Return the config with changed fields of the agent."""
    amago = amago_config(config)
    return replace(config, algorithm=replace(amago, agent=replace(amago.agent, **changes)))


def replace_learner(config: RunConfig, **changes: Any) -> RunConfig:
    """Return the config with changed fields of the learner."""
    amago = amago_config(config)
    return replace(config, algorithm=replace(amago, learner=replace(amago.learner, **changes)))
