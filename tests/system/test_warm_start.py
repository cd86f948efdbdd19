"""Runs that start with the weights of another run, of which some may be frozen."""

from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from tiny import TINY_NETWORK, TINY_RUN
from torch import Tensor

import yamame
from yamame import cli
from yamame.training.trained_run import load_trained_run

pytestmark = pytest.mark.slow

SMALL: dict[str, Any] = {**TINY_RUN, "env_steps": 400, "env_steps_per_iteration": 40, "context_length": 8}
ENCODERS = ("timestep_encoder", "trajectory_encoder")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> yamame.Run:
    return yamame.train("CartPole-v1", run_dir=tmp_path_factory.mktemp("source") / "run", **SMALL)


def weights(run: yamame.Run | Path) -> dict[str, Tensor]:
    model = load_trained_run(run if isinstance(run, Path) else run.directory).model
    return dict(model.state_dict())


def unchanged(before: dict[str, Tensor], after: dict[str, Tensor], part: str) -> bool:
    names = [name for name in before if name.startswith(f"{part}.")]
    assert names
    return all(torch.equal(before[name], after[name]) for name in names)


def test_a_run_starts_with_the_weights_of_another(source: yamame.Run, tmp_path: Path) -> None:
    """Also with another horizon and seed: without updates, nothing changes."""
    settings = {**SMALL, "updates_per_env_step": 0.0, "seed": 3}
    run = yamame.train("CartPole-v1", horizon=90, init_from=source, run_dir=tmp_path / "run", **settings)
    before, after = weights(source), weights(run)
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert run.config.init_from == str(source.directory.resolve())
    checkpoint = max((source.directory / "checkpoints").glob("update-*"))
    again = yamame.train("CartPole-v1", init_from=checkpoint, run_dir=tmp_path / "again", **settings)
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(again).items())


@pytest.mark.parametrize(
    "frozen", [(), *(pytest.param(some, marks=pytest.mark.thorough) for some in (ENCODERS[:1], ENCODERS[1:])), ENCODERS]
)
def test_frozen_encoders_keep_weights_and_statistics(
    source: yamame.Run, tmp_path: Path, frozen: tuple[str, ...]
) -> None:
    run = yamame.train("CartPole-v1", init_from=source, run_dir=tmp_path / "run", learner={"frozen": frozen}, **SMALL)
    before, after = weights(source), weights(run)
    assert {part for part in ENCODERS if unchanged(before, after, part)} == set(frozen)
    assert not unchanged(before, after, "actor") and not unchanged(before, after, "critic")
    run.resume(env_steps=600)
    resumed = weights(run)
    assert {part for part in ENCODERS if unchanged(before, resumed, part)} == set(frozen)
    assert not unchanged(after, resumed, "actor")


def test_a_resumed_run_keeps_its_own_weights(source: yamame.Run, tmp_path: Path) -> None:
    run = yamame.train("CartPole-v1", init_from=str(source.directory), run_dir=tmp_path / "run", **SMALL)
    own = weights(run)
    source_checkpoints = source.directory / "checkpoints"
    hidden = source_checkpoints.rename(source.directory / "elsewhere")
    try:
        assert run.resume(env_steps=440).result["env_steps"] == 440
    finally:
        hidden.rename(source_checkpoints)
    assert not unchanged(own, weights(run), "actor")


def test_what_does_not_fit_is_refused_in_one_line(
    source: yamame.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(yamame.UserError, match=r"do not fit this run: use the same .* networks \(size mismatch"):
        yamame.train("CartPole-v1", init_from=source, size="small", run_dir=tmp_path / "size", **_without_network())
    with pytest.raises(yamame.UserError, match="do not fit this run"):
        yamame.train(lambda: gymnasium.make("MountainCar-v0"), init_from=source, run_dir=tmp_path / "spaces", **SMALL)
    command = ["train", "gymnasium", "--env.id", "CartPole-v1", "--init-from", str(tmp_path / "nowhere")]
    assert cli.main([*command, "--run-dir", str(tmp_path / "run")]) == 2
    assert "nowhere does not exist: pass a run, or a checkpoint of one, as init_from" in capsys.readouterr().err
    assert cli.main([*command[:-2], "--learner.frozen", "actor", "--run-dir", str(tmp_path / "run")]) == 2
    assert "actor" in capsys.readouterr().err


class Closes(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A cart-pole that counts its open instances."""

    num_open = 0

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        Closes.num_open += 1

    def close(self) -> None:
        Closes.num_open -= 1
        super().close()


def test_a_run_that_cannot_start_closes_its_environments_and_is_removed(source: yamame.Run, tmp_path: Path) -> None:
    """Weights that do not fit, or an algorithm that cannot take the actions, are found when the environments exist."""
    others: dict[str, Any]
    for others in ({"init_from": source, "size": "small", **_without_network()}, {"algorithm": "recurrent_sac"}):
        settings = {**others, "learner.method": "td3"} if "algorithm" in others else {**others}
        with pytest.raises(yamame.UserError) as caught:
            yamame.train(Closes, run_dir=tmp_path / "run", **{"env.num_workers": 0, "num_envs": 4, **settings})
        assert Closes.num_open == 0, caught.value
        assert not (tmp_path / "run").exists()


def test_frozen_random_weights_are_named(
    source: yamame.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**SMALL, "env_steps": 40, "learner": {"frozen": ENCODERS}}
    for init_from, lines in (("", 1), (source, 0)):
        yamame.train("CartPole-v1", init_from=init_from, run_dir=tmp_path / f"run{lines}", **settings)
        expected = "learner.frozen keeps the random weights of timestep_encoder and trajectory_encoder"
        assert capsys.readouterr().err.count(expected) == lines


def _without_network() -> dict[str, Any]:
    return {name: value for name, value in SMALL.items() if name not in TINY_NETWORK}
