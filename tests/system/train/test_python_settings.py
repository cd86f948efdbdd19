"""Settings of `train` and `resume` in Python and on the command line: which are taken, and what is said of others."""

import json
import subprocess
import sys
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from tiny import TINY_RUN

import yamame
from yamame.cli import main

pytestmark = pytest.mark.slow
SETTINGS: dict[str, Any] = {"horizon": 3, "env_steps": 64, **TINY_RUN}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_unless_it_is_hidden() -> None:
    for stream, quiet, shown in (
        (Terminal(), None, True),
        (Terminal(), True, False),
        (StringIO(), None, False),
        (StringIO(), False, True),
    ):
        with redirect_stderr(stream):
            run = yamame.train("passive-tmaze", quiet=quiet, **SETTINGS)
            assert ("env steps" in stream.getvalue()) == shown
            run.resume(env_steps=96, quiet=quiet)
        assert (stream.getvalue().count("evaluating over 4 trials") == 2) == shown


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 0.9}, "did you mean 'agent.acting_gamma'"),
        ({"total_timesteps": 64}, "did you mean 'env_steps'"),
        ({"callback": []}, "did you mean 'callbacks'"),
        ({"eval_freq": 3}, "did you mean 'eval.interval_env_steps'"),
        ({"attemps": 3}, "did you mean 'attempts'"),
        ({"n_eval_episodes": 3}, "did you mean 'eval.trials'"),
        ({"buffer_size": 3}, "did you mean 'replay.capacity_trajectories'"),
        ({"acting_gama": 3}, "did you mean 'agent.acting_gamma'"),
        ({"learner": {"lr": 3}}, "did you mean 'learner.learning_rate'"),
        ({"policy_kwargs": {}}, "--help-all lists all fields"),
        ({"variants": ["no-relabling"]}, "choose among no-multi-gamma, no-popart"),
        ({"model": "lstm"}, "unknown"),
    ],
)
def test_names_of_other_libraries_and_misspelled_ones(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(yamame.UserError, match=message) as raised:
        yamame.train("passive-tmaze", **{**SETTINGS, **settings})
    assert "\n" not in str(raised.value) and not Path("runs").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--gamma 0.9", "did you mean --agent.acting-gamma?"),
        ("--total-timesteps 100", "did you mean --env-steps?"),
        ("--eval-freq 100", "did you mean --eval.interval-env-steps?"),
        ("--lr 1e-3", "did you mean --learner.learning-rate?"),
        ("--env.horizn 3", "did you mean --env.horizon?"),
        ("--variant relabeling", "unknown variant 'relabeling': choose among no-multi-gamma"),
    ],
)
def test_the_same_on_the_command_line(flags: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "passive-tmaze", *flags.split()]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1
    assert "no-relabeling" not in err, "a variant that this recipe lacks"


def test_a_run_that_is_resumed_takes_settings_that_may_change(capsys: pytest.CaptureFixture[str]) -> None:
    run = yamame.train("passive-tmaze", run_dir="run", **SETTINGS)
    longer = yamame.resume(
        "run", env_steps=96, eval={"final_trials": 6}, **{"checkpoint.keep_latest_k": 1, "learner.learning_rate": 1e-4}
    )
    assert longer.result is not None and longer.result["trials"] == 6
    saved = yamame.open("run").config
    assert (saved.env_steps, saved.eval.final_trials, saved.checkpoint.keep_latest_k) == (96, 6, 1)
    assert saved.algorithm.learner.learning_rate == 1e-4 and len(list(Path("run/checkpoints").glob("update-*"))) == 1
    command = ["resume", "run", "--env-steps", "128", "--eval.final-trials", "5", "--quiet", "--json"]
    capsys.readouterr()
    assert main(command) == 0 and json.loads(capsys.readouterr().out)["trials"] == 5
    before = {path: path.read_bytes() for path in Path("run").rglob("*.json")}
    for settings, message in (
        ({"num_envs": 8}, "num_envs cannot change when a run is resumed, only env_steps, eval"),
        ({"seed": 8}, "seed cannot change"),
        ({"env": {"horizon": 4}}, "env.horizon cannot change"),
        ({"agent.popart": False}, "cannot change when a run is resumed"),
        ({"eval": {"trails": 3}}, "did you mean 'eval.trials'"),
        ({"eval": {"trials": 0}}, "at least 1"),
    ):
        with pytest.raises(yamame.UserError, match=message):
            run.resume(env_steps=160, **settings)
    for flags, message in ((["--num-envs", "8"], "num_envs cannot change"), (["--eval.trails", "8"], "--eval.trials?")):
        assert main(["resume", "run", *flags]) == 2
        assert message in capsys.readouterr().err
    for settings in ({"eval": {"final_trials": 7}}, {"learner.learning_rate": 5e-3}):
        with pytest.raises(yamame.UserError, match="run has finished: pass env_steps, too"):
            run.resume(**settings)
    assert before == {path: path.read_bytes() for path in Path("run").rglob("*.json")}


def test_callbacks_are_checked_before_a_run_directory_is_made() -> None:
    """In a process of its own, without the checks of types that tests have."""
    script = (
        "import yamame\n"
        "class Stop(yamame.Callback):\n"
        "    def __init__(self): self.opened = open(__file__)\n"
        "for callbacks, more in (([Stop], {}), (Stop(), {}), ([print], {}), ([Stop()], {'num_learners': 2})):\n"
        "    try:\n"
        "        yamame.train('passive-tmaze', callbacks=callbacks, num_envs=4, **more)\n"
        "    except yamame.UserError as error:\n"
        "        print(error)\n"
    )
    Path("script.py").write_text(script)
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, check=False)
    first, second, third, fourth = done.stdout.splitlines()
    assert "Stop is a class" in first and "into a list" in second and "no yamame.Callback" in third
    assert "cannot be pickled" in fourth
    assert not Path("runs").exists()
