"""The command line as a contract: exit codes, what goes to stdout, and one line for every error."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tiny import TINY_RUN, as_flags

from yamame.cli import main
from yamame.config.flags import to_flag
from yamame.metrics.progress import TrialCounter
from yamame.metrics.registry import read_metrics
from yamame.recipes import recipe_names
from yamame.training.resumable import RESUMABLE

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1] / "helpers"
SMALL = as_flags(TINY_RUN)
TMAZE = ["train", "passive-tmaze", "--env.horizon", "3", "--env-steps", "64", *SMALL]
STRANGE = ["train", "gymnasium", "--env.horizon", "3", "--env-steps", "160", *SMALL, "--env.id"]
IMPORT = ["--import", "strange_environments"]

EVALUATED = {
    *("return_mean", "return_ci95", "return_per_attempt", "success_rate", "trials"),
    *("return_per_attempt_ci95", "success_per_attempt", "success_per_attempt_ci95", "train_tasks"),
    *("deterministic_actions", "policy_index", "env_steps", "updates", "seed"),
}
TRAINED = EVALUATED | {
    "wall_seconds",
    "train_seconds",
    "env_steps_per_second",
    "updates_per_second",
    "random_baseline",
    "run_dir",
    "end_reason",
}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run. Tests must not change it."""
    run = tmp_path_factory.mktemp("finished") / "run"
    assert main([*TMAZE, "--run-dir", str(run), "--quiet", "--seed", "3"]) == 0
    return run


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """The message of invalid input: exactly one line on stderr, exit code 2, nothing on stdout."""
    capsys.readouterr()
    assert main([str(arg) for arg in args]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("yamame: ") and err.endswith("\n") and err.count("\n") == 1
    return err.removeprefix("yamame: ").strip()


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


def copied(run: Path) -> Path:
    """A copy of a run in the working directory, called `run`."""
    return Path(shutil.copytree(run, "run"))


# what commands print and leave


def test_what_a_run_directory_holds(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
    assert {"config.json", "spaces.json", "metrics.jsonl", "tensorboard", "report.md", "checkpoints", "replay"} <= names
    assert not any(name.endswith(".partial") for name in names)


def test_train_prints_one_json_object_on_stdout_and_progress_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TMAZE, "--run-dir", "run", "--json"]) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1 and out.endswith("\n")
    summary = json.loads(out)
    assert set(summary) == TRAINED
    assert (summary["env_steps"], summary["trials"], summary["seed"]) == (64, 4, 0)
    assert summary["updates"] == int(64 * 1.4 / 4)
    assert summary["return_ci95"][0] <= summary["return_mean"] <= summary["return_ci95"][1]
    assert summary["return_per_attempt"] == [pytest.approx(summary["return_mean"])]
    assert 0.0 <= summary["success_rate"] <= 1.0
    assert summary["run_dir"] == "run"
    assert 0.0 < summary["train_seconds"] < summary["wall_seconds"]
    assert summary["env_steps_per_second"] == pytest.approx(64 / summary["train_seconds"])
    start, end = err.index("evaluating random actions over 4 trials\n"), err.index("evaluating over 4 trials\n")
    assert start < err.index("64 / 64 env steps") < end


def test_train_without_json_prints_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TMAZE, "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "return" in out and "over 4 trials" in out and "report.md" in out
    (run,) = Path("runs").iterdir()
    assert run.name.startswith("passive-tmaze-") and f"{run}/report.md" in out


def test_eval_is_repeatable_and_has_its_keys(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(finished)

    def evaluated(*args: str) -> dict[str, Any]:
        assert main(["eval", str(finished), "--json", *args]) == 0
        out, err = capsys.readouterr()
        assert err == "" and out.count("\n") == 1
        summary: dict[str, Any] = json.loads(out)
        assert set(summary) == EVALUATED
        return summary

    assert evaluated() == evaluated()
    other = evaluated("--trials", "7", "--seed", "5")
    assert (other["trials"], other["seed"], other["env_steps"], other["updates"]) == (7, 5, 64, 22)
    assert main(["eval", str(finished)]) == 0
    assert "over 4 trials" in capsys.readouterr().out
    assert files(finished) == before


def test_eval_of_another_checkpoint(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TMAZE, "--run-dir", "run", "--quiet", "--eval.interval-env-steps", "16"]) == 0
    capsys.readouterr()

    def updates(checkpoint: str) -> int:
        assert main(["eval", "run", "--json", "--checkpoint", checkpoint]) == 0
        return int(json.loads(capsys.readouterr().out)["updates"])

    (best,) = Path("run/checkpoints/best").iterdir()
    assert updates("latest") == 22
    assert updates("best") == updates(str(best)) == int(best.name.removeprefix("update-"))
    assert "not an intact checkpoint" in refused(capsys, "eval", "run", "--checkpoint", "worst")
    assert "no best checkpoint" in refused(capsys, "eval", finished, "--checkpoint", "best")


def test_a_long_evaluation_counts_its_trials(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yamame.training.evaluate.TrialCounter", partial(TrialCounter, every_seconds=0.0))
    assert main(["eval", str(finished), "--trials", "6", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["trials"] == 6 and err.splitlines()[-1] == "6 / 6 trials"


def test_eval_writes_a_video(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(finished)
    assert main(["eval", str(finished), "--json", "--video", "video.gif", "--video-trials", "2"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed) == EVALUATED | {"video"} and printed["video"] == "video.gif" and printed["trials"] == 4
    assert Path("video.gif").read_bytes().startswith(b"GIF89a")
    assert main(["eval", str(finished), "--video", "video.gif"]) == 0
    assert "video: video.gif" in capsys.readouterr().out
    assert "must end in .gif or .mp4" in refused(capsys, "eval", str(finished), "--video", "video.mov")
    assert "pass --video, too" in refused(capsys, "eval", str(finished), "--video-trials", "2")
    said = refused(capsys, "eval", str(finished), "--video", "video.gif", "--video-trials", "0")
    assert "pass at least 1" in said
    assert files(finished) == before


def test_no_video_of_environments_without_frames(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*STRANGE, "strange_environments:Sound-v0", "--quiet", "--run-dir", "run"]) == 0
    said = refused(capsys, "eval", "run", "--video", "video.gif", *IMPORT)
    assert "cannot render" in said
    assert {path.name for path in Path().iterdir()} == {"run"}


def test_eval_in_several_attempts_and_without_success(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--env.size", "3", "--env.horizon", "20", "--env.attempt-length", "5", "--env-steps", "80", *SMALL]
    assert main(["train", "dark-key-to-door", *flags, "--quiet"]) == 0
    assert "attempt  mean return" in capsys.readouterr().out
    assert main([*STRANGE, "strange_environments:Sound-v0", "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["success_rate"] is None


def test_resume_of_a_finished_run_can_lengthen_it(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TMAZE, "--run-dir", "run", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["resume", "run", "--env-steps", "9.6e1", "--json", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and set(json.loads(out)) == TRAINED
    assert json.loads(out)["env_steps"] == 96
    assert len(refused(capsys, "resume", "run", "--env-steps", "0")) < 100


def test_recipes_fit_a_screen_and_each_has_a_description(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and len(out.splitlines()) == 2 * len(recipe_names()) + 1 < 40
    assert main(["recipes", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in listed] == list(recipe_names())
    for each in listed:
        assert f"{each['name']} " in out and each["score"] in out and each["summary"] in out
        assert main(["recipes", each["name"]]) == 0
        described = " ".join(capsys.readouterr().out.split())
        facts = (each["summary"], each["command"], each["cost"], *each["expected"].values())
        assert all(" ".join(part.split()) in described for part in (*facts, *each["notes"].splitlines()))
    assert "did you mean 'gymnax'?" in refused(capsys, "recipes", "gymnx")


@pytest.mark.parametrize(
    ("args", "mentions"),
    [
        ("--help", "recipes train resume eval sweep"),
        ("recipes --help", "usage: yamame recipes"),
        ("train --help", "--run-dir --variant --json --quiet"),
        ("train passive-tmaze --help", "Remember one bit --run-dir --env.horizon --env-steps --help-all no-memory"),
        ("train passive-tmaze --help-all", "--run-dir --env.horizon --env-steps --agent.trajectory-encoder.d-model"),
        ("train passive-tmaze --seed 3 --help", "given: success"),
        ("train passive-tmaze --size base --help", "given: not measured"),
        ("train popgym -h", "--env.name --learner.learning-rate"),
        ("train passive-tmaze --variant no-memory --help-all", "--agent.trajectory-encoder.num-layers"),
        ("resume --help", "--env-steps --json"),
        ("eval --help", "--trials --seed --video --video-trials --json"),
        ("sweep --help", "--variants --envs --difficulty --all --seeds --output-dir --report-only --json"),
        ("--version", "yamame 0."),
    ],
)
def test_help_at_every_level(args: str, mentions: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: Any = main(args.split())
    except SystemExit as exit_:
        code = exit_.code or 0
    out, err = capsys.readouterr()
    assert code == 0 and err == ""
    for word in mentions.split():
        assert word in out


def test_help_of_resume_names_what_may_change(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["resume", "--help"])
    described = "".join(capsys.readouterr().out.split())  # lines end at any hyphen
    assert [path for path in RESUMABLE if path not in described and to_flag(path) not in described] == []


# invalid input


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("", "required: COMMAND"),
        ("trian passive-tmaze", "did you mean train?"),
        ("train", "expected a recipe"),
        ("train pasive-tmaze", "did you mean 'passive-tmaze'?"),
        ("train zzz", "yamame recipes lists them"),
        ("train --seed 3 passive-tmaze", "the recipe comes before its flags"),
        ("train passive-tmaze --env.horizn 3", "did you mean --env.horizon?"),
        ("train passive-tmaze --horizon 3", "did you mean --env.horizon?"),
        ("train passive-tmaze --learner.learning-rat 1", "did you mean --learner.learning-rate?"),
        ("train passive-tmaze --run-dri x", "unknown flag --run-dri: did you mean --run-dir?"),
        ("train passive-tmaze --algoritm ppo", "unknown flag --algoritm: did you mean --algorithm?"),
        ("view --prt 80", "unknown flag --prt: did you mean --port?"),
        ("view --zzzz", "unknown flag --zzzz: --help lists all of them"),
        ("train passive-tmaze --env.horizon far", "--env.horizon: expected int, got 'far'"),
        ("train passive-tmaze --env-steps 1.5", "--env-steps: expected int, got '1.5'"),
        ("train passive-tmaze --env.horizon", "--env.horizon: expected int, got nothing"),
        ("train passive-tmaze 3 --seed 3", "unexpected '3': flags start with --"),
        ("train passive-tmaze --agent.popart no", "--agent.no-popart turns it off"),
        ("train passive-tmaze --variant no-memry", "choose among"),
        ("train passive-tmaze --run-dir", "argument --run-dir"),
        ("train passive-tmaze --context-length 99", "--context-length 99 is longer than a trial"),
        (
            "train gymnasium --env.id CartPol-v1",
            "did you mean 'CartPole-v1'? An id 'package:Name-v0' imports its package",
        ),
        ("train gymnasium --env.id=", "cannot make environment ''"),
        ("train gymnasium --env.id nowhere:X-v0", "No module named 'nowhere'"),
        ("train gymnasium --env.id strange_environments:X-v0", "has no environment"),
        ("train popgym --env.name AutoencoderEasy", "did you mean 'AutoencodeEasy'?"),
        ("eval", "required: RUN"),
        ("eval nowhere", "nowhere does not exist"),
        ("resume nowhere", "nowhere does not exist"),
        ("eval .", "is not a run directory"),
        ("resume .", "is not a run directory"),
        ("eval . --trails 3", "unknown flag --trails"),
        ("resume . --seed 3", "is not a run directory"),
        ("zoo --seed 3", "unknown flag --seed"),
        ("recipes --jsn", "unknown flag --jsn"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(args: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(capsys, *args.split())
    assert list(Path().iterdir()) == [] or list(Path("runs").iterdir()) == []


@pytest.mark.parametrize(
    "flag",
    """--env-steps 0
    --env-steps -5
    --num-envs 0
    --env.horizon 0
    --env.horizon -1
    --context-length -1
    --seed -1
    --checkpoint.interval-seconds -1
    --agent.timestep-encoder.output-size 0
    --agent.timestep-encoder.hidden-sizes 8 0
    --agent.trajectory-encoder.d-model -8
    --agent.trajectory-encoder.d-model 7
    --agent.trajectory-encoder.num-heads 0
    --agent.trajectory-encoder.num-layers 0
    --agent.trajectory-encoder.d-ff 0
    --agent.trajectory-encoder.dropout 1
    --agent.actor.hidden-sizes -3
    --agent.actor.probability-clip 0 1
    --agent.actor.probability-clip 0.5 0.1
    --agent.actor.probability-clip 0.1 1.5
    --agent.critic.hidden-sizes
    --agent.critic.hidden-sizes 0
    --agent.critic.num-critics 0
    --agent.gammas 0.9 1.0
    --agent.gammas 0
    --agent.acting-gamma 1
    --agent.acting-gamma nan
    --learner.learning-rate 0
    --learner.learning-rate inf
    --learner.lr-warmup-updates -1
    --learner.weight-decay -1
    --learner.max-grad-norm 0
    --learner.tau 0
    --learner.tau 2
    --learner.max-nonfinite-updates 0
    --learner.td.weight -1
    --learner.td.n-step 0
    --learner.td.num-critics-in-target 0
    --learner.td.reward-scale 0
    --learner.policy-gradient.weight -1
    --learner.filtered-bc.weight nan
    --learner.filtered-bc.log-prob-clip -1
    --replay.batch-size 0
    --replay.capacity-trajectories 0
    --replay.cache-bytes -1
    --replay.capacity-bytes -1
    --replay.compression-level 99
    --replay.pad-tokens-to-multiple-of -1
    --replay.pad-seqlen-to-multiple-of -1
    --replay.prefetch-batches -1
    --updates-per-env-step -1
    --updates-per-env-step nan
    --env-steps-per-iteration -1
    --learning-starts -1
    --eval.interval-env-steps -1
    --eval.trials 0
    --eval.trials 1000001
    --eval.final-trials 0
    --eval.num-envs 0
    --eval.stop-return nan
    --exploration.anneal-env-steps 0
    --exploration.final-eps -1""".splitlines(),
)
def test_numbers_that_make_no_sense_name_their_flag(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, *values = flag.split()
    said = refused(capsys, "train", "passive-tmaze", name, *values)
    assert said.startswith(f"{name} ")
    assert not list(Path().iterdir())


def test_numbers_that_do_not_fit_together(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, *TMAZE, "--agent.trajectory-encoder.num-heads", "3")
    assert "--agent.trajectory-encoder.d-model must be a multiple of num_heads (3), got 8" in said


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("TextAction-v0", "action space Text is not supported"),
        ("MixedAction-v0", "action space Dict mixes discrete parts (a) with continuous ones (b)"),
        ("Unbounded-v0", "infinite bounds"),
        ("NaNAtOnce-v0", "environment 0 returned NaN in observation 'observation' at step 0"),
    ],
)
def test_environments_that_cannot_be_trained_on(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(capsys, *STRANGE, f"strange_environments:{name}", "--run-dir", "run", "--quiet")
    assert not Path("run").exists()


def test_a_run_with_too_many_faults_can_be_resumed(capsys: pytest.CaptureFixture[str]) -> None:
    nan = [*STRANGE, "strange_environments:NaNLater-v0", "--checkpoint.interval-seconds", "0", "--run-dir", "run"]
    nan += ["--env-steps-per-iteration", "16"]
    said = refused(capsys, *nan, "--fault-tolerance.max-restarts", "0", "--quiet")
    assert "returned NaN" in said and "yamame resume run" in said
    checkpoints = files(Path("run/checkpoints"))
    assert main(["eval", "run", "--json", *IMPORT]) == 0
    reached = json.loads(capsys.readouterr().out)
    assert reached["updates"] > 0 and reached["env_steps"] > 0
    assert files(Path("run/checkpoints")) == checkpoints
    assert main(["resume", "run", "--json", "--quiet", *IMPORT]) == 0
    assert json.loads(capsys.readouterr().out)["env_steps"] == 160 > reached["env_steps"]


def test_an_extra_that_is_missing_says_how_to_install_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "popgym"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "popgym", None)
    assert "pip install 'yamame[popgym]'" in refused(capsys, "train", "popgym", "--run-dir", "run")
    assert not Path("run").exists()


def test_nothing_is_ever_written_over(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(finished)
    assert "has a run: resume it" in refused(capsys, *TMAZE, "--run-dir", str(finished))
    Path("full").mkdir()
    Path("full/thesis.tex").write_text("precious")
    assert "full is not empty" in refused(capsys, *TMAZE, "--run-dir", "full")
    assert "is a file" in refused(capsys, *TMAZE, "--run-dir", "full/thesis.tex")
    assert "cannot create" in refused(capsys, *TMAZE, "--run-dir", "full/thesis.tex/run")
    assert Path("full/thesis.tex").read_text() == "precious"
    assert files(finished) == before


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("--trials 0", "pass at least 1"),
        ("--trials -1", "pass at least 1"),
        ("--trials 100000000000000000000", "at most 1,000,000"),
        ("--trials 1 --video video.gif --video-trials 100000000000000000000", "at most 1,000,000"),
        ("--trials many", "argument --trials: expected a whole number, got 'many'"),
        ("--trials 1.5", "argument --trials: expected a whole number, got '1.5'"),
        ("--seed -1", "seed -1"),
    ],
)
def test_bad_numbers_for_eval(args: str, message: str, finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(capsys, "eval", str(finished), *args.split())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", "{"),
        ("config.json", "[]"),
        ("config.json", '{"type": "yamame.run_config:RunConfig"}'),
        ("spaces.json", "{}"),
        ("spaces.json", None),
    ],
)
def test_corrupted_run_directories(
    name: str, content: str | None, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(finished)
    (run / name).unlink()
    if content is not None:
        (run / name).write_text(content)
    said = refused(capsys, "eval", "run")
    assert "corrupted" in said or "config" in said


def test_a_config_that_was_edited_after_the_checkpoint(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = copied(finished)
    config = json.loads((run / "config.json").read_text())
    config["algorithm"]["agent"]["critic"]["hidden_sizes"] = [16]
    (run / "config.json").write_text(json.dumps(config))
    assert "was it edited?" in refused(capsys, "eval", "run")
    for _ in range(2):
        assert "was it edited?" in refused(capsys, "resume", "run")


# signals, which a process of its own has to get


@contextmanager
def running(*args: str) -> Iterator[subprocess.Popen[str]]:
    """`yamame` in a process of its own, which does not outlive the block."""
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("yamame")), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)


def has_trained() -> bool:
    return any(line["updates"] for line in read_metrics(Path("run")))


ENDLESS = [*TMAZE, "--env-steps", "1000000", "--run-dir", "run"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_with_a_checkpoint_and_resume_continues(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(*ENDLESS, "--json") as process:
        wait_for(has_trained, process)
        if number is signal.SIGINT:  # meanwhile, nobody else may train there
            assert f"another process is training in {Path.cwd() / 'run'}" in refused(capsys, "resume", "run")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert err.splitlines()[-1] == f"stopped by {number.name}; yamame resume run continues"
    assert out.count("\n") == 1
    stopped = json.loads(out)
    assert set(stopped) == TRAINED | {"stopped_by"}
    assert (stopped["return_mean"], stopped["trials"], stopped["stopped_by"]) == (None, 0, number.name)

    assert main(["eval", "run", "--json"]) == 0
    saved = json.loads(capsys.readouterr().out)
    assert (saved["env_steps"], saved["updates"]) == (stopped["env_steps"], stopped["updates"])
    goal = stopped["env_steps"] + 32
    assert main(["resume", "run", "--env-steps", str(goal), "--json", "--quiet"]) == 0
    resumed = json.loads(capsys.readouterr().out)
    assert (resumed["env_steps"], resumed["updates"]) == (goal, int(goal * 1.4 / 4))


def test_a_second_signal_ends_at_once() -> None:
    slow = [*STRANGE, "strange_environments:Slow-v0", "--run-dir", "run", "--quiet", "--env.num-workers", "0"]
    with running(*slow) as process:
        wait_for(Path("stalled").exists, process)  # one step of the environment now takes a minute
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=5)
    assert (process.returncode, out, err) == (128 + signal.SIGINT, "", "")


def test_a_killed_run_can_be_resumed(capsys: pytest.CaptureFixture[str]) -> None:
    with running(*ENDLESS, "--checkpoint.interval-seconds", "0", "--quiet") as process:
        wait_for(lambda: len(read_metrics(Path("run"))) > 3, process)
        process.kill()
        process.communicate()
    assert main(["eval", "run", "--json"]) == 0
    saved = json.loads(capsys.readouterr().out)
    assert saved["updates"] > 0
    goal = saved["env_steps"] + 32
    assert main(["resume", "run", "--env-steps", str(goal), "--json", "--quiet"]) == 0
    resumed = json.loads(capsys.readouterr().out)
    assert (resumed["env_steps"], resumed["updates"]) == (goal, int(goal * 1.4 / 4))
    steps = [line["env_steps"] for line in read_metrics(Path("run"))]
    assert steps == sorted(set(steps))


def test_a_signal_cuts_evaluations_short(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("the evaluation continued")

    with monkeypatch.context() as patch:
        patch.setattr("yamame.training.run_evaluations.evaluate_model", interrupted)
        assert main([*TMAZE, "--run-dir", "run", "--json", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert err == "stopped by SIGTERM; yamame resume run continues\n"
    assert json.loads(out)["env_steps"] == 64
    assert main(["resume", "run", "--json", "--quiet"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == TRAINED
