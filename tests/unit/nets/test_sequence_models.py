"""Trajectory encoders are found by their files, and PyTorch's recurrent layers act and train without further code."""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_agents import double_batch, random_windows
from torch import Tensor, nn

from yamame.cli import main
from yamame.errors import UserError
from yamame.nets import sequence
from yamame.nets.blocks import freeze_for_inference
from yamame.nets.sequence.base import available_models, model_config
from yamame.nets.sequence.feedforward import FeedForwardConfig
from yamame.nets.sequence.gru import GRUConfig
from yamame.nets.sequence.transformer import TransformerConfig
from yamame.training.run_files import read_config

LSTM_FILE = """
from dataclasses import dataclass

from torch import nn

from yamame.nets.sequence.base import RecurrentEncoder, TrajectoryEncoderConfig


@dataclass(frozen=True, kw_only=True)
class LSTMConfig(TrajectoryEncoderConfig):
    SIZES = {"tiny": {"d_model": 8}, "small": {"d_model": 24}}
    d_model: int = 16

    @property
    def state_size(self) -> int:
        return self.d_model

    def build(self, *, input_size: int, attention_window: int, max_timestep: int) -> nn.Module:
        return RecurrentEncoder(nn.LSTM(input_size, self.d_model, batch_first=True))
"""
"""A whole model: a config around a layer of PyTorch."""

TINY_RUN = ["--env.horizon", "6", "--num-envs", "4", "--env-steps", "48", "--seed", "0", "--quiet", "--json"]


@pytest.fixture
def lstm_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`lstm.py` as if it lay in the folder of sequence models."""
    (tmp_path / "lstm.py").write_text(LSTM_FILE, encoding="utf-8")
    monkeypatch.setattr(sequence, "__path__", [*sequence.__path__, str(tmp_path)])
    yield
    sys.modules.pop("yamame.nets.sequence.lstm", None)
    vars(sequence).pop("lstm", None)


def test_models_are_the_files_of_the_folder() -> None:
    assert available_models() == [
        "feedforward",
        "gru",
        "linear_recurrence",
        "recurrent_memory",
        "transformer",
        "windowed",
    ]
    assert model_config("gru") == GRUConfig()
    with pytest.raises(
        UserError, match=r"'mamba'.*feedforward, gru, linear_recurrence, recurrent_memory, transformer, windowed"
    ):
        model_config("mamba")


def test_a_replacement_is_as_wide_and_as_deep() -> None:
    small = TransformerConfig(d_model=48, num_layers=5, num_heads=2, d_ff=7)
    assert model_config("gru", like=small) == GRUConfig(d_model=48, num_layers=5)
    assert model_config("feedforward", like=small) == FeedForwardConfig(d_model=48, num_layers=5)
    assert model_config("transformer", like=small) is small
    sized = TransformerConfig(d_model=64, num_layers=2, num_heads=4, d_ff=256)
    assert model_config("transformer", like=GRUConfig(d_model=64, num_layers=2)) == sized


def test_a_new_file_is_a_new_model(lstm_file: None) -> None:
    assert available_models() == [
        "feedforward",
        "gru",
        "linear_recurrence",
        "lstm",
        "recurrent_memory",
        "transformer",
        "windowed",
    ]
    assert model_config("lstm").at_size("tiny").state_size == 8
    assert model_config("lstm", like=GRUConfig(d_model=40)).state_size == 40


def test_one_update_with_a_new_model_through_the_command_line(
    lstm_file: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*TINY_RUN, "--run-dir", str(tmp_path / "run")]
    assert main(["train", "passive-tmaze", "--model", "lstm", "--size", "tiny", *flags]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["updates"] > 0
    encoder = read_config(tmp_path / "run").algorithm.agent.trajectory_encoder
    assert type(encoder).__name__ == "LSTMConfig" and encoder.state_size == 8, "its own size"


def test_one_update_with_a_model_through_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "passive-tmaze", "--model", "gru", *TINY_RUN, "--run-dir", str(tmp_path / "run")]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["updates"] > 0
    encoder = read_config(tmp_path / "run").algorithm.agent.trajectory_encoder
    assert encoder == GRUConfig(d_model=64, num_layers=2)
    assert main(["train", "passive-tmaze", "--model", "grue", *TINY_RUN]) == 2
    assert "feedforward, gru, linear_recurrence, recurrent_memory, transformer, windowed" in capsys.readouterr().err


CORES: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: nn.LSTM(3, 16, batch_first=True),
    "two layers": lambda: nn.LSTM(3, 16, num_layers=2, batch_first=True),
    "rnn": lambda: nn.RNN(3, 16, batch_first=True),
}


@pytest.mark.parametrize("core", CORES)
def test_a_recurrent_layer_of_pytorch_learns_to_remember(core: str) -> None:
    """The first input of a window is to be recalled at all its timesteps, by the whole forward and step by step."""
    base = importlib.import_module("yamame.nets.sequence.base")
    torch.manual_seed(0)
    encoder, head = base.RecurrentEncoder(CORES[core]()).double(), nn.Linear(16, 1).double()
    batch = double_batch(random_windows(0, [7] * 16))
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=0.01)
    losses = []
    for _ in range(150):
        x_ND = torch.randn(len(batch.reward), 3, generator=generator, dtype=torch.float64)
        first_N = x_ND[batch.cu_seqlens[:-1], 0].sign().repeat_interleave(batch.cu_seqlens.diff())
        loss = (head(encoder(x_ND, batch))[:, 0] - first_N).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])
    acting = freeze_for_inference(encoder)
    state = acting.initial_state(16)
    expected_BLS = encoder(x_ND, batch).unflatten(0, (16, 8))
    for time in range(8):
        state_ES = acting.step(x_ND.unflatten(0, (16, 8))[:, time], np.full(16, time), state)
        torch.testing.assert_close(state_ES, expected_BLS[:, time], rtol=0, atol=1e-9)


class Reaching(nn.Module):
    """A module nobody here wrote: containers, accessed weights, attention, parametrizations, 3-D inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.LayerNorm(6, elementwise_affine=False))
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.block = nn.TransformerEncoderLayer(6, 2, dim_feedforward=8, batch_first=True)
        self.spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6))
        self.table = nn.ModuleDict({"a": nn.Linear(6, 6)})
        self.mix = nn.Linear(6, 6)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x_BLD: Tensor) -> Tensor:
        x_BLD = self.dropout(self.layers(x_BLD))
        x_BLD = self.block(x_BLD + self.attention(x_BLD, x_BLD, x_BLD)[0])
        return self.table["a"](self.spectral(x_BLD)) @ self.mix.weight.t()


def test_a_module_nobody_here_wrote_can_act() -> None:
    torch.manual_seed(0)
    module = Reaching().double().train()
    x_BLD = torch.randn(3, 4, 6, dtype=torch.float64)
    acting = freeze_for_inference(module)
    assert module.training and not acting.training and module.mix.weight.requires_grad
    expected = module.eval()(x_BLD).detach()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3)
    torch.testing.assert_close(acting(x_BLD), expected, rtol=0, atol=1e-9)
    assert not acting(x_BLD).requires_grad
