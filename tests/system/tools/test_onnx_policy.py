"""`yamame export`, and `yamame.load` of what it wrote: what is refused, and that PyTorch is not needed."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command_runs import refused
from exported_runs import VECTOR, train
from gymnasium import spaces
from solved_tmaze import JUNCTION, solved_tmaze
from torch import nn

import yamame
from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.functional_network_policy import FunctionalNetworkPolicy
from yamame.data.step import PolicyInput
from yamame.nets.sequence.feedforward import FeedForward
from yamame.policy.manifest import PolicyManifest, manifest_path
from yamame.policy.onnx import OnnxPolicy
from yamame.recipes.settings.presets import amago_config
from yamame.run_config import RunConfig
from yamame.training import run_evaluations
from yamame.training.evaluate import EvalReport

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> yamame.Run:
    return yamame.open(solved_tmaze(tmp_path_factory.mktemp("solved")))


@pytest.fixture(scope="module")
def exported(run: yamame.Run) -> Path:
    path = run.directory.parent / "policy.onnx"
    run.export(path, num_envs="dynamic", license="CC-BY-4.0")
    return path


@pytest.fixture
def policy_file(exported: Path, tmp_path: Path) -> Path:
    """A copy of the exported files, which a test may alter."""
    shutil.copy(manifest_path(exported), tmp_path)
    return Path(shutil.copy(exported, tmp_path))


WITHOUT_TORCH = """
import sys

sys.modules["torch"] = None  # importing it raises ImportError
import numpy as np
import yamame

policy = yamame.load(sys.argv[1], num_envs=2)
for time in range(int(sys.argv[2]) + 1):
    observations = np.array([[time == int(sys.argv[2]), cue * (time == 0)] for cue in (-1, 1)], np.float32)
    actions = policy.act(observations, deterministic=True)
print(actions.tolist())
"""


def test_a_process_without_pytorch_acts(exported: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", WITHOUT_TORCH, str(exported), str(JUNCTION)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("[3, 1]\n", ""), "down, up"


def test_it_has_the_interface_of_a_loaded_policy(run: yamame.Run, exported: Path) -> None:
    by_torch, by_onnx = run.load(), yamame.load(exported)
    observations = np.random.default_rng(0).random((JUNCTION + 1, 2), np.float32)
    for observation in observations:
        assert by_onnx.act(observation, deterministic=True) == by_torch.act(observation, deterministic=True)
    first, state = by_onnx.predict(observations[0], deterministic=True)
    by_torch.reset()
    assert first == by_torch.act(observations[0], deterministic=True)
    by_onnx.predict(observations[1], state)
    with pytest.raises(yamame.UserError, match="state is not that of the last call"):
        by_onnx.predict(observations[1], state)
    with pytest.raises(yamame.UserError, match=r"to have shape \(2,\), got \(3, 2\)"):
        by_onnx.act(np.zeros((3, 2)))
    with pytest.raises(yamame.UserError, match="NaN"):
        by_onnx.act(np.full(2, np.nan))
    with pytest.warns(UserWarning, match="longer than the 16 steps"):
        for _ in range(JUNCTION + 2):
            by_onnx.act(observations[0])


def test_samples_follow_the_probabilities(exported: Path) -> None:
    """Those of the first step, over a thousand environments; every trial samples with a seed of its own."""
    num_envs = 1000
    policy = OnnxPolicy(exported, num_envs=num_envs)
    names = [output.name for output in policy._session.get_outputs()]
    zeros = np.zeros(num_envs, np.int64)
    counts, probability_EA = np.zeros(4), np.zeros(0)
    run_graph = policy._session.run

    def run(outputs: list[str], feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        nonlocal probability_EA
        found = dict(zip(names, run_graph(None, feeds), strict=True))
        probability_EA = found["probability"]
        return [found[name] for name in outputs]

    policy._session = type("Session", (), {"run": staticmethod(run)})()
    for _ in range(20):
        step = PolicyInput(
            time=zeros,
            observation={"observation": np.zeros((num_envs, 2), np.float32)},
            previous_action=zeros,
            previous_reward=np.zeros(num_envs, np.float32),
            episode_start=np.ones(num_envs, np.bool_),
        )
        counts += np.bincount(policy.act(step), minlength=4)
    expected = probability_EA[0].astype(np.float64)
    error = np.abs(counts / counts.sum() - expected) / np.sqrt(expected * (1 - expected) / counts.sum())
    assert error.max() < 4 and (counts > 0).sum() > 1


def test_the_manifest_says_what_the_file_takes(run: yamame.Run, exported: Path) -> None:
    text = manifest_path(exported).read_text()
    manifest = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert manifest["action_names"] == ["right", "up", "left", "down"]
    assert manifest["license"] == "CC-BY-4.0" and manifest["horizon"] == JUNCTION + 1
    specs = {spec["name"]: spec for spec in manifest["inputs"]}
    assert specs["observation/observation"]["shape"] == ["num_envs", 2]
    assert (specs["observation/observation"]["low"], specs["observation/observation"]["high"]) == (-1, 1)
    assert specs["memory/key/0"]["shape"] == ["num_envs", 4, 17, 8]
    assert specs["previous_action"]["high"] == 3
    assert manifest["feedback"]["memory/key/0"] == "next_memory/key/0"
    inside = {each.key: each.value for each in onnx.load(exported).metadata_props}["yamame"]
    assert json.loads(inside) == {**manifest, "file_digest": ""}
    assert str(Path(yamame.__file__).parents[1]).encode() not in exported.read_bytes(), "paths of this machine"
    again = run.directory.parent / "again.pt2"
    assert run.export(again).weights_digest == manifest["weights_digest"]


def test_the_export_acts_as_the_run_has_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = run_evaluations.evaluate_model

    def evaluate_model(config: RunConfig, model: nn.Module, *, seed: int, **options: Any) -> EvalReport:
        report = original(config, model, seed=seed, **options)
        index = amago_config(config).agent.evaluation_gamma_index
        return_mean = float(config.deterministic_actions) + float(index == 0)
        return replace(report, test=replace(report.test, return_mean=return_mean))

    monkeypatch.setattr(run_evaluations, "evaluate_model", evaluate_model)
    run = train(tmp_path, "feedforward", VECTOR, spaces.Discrete(3))
    assert not run.config.deterministic_actions and run.config.eval.choose_policy
    run.export(tmp_path / "policy.onnx")
    assert json.loads(manifest_path(tmp_path / "policy.onnx").read_text())["deterministic"]
    assert run.result["policy_index"] == 0
    functional = FunctionalNetworkPolicy.__init__

    def of_gamma(self: FunctionalNetworkPolicy, agent: Agent, *, clips: bool, gamma_index: int) -> None:
        assert gamma_index == 0
        functional(self, agent, clips=clips, gamma_index=gamma_index)

    monkeypatch.setattr(FunctionalNetworkPolicy, "__init__", of_gamma)
    run.export(tmp_path / "again.onnx")


def test_the_command(run: yamame.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "policy.pt2"
    capsys.readouterr()
    from yamame.cli import main

    assert main(["export", str(run.directory), "--output", str(output), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["output"] == str(output) and result["num_envs"] == 1 and "policy_action" in result["outputs"]
    assert Path(result["manifest"]).exists() and result["weights_digest"].startswith("sha256:")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--output", "policy.txt"], "ends in .onnx or .pt2"),
        (["--output", "policy.onnx", "--num-envs", "many"], "--num-envs is 'many'"),
        (["--output", "policy.onnx", "--num-envs", "0"], "num_envs is 0"),
        (["--output", "policy.onnx", "--checkpoint", "best"], "has no best checkpoint"),
        (["--output", "missing/policy.pt2"], "cannot write"),
    ],
)
def test_an_export_that_cannot_be_made(
    run: yamame.Run, arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert problem in refused(capsys, "export", str(run.directory), *arguments)


def test_a_network_that_depends_on_values_in_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its graph would act otherwise than the network, and gets no name."""
    run = train(tmp_path, "feedforward", VECTOR, spaces.Discrete(2))
    encode, calls = FeedForward._encode, []

    def changing(self: FeedForward, x: object) -> object:
        calls.append(1)
        return encode(self, x) * len(calls)

    monkeypatch.setattr(FeedForward, "_encode", changing)
    with pytest.raises(yamame.UserError, match="the network cannot be exported: at step 0 its graph differs"):
        run.export(tmp_path / "policy.pt2")
    assert not (tmp_path / "policy.pt2").exists()


def _refusal(path: Path, num_envs: int | None = None) -> str:
    with pytest.raises(yamame.UserError) as caught:
        yamame.load(path, num_envs=num_envs)
    return " ".join(str(caught.value).split())


def test_files_that_do_not_belong_together(policy_file: Path) -> None:
    beside = manifest_path(policy_file)
    original = json.loads(beside.read_text())
    for change, problem in (
        ({"weights_digest": "sha256:0"}, "describes another export of policy.onnx (digest of the weights: sha256:0"),
        ({"file_digest": "sha256:0"}, "describes another export of policy.onnx (digest of the file: sha256:0"),
        ({"format_version": 99}, "has format 99, this version reads 1"),
        ({"horizon": "long"}, "horizon"),
    ):
        beside.write_text(json.dumps({**original, **change}))
        assert problem in _refusal(policy_file)
    beside.write_text("[")
    assert "is not a manifest of yamame export" in _refusal(policy_file)
    beside.unlink()
    yamame.load(policy_file)


def test_a_graph_that_is_not_what_its_manifest_says(policy_file: Path) -> None:
    manifest_path(policy_file).unlink()
    model = onnx.load(policy_file)
    (metadata,) = model.metadata_props
    manifest = PolicyManifest.from_json(metadata.value, "")
    content = json.loads(manifest.to_json())
    (ring,) = [spec for spec in content["inputs"] if spec["name"] == "memory/key/0"]
    ring["shape"][2] += 1
    metadata.value = json.dumps(content)
    onnx.save(model, policy_file)
    assert "'memory/key/0' is float32 ['num_envs', 4, 17, 8], its manifest says float32 ['num_envs', 4, 18, 8]" in (
        _refusal(policy_file)
    )
    del model.metadata_props[:]
    onnx.save(model, policy_file)
    assert "has no manifest" in _refusal(policy_file)
    policy_file.write_bytes(b"not a graph")
    assert "is not an ONNX file that onnxruntime reads" in _refusal(policy_file)
    assert "does not exist" in _refusal(policy_file.with_name("missing.onnx"))
    assert "acts in PyTorch alone" in _refusal(policy_file.with_suffix(".pt2"))


def test_another_number_of_environments(run: yamame.Run, exported: Path, tmp_path: Path) -> None:
    assert "num_envs is 0" in _refusal(exported, 0)
    run.export(tmp_path / "two.onnx", num_envs=2)
    yamame.load(tmp_path / "two.onnx", num_envs=2).act(np.zeros((2, 2)))
    assert "was exported for num_envs=2, not 1" in _refusal(tmp_path / "two.onnx")


def test_a_memory_continues_or_is_refused(exported: Path) -> None:
    def act(policy: OnnxPolicy, time: int) -> int:
        step = PolicyInput(
            time=np.array([time]),
            observation={"observation": np.array([[time == JUNCTION, time == 0]], np.float32)},
            previous_action=np.zeros(1, np.int64),
            previous_reward=np.zeros(1, np.float32),
            episode_start=np.array([time == 0]),
        )
        return int(policy.act(step)[0])

    policy, other = OnnxPolicy(exported, num_envs=1), OnnxPolicy(exported, num_envs=1, seed=1)
    for time in range(5):
        act(policy, time)
    state = policy.state_dict()
    expected = [act(policy, time) for time in range(5, JUNCTION + 1)]
    other.load_state_dict(state)
    assert [act(other, time) for time in range(5, JUNCTION + 1)] == expected
    memory = {**state["memory"], "memory/key/0": np.zeros((1, 4, 16, 8), np.float32)}
    with pytest.raises(yamame.UserError, match=r"to be float32 \[1, 4, 17, 8\], got float32 \[1, 4, 16, 8\]"):
        other.load_state_dict({**state, "memory": memory})
    with pytest.raises(yamame.UserError, match="the memory was made by the weights sha256:1"):
        other.load_state_dict({**state, "weights_digest": "sha256:1"})


def test_a_missing_package_is_named(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "pip install 'yamame[onnx]'" in _refusal(exported)
