"""Tab completion in a real shell, and the help for mistyped commands."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from yamame import cli
from yamame.config.flags import list_flags
from yamame.recipes import config_from_flags, load_recipe

PROGRAMS = Path(sys.executable).parent
TAB = """
eval "$(register-python-argcomplete yamame)"
COMP_LINE="$1"; COMP_POINT=${#COMP_LINE}; COMP_WORDS=($COMP_LINE); COMP_TYPE=9
_python_argcomplete yamame "${COMP_WORDS[-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(line: str, folder: Path, **variables: str) -> list[str]:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    environment = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}", **variables}
    done = subprocess.run(
        [bash, "-c", TAB, "bash", line], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return [word.strip() for word in done.stdout.splitlines() if word.strip()]


def test_commands_options_and_names_need_no_pytorch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('PyTorch was imported')")
    without_torch = {"PYTHONPATH": str(tmp_path)}
    assert completed("yamame tr", tmp_path, **without_torch) == ["train", "trust"]
    assert completed("yamame train pa", tmp_path, **without_torch) == ["package-delivery", "passive-tmaze"]
    assert completed("yamame reproduce fig2", tmp_path, **without_torch) == [
        f"fig2{n}" for n in (0, 2, 4, 5, 6, 7, 8, 9)
    ]
    assert completed("yamame sweep pop", tmp_path, **without_torch) == ["popgym"]
    assert completed("yamame data ver", tmp_path, **without_torch) == ["verify"]
    assert completed("yamame train passive-tmaze --size b", tmp_path, **without_torch) == ["base"]
    assert completed("yamame train passive-tmaze --algorithm p", tmp_path, **without_torch) == ["ppo"]


@pytest.mark.slow
def test_flags_of_a_recipes_config(tmp_path: Path) -> None:
    found = completed("yamame train passive-tmaze --seed 3 --learner.td.", tmp_path)
    flags = list_flags(config_from_flags(load_recipe("passive-tmaze"), [], []))
    assert sorted(found) == sorted(flag for flag in flags if flag.startswith("--learner.td."))
    assert completed("yamame train no-such-recipe --learner.td.", tmp_path) == []
    assert completed("yamame train passive-tmaze --algorithm ppo --learner.td.", tmp_path) == []
    found = completed("yamame train passive-tmaze --algorithm ppo --learner.passes.", tmp_path)
    assert sorted(found) == [
        "--learner.passes.epochs",
        "--learner.passes.min-trials",
        "--learner.passes.minibatch-transitions",
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("trian passive-tmaze", "yamame has no command 'trian': did you mean train?"),
        ("data verfy run", "yamame data has no command 'verfy': did you mean verify?"),
        ("zzz", "yamame has no command 'zzz': choose among recipes, train,"),
    ],
)
def test_the_nearest_command_is_named(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(line.split()) == 2
    output = capsys.readouterr()
    assert output.out == "" and said in output.err and output.err.count("\n") == 1
