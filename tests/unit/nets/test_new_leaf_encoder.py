"""A new observation encoder is one new file in `yamame/nets/timestep/`, with nothing else edited."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

from yamame.config.flags import parse_flags
from yamame.config.serialization import from_json, to_json
from yamame.data.spaces import flatten_space
from yamame.nets import timestep
from yamame.nets.timestep.encoder import TimestepEncoderConfig
from yamame.recipes import load_recipe
from yamame.recipes.settings.presets import default_config
from yamame.recipes.settings.sizes import SIZES

FILE = """
from dataclasses import dataclass

from gymnasium import spaces
from torch import nn

from yamame.nets.timestep.base import LeafEncoderConfig


@dataclass(frozen=True, kw_only=True)
class SoundEncoderConfig(LeafEncoderConfig):
    output_size: int = 6

    def matches(self, name, leaf):
        return name == "sound"

    def unsupported_reason(self, leaf):
        return "" if isinstance(leaf, spaces.Box) and len(leaf.shape) == 1 else "is no row of numbers"

    def build(self, leaf, activation):
        return nn.Linear(leaf.shape[0], self.output_size)
"""
SPACE = spaces.Dict(
    {"sound": spaces.Box(-1.0, 1.0, (5,), np.float32), "state": spaces.Box(-1.0, 1.0, (2,), np.float32)}
)


@pytest.fixture(autouse=True)
def _file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "sound.py").write_text(FILE, encoding="utf-8")
    monkeypatch.setattr(timestep, "__path__", [*timestep.__path__, str(tmp_path)])
    yield
    sys.modules.pop("yamame.nets.timestep.sound", None)
    vars(timestep).pop("sound", None)


def test_it_encodes_the_leaves_that_it_matches() -> None:
    config = TimestepEncoderConfig(hidden_sizes=(4,), output_size=3)
    encoder = config.build(flatten_space(SPACE), spaces.Discrete(2))
    assert encoder.encoded == ("sound",) and isinstance(encoder.leaf_encoders[0], torch.nn.Linear)
    features = torch.zeros(7, encoder.num_features)
    assert encoder(features, {"sound": torch.zeros(7, 5), "state": torch.zeros(7, 2)}).shape == (7, 3)


def test_it_has_a_kind_flags_a_size_and_a_place_in_files() -> None:
    other = TimestepEncoderConfig(encoder_overrides=("state=sound", "sound=vector"))
    assert other.resolve_encoders(flatten_space(SPACE)) == {"state": "sound", "sound": "vector"}
    assert from_json(TimestepEncoderConfig, to_json(other)) == other
    config = parse_flags(TimestepEncoderConfig(), ["--other.0.output-size", "9"], "prog")
    assert config.leaf_encoders()["sound"].output_size == 9
    agent = default_config(load_recipe("passive-tmaze").env).algorithm.agent
    assert SIZES["tiny"].apply_to(agent).timestep_encoder.leaf_encoders()["sound"].output_size == 32
