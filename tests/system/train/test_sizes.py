"""The dial for the size of the network."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from gymnasium import spaces

import yamame
from yamame.algorithms.base import build_model
from yamame.cli import main
from yamame.config.serialization import from_json, to_json
from yamame.data.schema import TaskSpec
from yamame.errors import UserError
from yamame.nets.sequence.gru import GRUConfig
from yamame.nets.sequence.transformer import TransformerConfig
from yamame.nets.timestep.encoder import TimestepEncoderConfig
from yamame.recipes import config_from_flags, config_from_overrides, load_recipe
from yamame.recipes.settings.presets import apply_size, replace_agent_fields
from yamame.recipes.settings.sizes import SIZES
from yamame.run_config import RunConfig

TMAZE = load_recipe("passive-tmaze")
PIXELS = spaces.Dict({"image": spaces.Box(0, 255, (16, 16, 3), np.uint8), "cell": spaces.Discrete(100)})


def parameters(size: str) -> int:
    config = apply_size(TMAZE.make_config(TMAZE.env), size)
    task = TaskSpec(
        observation_space=PIXELS,
        action_space=spaces.Discrete(3),
        horizon=config.env.max_trial_steps,
        action_mask_key="",
    )
    agent = build_model(config.algorithm, task, context_length=config.resolved_context_length, seed=0)
    return sum(parameter.numel() for parameter in agent.parameters())


def test_base_and_large_are_the_papers() -> None:
    """Appendix, table 3: POPGym and Crafter."""
    recipe = load_recipe("popgym")
    base, large = (apply_size(recipe.make_config(recipe.env), size).algorithm.agent for size in ("base", "large"))
    assert (base.timestep_encoder.hidden_sizes, base.timestep_encoder.output_size) == ((512, 512), 200)
    assert base.trajectory_encoder == TransformerConfig(d_model=256, d_ff=1024, num_layers=3, num_heads=8)
    assert base.actor.hidden_sizes == base.critic.hidden_sizes == (256, 256)
    assert large.trajectory_encoder == TransformerConfig(d_model=384, d_ff=1536, num_layers=6, num_heads=12)
    assert large.actor.hidden_sizes == large.critic.hidden_sizes == (400, 400)


def test_each_size_is_several_times_the_one_before() -> None:
    counts = [parameters(size) for size in SIZES]
    assert all(2.5 * smaller < larger for smaller, larger in pairwise(counts)), counts


def test_what_a_network_is_made_of_and_does_is_left_as_it_is() -> None:
    config = TMAZE.make_config(TMAZE.env)
    agent = replace(
        config.algorithm.agent,
        trajectory_encoder=TransformerConfig(position_embedding="rotary", dropout=0.1),
        timestep_encoder=TimestepEncoderConfig(encoder_overrides=("observation=vector",), activation="gelu"),
    )
    small = apply_size(replace(config, algorithm=replace(config.algorithm, agent=agent)), "small")
    assert small.algorithm.agent.trajectory_encoder == TransformerConfig(
        position_embedding="rotary", dropout=0.1, d_model=64, num_layers=2, num_heads=4, d_ff=256
    )
    assert small.algorithm.agent.timestep_encoder.encoder_overrides == ("observation=vector",)
    assert small.algorithm.agent.timestep_encoder.activation == "gelu"
    assert small.algorithm.agent.gammas == config.algorithm.agent.gammas
    assert replace(small, algorithm=config.algorithm) == config, "nothing but the network"


def test_without_the_dial_the_recipe_decides() -> None:
    config = TMAZE.make_config(TMAZE.env)
    assert apply_size(config, None) == config
    assert config_from_flags(TMAZE, [], []) == config == config_from_overrides(TMAZE, [], {})


def test_flags_win_over_the_dial_and_variants_follow_it() -> None:
    flags = ["--agent.trajectory-encoder.num-layers", "5", "--agent.timestep-encoder.image.output-size", "9"]
    config = config_from_flags(TMAZE, [], flags, size="base")
    assert config.algorithm.agent.trajectory_encoder == TransformerConfig(
        d_model=256, d_ff=1024, num_layers=5, num_heads=8
    )
    assert config.algorithm.agent.timestep_encoder.image.output_size == 9
    assert config.algorithm.agent.timestep_encoder.tokens.output_size == SIZES["base"].leaf_width
    overrides = {"agent.trajectory_encoder.num_layers": 5, "agent.timestep_encoder.image.output_size": 9}
    assert config_from_overrides(TMAZE, [], overrides, size="base") == config
    assert config_from_flags(TMAZE, ["gru"], [], size="base").algorithm.agent.trajectory_encoder == GRUConfig(
        d_model=256, num_layers=3
    )


def test_a_gru_is_sized_too() -> None:
    config = TMAZE.make_config(TMAZE.env)
    recurrent = replace_agent_fields(config, trajectory_encoder=GRUConfig())
    assert apply_size(recurrent, "large").algorithm.agent.trajectory_encoder == GRUConfig(d_model=384, num_layers=6)


@pytest.mark.parametrize("size", SIZES)
def test_a_sized_config_survives_its_json(size: str) -> None:
    config = apply_size(TMAZE.make_config(TMAZE.env), size)
    assert from_json(RunConfig, to_json(config)) == config


def test_an_unknown_size_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"'huge'.*tiny, small, base, large"):
        apply_size(TMAZE.make_config(TMAZE.env), "huge")


def test_both_doors_have_the_dial(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "passive-tmaze", "--size", "huge"]) == 2
    assert "tiny, small, base, large" in capsys.readouterr().err
    with pytest.raises(UserError, match="tiny, small, base, large"):
        yamame.train("passive-tmaze", size="huge")
    assert main(["train", "passive-tmaze", "--size", "large", "--help-all"]) == 0
    assert "--agent.trajectory-encoder.d-model int" in (shown := capsys.readouterr().out) and "(default: 384)" in shown
