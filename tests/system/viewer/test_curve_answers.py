"""Data of the *Curves* view."""

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs_to_view import client, ids, line, same, train, write_run
from starlette.testclient import TestClient

from yamame.metrics.registry import read_metrics
from yamame.runs.directory import lock_run_dir
from yamame.tools.palette import COLORS, DARK_COLORS
from yamame.tools.run_groups import arms_in, color_numbers
from yamame.tools.viewer import metric_table as columns
from yamame.training.callbacks import Callback, RunProgress
from yamame.training.start import resume_run


def curves(asking: TestClient, runs: str, *keys: str, **parameters: Any) -> dict[str, Any]:
    found: dict[str, Any] = asking.get("/api/curves", params={"runs": runs, "key": keys, **parameters}).json()["curves"]
    return found


def test_every_number_that_a_real_run_logged_is_there(tmp_path: Path) -> None:
    run = train(tmp_path / "one", "--eval.interval-env-steps", "128")
    logged = read_metrics(run)
    with client(tmp_path) as asking:
        (one,) = ids(asking).values()
        panels = asking.get("/api/curves/panels", params={"runs": one}).json()
        shown = [key for section in panels["sections"] for panel in section["panels"] for key in panel["keys"]]
        for axis in ("env_steps", "updates", "wall_seconds"):
            drawn = curves(asking, one, *shown, x=axis)
            for key in shown:
                (series,) = drawn[key]
                measured = [(entry[axis], entry[key]) for entry in logged if entry.get(key) is not None]
                assert same(series["x"], [x for x, _ in measured]) and same(series["line"], [y for _, y in measured])
        (evaluated,) = curves(asking, one, "eval/return_mean")["eval/return_mean"]
        rows = list(csv.reader(io.StringIO(asking.get("/api/curves.csv", params={"runs": one, "key": shown}).text)))
    ends = {"eval/return_ci95_low", "eval/return_ci95_high"}
    assert set(shown) == {key for entry in logged for key in entry if "/" in key} - ends and len(shown) == len(
        set(shown)
    )
    assert evaluated["kind"] == "interval"
    lows = [entry["eval/return_ci95_low"] for entry in logged if "eval/return_ci95_low" in entry]
    assert same(evaluated["low"], lows)
    assert {"replay/median_age_updates", "critic/popart_std_gamma_0.99", "actor/entropy", "faults/restarts"} <= set(
        shown
    )
    titles = [section["title"] for section in panels["sections"]]
    assert titles[:2] == ["Returns", "Losses"] and "Other" not in titles
    assert rows[0] == ["run", "env_steps", "updates", "wall_seconds", *shown]
    for row, entry in zip(rows[1:], logged, strict=True):
        assert row[0] == "one"
        for key, cell in zip(["env_steps", "updates", "wall_seconds", *shown], row[1:], strict=True):
            assert cell == "" if entry.get(key) is None else math.isclose(float(cell), entry[key], rel_tol=1e-9)


def test_a_group_has_the_longest_run_of_each_seed(tmp_path: Path) -> None:
    for name, steps, seed in (("short", 10, 0), ("long", 30, 0), ("other", 20, 1), ("empty", 0, 1)):
        write_run(tmp_path / name, [line(step, loss__td=1.0) for step in range(1, steps + 1)], seed=seed)
    with client(tmp_path) as asking:
        chosen = ",".join(ids(asking).values())
        (group,) = asking.get("/api/curves/panels", params={"runs": chosen, "grouped": "1"}).json()["lines"]
        alone = asking.get("/api/curves/panels", params={"runs": chosen}).json()["lines"]
    assert {run["name"] for run in group["runs"]} == {"long", "other"} and "(2 seeds)" in group["label"]
    assert len(alone) == 4


def test_the_longest_run_of_a_seed_is_that_of_figures_also_offline(tmp_path: Path) -> None:
    """Purely offline runs log the steps of their schedule, and their results have 0."""
    for name, steps, result in (
        ("killed", 20, None),
        ("short", 30, {"env_steps": 0}),
        ("long-killed", 60, None),
        ("long", 60, {"env_steps": 0}),
    ):
        run = write_run(tmp_path / name, [line(step, loss__imitation=1.0) for step in range(1, steps + 1)])
        if result is not None:
            (run / "result.json").write_text(json.dumps(result))
    with client(tmp_path) as asking:
        known = ids(asking)
        for names in (("killed", "short"), ("killed", "short", "long"), ("long-killed", "long")):
            chosen = ",".join(known[name] for name in names)
            (group,) = asking.get("/api/curves/panels", params={"runs": chosen, "grouped": "1"}).json()["lines"]
            assert [run["name"] for run in group["runs"]] == [names[-1]], names


def test_unknown_metrics_are_shown_below(tmp_path: Path) -> None:
    values = {
        "mine/thing": 1.0,
        "rollout/return_mean_attempt_10": 1.0,
        "rollout/return_mean_attempt_9": 2.0,
        "faults/hang": 1.0,
    }
    write_run(tmp_path / "one", [line(1) | values])
    with client(tmp_path) as asking:
        (one,) = ids(asking).values()
        sections = asking.get("/api/curves/panels", params={"runs": one}).json()["sections"]
    by_title = {section["title"]: section["panels"] for section in sections}
    assert [panel["keys"] for panel in by_title["mine"]] == [["mine/thing"]]
    assert [panel["keys"] for panel in by_title["Returns"]] == [
        ["rollout/return_mean_attempt_9", "rollout/return_mean_attempt_10"]
    ]
    assert [panel["title"] for panel in by_title["Faults"]] == ["Hang"]


def test_metrics_of_callbacks_are_curves(tmp_path: Path) -> None:
    class Distance(Callback):
        def on_iteration(self, run: RunProgress) -> None:
            run.log({"mine/distance": 3.5 + run.env_steps, "mine/other_2": 1.0})

    run = train(tmp_path / "one")
    resume_run(run, env_steps=512, quiet=True, callbacks=[Distance()])
    logged = [entry for entry in read_metrics(run) if "mine/distance" in entry]
    with client(tmp_path) as asking:
        (one,) = ids(asking).values()
        sections = asking.get("/api/curves/panels", params={"runs": one}).json()["sections"]
        (series,) = curves(asking, one, "mine/distance")["mine/distance"]
    assert sections[-1]["title"] == "mine"
    assert [panel["title"] for panel in sections[-1]["panels"]] == ["mine/distance", "mine/other_2"]
    assert logged and same(series["line"], [3.5 + entry["env_steps"] for entry in logged])


def test_seeds_are_one_line_with_a_band(tmp_path: Path) -> None:
    for seed, height in enumerate((1.0, 2.0, 6.0, 7.0)):
        steps = range(0, 101 if seed else 51, 10)
        write_run(tmp_path / f"maze-seed-{seed}", [line(step, loss__td=height) for step in steps], seed=seed)
    write_run(tmp_path / "maze-wide-seed-0", [line(step, loss__td=9.0) for step in (0, 100)], width=2)
    with client(tmp_path) as asking:
        runs = ",".join(ids(asking).values())
        lines = asking.get("/api/curves/panels", params={"runs": runs, "grouped": 1}).json()["lines"]
        assert [entry["label"] for entry in lines] == ["maze (4 seeds)", "maze-wide-seed-0"]
        together, alone = curves(asking, runs, "loss/td", grouped=1)["loss/td"]
        assert len(curves(asking, runs, "loss/td", grouped=0)["loss/td"]) == 5
    assert (together["series_id"], together["kind"], alone["kind"]) == (lines[0]["series_id"], "seeds", "range")
    assert (together["seeds"][0], together["seeds"][-1]) == (4, 3)
    assert together["line"][0] == 4.0 and together["line"][-1] == 5.0
    half = 3.18245 * np.std([1, 2, 6, 7], ddof=1) / math.sqrt(4)  # Student's, three degrees of freedom
    assert together["high"][0] == pytest.approx(4 + half, rel=1e-4)
    assert together["low"][0] == pytest.approx(4 - half, rel=1e-4) and "members" not in together


def test_few_seeds_are_lines_of_their_own(tmp_path: Path) -> None:
    for seed, height in enumerate((1.0, 2.0, 6.0)):
        steps = range(0, 101, 10)
        write_run(tmp_path / f"maze-seed-{seed}", [line(step, loss__td=height) for step in steps], seed=seed)
    with client(tmp_path) as asking:
        runs = ",".join(ids(asking).values())
        (together,) = curves(asking, runs, "loss/td", grouped=1)["loss/td"]
    assert (together["kind"], together["low"], together["high"], together["line"][0]) == ("seeds", None, None, 3.0)
    assert [member["line"] for member in together["members"]] == [[height] * 11 for height in (1.0, 2.0, 6.0)]
    assert together["members"][0]["x"] == list(range(0, 101, 10))


def test_an_arm_of_a_sweep_keeps_its_color(tmp_path: Path) -> None:
    """That of the sweep's plots and of figures, on light and on dark pages, whatever else is shown."""
    for arm in ("full", "gru", "no-memory", "no-popart", "gru+no-popart"):
        write_run(tmp_path / "sweep" / f"{arm}-seed-0", [line(0, loss__td=1.0)])
    write_run(tmp_path / "other", [line(0, loss__td=1.0)])
    order = ["full", "no-popart", "no-memory", "gru", "gru+no-popart"]
    assert arms_in(tmp_path / "sweep") == order
    folders = {arm: tmp_path / "sweep" / f"{arm}-seed-0" for arm in order}
    (tmp_path / "sweep" / "no-popart-seed-1").symlink_to(tmp_path / "other")
    assert color_numbers([tmp_path / "sweep" / "no-popart-seed-1"]) == [1]
    with client(tmp_path) as asking:
        known = ids(asking)

        def colors(*names: str) -> list[list[str]]:
            runs = ",".join(known[name] for name in names)
            lines = asking.get("/api/curves/panels", params={"runs": runs, "grouped": 0}).json()["lines"]
            return [entry["colors"] for entry in lines]

        for shown in (["gru", "full"], ["no-memory"], order):
            numbers = color_numbers([folders[arm] for arm in shown])
            assert numbers == [order.index(arm) for arm in shown]
            found = colors(*(f"sweep/{arm}-seed-0" for arm in shown))
            assert found == [[COLORS[number], DARK_COLORS[number]] for number in numbers]
        assert colors("other", "sweep/gru-seed-0") == [[COLORS[number], DARK_COLORS[number]] for number in (0, 1)]


def test_long_curves_keep_their_peaks(tmp_path: Path) -> None:
    steps = np.arange(20_000)
    values = np.sin(steps / 3000)
    values[12_345] = 50.0
    lines = [line(int(step), loss__td=float(value)) for step, value in zip(steps, values, strict=True)]
    write_run(tmp_path / "one", lines)
    with client(tmp_path) as asking:
        (one,) = ids(asking).values()
        (series,) = curves(asking, one, "loss/td", points=200)["loss/td"]
        (smooth,) = curves(asking, one, "loss/td", points=200, smoothing=0.05)["loss/td"]
    assert len(series["x"]) <= 200 and max(series["high"]) == 50.0 and min(series["low"]) == pytest.approx(values.min())
    assert max(series["line"]) < 2.0  # the mean of a hundred
    assert max(smooth["high"]) == 50.0 and max(smooth["line"]) < 1.1
    middle = len(smooth["x"]) // 2
    assert smooth["line"][middle] == pytest.approx(np.sin(smooth["x"][middle] / 3000), abs=0.1)


def test_a_part_of_the_axis_is_returned_with_all_its_points(tmp_path: Path) -> None:
    steps = range(20_000)
    lines = [
        line(step, loss__td=float(step % 7), eval__return_mean=step, eval__return_ci95_low=step - 1)
        | {"eval/return_ci95_high": step + 2}
        for step in steps
    ]
    for seed in (0, 1):
        write_run(tmp_path / f"maze-seed-{seed}", lines, seed=seed)
    with client(tmp_path) as asking:
        one, other = ids(asking).values()
        window = {"low": 5000, "high": 5100.5, "points": 200}
        found = curves(asking, one, "loss/td", "eval/return_mean", **window)
        (smooth,) = curves(asking, one, "loss/td", **window, smoothing=0.1)["loss/td"]
        (band,) = curves(asking, f"{one},{other}", "loss/td", **window, grouped=1)["loss/td"]
        (far,) = curves(asking, one, "loss/td", low=1e9, high=2e9)["loss/td"]
        for wrong in ({"low": 5, "high": 5}, {"low": "x"}, {"high": "nan"}):
            answer = asking.get("/api/curves", params={"runs": one, "key": "loss/td", **wrong})
            assert answer.status_code == 422 and answer.json()["error"].startswith(("low must be", "high must be"))
    (series,), (interval,) = found["loss/td"], found["eval/return_mean"]
    shown = list(range(4999, 5102))  # one point more on either side
    assert series["x"] == shown and series["line"] == [step % 7 for step in shown]
    assert interval["kind"] == "interval" and interval["low"] == [step - 1 for step in shown]
    assert smooth["line"] == pytest.approx([3.0] * len(shown), abs=0.01)  # over a tenth of the whole axis
    assert (band["x"][0], band["x"][-1]) == (4999, 5101)
    assert far["x"] == [19_999]


def test_only_what_is_new_is_read_and_half_a_line_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bytes] = []
    original = columns._Content.add

    def counting(self: columns._Content, text: bytes) -> None:
        taken.append(text)
        original(self, text)

    monkeypatch.setattr(columns._Content, "add", counting)
    run = write_run(tmp_path / "one", [line(step, loss__td=step) for step in range(100)])
    path = run / "metrics.jsonl"
    with client(tmp_path) as asking:
        (one,) = ids(asking).values()

        def version() -> str:
            found: str = asking.get("/api/curves/panels", params={"runs": one}).json()["version"]
            return found

        first = version()
        assert len(taken) == 100
        unchanged = asking.get("/api/curves/panels", params={"runs": one, "known": first}).json()
        assert set(unchanged) == {"version", "warnings"} and len(taken) == 100
        new = json.dumps(line(100, loss__td=-5.0)).encode()
        with path.open("ab") as file:
            file.write(new[:20])
        assert version() == first and len(taken) == 100
        with path.open("ab") as file:
            file.write(new[20:] + b"\n")
        assert version() != first and taken[100:] == [new]
        (series,) = curves(asking, one, "loss/td")["loss/td"]
        assert (series["x"][-1], series["line"][-1], len(series["x"])) == (100, -5.0, 101)


def test_a_resumed_run_that_dropped_lines_is_read_again(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one", [line(step, loss__td=1.0) for step in range(10)])
    path = run / "metrics.jsonl"
    with client(tmp_path) as asking:
        (one,) = ids(asking).values()
        curves(asking, one, "loss/td")
        kept = path.read_bytes().splitlines(keepends=True)[:5]
        again = [json.dumps(line(step, loss__td=2.0)).encode() + b"\n" for step in range(5, 12)]
        with path.open("r+b") as file:  # the same file, longer than before, with another end
            file.truncate(len(b"".join(kept)))
            file.seek(0, 2)
            file.write(b"".join(again))
        (series,) = curves(asking, one, "loss/td")["loss/td"]
        assert series["line"] == [1.0] * 5 + [2.0] * 7
        path.unlink()
        assert curves(asking, one, "loss/td") == {"loss/td": []}


def test_lines_that_are_none_are_passed_over_and_counted(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one")
    junk = [
        b"\x00\xff\x80\x81 binary",
        b"[1]",
        b'{"env_steps": 1}',
        b'{"env_steps": NaN, "updates": 1, "wall_seconds": 1}',
        b'{"env_steps": "1", "updates": 1, "wall_seconds": 1}',
        b"[" * 100_000,
        b'{"env_steps": 1, "updates": 1, "wall_seconds": 1, "x/y": "' + b"z" * (1 << 20) + b'"}',
    ]
    good = [
        b'{"env_steps": 1, "updates": 1, "wall_seconds": 1, "loss/td": NaN, "loss/a,b": 1}',
        b'{"env_steps": 2, "updates": 1, "wall_seconds": 1, "loss/td": 1e999, "actor/entropy": -Infinity}',
        b'{"env_steps": 3, "updates": 1, "wall_seconds": 1, "loss/td": "4", "loss/filtered_bc": [1], "loss/x": true}',
        b'{"env_steps": 4, "updates": 1, "wall_seconds": 1, "loss/td": 5, "\\ud800/\\ud800": 1, "<b>/x": null}',
        b'{"env_steps": 5, "updates": 1, "wall_seconds": 1, "loss/td": 1e300, "' + b"k" * 300 + b'/x": 1}',
        b'{"env_steps": 6, "updates": 1, "wall_seconds": 1, "loss/td": -1e300}',
    ]
    (run / "metrics.jsonl").write_bytes(
        b"\n".join(line for pair in zip(good, junk, strict=False) for line in pair) + b"\n" + junk[-1] + b"\n\n"
    )
    with client(tmp_path) as asking:
        (one,) = ids(asking).values()
        answer = asking.get("/api/curves/panels", params={"runs": one}).json()
        assert answer["warnings"] == [
            "one: 7 lines were skipped: corrupted, or not written by a run",
            "one: some metrics are not shown: more than 500, or unprintable names",
        ]
        shown = [key for section in answer["sections"] for panel in section["panels"] for key in panel["keys"]]
        drawn = curves(asking, one, "loss/td", "loss/a,b", "actor/entropy", smoothing=0.5)
        assert asking.get("/api/curves.csv", params={"runs": one, "key": shown}).status_code == 200
    assert drawn["loss/td"][0]["x"] == [4, 5, 6] and drawn["loss/a,b"][0]["line"] == [1.0]
    assert drawn["actor/entropy"] == []
    assert not any("k" * 300 in key or "\ud800" in key for key in shown)


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(columns, "MAX_VALUES", 800)
    monkeypatch.setattr(columns, "MAX_KEYS", 3)
    for name in "abcd":
        write_run(tmp_path / name, [line(step, a__a=step, b__b=1, c__c=2, d__d=3) for step in range(2_000)])
    cache = columns.MetricTableCache(max_bytes=12_000)
    found = [cache.get(tmp_path / name / "metrics.jsonl") for name in "abcd"]
    assert all(one.num_bytes < 810 * 8 for one in found) and cache.num_bytes <= 12_000
    assert cache.get(tmp_path / "d" / "metrics.jsonl") is found[-1]
    assert cache.get(tmp_path / "a" / "metrics.jsonl") is not found[0]
    x, y = found[0].curve("env_steps", "a/a")
    assert (x == np.arange(134)).all() and (x == y).all()
    assert found[0].warnings == [
        "only the first 134 lines are shown",
        "some metrics are not shown: more than 3, or unprintable names",
    ]


def test_cells_are_no_formulas(tmp_path: Path) -> None:
    write_run(tmp_path / '=cmd|"calc"!A1', [line(1, loss__td=-1.5)])
    with client(tmp_path) as asking:
        (one,) = ids(asking).values()
        text = asking.get("/api/curves.csv", params={"runs": one, "key": "loss/td"}).text
    assert list(csv.reader(io.StringIO(text)))[1] == ['\'=cmd|"calc"!A1', "1", "0", "0.1", "-1.5"]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"x": "time"}, "x must be one of"),
        ({"points": "1e9"}, "points must be a number from 10 to 2000"),
        ({"points": "nan"}, "points must be a number"),
        ({"smoothing": "-1"}, "smoothing must be a number from 0 to 0.5"),
        ({"runs": ",".join(map(str, range(501)))}, "at most 500 runs"),
    ],
)
def test_bad_requests_are_errors(tmp_path: Path, parameters: dict[str, str], said: str) -> None:
    with client(tmp_path) as asking:
        answer = asking.get("/api/curves", params=parameters)
    assert answer.status_code == 422 and said in answer.json()["error"]


def test_a_run_that_ends_is_news_though_nothing_more_was_measured(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one", [line(1, loss__td=1.0)])
    with client(tmp_path) as asking:
        (one,) = ids(asking).values()

        def panels(known: str = "") -> dict[str, Any]:
            found: dict[str, Any] = asking.get("/api/curves/panels", params={"runs": one, "known": known}).json()
            return found

        with lock_run_dir(run):
            going_on = panels()
            assert going_on["lines"][0]["running"] and "lines" not in panels(going_on["version"])
        assert panels(going_on["version"])["lines"][0]["running"] is False
