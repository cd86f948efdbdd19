"""What `resume` reports of a config that is not that of the checkpoint."""

from dataclasses import replace

from yamame.config.differences import flatten_config
from yamame.config.overrides import apply_overrides
from yamame.recipes import config_from_flags, load_recipe
from yamame.training.state import changed_fields

CONFIG = config_from_flags(load_recipe("passive-tmaze"), (), [])
SAVED = flatten_config(CONFIG)


def without(*prefixes: str) -> dict[str, object]:
    """The checkpoint of a version that lacks some fields."""
    return {path: value for path, value in SAVED.items() if not path.startswith(prefixes)}


def test_both_values_of_a_changed_field_are_reported() -> None:
    assert changed_fields(SAVED, replace(CONFIG, env_steps=7)) == ""
    other = apply_overrides(CONFIG, {"num_envs": 3, "learner.tau": 0.25})
    expected = f"num_envs {CONFIG.num_envs} -> 3, learner.tau {SAVED['learner.tau']} -> 0.25"
    assert changed_fields(SAVED, other) == expected
    assert changed_fields({**SAVED, "agent.former": 1}, CONFIG) == "agent.former 1 -> null"


def test_a_field_that_the_checkpoint_lacks_may_have_its_default() -> None:
    new = ("agent.separate_gamma", "novelty")
    assert {"agent.separate_gamma", "novelty.type", "novelty.tau"} <= SAVED.keys() - without(*new).keys()
    assert changed_fields(without(*new), CONFIG) == ""
    other = apply_overrides(CONFIG, {"agent.separate_gamma": 0.5})
    assert changed_fields(without(*new), other) == "agent.separate_gamma null -> 0.5"
