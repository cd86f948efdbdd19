"""Files of a run that were made to do harm: they are reported in a line, and nothing of them is ever run."""

import hashlib
import io
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zstandard
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as save_safetensors
from store_examples import record_of, replace_record
from tiny import TINY_RUN, as_flags

import yamame
from yamame.cli import main
from yamame.errors import UserError

pytestmark = pytest.mark.slow

TRAIN = ["train", "passive-tmaze", "--env.horizon", "3", "--env-steps", "64", "--quiet", *as_flags(TINY_RUN)]
COMMANDS = {
    "info": "data info run",
    "verify": "data verify run",
    "eval": "eval run",
    "play": "play run --output video.gif",
    "resume": "resume run --env-steps 96 --quiet",
}


class Bomb:
    """Makes a folder where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.mark),)


def torch_archive(bomb: Bomb) -> bytes:
    file = io.BytesIO()
    torch.save({"weights": bomb}, file)
    return file.getvalue()


def numpy_file(bomb: Bomb) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([bomb], object), allow_pickle=True)
    return file.getvalue()


PAYLOADS: dict[str, Callable[[Bomb], bytes]] = {
    "pickle": pickle.dumps,
    "pickle in letters": lambda bomb: pickle.dumps(bomb, protocol=0),
    "torch": torch_archive,
    "numpy": numpy_file,
    "endless nesting": lambda _: b"[" * 200_000 + b"\n",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("finished") / "run"
    assert main([*TRAIN, "--run-dir", str(run)]) == 0
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a finished run, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for plot in ("plot_learning_curve", "plot_attempts"):  # they take longer than tiny runs
        monkeypatch.setattr(f"yamame.tools.report.{plot}", lambda *_: None)
    return Path(shutil.copytree(finished, "run"))


@pytest.fixture(params=["pickle", pytest.param("pickle in letters", marks=pytest.mark.thorough), "endless nesting"])
def payload(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[bytes]:
    """Bytes that, where they are unpickled, leave a mark."""
    mark = tmp_path / "mark"
    yield PAYLOADS[request.param](Bomb(mark))
    assert not mark.exists()


def outcomes(capsys: pytest.CaptureFixture[str], commands: Mapping[str, str] = COMMANDS) -> dict[str, tuple[int, str]]:
    """Of every command: the exit code, and what it says on stderr."""
    result = {}
    for name, command in commands.items():
        capsys.readouterr()
        code = main(command.split())
        err = capsys.readouterr().err
        assert err.count("\n") <= 1 and len(err) < 1_000, (name, err)
        assert (code == 2) == err.startswith("yamame: "), (name, code, err)
        result[name] = code, err
    return result


def refusing(results: dict[str, tuple[int, str]]) -> set[str]:
    return {name for name, (code, _) in results.items() if code == 2}


def test_the_payloads_are_dangerous(tmp_path: Path) -> None:
    loaders: dict[str, Callable[[bytes], Any]] = {
        "pickle": pickle.loads,
        "pickle in letters": pickle.loads,
        "torch": lambda data: torch.load(io.BytesIO(data), weights_only=False),
        "numpy": lambda data: np.load(io.BytesIO(data), allow_pickle=True),
    }
    for name, load in loaders.items():
        load(PAYLOADS[name](Bomb(tmp_path / name)))
        assert (tmp_path / name).is_dir()
    with pytest.raises(RecursionError):
        json.loads(PAYLOADS["endless nesting"](Bomb(tmp_path)))


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("config.json", {"info", "verify", "eval", "play", "resume"}),
        ("spaces.json", {"info", "verify", "eval", "play"}),
        ("metadata.json", set()),
        ("result.json", set()),
        ("metrics.jsonl", set()),
        ("tracking.json", {"resume"}),
    ],
)
def test_files_of_a_run(
    name: str, refused: set[str], run: Path, payload: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (run / name).is_file() or name == "tracking.json"  # of tracked runs
    (run / name).write_bytes(payload)
    results = outcomes(capsys)
    assert refusing(results) == refused
    for command, (code, err) in results.items():
        if command in refused or (name, command) == ("metrics.jsonl", "resume"):
            assert name in err
        else:
            assert (code, err) == (0, "")


def change_checkpoints(run: Path, name: str, content: bytes, *, fitting: bool) -> None:
    """A file of all of them, and with `fitting` its checksum."""
    folders = sorted((run / "checkpoints").glob("update-*"))
    assert folders
    for folder in folders:
        (folder / name).write_bytes(content)
        if fitting:
            manifest = json.loads((folder / "manifest.json").read_text())
            manifest["sha256"][name] = hashlib.sha256(content).hexdigest()
            (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("name", "fitting"),
    [
        ("tensors.safetensors", False),
        ("tensors.safetensors", True),
        ("state.json", False),
        ("state.json", True),
        ("manifest.json", False),
    ],
)
def test_checkpoints(name: str, fitting: bool, run: Path, payload: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    change_checkpoints(run, name, payload, fitting=fitting)
    results = outcomes(capsys)
    assert refusing(results) == {"eval", "play", "resume"}
    assert all(name in results[command][1] for command in ("eval", "play", "resume"))
    assert results["verify"] == results["info"] == (0, "")


@pytest.mark.parametrize(
    "state", [{}, [], {"env_steps": "many"}, {"train_state": {"hours": 3}, "learner": 1, "env_steps": 4}]
)
def test_states_that_say_something_else(state: Any, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_checkpoints(run, "state.json", json.dumps(state).encode(), fitting=True)
    assert refusing(outcomes(capsys)) == {"eval", "play", "resume"}


@pytest.mark.parametrize("config", [None, 3])
def test_a_checkpoint_without_the_config_of_its_run(config: Any, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = json.loads(max((run / "checkpoints").glob("update-*/state.json")).read_text())
    state["config"] = config
    change_checkpoints(run, "state.json", json.dumps(state).encode(), fitting=True)
    assert refusing(outcomes(capsys)) == {"resume"}


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_archives_in_the_place_of_tensors(
    kind: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change_checkpoints(run, "tensors.safetensors", PAYLOADS[kind](Bomb(tmp_path / "mark")), fitting=True)
    assert refusing(outcomes(capsys)) == {"eval", "play", "resume"}
    assert not (tmp_path / "mark").exists()


def test_a_database(run: Path, payload: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "replay" / "replay.sqlite").write_bytes(payload)
    results = outcomes(capsys)
    assert refusing(results) == {"resume"} and "replay" in results["resume"][1]
    assert results["verify"] == (1, "") and results["eval"] == results["play"] == (0, "")


def record(payload: bytes) -> bytes:
    """A payload behind a header and a checksum that are right."""
    compressed = zstandard.ZstdCompressor().compress(payload)
    checksum = zlib.crc32(compressed, zlib.crc32(struct.pack("<HQ", 1, len(compressed))))
    return struct.pack("<4sHIQ", b"YMTR", 1, checksum, len(compressed)) + compressed


def change_records(run: Path, change: Callable[[bytes], bytes]) -> None:
    """Every other one of 16."""
    for number in range(0, 16, 2):
        replace_record(run / "replay", number, change(record_of(run / "replay", number)))


@pytest.mark.parametrize("wrapped", [False, True])
def test_records(wrapped: bool, run: Path, payload: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    change_records(run, lambda _: record(payload) if wrapped else payload)
    results = outcomes(capsys)
    assert {name: code for name, (code, _) in results.items()} == {**dict.fromkeys(COMMANDS, 0), "verify": 1}
    assert main(["data", "verify", "run", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert len(found["corrupted"]) + len(found["quarantined"]) == 8


def forged(genuine: bytes, **facts: Any) -> bytes:
    """A record with other metadata than its arrays have."""
    raw = zstandard.ZstdDecompressor().decompress(genuine[18:])
    with_header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    known = json.loads(with_header["__metadata__"]["trajectory"])
    return record(save_safetensors(load_safetensors(raw), {"trajectory": json.dumps({**known, **facts})}))


@pytest.mark.parametrize("horizon", ["long", float("inf")])
def test_records_that_say_what_cannot_be(horizon: object, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_records(run, lambda genuine: forged(genuine, horizon=horizon, policy_version=horizon))
    assert {name: code for name, (code, _) in outcomes(capsys).items()} == {**dict.fromkeys(COMMANDS, 0), "verify": 1}


def test_what_a_forged_record_is_made_of_is_sound(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_records(run, lambda genuine: forged(genuine, horizon=5))
    assert outcomes(capsys) == dict.fromkeys(COMMANDS, (0, ""))


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "subprocess:Popen",
        "builtins:eval",
        "posix:system",
        "yamame.cli:os.system",
        "yamame.cli:main.__call__",
    ],
)
@pytest.mark.parametrize("key", ["type", "callable"])
@pytest.mark.parametrize("place", ["", "env", "env.env_fn"])
def test_configs_that_name_what_they_should_not(
    name: str, key: str, place: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((run / "config.json").read_text())
    if place == "env.env_fn":
        config["env"] = {"type": "yamame.envs.env_fn:EnvFnConfig", "env_fn": {key: name}, "horizon": 3}
    else:
        (config[place] if place else config)[key] = name
    (run / "config.json").write_text(json.dumps(config))
    acting = {"eval", "play", "resume"}  # these call the function, the others only read the other fields
    assert refusing(outcomes(capsys)) == (acting if (place, key) == ("env.env_fn", "callable") else set(COMMANDS))


EVIL = """
from pathlib import Path
Path(__file__).with_name("ran").touch()
from dataclasses import dataclass
import gymnasium
from yamame.envs.tmaze import PassiveTMazeConfig

@dataclass(frozen=True, kw_only=True)
class Config(PassiveTMazeConfig):
    pass

def make():
    return gymnasium.make("CartPole-v1")

gymnasium.register("Evil-v0", "evil:make")
"""
ENV_FN = "yamame.envs.env_fn:EnvFnConfig"
GYMNASIUM = "yamame.envs.gymnasium:GymnasiumConfig"


def agent_of_evil(config: dict[str, Any]) -> dict[str, Any]:
    return {**config["algorithm"]["agent"], "trajectory_encoder": {"type": "evil:Config"}}


NAMING_EVIL: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "run": lambda config: {**config, "type": "evil:Config"},
    "env": lambda config: {**config, "env": {**config["env"], "type": "evil:Config"}},
    "algorithm": lambda config: {**config, "algorithm": {"type": "evil:Config"}},
    "encoder": lambda config: {**config, "algorithm": {**config["algorithm"], "agent": agent_of_evil(config)}},
    "package": lambda config: {**config, "exploration": {"type": "evil.deeper:Config"}},
    "id": lambda config: {**config, "env": {"type": GYMNASIUM, "id": "evil:Evil-v0", "horizon": 3}},
    "function": lambda config: {**config, "env": {"type": ENV_FN, "env_fn": {"callable": "evil:make"}, "horizon": 3}},
}
FIGURE = "figure exploration-schedule run --output figure.png"


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module in the working directory and on the path; `ran` is there once it has been imported."""
    (tmp_path / "evil.py").write_text(EVIL)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "ran"
    sys.modules.pop("evil", None)


def change_config(run: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(change(config)))


@pytest.mark.parametrize("place", NAMING_EVIL)
def test_no_module_is_imported_on_the_word_of_a_config(
    place: str, run: Path, evil: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change_config(run, NAMING_EVIL[place])
    results = outcomes(capsys, {**COMMANDS, "figure": FIGURE, "export": "data export run --output dataset"})
    assert refusing(results) == ({"eval", "play", "resume"} if place == "function" else set(results))
    assert all("--import evil" in err for code, err in results.values() if code == 2)
    assert not evil.exists() and "evil" not in sys.modules


@pytest.mark.parametrize(
    "place", [pytest.param(place, marks=[] if place == "run" else [pytest.mark.thorough]) for place in NAMING_EVIL]
)
def test_the_viewer_imports_nothing_either(place: str, run: Path, evil: Path) -> None:
    testclient = pytest.importorskip("starlette.testclient")

    from yamame.tools.viewer.app import Access, build_viewer_app
    from yamame.tools.viewer.run_index import RunIndex

    change_config(run, NAMING_EVIL[place])
    app = build_viewer_app(RunIndex([run.parent]), Access(token="", cookie="cookie"))
    with testclient.TestClient(app, base_url="http://127.0.0.1") as client:
        (listed,) = client.get("/api/runs").json()["runs"]
        answers = [client.get(f"/api/rollouts/{listed['id']}{rest}") for rest in ("", "/recording?seed=1")]
    assert {answer.status_code for answer in answers} <= ({200, 422} if place == "function" else {422})
    named = "evil.deeper" if place == "package" else "evil"
    assert f"restart yamame view --import {named}, or once for all: yamame trust" in answers[1].json()["error"]
    assert not evil.exists()


def test_a_module_that_the_caller_names_is_imported(run: Path, evil: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_config(run, NAMING_EVIL["env"])
    with pytest.raises(UserError, match="--import evil"):
        yamame.load(run)
    commands = {name: f"{command} --import evil" for name, command in {**COMMANDS, "figure": FIGURE}.items()}
    results = outcomes(capsys, commands)
    code, err = results.pop("resume")
    assert code == 0 and "the config differs" in err and "evil:Config" in err
    assert results == dict.fromkeys(commands.keys() - {"resume"}, (0, ""))
    assert evil.exists()
    with pytest.raises(UserError, match="--import evil"):  # for that command alone
        yamame.load(run)
    yamame.load(run, modules=["evil"])
    assert main(["eval", "run", "--import", "no_such_module"]) == 2
    assert "cannot import no_such_module" in capsys.readouterr().err


def test_python_m_finds_no_module_in_a_run_folder(run: Path, evil: Path) -> None:
    """`python -m` puts the working directory on the path: `torch.py` in it would be imported instead of PyTorch."""
    change_config(run, NAMING_EVIL["env"])
    for name in ("evil", "torch", "safetensors", "sqlite3", "gymnasium", "numpy", "typing", "argparse"):
        (run / f"{name}.py").write_text(EVIL)
    package = Path(yamame.__file__).parents[1]
    result = subprocess.run(
        [sys.executable, "-m", "yamame", "eval", "."],
        cwd=run,
        env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2 and result.stderr.count("\n") == 1 and "--import evil" in result.stderr
    assert not (run / "ran").exists() and not evil.exists()


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


WRONG: dict[str, Any] = {
    "num_envs": "many",
    "env_steps": 1e6 + 0.5,
    "seed": 2**200,
    "deterministic_actions": 1,
    "agent": None,
    "learner": [],
    "exploration": {"type": "yamame.nets.compute:ComputeConfig"},
    "env": {"type": "yamame.run_config:RunConfig"},
    "eval": {"type": "yamame.run_config:EvalConfig", "trials": 0},
    "replay": deep(900),
    "faults": 3,
    "compute": {"type": "yamame.cli:main"},
}


@pytest.mark.parametrize("field", WRONG)
def test_configs_with_wrong_values(field: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_config(run, lambda config: {**config, field: WRONG[field]})
    results = outcomes(capsys, {**COMMANDS, "figure": FIGURE})
    assert refusing(results) == set(results)
    assert all("config" in err and field in err for _, err in results.values())


def test_a_config_with_a_key_twice(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (run / "config.json").read_text()
    (run / "config.json").write_text(text.replace('"seed": 0', '"seed": 0, "seed": 1'))
    results = outcomes(capsys)
    assert refusing(results) == set(COMMANDS) and all("key twice" in err for _, err in results.values())


BOX = {"kind": "Box", "shape": [2], "dtype": "float32", "low": 0.0, "high": 1.0}
SPACES: dict[str, Any] = {
    "kind": {"kind": "os:system"},
    "no kind": {"shape": [2]},
    "list": [1, 2],
    "shape": {**BOX, "shape": "long"},
    "negative": {**BOX, "shape": [-1]},
    "huge": {**BOX, "shape": [2**40, 2**40]},
    "large": {**BOX, "shape": [2**16, 2**16]},
    "dtype": {**BOX, "dtype": "O"},
    "object": {**BOX, "dtype": "object", "low": {"a": 1}},
    "low": {**BOX, "low": [0, 1, 2]},
    "discrete": {"kind": "Discrete", "n": 2**70, "start": 0},
    "none": {"kind": "Discrete", "n": 0, "start": 0},
    "text": {"kind": "Text", "min_length": 0, "max_length": "x", "characters": "ab"},
    "dict": {"kind": "Dict", "spaces": [BOX]},
    "deep": {"kind": "Tuple", "spaces": [{"kind": "Tuple", "spaces": deep(500)}]},
}


@pytest.mark.parametrize("name", SPACES)
def test_spaces_that_cannot_be(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spaces = json.loads((run / "spaces.json").read_text())
    (run / "spaces.json").write_text(json.dumps({**spaces, "observation_space": SPACES[name]}))
    assert refusing(outcomes(capsys)) == {"info", "verify", "eval", "play"}


@pytest.mark.parametrize("horizon", ["long", 0, -3, 1.5, None, True])
def test_horizons_that_cannot_be(horizon: Any, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spaces = json.loads((run / "spaces.json").read_text())
    (run / "spaces.json").write_text(json.dumps({**spaces, "horizon": horizon}))
    assert refusing(outcomes(capsys)) == {"info", "verify", "eval", "play"}
