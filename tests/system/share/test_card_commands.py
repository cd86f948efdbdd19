"""The commands that a model card prints work."""

import shlex
import sys
from pathlib import Path

import gymnasium
import pytest
from tiny import TINY_RUN, as_flags

from yamame.cli import main

pytest.importorskip("huggingface_hub")
pytestmark = pytest.mark.slow

TASKS = """
import gymnasium, numpy as np

class Blank(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.zeros(2, np.float32), 0.0, self.time == 3, False, {}

class Drawn(Blank):
    def render(self):
        return np.zeros((8, 8, 3), np.uint8)

class Wrong(Blank):
    def render(self):
        raise RuntimeError("no display")

gymnasium.register("Blank-v0", "card_tasks:Blank")
"""


@pytest.mark.parametrize(
    ("task", "has_frames"),
    [
        ("zoo:passive-tmaze", True),
        ("zoo:popgym-repeat-previous-easy", False),
        ("card_tasks:Drawn", True),
        ("card_tasks:Blank", False),
        ("card_tasks:Wrong", False),
        ("card_tasks:Blank-v0", False),
    ],
)
def test_all_commands_of_a_card_work(
    task: str, has_frames: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "popgym" in task:
        pytest.importorskip("popgym")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("card_tasks.py").write_text(TASKS)
    run, made_by = task, []
    if "zoo" not in task:
        run = "run"
        small = ["--env-steps", "24", "--env.horizon", "3", "--quiet", *as_flags(TINY_RUN)]
        assert main(["train", "--env", task, "--run-dir", run, *small]) == 0
        made_by = ["--env", task]
    assert main(["push", run, "ada/policy", "--output", "policy", "--trials", "2", "--quiet", *made_by]) == 0
    card = Path("policy/README.md").read_text()
    _, _, rest = card.partition("```sh\n")
    lines = [line for line in rest.partition("```")[0].splitlines() if line.startswith("yamame ")]
    words = [["policy" if word == "hf://ada/policy" else word for word in shlex.split(line, True)] for line in lines]
    assert [command[1] for command in words] == (["eval", "play"] if has_frames else ["eval"])
    for command in words:
        assert main(command[1:]) == 0, command
    assert Path("trial.gif").exists() == has_frames
    sys.modules.pop("card_tasks", None)
    gymnasium.registry.pop("Blank-v0", None)
