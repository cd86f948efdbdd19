"""A new loss is one new file and one line of a recipe."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from yamame.config.named_code import caller_modules
from yamame.config.serialization import from_json, to_json
from yamame.recipes import config_from_flags, load_recipe
from yamame.recipes.settings.presets import replace_learner_fields
from yamame.training import start as runs
from yamame.training.run_files import RunMetadata, read_config

LOSS_FILE = '''
"""Entropy of the policy as a loss of its own."""

from dataclasses import dataclass
from typing import ClassVar

from yamame.data.batch import Batch, LossOutput, Predictions


@dataclass(frozen=True, kw_only=True)
class EntropyLoss:
    name: ClassVar[str] = "negative_entropy"

    weight: float = 0.01

    def __call__(self, batch: Batch, predictions: Predictions) -> LossOutput:
        return LossOutput(per_token=-predictions.entropy_NG.mean(dim=1), metrics={})
'''


@pytest.fixture
def entropy_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type:
    (tmp_path / "entropy_loss.py").write_text(LOSS_FILE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "entropy_loss", raising=False)
    from importlib import import_module

    found: type = import_module("entropy_loss").EntropyLoss
    return found


def test_it_is_summed_logged_and_stored(entropy_loss: type, tmp_path: Path) -> None:
    recipe = load_recipe("passive-tmaze")
    flags = [
        "--env.horizon",
        "4",
        "--num-envs",
        "4",
        "--env-steps",
        "64",
        "--replay.batch-size",
        "2",
        "--updates-per-env-step",
        "0.1",
    ]
    config = config_from_flags(recipe, [], [*flags, "--eval.final-trials", "4", "--eval.num-envs", "4"], size="tiny")
    config = replace_learner_fields(replace(config, seed=1), extra_losses=(entropy_loss(),))
    result = runs.train_run(config, RunMetadata(recipe="test"), run_dir=tmp_path / "run", quiet=True)
    assert result["updates"] > 0
    assert "loss/negative_entropy" in (tmp_path / "run" / "metrics.jsonl").read_text()
    with caller_modules(["entropy_loss"]):
        assert from_json(type(config), to_json(config)) == config
        assert read_config(tmp_path / "run") == config
