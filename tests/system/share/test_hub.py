"""`yamame push` and `hf://user/repo`: the client of the Hugging Face Hub against a server on loopback."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT, blocks
from hub_server import TOKEN, Hub, Repository, hub_server
from solved_tmaze import solved_tmaze

from yamame.cli import main

pytest.importorskip("huggingface_hub")
pytestmark = pytest.mark.slow

REPO, SOURCE = "someone/corridor", "hf://someone/corridor"
STALE = f"checkpoints/update-{9:09d}/state.json"
EVALUATE = ["eval", SOURCE, "--trials", "16", "--json"]
CHILD = """
import contextlib, io, json, sys
from yamame.cli import main

done = []
for command in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        if command[0] == "python":
            exec(command[1], {})
            code = 0
        else:
            code = main(command)
    done.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(done))
"""
WITHOUT_TOKEN = "import os; os.environ['HF_TOKEN'] = ''"
WITHOUT_NETWORK = "import huggingface_hub.constants as constants; constants.HF_HUB_OFFLINE = True"
ACT = """
import huggingface_hub, numpy as np, yamame
pinned = "@" + huggingface_hub.HfApi().model_info("someone/corridor").sha
for source in ("solved-tmaze", "hf://someone/corridor", "hf://someone/corridor" + pinned):
    policy = yamame.load(source)
    print([int(policy.act(np.array([0.0, 1.0], np.float32), deterministic=True)) for _ in range(5)])
"""
PROBLEMS = {
    "someone/other@damaged": "tensors.safetensors of hf://someone/other@damaged does not match its digest",
    "someone/other@incomplete": "spaces.json of hf://someone/other@incomplete is missing",
    "someone/other@outside": "names '../outside.json', of which a policy does not consist",
    "someone/other@nowhere": "cannot download hf://someone/other@nowhere (RevisionNotFoundError",
    "someone/bert": "is not a policy that yamame push has written: it has no manifest.json",
    "someone/secret": "cannot download hf://someone/secret (RepositoryNotFoundError",
    "someone/nothing": "cannot download hf://someone/nothing (RepositoryNotFoundError",
    "corridor": "hf://corridor is no repository: expected hf://user/repo",
}
"""Source -> what `yamame eval` says."""


@dataclass(frozen=True)
class Session:
    """A process that has run commands with the client of the Hub."""

    hub: Hub
    folder: Path
    done: dict[str, tuple[int, str, str]]
    """Name of a command -> its exit code, stdout and stderr."""

    def json(self, name: str) -> dict[str, Any]:
        code, out, err = self.done[name]
        assert code == 0, err
        found: dict[str, Any] = json.loads(out)
        return found

    def cached(self) -> set[str]:
        """The names of all files and folders that the client and yamame have stored."""
        return {path.name for path in (self.folder / "hf").rglob("*")}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("session")
    run = str(solved_tmaze(folder))
    push = ["push", run, REPO, "--trials", "16", "--json", "--quiet"]
    page = [line[2:] for block in blocks(ROOT / "docs" / "sharing.md", "console") for line in block.splitlines()]
    on_page = [line for line in page if line.startswith("yamame ") and "ada/corridor" in line]
    commands = {
        "push": push,
        **{line: [run if word == "RUN" else word for word in shlex.split(line)[1:]] for line in on_page},
        "without token": ["python", WITHOUT_TOKEN],
        "refused push": [*push, "--trials", "4"],
        "eval": EVALUATE,
        "act": ["python", ACT],
        "play": ["play", SOURCE, "--output", "video.gif"],
        "copy": ["push", SOURCE, "--output", "copy", "--trials", "4", "--quiet"],
        **{source: ["eval", f"hf://{source}"] for source in PROBLEMS},
        "without network": ["python", WITHOUT_NETWORK],
        "offline": EVALUATE,
    }
    with hub_server() as hub:
        fill(hub, folder)
        own = {"HF_ENDPOINT": hub.address, "HF_HOME": str(folder / "hf"), "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}
        path = os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])
        child = subprocess.run(
            [sys.executable, "-c", CHILD],
            input=json.dumps(list(commands.values())),
            env={**os.environ, "PYTHONPATH": path, "HF_HUB_DISABLE_PROGRESS_BARS": "1", **own},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert child.returncode == 0, child.stderr
        found = json.loads(child.stdout.splitlines()[-1])
        yield Session(hub, folder, {name: tuple(each) for name, each in zip(commands, found, strict=True)})


def fill(hub: Hub, folder: Path) -> None:
    """Add repositories: one of a policy with files of others, damaged ones, and some that are not for everyone."""
    repository = hub.repositories[REPO] = Repository()
    repository.commit({".gitattributes": b"", "video.gif": b"GIF", STALE: b"{}", "yamame.py": b"raise SystemExit(9)"})
    policy = folder / "policy"
    assert main(["push", str(folder / "solved-tmaze"), "--output", str(policy), "--trials", "4", "--quiet"]) == 0
    files = {path.relative_to(policy).as_posix(): path.read_bytes() for path in policy.rglob("*") if path.is_file()}
    (weights,) = (name for name in files if name.endswith(".safetensors"))
    manifest = json.loads(files["manifest.json"])
    outside = {**manifest, "sha256": {**manifest["sha256"], "../outside.json": "0" * 64}}
    other, bert, secret = Repository(), Repository(), Repository(private=True)
    hub.repositories |= {"someone/other": other, "someone/bert": bert, "someone/secret": secret}
    other.commit({**files, weights: files[weights][:-1] + b"\0"}, "damaged")
    other.commit({name: files[name] for name in files if name != "spaces.json"}, "incomplete")
    other.commit({**files, "manifest.json": json.dumps(outside).encode()}, "outside")
    bert.commit({"config.json": b"{}", "pytorch_model.bin": b"pickle"})
    secret.commit(files)


def test_a_push_is_one_commit_with_a_card(session: Session) -> None:
    """Weights of an earlier policy are removed, files of others stay; no path of this machine is published."""
    push, repository = session.json("push"), session.hub.repositories[REPO]
    files = repository.files()
    assert len(repository.commits) == 2 and push["commit"] == repository.branches["main"]
    assert push["commit"] in push["url"]
    assert (push["return_mean"], push["success_rate"], push["trials"]) == (1.0, 1.0, 16)
    assert STALE not in files and {"video.gif", "yamame.py", "README.md", "learning_curve.png"} < files.keys()
    assert any(asked.startswith("PUT /upload/") for asked in session.hub.requests)
    card = files["README.md"].decode()
    assert f"yamame eval {SOURCE} --trials 16" in card and "| mean return | 1 | 1 to 1 |" in card
    assert "pip install '.[hub]'  # in a checkout" in card
    actions = "the most likely actions" if push["deterministic_actions"] else "sampled actions"
    assert f"over 16 trials without exploration noise, by {actions}, with" in card
    assert str(session.folder) not in b"".join(files.values()).decode(errors="replace")


def test_it_is_loaded_by_name_or_commit_and_then_without_a_network(session: Session) -> None:
    push, result = session.json("push"), session.json("eval")
    assert {name: push[name] for name in ("return_mean", "return_ci95", "updates")}.items() <= result.items()
    assert session.json("offline") == result
    acted = session.done["act"][1].splitlines()
    assert len(acted) == 3 and len(set(acted)) == 1
    assert session.done["play"][0] == 0 and (session.folder / "video.gif").is_file()
    name = f"checkpoints/update-{push['updates']:09d}/tensors.safetensors"
    assert session.hub.repositories[REPO].files()[name] == (session.folder / "copy" / name).read_bytes()


def test_the_commands_of_the_page_work(session: Session) -> None:
    codes = [code for name, (code, *_) in session.done.items() if name.startswith("yamame ")]
    assert codes == [0] * 4 and len(session.hub.repositories["ada/corridor"].commits) == 3


def test_other_files_are_not_downloaded(session: Session) -> None:
    cached = session.cached()
    assert "config.json" in cached
    assert not cached & {"yamame.py", "video.gif", "README.md", "pytorch_model.bin", "outside.json"}


@pytest.mark.parametrize("source", PROBLEMS)
def test_problems_are_one_line(source: str, session: Session) -> None:
    code, out, err = session.done[source]
    assert (code, out, err.count("\n")) == (2, "", 1) and PROBLEMS[source] in err
    assert not [name for name in session.cached() if name.startswith("other-")]  # nothing damaged is kept


def test_a_push_without_a_token_is_refused(session: Session) -> None:
    code, out, err = session.done["refused push"]
    assert (code, out) == (2, "") and f"cannot upload to {REPO} (" in err.splitlines()[-1] and "Traceback" not in err
