"""Standard output of a command with `--json` has the result and nothing else, whoever prints."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from yamame.cli import main
from yamame.tools.clean_stdout import clean_stdout

NOISY = """
import atexit, ctypes, os, sys
import gymnasium, numpy as np
from gymnasium import spaces
print("banner of an import")
C = ctypes.CDLL(None)
class Noisy(gymnasium.Env):
    observation_space, action_space = spaces.MultiBinary(2), spaces.Discrete(2)
    def __init__(self):
        atexit.register(os.write, 1, b"the simulator ends\\n")
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        print("reset"), print("reset", file=sys.__stdout__)
        return np.zeros(2, np.int8), {}
    def step(self, action):
        os.write(1, b"C\\n"), C.printf(b"printf\\n")
        return np.zeros(2, np.int8), 1.0, True, False, {}
"""


def test_prints_of_python_and_c_go_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    print("before")
    with clean_stdout() as result:
        print("environment")
        os.write(1, b"C\n")
        print('{"a": 1}', file=result)
    print("after")
    out, err = capfd.readouterr()
    assert out == 'before\n{"a": 1}\nafter\n'
    assert "environment" in err and "C\n" in err


def test_stdout_is_back_after_an_exception(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="inside"), clean_stdout():
        raise ValueError("inside")
    os.write(1, b"after\n")
    assert capfd.readouterr().out == "after\n"


def test_calls_of_main_print_where_stdout_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="calls printf")
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_whole_run_prints_one_line(tmp_path: Path, num_workers: int) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    words = "train --env noisy:Noisy --env.horizon 4 --size tiny --env-steps 20 --num-envs 2 --eval.trials 2 --json"
    words += f" --eval.final-trials 2 --eval.interval-env-steps 0 --env.num-workers {num_workers} --run-dir run"
    command = [sys.executable, "-m", "yamame", *words.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1 and json.loads(done.stdout)["env_steps"] == 20
    for printed in ("banner of an import", "reset", "C", "printf", "the simulator ends"):
        assert printed in done.stderr
