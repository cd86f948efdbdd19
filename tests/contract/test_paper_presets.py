"""The preset `paper` of every recipe: the numbers of tables 3 and 4 of the paper, and two real updates."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gymnasium import spaces

import yamame
from yamame.algorithms.amago.config import AMAGOConfig
from yamame.collect.exploration import BilevelEpsilonGreedy, TMazeEpsilonGreedy
from yamame.errors import UserError
from yamame.nets.heads.popart import PopArtConfig
from yamame.nets.sequence.transformer import TransformerConfig
from yamame.recipes import PAPER, config_from_flags, load_recipe, make_metadata, recipe_names
from yamame.recipes.settings.presets import VARIANTS, apply_variants
from yamame.run_config import RunConfig

OTHER_DOMAINS = ("bandit", "endless-tmaze", "gridnavi", "gymnasium", "gymnax", "minigrid", "rooms", "xland")
"""Recipes without an experiment of the paper."""

DISCRETE = (
    0.7, 0.9, 0.93, 0.95, 0.98, 0.99, 0.992, 0.994, 0.995, 0.997, 0.998, 0.999, 0.9991, 0.9992, 0.9993, 0.9994, 0.9995,
    0.999,
)  # fmt: skip
CONTINUOUS = (0.9, 0.95, 0.99, 0.993, 0.996, 0.999)

TABLE_3: dict[str, tuple[int, int, int, int, tuple[int, ...], tuple[int, ...]]] = {
    # d_model, d_ff, heads, layers, actor and critic MLP, timestep encoder
    "popgym": (256, 1024, 8, 3, (256, 256), (512, 512, 200)),
    "dark-key-to-door": (256, 1024, 8, 3, (256, 256), (128, 128, 64)),
    "wind": (128, 512, 8, 2, (256, 256), (128, 128, 64)),
    "passive-tmaze": (128, 512, 8, 2, (256, 256), (128, 128, 128)),
    "active-tmaze": (128, 512, 8, 2, (256, 256), (128, 128, 128)),
    "metaworld": (256, 1024, 8, 3, (256, 256), (256, 256, 200)),
    "package-delivery": (128, 512, 8, 3, (256, 256), (128, 128, 128)),
    "maze-runner": (128, 512, 8, 3, (256, 256), (128, 128, 128)),
    "crafter": (384, 1536, 12, 6, (400, 400), (384, 384)),
    # not in the table: the network of Meta-World, and that of POPGym
    "half-cheetah-velocity": (256, 1024, 8, 3, (256, 256), (256, 256, 200)),
    "lunar-lander": (256, 1024, 8, 3, (256, 256), (512, 512, 200)),
    **dict.fromkeys(OTHER_DOMAINS, (256, 1024, 8, 3, (256, 256), (512, 512, 200))),
}

TABLE_4: dict[str, tuple[float, float, int, int, int, int, int, int | None]] = {
    # learning rate, L2 penalty, batch, buffer, updates per epoch, actors, steps per actor and epoch, epochs
    "popgym": (1e-4, 1e-3, 24, 80_000, 1000, 24, 1000, 625),
    "package-delivery": (3e-4, 1e-4, 24, 15_000, 1500, 24, 180, 600),
    "maze-runner": (3e-4, 1e-4, 24, 20_000, 1000, 24, 400, 600),
    "crafter": (1e-4, 1e-4, 18, 20_000, 1500, 8, 2000, 2000),
    # the column "Other Domains", where the paper does not give the epochs
    "dark-key-to-door": (1e-4, 1e-3, 24, 20_000, 1000, 12, 500, None),
    "wind": (1e-4, 1e-3, 24, 20_000, 1000, 12, 75, None),
    "passive-tmaze": (1e-4, 1e-3, 24, 20_000, 1000, 12, 1501, None),
    "active-tmaze": (1e-4, 1e-3, 24, 20_000, 1000, 12, 13, None),
    "metaworld": (1e-4, 1e-3, 24, 20_000, 1000, 12, 2500, None),
    "half-cheetah-velocity": (1e-4, 1e-3, 24, 20_000, 1000, 12, 600, None),
    "lunar-lander": (1e-4, 1e-3, 24, 20_000, 1000, 12, 500, None),
    "bandit": (1e-4, 1e-3, 24, 20_000, 1000, 12, 100, None),
    "endless-tmaze": (1e-4, 1e-3, 24, 20_000, 1000, 12, 110, None),
    "gridnavi": (1e-4, 1e-3, 24, 20_000, 1000, 12, 60, None),
    "gymnasium": (1e-4, 1e-3, 24, 20_000, 1000, 12, 500, None),
    "gymnax": (1e-4, 1e-3, 24, 20_000, 1000, 12, 8, None),
    "minigrid": (1e-4, 1e-3, 24, 20_000, 1000, 12, 245, None),
    "rooms": (1e-4, 1e-3, 24, 20_000, 1000, 12, 50, None),
    "xland": (1e-4, 1e-3, 24, 20_000, 1000, 12, 200, None),
}

SCALED_BY_100 = ("popgym", "dark-key-to-door", "wind", "passive-tmaze", "active-tmaze", "maze-runner")
REWARD_SCALE = {**dict.fromkeys(SCALED_BY_100, 100), "lunar-lander": 1}

VARIANTS_OF_FIGURES = {
    "popgym": ("naive", "gru"),
    "dark-key-to-door": ("gru", "no-memory"),
    "wind": ("gru", "no-memory"),
    "half-cheetah-velocity": ("no-memory",),
    "package-delivery": ("no-memory", "no-relabeling", "no-multi-gamma", "no-filtered-bc", "relabel-all"),
    "maze-runner": ("no-memory", "no-relabeling", "no-multi-gamma", "world-model", "no-planning", "no-multi-goal"),
    "crafter": ("no-memory", "no-relabeling", "no-multi-goal", "no-planning", "no-goal-importance-sampling"),
    "lunar-lander": ("no-popart",),
}


def paper_config_of(name: str) -> RunConfig:
    recipe = load_recipe(name, PAPER)
    return recipe.make_config(recipe.env)


def amago(config: RunConfig) -> AMAGOConfig:
    assert isinstance(config.algorithm, AMAGOConfig)
    return config.algorithm


@pytest.mark.parametrize("name", recipe_names())
def test_networks_are_those_of_table_3(name: str) -> None:
    agent = amago(paper_config_of(name)).agent
    encoder, timestep = agent.trajectory_encoder, agent.timestep_encoder
    assert isinstance(encoder, TransformerConfig)
    assert agent.actor.hidden_sizes == agent.critic.hidden_sizes
    sizes = (*timestep.hidden_sizes, timestep.output_size)
    found = (encoder.d_model, encoder.d_ff, encoder.num_heads, encoder.num_layers, agent.actor.hidden_sizes, sizes)
    assert found == TABLE_3[name]
    assert encoder.dropout == 0.05
    assert not encoder.token_shift
    assert (encoder.sigma_reparam, encoder.normformer, encoder.head_scaling) == (True, True, True)
    coordinates, tokens = timestep.instruction_coordinates, timestep.instruction_tokens
    assert (coordinates.hidden_sizes, coordinates.output_size, coordinates.normalize) == ((64,), 32, False)
    assert (tokens.hidden_size, tokens.output_size) == (96, 64)


@pytest.mark.parametrize("name", recipe_names())
def test_training_is_that_of_table_4(name: str) -> None:
    config = paper_config_of(name)
    learner, actors = amago(config).learner, config.num_envs
    steps = config.resolved_env_steps_per_iteration
    epochs = config.env_steps / steps
    updates = config.updates_per_env_step * steps
    rate, penalty, batch, buffer, updates_per_epoch, num_actors, steps_per_actor, num_epochs = TABLE_4[name]
    assert (learner.learning_rate, learner.weight_decay) == (rate, penalty)
    assert (config.replay.batch_size, config.replay.capacity_trajectories) == (batch, buffer)
    assert (updates, actors, steps / actors) == (pytest.approx(updates_per_epoch), num_actors, steps_per_actor)
    if num_epochs is not None:
        assert epochs == num_epochs
    assert learner.lr_warmup_updates == 10 * updates_per_epoch
    assert learner.lr_decay_updates == 0
    assert config.learning_starts == 0
    assert config.replay.unrewarded_keep_prob == 1.0


@pytest.mark.parametrize("name", recipe_names())
def test_losses_and_exploration_are_the_same_everywhere(name: str) -> None:
    config = paper_config_of(name)
    learner, agent = amago(config).learner, amago(config).agent
    assert (learner.policy_gradient.weight, learner.filtered_bc.weight, learner.td.weight) == (1.0, 0.1, 10.0)
    assert (learner.world_model.weight, learner.policy_gradient.entropy_coef) == (0.0, 0.0)
    assert learner.policy_gradient.critic_reduction == "min"
    assert (agent.critic.num_critics, learner.td.num_critics_in_target, learner.td.n_step) == (4, 2, 1)
    assert learner.td.truncation_is_terminal
    assert (learner.tau, learner.max_grad_norm) == (0.003, 1.0)
    assert learner.td.reward_scale == REWARD_SCALE.get(name, 10)
    assert agent.critic.value_code == PopArtConfig(initial_square=100.0)
    is_tmaze = name in ("passive-tmaze", "active-tmaze")
    acting = 0.9999 if is_tmaze else 0.999
    assert agent.all_gammas(spaces.Discrete(2)) == (*DISCRETE[:-1], acting)
    assert agent.all_gammas(spaces.Box(-1, 1)) == (*CONTINUOUS[:-1], acting)
    assert config.deterministic_actions == is_tmaze
    noise = config.exploration
    if is_tmaze:
        assert noise == TMazeEpsilonGreedy(anneal_env_steps=100_000 * config.num_envs)
        return
    assert isinstance(noise, BilevelEpsilonGreedy)
    assert (noise.trial_start_initial_eps, noise.trial_start_final_eps) == (1.0, 0.05)
    assert (noise.trial_end_initial_eps, noise.trial_end_final_eps) == (0.8, 0.01)
    assert noise.anneal_env_steps == 1_000_000 * config.num_envs
    assert noise.randomize_noise_scale


@pytest.mark.parametrize("name", recipe_names())
def test_the_context_is_a_whole_trial(name: str) -> None:
    config = paper_config_of(name)
    whole = config.env.max_trial_steps
    assert config.resolved_context_length == (128 if name == "lunar-lander" else whole)


def test_the_tasks_are_those_of_the_paper() -> None:
    tasks: dict[str, dict[str, Any]] = {
        "dark-key-to-door": {"size": 9, "horizon": 500, "attempt_length": 50, "fixed_start": False},
        "wind": {"horizon": 75},
        "half-cheetah-velocity": {"attempts": 3, "attempt_length": 200},
        "metaworld": {"attempt_length": 500},
        "package-delivery": {"horizon": 180, "road_length": 30, "max_goals": 4, "min_destination": 1},
        "maze-runner": {"size": 15, "max_trial_steps": 400, "max_goals": 3, "position": True, "rewired": False},
        "crafter": {"horizon": 2000, "max_goals": 5},
    }
    for name, fields in tasks.items():
        env = load_recipe(name, PAPER).env
        assert {field: getattr(env, field) for field in fields} == fields, name


def test_budgets_that_the_paper_gives() -> None:
    steps = {name: paper_config_of(name).env_steps / 1e6 for name in recipe_names()}
    assert steps["popgym"] == 15
    assert (steps["package-delivery"], steps["maze-runner"]) == (pytest.approx(2.6, abs=0.05), pytest.approx(5.76))
    assert (steps["crafter"], steps["dark-key-to-door"]) == (32, pytest.approx(22.2))
    assert (steps["metaworld"], steps["wind"]) == (pytest.approx(10, abs=0.03), pytest.approx(2.35, abs=0.01))
    large = config_from_flags(load_recipe("maze-runner", PAPER), [], ["--env.size", "30"])
    assert (large.env_steps, large.env.max_trial_steps) == (14_400_000, 1000)


@pytest.mark.parametrize("name", VARIANTS_OF_FIGURES)
def test_every_variant_of_a_figure_differs_from_its_baseline(name: str) -> None:
    base = paper_config_of(name)
    changed = [apply_variants(base, [variant]) for variant in VARIANTS_OF_FIGURES[name]]
    assert all(config != base for config in changed)
    assert all(one != other for i, one in enumerate(changed) for other in changed[:i])
    assert set(VARIANTS_OF_FIGURES[name]) <= set(VARIANTS)


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(UserError, match="unknown preset 'papr': choose among small, paper"):
        load_recipe("wind", "papr")


def test_metadata_names_the_preset() -> None:
    recipe = load_recipe("wind", PAPER)
    about = make_metadata(recipe, replace(recipe.make_config(recipe.env), num_envs=3))
    assert (about.preset, about.expected, about.overrides) == ("paper", "", {"num_envs": (12, 3)})


TWO_UPDATES = {
    "num_envs": 2,
    "replay": {"batch_size": 2},
    "compute": {"chunk_tokens": 512},
    "eval": {"final_trials": 1, "num_envs": 1, "interval_env_steps": 0},
}


def _two_updates(name: str) -> dict[str, Any]:
    """Return changes that leave network, losses, task and context as they are: two trials, a batch of two, twice."""
    steps = 2 * load_recipe(name, PAPER).env.max_trial_steps
    return {**TWO_UPDATES, "env_steps": steps, "env_steps_per_iteration": steps, "updates_per_env_step": 2 / steps}


QUICK = ("active-tmaze", "gymnasium", "lunar-lander", "package-delivery", "wind")
"""Whole trials of at most 500 steps in tasks without further packages."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.thorough) for name in recipe_names()]
)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")  # Box2D's bindings
def test_two_updates_on_a_cpu(name: str, tmp_path: Path) -> None:
    run = yamame.train(name, preset="paper", run_dir=tmp_path / "run", **_two_updates(name))
    assert run.result["updates"] == 2
    assert json.loads((tmp_path / "run" / "metadata.json").read_text())["preset"] == "paper"
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["optim/nonfinite_updates"] == 0
    assert last["loss/td"] != 0
