"""Policy folders: what they consist of, that nothing changes on the way, and that damage is one line."""

import json
import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from command_runs import refused, snapshot
from results import evaluation_of
from solved_tmaze import JUNCTION, solved_tmaze

import yamame
from yamame.cli import main
from yamame.errors import UserError
from yamame.metrics.registry import EVAL_RETURN
from yamame.runs.checkpoint import load_latest_checkpoint
from yamame.runs.locate import locate_run, zoo_names
from yamame.runs.shared_policy import check_policy_folder, write_manifest
from yamame.tools.share.pack import MAX_ROWS, folder_bytes, pack_policy, thin_metrics
from yamame.tools.trial_recording import record_trial
from yamame.training.run_files import read_config, read_result
from yamame.training.trained_run import load_trained_run, with_env


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return solved_tmaze(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def packed(run: Path) -> Path:
    """A policy folder with the acting weights. No test changes it."""
    pack_policy(load_trained_run(run), run.parent / "policy", acting_only=True, trials=8)
    return run.parent / "policy"


@pytest.fixture
def policy(packed: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copytree(packed, tmp_path / "policy"))


def test_it_acts_as_the_run_does(run: Path, packed: Path) -> None:
    trained = (load_trained_run(each) for each in (run, packed))
    ours, theirs = (record_trial(each, seed=5, deterministic=False, frames=False) for each in trained)
    assert (ours.trajectory.action == theirs.trajectory.action).all() and len(ours) == JUNCTION + 1
    assert ours.analysis is not None and theirs.analysis is not None
    mine, its = (each.action_distributions.probability_TA for each in (ours.analysis, theirs.analysis))
    assert mine is not None and its is not None and (mine == its).all()
    assert ours.analysis.q_TG is not None and theirs.analysis.q_TG is None and theirs.analysis.value_TG is None


def test_its_weights_are_those_that_act_bit_for_bit(run: Path, packed: Path) -> None:
    model = load_trained_run(run).model
    acting = read_config(run).algorithm.acting_state(model)
    stored = load_latest_checkpoint(packed / "checkpoints").tensors
    assert len(stored) == len(acting) < len(model.state_dict())
    assert all(torch.equal(stored[f"model/{name}"], tensor) for name, tensor in acting.items())


def test_it_has_no_more_than_it_needs(run: Path, packed: Path) -> None:
    names = sorted(path.relative_to(packed).as_posix() for path in packed.rglob("*") if path.is_file())
    step = f"checkpoints/update-{1501:09d}"
    assert names == [
        *(f"{step}/{name}" for name in ("manifest.json", "state.json", "tensors.safetensors")),
        *("config.json", "manifest.json", "metadata.json", "metrics.jsonl", "result.json", "spaces.json"),
    ]
    assert folder_bytes(packed) < 100_000
    result = read_result(packed)
    assert result is not None and (result["return_mean"], result["trials"], result["seed"]) == (1.0, 8, 2)
    assert "run_dir" not in result and str(run.parent) not in (packed / "result.json").read_text()


def test_a_copy_with_all_weights_starts_runs_and_one_without_critics_does_not(
    run: Path, packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = tmp_path / "whole"
    pack_policy(load_trained_run(run), whole, trials=2)
    ours, theirs = (load_trained_run(each).model.state_dict() for each in (run, whole))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    copied = record_trial(load_trained_run(whole), frames=False).analysis
    assert copied is not None and copied.q_TG is not None
    train = ["train", "passive-tmaze", "--run-dir", str(tmp_path / "run"), "--init-from", str(packed)]
    assert "has the acting weights only, without critics" in refused(capsys, *train)
    again = tmp_path / "again"
    pack_policy(load_trained_run(packed), again, trials=2)  # without critics it stays
    assert load_latest_checkpoint(again / "checkpoints").has_acting_weights_only


class Paying(gymnasium.Env):
    """Has the spaces of the T-maze and a return of 3, whatever is done."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, Any]:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, Any]:
        self.time += 1
        return np.zeros(2, np.float32), 1.0, self.time == 3, False, {}


def test_random_actions_are_evaluated_in_the_environment_of_the_policy(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    result = json.loads((copy / "result.json").read_text()) | {"random_baseline": evaluation_of([-0.5])}
    (copy / "result.json").write_text(json.dumps(result))
    own = pack_policy(load_trained_run(copy), tmp_path / "own", trials=2)
    assert own["random_baseline"] == evaluation_of([-0.5])
    elsewhere = load_trained_run(copy, config=with_env(copy, read_config(copy), Paying))
    packed = pack_policy(elsewhere, tmp_path / "elsewhere", trials=2)
    assert packed["return_mean"] == packed["random_baseline"]["return_mean"] == 3.0
    assert packed["random_baseline"]["trials"] == 2 and read_result(tmp_path / "elsewhere") == packed


def test_a_damaged_result_is_refused_before_the_evaluation(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    (copy / "result.json").write_text("{}")
    monkeypatch.setattr("yamame.training.trained_run.evaluate_model", None)
    with pytest.raises(UserError, match=r"result\.json cannot be read"):
        pack_policy(load_trained_run(copy), tmp_path / "policy", trials=2)


def test_reading_writes_nothing(policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = snapshot(policy)
    folders = sorted(policy.rglob("*"))
    for folder in (policy, *(path for path in folders if path.is_dir())):
        folder.chmod(0o555)
    assert main(["eval", str(policy), "--trials", "2"]) == 0
    assert main(["play", str(policy), "--output", str(tmp_path / "film.gif")]) == 0
    yamame.open(policy).load().reset()
    assert "is a policy without its replay, which cannot be resumed" in refused(capsys, "resume", str(policy))
    assert snapshot(policy) == before and sorted(policy.rglob("*")) == folders


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", b"{}", "config.json of .* does not match its digest"),
        ("spaces.json", None, "spaces.json of .* cannot be read"),
        ("checkpoints/update-000001501/state.json", b"{}", "state.json of .* does not match its digest"),
        ("checkpoints/update-000009999/state.json", b"{}", "update-000009999/state.json of .* is not in manifest.json"),
        ("replay/replay.sqlite", b"", "replay/replay.sqlite of .* is not in manifest.json"),
        ("notes.json", b"{}", "notes.json of .* is not in manifest.json"),
        ("manifest.json", b"[" * 100_000, "manifest.json of .* cannot be read"),
        ("manifest.json", b'{"schema": 2}', "its schema is 2, this version of yamame reads 1"),
        ("manifest.json", b'{"schema": 1, "weights": "some", "sha256": {}}', "manifest.json of .* cannot be read"),
        ("manifest.json", b'{"schema": 1, "weights": "all", "sha256": {}}', "does not name config.json"),
    ],
)
def test_damage_is_one_line(
    name: str, content: bytes | None, message: str, policy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is None:
        (policy / name).unlink()
    else:
        (policy / name).parent.mkdir(exist_ok=True)
        (policy / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as raised:
        yamame.load(policy)
    assert "\n" not in str(raised.value)
    assert refused(capsys, "eval", str(policy))


@pytest.mark.parametrize("name", ["../config.json", "/etc/passwd", "C:/config.json", "run.py", "checkpoints/x.pt", ""])
def test_a_manifest_names_nothing_else(name: str, policy: Path) -> None:
    manifest = json.loads((policy / "manifest.json").read_text())
    manifest["sha256"][name] = "0" * 64
    (policy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="of which a policy does not consist"):
        check_policy_folder(policy)


def test_a_card_may_be_edited_and_pictures_added(policy: Path) -> None:
    for name in ("README.md", "learning_curve.png", ".gitattributes"):
        (policy / name).write_text("anything")
    assert yamame.open(policy).directory == policy


def test_weights_of_another_network_are_refused(policy: Path) -> None:
    config = json.loads((policy / "config.json").read_text())
    config["algorithm"]["agent"]["actor"]["hidden_sizes"] = [32, 32]
    (policy / "config.json").write_text(json.dumps(config))
    (policy / "manifest.json").unlink()
    write_manifest(policy, "acting")
    with pytest.raises(UserError, match="does not match the checkpoint"):
        yamame.load(policy)


def test_a_folder_with_files_is_not_written_to(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").touch()
    assert "is not an empty folder" in refused(capsys, "push", str(run), "--output", str(tmp_path))
    assert "expected a repository" in refused(capsys, "push", str(run))
    assert "no best checkpoint" in refused(
        capsys, "push", str(run), "--output", str(tmp_path / "new"), "--checkpoint", "best"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_long_curve_is_thinned() -> None:
    rows: list[dict[str, Any]] = [
        {"env_steps": step, "updates": step, "rollout/return_mean": 1 / 3, "critic/td_error_abs": 1.0}
        | ({EVAL_RETURN: 0.5} if step % 10 == 0 else {})
        for step in range(5001)
    ]
    thinned = thin_metrics(rows)
    assert len(thinned) <= 2 * MAX_ROWS + 1 and [row["env_steps"] for row in thinned[:1] + thinned[-1:]] == [0, 5000]
    assert thinned[1]["rollout/return_mean"] == 0.333333 and not any("critic/td_error_abs" in row for row in thinned)
    assert len(thin_metrics(rows[:3])) == 3 and thin_metrics([]) == []


def test_checkpoints_and_runs_are_paths_as_before(run: Path) -> None:
    (checkpoint,) = (run / "checkpoints").iterdir()
    assert (checkpoint / "manifest.json").is_file()
    assert [locate_run(each) for each in (run, str(checkpoint))] == [run, checkpoint]


def test_sources_that_do_not_exist(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "did you mean zoo:passive-tmaze?" in refused(capsys, "eval", "zoo:pasive-tmaze")
    assert f"it has {', '.join(zoo_names())}" in refused(capsys, "play", "zoo:", "--output", "x.gif")
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    assert "pip install 'yamame[hub]'" in refused(capsys, "eval", "hf://someone/corridor")
    assert locate_run("hf:/someone") == Path("hf:/someone")  # a path as any other
