"""Ablation variants, and the default config of a new environment."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from yamame.algorithms.amago.agent import AgentConfig
from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.amago.gammas import DEFAULT_GAMMAS, DEFAULT_SEPARATE_GAMMA, SHORT_GAMMAS
from yamame.algorithms.amago.learner import LearnerConfig
from yamame.algorithms.amago.losses.filtered_bc import ALL_ACTIONS, FilteredBCLoss
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.algorithms.amago.novelty import NoveltyPolicyConfig
from yamame.algorithms.networks import NetworksConfig
from yamame.algorithms.selection import algorithm_config, algorithm_name, require_algorithm
from yamame.collect.exploration import BilevelEpsilonGreedy
from yamame.config.overrides import apply_overrides
from yamame.data.sampler import ReplayConfig
from yamame.envs.config import EnvConfig, GoalEnvConfig
from yamame.errors import UserError
from yamame.nets.heads.actor import MANY_CHOICES, ActorConfig
from yamame.nets.heads.classification import ClassificationConfig
from yamame.nets.heads.critic import CriticConfig
from yamame.nets.heads.popart import PopArtConfig
from yamame.nets.positions import PositionKind
from yamame.nets.sequence.base import model_config
from yamame.nets.sequence.transformer import TransformerConfig
from yamame.recipes.settings.hyperx import HYPERX_VARIANTS
from yamame.recipes.settings.ppo import PPO_VARIANTS
from yamame.recipes.settings.sizes import SIZES
from yamame.recipes.settings.varibad import VARIBAD_VARIANTS
from yamame.run_config import EvalConfig, RunConfig


def apply_algorithm(config: RunConfig, name: str | None) -> RunConfig:
    """Return the config with the algorithm of `yamame/algorithms/<name>/` and what it changes in a run.

    Unchanged for None, and if it has that algorithm. An algorithm's own number of updates per environment step is
    the same throughout, unless it says otherwise. Raises `UserError` for an unknown name.
    """
    if name is None:
        return config
    algorithm = algorithm_config(name)
    if type(algorithm) is type(config.algorithm):
        return config
    changes = algorithm.run_settings(config.algorithm, config.env, env_steps=config.env_steps)
    own_pace = {"updates_anneal_env_steps": 0} if "updates_per_env_step" in changes else {}
    changed = apply_overrides(config, {"algorithm": algorithm, **own_pace, **changes})
    required = config.env.required_num_envs
    return changed if required is None else replace(changed, num_envs=required)


def apply_size(config: RunConfig, name: str | None) -> RunConfig:
    """Return the config with a network of a named size; unchanged for None. `UserError` for an unknown name."""
    if name is None:
        return config
    if name not in SIZES:
        raise UserError(f"unknown size {name!r}: choose among {', '.join(SIZES)}")
    return _replace_agent(config, SIZES[name].apply_to(networks_config(config)))


def apply_model(config: RunConfig, name: str | None) -> RunConfig:
    """Return the config with the trajectory encoder of `yamame/nets/sequence/<name>.py`; unchanged for None.

    The encoder has the width and depth of the one that it replaces. Raises `UserError` for an unknown name.
    """
    if name is None:
        return config
    networks = networks_config(config)
    encoder = model_config(name, like=networks.trajectory_encoder)
    return _replace_agent(config, replace(networks, trajectory_encoder=encoder))


MAX_CONTEXT = 256
"""Maximum default context length."""
NUM_ENVS = (24, 12, 8, 6, 4, 3, 2)
"""Default numbers of environments: the first at which trials of the whole horizon take at most a quarter of the run."""
NUM_UPDATES = 12_500
"""Default number of updates of a run, if that is at most one in four environment steps and at least one in 64."""


def small_agent(
    *,
    acting_gamma: float,
    gammas: tuple[float, ...] = SHORT_GAMMAS,
    head_width: int = 128,
    probability_clip: tuple[float, float] = ActorConfig.probability_clip,
    token_shift: bool = False,
    position_embedding: PositionKind = TransformerConfig.position_embedding,
) -> AgentConfig:
    """Return an agent of size `small`, trainable on a CPU, with heads of two hidden layers of `head_width`.

    PopArt rescales the critics (differs from the paper).
    """
    agent = AgentConfig(
        trajectory_encoder=TransformerConfig(token_shift=token_shift, position_embedding=position_embedding),
        actor=ActorConfig(probability_clip=probability_clip),
        critic=CriticConfig(value_code=PopArtConfig(rescale_critics=True)),
        gammas=gammas,
        acting_gamma=acting_gamma,
        max_one_hot_choices=MANY_CHOICES,
    )
    return replace(SIZES["small"], head_hidden=(head_width, head_width)).apply_to(agent)


def default_config(env: EnvConfig, *, env_steps: int = 300_000) -> RunConfig:
    """Return the config for a new environment: a small agent with many small updates, for a CPU.

    The context length is a whole trial, at most `MAX_CONTEXT` steps. The acting gamma is 1 - 1 / horizon, within 0.99
    and 0.999. Differs from the paper, besides the sizes, in targets that reach along the window (Retrace), four gammas
    and a separate one whose policy acts in an eighth of the trials, positions that are relative, too, a time that is
    not normalized, grids of categories as one-hot vectors, updates that become more frequent in the first quarter of
    the run, a learning rate that decays and is smaller for wide layers, more weight decay, faster target networks,
    averaged weights, repeated random actions, random first trials, noise scales that are log-uniform, trials that are
    random at their end, a policy of novelty, windows that cover the ends of trials, rare rewards that are less rare in
    batches, evaluations without the clip of probabilities, and a choice of the policy that acts after training
    (docs/log.md).
    """
    context = min(env.max_trial_steps, MAX_CONTEXT)
    max_envs = env_steps // (4 * env.max_trial_steps)
    num_envs = next((count for count in NUM_ENVS if count <= max_envs), NUM_ENVS[-1])
    updates_per_env_step = min(max(NUM_UPDATES / env_steps, 1 / 64), 1 / 4)
    updates = round(env_steps * updates_per_env_step)
    acting_gamma = min(max(1.0 - 1.0 / env.max_trial_steps, 0.99), 0.999)
    agent = small_agent(acting_gamma=acting_gamma, gammas=DEFAULT_GAMMAS, position_embedding="sinusoidal_and_rotary")
    encoder = agent.timestep_encoder
    return RunConfig(
        env=env,
        num_envs=num_envs,
        env_steps=env_steps,
        context_length=context,
        algorithm=AMAGOConfig(
            agent=replace(
                agent,
                separate_gamma=DEFAULT_SEPARATE_GAMMA,
                separate_trial_fraction=1 / 8,
                timestep_encoder=replace(
                    encoder,
                    normalize_time=False,
                    image=replace(encoder.image, normalize_bytes=True),
                    tokens=replace(encoder.tokens, max_one_hot_inputs=4096),
                ),
                actor=replace(agent.actor, clip_evaluation=False),
            ),
            learner=LearnerConfig(
                td=TDLoss(trace_decay=0.6),
                learning_rate=1e-3,
                lr_warmup_updates=100,
                lr_decay_updates=updates,
                wide_layer_inputs=128,
                weight_decay=0.03,
                tau=0.03,
                averaging_rate=0.01,
            ),
            novelty=NoveltyPolicyConfig(trial_fraction=0.25, num_updates=max(1, updates // 4)),
        ),
        exploration=BilevelEpsilonGreedy(
            anneal_env_steps=max(1, env_steps // 2),
            repeat_exponent=2.0,
            random_env_steps=env_steps // 20,
            log_noise_scale=True,
            random_end_prob=0.25,
        ),
        replay=ReplayConfig(
            batch_size=2,
            min_batch_transitions=256,
            prefer_rewarded_prob=0.5,
            prefer_rewarded_anneal_start_env_steps=env_steps // 2,
            prefer_rewarded_anneal_end_env_steps=env_steps,
            cover_trial_ends=True,
        ),
        updates_per_env_step=updates_per_env_step,
        updates_anneal_env_steps=env_steps // 4,
        env_steps_per_iteration=min(16 * 24, max(1, env_steps // 8)),
        eval=EvalConfig(interval_env_steps=max(1, env_steps // 20), trials=32, choose_policy=True),
    )


def imitate_offline_data(config: RunConfig) -> RunConfig:
    """Return the config of an agent that imitates every action of its data, if that is stored data alone.

    The policy gradient alone follows values of actions that the data does not have, and values of an expert's data are
    no filter (docs/offline_data.md). As TD3+BC (Fujimoto and Gu 2021) it is kept, for data of a mixed quality. All of
    the data is there from the first update on, so that updates do not become more frequent.
    """
    if not config.offline.is_offline_only:
        return config
    config = replace(config, updates_anneal_env_steps=0)
    if not isinstance(config.algorithm, AMAGOConfig):
        return config
    imitation = replace(config.algorithm.learner.filtered_bc, weight=1.0, advantage_threshold=ALL_ACTIONS)
    config = replace_learner_fields(config, filtered_bc=imitation)
    return replace(config, algorithm=replace(amago_config(config), novelty=NoveltyPolicyConfig()))


def amago_config(config: RunConfig) -> AMAGOConfig:
    """Return the algorithm's config. Raises `UserError` if the algorithm is not AMAGO."""
    return require_algorithm(config.algorithm, AMAGOConfig, "amago")


def networks_config(config: RunConfig) -> NetworksConfig:
    """Return the networks of the algorithm. Raises `UserError` if it has none that sizes and models apply to."""
    agent = getattr(config.algorithm, "agent", None)
    if not isinstance(agent, NetworksConfig):
        raise UserError(f"{algorithm_name(config.algorithm)} has networks of its own: leave sizes and models out")
    return agent


def _replace_agent(config: RunConfig, agent: NetworksConfig) -> RunConfig:
    return replace(config, algorithm=replace(config.algorithm, agent=agent))  # type: ignore[call-arg]


def replace_agent_fields(config: RunConfig, **changes: Any) -> RunConfig:
    """Return the config with changed fields of the agent."""
    amago = amago_config(config)
    return replace(config, algorithm=replace(amago, agent=replace(amago.agent, **changes)))


def replace_learner_fields(config: RunConfig, **changes: Any) -> RunConfig:
    """Return the config with changed fields of the learner."""
    amago = amago_config(config)
    return replace(config, algorithm=replace(amago, learner=replace(amago.learner, **changes)))


def _replace_transformer_fields(config: RunConfig, **changes: Any) -> RunConfig:
    """Return the config with changed fields of the Transformer; unchanged if it has another trajectory encoder."""
    encoder = amago_config(config).agent.trajectory_encoder
    if not isinstance(encoder, TransformerConfig):
        return config
    return replace_agent_fields(config, trajectory_encoder=replace(encoder, **changes))


def _naive(config: RunConfig) -> RunConfig:
    config = _replace_transformer_fields(
        config,
        sigma_reparam=False,
        normformer=False,
        head_scaling=False,
        token_shift=False,
        num_running_maxima=0,
        activation="gelu",
    )
    agent = amago_config(config).agent
    return replace_agent_fields(
        config,
        timestep_encoder=replace(agent.timestep_encoder, activation="relu"),
        actor=replace(agent.actor, activation="relu"),
        critic=replace(agent.critic, activation="relu", num_critics=2),
        multi_gamma=False,
        acting_gamma=0.99,
    )


def _set_loss_weight(config: RunConfig, loss: str, weight: float | None) -> RunConfig:
    """Change the weight of a loss; None: unchanged, or 1 if it is 0."""
    current = getattr(amago_config(config).learner, loss)
    weight = current.weight or 1.0 if weight is None else weight
    return replace_learner_fields(config, **{loss: replace(current, weight=weight)})


def _replace_goal_env(config: RunConfig, **changes: Any) -> RunConfig:
    if not isinstance(config.env, GoalEnvConfig):
        raise UserError(f"{config.env.task_name} has no instructions, which this variant requires: leave it out")
    return replace(config, env=replace(config.env, **changes))


def _replace_relabeling(config: RunConfig, **changes: Any) -> RunConfig:
    relabel = replace(_replace_goal_env(config).replay.relabel, **changes)
    return replace(config, replay=replace(config.replay, relabel=relabel))


def _amago_2(config: RunConfig) -> RunConfig:
    """AMAGO-2 (Grigsby et al. 2024): values by classification, and an actor that only imitates what is better.

    The mean of all critics is the target, and three actions give the value of the policy. Networks, gammas, traces
    and everything else are those of the config. Differs from AMAGO-2 in the threshold of the filter, which is 0 there,
    so that rounding decides about actions that the policy itself takes.
    """
    agent, learner = amago_config(config).agent, amago_config(config).learner
    config = replace_agent_fields(
        config,
        critic=replace(agent.critic, value_code=ClassificationConfig()),
        num_policy_samples=3,
        popart=False,
    )
    return replace_learner_fields(
        config,
        td=replace(learner.td, num_critics_in_target=agent.critic.num_critics, critic_reduction="mean"),
        policy_gradient=replace(learner.policy_gradient, weight=0.0, critic_reduction="mean"),
        filtered_bc=replace(learner.filtered_bc, weight=1.0, advantage_threshold=FilteredBCLoss.advantage_threshold),
    )


VARIANTS: Mapping[str, Callable[[RunConfig], RunConfig]] = {
    # a single gamma, the acting one
    "no-multi-gamma": partial(replace_agent_fields, multi_gamma=False),
    "no-popart": partial(replace_agent_fields, popart=False),
    "no-filtered-bc": partial(_set_loss_weight, loss="filtered_bc", weight=0.0),
    # another trajectory encoder of the same width and depth
    "no-memory": partial(apply_model, name="feedforward"),
    "gru": partial(apply_model, name="gru"),
    "linear-recurrence": partial(apply_model, name="linear_recurrence"),
    "recurrent-memory": partial(apply_model, name="recurrent_memory"),
    "transformer": partial(apply_model, name="transformer"),
    "windowed": partial(apply_model, name="windowed"),
    # the paper's naive agent: plain pre-LayerNorm Transformer (GELU), ReLU networks, 2 critics, gamma 0.99
    "naive": _naive,
    "world-model": partial(_set_loss_weight, loss="world_model", weight=None),
    "no-world-model": partial(_set_loss_weight, loss="world_model", weight=0.0),
    "no-token-shift": partial(_replace_transformer_fields, token_shift=False),
    # hindsight instruction relabeling: none, of all sub-goals that were not achieved, or without regard to frequencies
    "no-relabeling": partial(_replace_relabeling, mode="none"),
    "relabel-all": partial(_replace_relabeling, mode="all"),
    "no-goal-importance-sampling": partial(_replace_relabeling, importance_sampling=False),
    # instructions of a single sub-goal, or without the sub-goals after the active one
    "no-multi-goal": partial(_replace_goal_env, max_goals=1),
    "no-planning": partial(_replace_goal_env, hide_future_goals=True),
    # values by classification, filtered behavior cloning in place of the policy gradient
    "amago-2": _amago_2,
    **PPO_VARIANTS,
    **VARIBAD_VARIANTS,
    **HYPERX_VARIANTS,
}


def apply_presets(
    config: RunConfig, variants: Sequence[str], *, size: str | None = None, model: str | None = None
) -> RunConfig:
    """Return the config with another model, then another size, then all variants. `UserError` for an unknown name."""
    return apply_variants(apply_size(apply_model(config, model), size), variants)


def apply_variants(config: RunConfig, names: Sequence[str]) -> RunConfig:
    """Return the config with all variants applied in order.

    Raises `UserError` for an unknown name, for a string alone, and for a variant that changes nothing: its run would be
    the full agent's.
    """
    if isinstance(names, str):
        raise UserError(f"variants: expected a list, got {names!r} alone: pass variants=[{names!r}]")
    for name in names:
        if name not in VARIANTS:
            raise UserError(f"unknown variant {name!r}: choose among {', '.join(list_variants(config))}")
        changed = VARIANTS[name](config)
        if changed == config:
            raise UserError(f"variant {name} changes nothing here: leave it out")
        config = changed
    return config


def list_variants(config: RunConfig) -> list[str]:
    """Return the names of the variants that change the config."""

    def changes(name: str) -> bool:
        try:
            return VARIANTS[name](config) != config
        except UserError:
            return False

    return [name for name in VARIANTS if changes(name)]
