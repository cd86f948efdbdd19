"""`yamame ablate`: arms that differ by their variants alone, made as far as they are missing, told of together."""

import csv
import json
from pathlib import Path
from typing import Any

import many_runs
import pytest
from many_runs import SMALL, interrupt_in_round, refused, snapshot

from yamame.checkpoint import load_latest_checkpoint
from yamame.cli import main
from yamame.metrics import read_metrics
from yamame.runs import read_config

pytestmark = pytest.mark.slow

TASK = ["passive-tmaze", "--env.horizon", "3", "--env-steps", "128", "--eval.interval-env-steps", "60", *SMALL]
RUNS = Path("ablations/passive-tmaze")
RESULTS = {"results.csv", "results.md", "results.png"}
BOTH = "no-popart+no-multi-gamma"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("yamame.train_run.write_report", lambda *_, **__: None)


def made(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """The JSON object and what stderr said."""
    return many_runs.told(capsys, "ablate", *TASK, *args, code=code)


def test_makes_what_is_missing_and_reports_all_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    told, err = made(capsys, "--variants", BOTH)
    assert err.split("\n") == ["[1/2] full seed 0", f"[2/2] {BOTH} seed 0", ""]
    assert {path.name for path in RUNS.iterdir()} == {"full-seed-0", f"{BOTH}-seed-0", *RESULTS}
    assert all(row["return_ci95"] is None and row["success_rate_ci95"] is None for row in told["variants"])
    before = {run: snapshot(RUNS / run) for run in ("full-seed-0", f"{BOTH}-seed-0")}

    told, err = made(capsys, "--variants", "no-memory", "--seeds", "0,1")
    assert [line.partition("] ")[2] for line in err.splitlines()] == [
        "no-memory seed 0",
        "full seed 1",
        "no-memory seed 1",
    ]
    assert all(snapshot(RUNS / run) == times for run, times in before.items())
    assert [(row["variant"], row["seeds"]) for row in told["variants"]] == [
        ("full", [0, 1]),
        ("no-memory", [0, 1]),
        (BOTH, [0]),
    ]
    assert told["failed"] == {} and told["num_unfinished"] == 0 and "stopped_by" not in told
    again, err = made(capsys, "--variants", "no-memory", "--seeds", "0,1")
    assert again == told and err == ""

    for row in told["variants"]:
        results = [
            json.loads((RUNS / f"{row['variant']}-seed-{seed}/result.json").read_text()) for seed in row["seeds"]
        ]
        assert row["return_per_seed"] == [result["return_mean"] for result in results]
        for key in ("return_mean", "success_rate", "env_steps", "wall_seconds"):
            assert row[key] == pytest.approx(sum(result[key] for result in results) / len(results))
        if len(results) > 1:
            assert row["return_ci95"] == [min(row["return_per_seed"]), max(row["return_per_seed"])]
    standing = load_latest_checkpoint(RUNS / "full-seed-0/checkpoints").state["train_state"]
    assert told["random_return"] == standing["random_baseline"]["return_mean"]

    with (RUNS / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["variant"] for row in rows] == ["full", "no-memory", BOTH]
    assert [float(row["return_mean"]) for row in rows] == [row["return_mean"] for row in told["variants"]]
    assert rows[2]["return_ci95"] == ""
    capsys.readouterr()
    assert main(["ablate", "passive-tmaze", "--report-only"]) == 0
    table, _, figure = capsys.readouterr().out.partition("Figure: ")
    assert f"| {'no-memory':{len(BOTH)}} |" in table and f"{told['random_return']:.3f}" in table
    assert table.strip() in (RUNS / "results.md").read_text() and Path(figure.strip()) == RUNS / "results.png"
    assert many_runs.told(capsys, "ablate", "passive-tmaze", "--report-only")[0] == told


def test_arms_differ_from_the_full_one_by_their_variants_alone(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--agent.popart", "--agent.trajectory-encoder.num-heads", "4", "--seeds", "3", "--size", "tiny"]
    told, err = made(capsys, "--variants", f"no-memory,{BOTH}", "--no-full", *flags)
    assert [row["variant"] for row in told["variants"]] == ["no-memory", BOTH] and "full" not in err
    feedforward, plain = (read_config(RUNS / f"{arm}-seed-3") for arm in ("no-memory", BOTH))
    # a flag for what a variant removes is a flag of the full recipe; the rest of it counts for the arm too
    assert (type(feedforward.agent.trajectory_encoder).__name__, plain.agent.trajectory_encoder.heads) == (
        "FeedForwardConfig",
        4,
    )
    assert feedforward.agent.trajectory_encoder.state_size == 8
    # and no flag brings back what a variant takes away
    assert (plain.agent.popart, plain.agent.multi_gamma) == (False, False)
    assert feedforward.agent.popart and feedforward.agent.multi_gamma
    assert feedforward.seed == plain.seed == 3


def test_a_signal_ends_the_comparison_and_the_same_command_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupt_in_round(patch, 2)
        told, err = made(capsys, "--variants", "no-memory")
    assert told["stopped_by"] == "SIGINT" and told["num_unfinished"] == 1 and told["variants"] == []
    assert "no-memory" not in err and told["random_return"] is None
    reached = read_metrics(RUNS / "full-seed-0")
    assert 0 < reached[-1]["env_steps"] < 128
    told, err = made(capsys, "--variants", "no-memory")
    assert told["num_unfinished"] == 0 and len(told["variants"]) == 2
    assert read_metrics(RUNS / "full-seed-0")[: len(reached)] == reached  # it went on, it did not begin anew


def test_a_failing_arm_does_not_stop_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("yamame.nets.sequence.feedforward.FeedForward.forward", lambda *_, **__: 1 / 0)
        told, _ = made(capsys, "--variants", "no-memory,no-popart", code=1)
    assert list(told["failed"]) == ["no-memory seed 0"]
    assert [row["variant"] for row in told["variants"]] == ["full", "no-popart"]
    told, err = made(capsys, "--variants", "no-memory,no-popart")
    assert told["failed"] == {} and len(told["variants"]) == 3 and err.count("seed 0") == 1


def test_other_settings_and_other_recipes_need_another_folder(capsys: pytest.CaptureFixture[str]) -> None:
    made(capsys, "--variants", "no-memory", "--no-full")
    before = snapshot(Path())
    same = ["ablate", *TASK, "--variants", "no-popart"]
    # the arm that is there is not wanted now, but its curve would stand in the same picture
    error = refused(capsys, *same, "--env.horizon", "4")
    assert (
        "no-memory-seed-0 was trained with other settings (env.horizon 3, not 4)" in error and "--output-dir" in error
    )
    assert "other settings" in refused(capsys, *same, "--learner.learning-rate", "0.5")
    here = ["--output-dir", str(RUNS)]
    assert "no-memory-seed-0 of passive-tmaze" in refused(capsys, "ablate", "wind", "--variants", "gru", *here)
    assert "no-memory-seed-0 of passive-tmaze" in refused(capsys, "ablate", "wind", "--report-only", *here)
    assert "is a run itself" in refused(capsys, *same, "--output-dir", str(RUNS / "no-memory-seed-0"))
    assert "env_steps 128, not 64" in refused(capsys, "ablate", *TASK, "--variants", "no-memory", "--env-steps", "64")
    assert snapshot(Path()) == before
    told, _ = made(capsys, "--variants", "no-memory", "--no-full", "--env-steps", "192")  # shorter ones go on
    assert told["variants"][0]["env_steps"] == 192


def test_a_folder_of_something_else_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    (Path("thesis") / "chapters").mkdir(parents=True)
    for args in (["--variants", "gru"], ["--report-only"]):
        error = refused(capsys, "ablate", "passive-tmaze", *args, "--output-dir", "thesis")
        assert "thesis holds something else (chapters)" in error
    run = Path("suite/RepeatFirstEasy-seed-0")
    run.mkdir(parents=True)
    (run / "config.json").write_text("{}")
    (Path("suite") / "full-seed-0").mkdir()
    error = refused(capsys, "ablate", "passive-tmaze", "--variants", "gru", "--output-dir", "suite")
    assert "suite holds something else (RepeatFirstEasy-seed-0)" in error
    Path("file").write_text("precious")
    error = refused(capsys, "ablate", "passive-tmaze", "--variants", "gru", "--output-dir", "file")
    assert "cannot make file" in error and Path("file").read_text() == "precious"
    assert {path.name for path in Path("thesis").iterdir()} == {"chapters"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("", "arguments are required: RECIPE"),
        ("pasive-tmaze --variants gru", "did you mean 'passive-tmaze'?"),
        ("--env.horizon 5 passive-tmaze --variants gru", "the recipe comes before its flags: yamame ablate"),
        ("passive-tmaze", "--variants: name what to compare"),
        ("passive-tmaze --variants ,", "--variants: name what to compare"),
        ("passive-tmaze --variants no-memry", "unknown variant 'no-memry': choose among"),
        ("passive-tmaze --variants gru,no-popart+full", "unknown variant 'full': choose among"),
        ("passive-tmaze --variants gru,no-popart,gru", "gru is named twice"),
        ("passive-tmaze --variants gru+no-popart,no-popart+gru", "gru+no-popart is named twice"),
        ("passive-tmaze --variants gru+gru", "gru+gru names a variant twice"),
        ("passive-tmaze --variants full,gru --no-full", "excluded by --no-full"),
        ("passive-tmaze --variants gru,no-popart --agent.no-popart", "no-popart changes nothing here"),
        ("passive-tmaze --variants no-memory+gru,gru", "gru is the same as no-memory+gru here"),
        ("passive-tmaze --variants gru --seeds 1,x", "'1,x' is not a list of numbers"),
        ("passive-tmaze --variants gru --seeds -1", "is not a list of numbers"),
        ("passive-tmaze --variants gru --seed 3", "--seed belongs to the comparison: use --seeds"),
        ("passive-tmaze --variants gru --variant naive", "--variant belongs to the comparison: use --variants"),
        ("passive-tmaze --variants gru --run-dir=x", "--run-dir belongs to the comparison: use --output-dir"),
        ("passive-tmaze --variants gru --env.horizn 3", "did you mean --env.horizon?"),
        ("passive-tmaze --variants gru --size giant", "unknown size 'giant'"),
        ("passive-tmaze --report-only", "ablations/passive-tmaze does not exist: yamame ablate passive-tmaze makes it"),
        ("passive-tmaze --report-only --env-steps 3", "of no use with --report-only"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(args: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(capsys, "ablate", *args.split())
    assert list(Path().iterdir()) == []


def test_an_empty_folder_has_an_empty_table(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").mkdir()
    for _ in range(2):  # what the first time leaves is no stranger to the second
        assert main(["ablate", "passive-tmaze", "--report-only", "--output-dir", "mine"]) == 0
        assert "Nothing to count yet" in capsys.readouterr().out
        assert {path.name for path in Path("mine").iterdir()} == RESULTS


def test_help_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["ablate", "passive-tmaze", "--help"])
    assert not exit_.value.code
    out = capsys.readouterr().out
    for flag in (
        "--variants",
        "--no-full",
        "--seeds",
        "--output-dir",
        "--report-only",
        "--size",
        "--json",
        "--quiet",
    ):
        assert flag in out
