"""The table's rows are commands that exist, and the page shows what they said."""

import json
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from yamame.config.flags import parse_flags
from yamame.recipes import config_from_flags, load_recipe
from yamame.tools.bench.benchmarks import CollectorBench, LearnerBench, ReplayBench
from yamame.tools.bench.measure import format_machine
from yamame.tools.bench.options import BenchOptions, spell_out_switches

MACHINE = {
    "cpu": "Some CPU",
    "cores": 2,
    "isa": ["avx2"],
    "memory_gib": 4.0,
    "gpu": None,
    "threads": 2,
    "torch": "2",
    "python": "3",
    "system": "Linux",
}


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "benchmarks")
    import table

    monkeypatch.setattr(table, "describe_machine", lambda device: MACHINE)
    yield table


def test_rows_have_names_of_their_own_and_flags_that_are_taken(table: ModuleType) -> None:
    for rows in (table.CPU, table.GPU):
        assert len({row.name for row in rows}) == len(rows)
        for row in rows:
            program, *words = shlex.split(row.command.format(seed=0, folder="folder"))
            flags = [word for word in words if word != "--json"]
            defaults: dict[str, BenchOptions] = {
                "learner": LearnerBench(),
                "collector": CollectorBench(),
                "replay": ReplayBench(),
            }
            if program == "python":
                parse_flags(LearnerBench(), spell_out_switches(flags[1:]), "")
            elif flags[0] == "train":
                of_recipe = flags[2 : flags.index("--quiet")]
                config_from_flags(load_recipe(flags[1]), [], of_recipe)
            elif flags[1] in defaults:
                parse_flags(defaults[flags[1]], spell_out_switches(flags[2:]), "")
            else:
                assert flags[1] == "end-to-end"


def test_the_page_shows_medians_spread_memory_and_targets(table: ModuleType) -> None:
    learner = next(row for row in table.CPU if row.name == "learner-popgym-64")
    train = next(row for row in table.CPU if row.name == "train-tmaze")
    memory = next(row for row in table.CPU if row.name == "memory-1000")
    of_learner = {
        "updates_per_second": 5.0,
        "spread": {"updates_per_second": [4.0, 6.0]},
        "matmul_peak_fraction": 0.25,
        "matmul_peak_gflops": 170.0,
        "peak_memory_bytes": 5e8,
    }
    answers: dict[str, list[dict[str, Any]]] = {
        learner.name: [of_learner],
        memory.name: [of_learner],
        train.name: [
            {"wall_seconds": seconds, "return_mean": 1.0, "success_rate": rate}
            for seconds, rate in ((30.0, 1.0), (20.0, 0.5), (40.0, 1.0))
        ],
    }
    page = table.table(table.CPU, answers, MACHINE)
    assert format_machine(MACHINE) in page
    assert "| **5** updates/s | 4-6 | 25% of 170 GFLOP/s | 0.50 GB | 3.8 | 12 |" in page
    assert "(success 1.000, 0.500, 1.000) | **30** s | 20-40 |" in page
    assert "| 1,000 | 0.50 GB | 5 | 4-6 |" in page
    assert page.count(learner.command) == 1 and "collector" not in page.partition("## Commands")[0]


def test_a_part_measured_again_takes_the_place_of_the_old(
    table: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other, broken = (replace(table.CPU[0], name=name, title=name) for name in ("one", "other", "broken"))
    monkeypatch.setattr(table, "CPU", (one, other, broken))
    monkeypatch.setattr(table, "GPU", (one, other, broken))
    speed = 1.0

    def ask(row: Any, seed: int) -> dict[str, Any]:
        if row.name == "broken":
            raise subprocess.CalledProcessError(2, row.command, stderr="yamame: no such thing\n")
        return {"updates_per_second": speed}

    monkeypatch.setattr(table, "ask", ask)

    def measure(*patterns: str) -> int:
        monkeypatch.setattr("sys.argv", ["table.py", "--folder", str(tmp_path), "--rows", *patterns])
        return int(table.main())

    assert measure("o*") == 0
    speed = 2.0
    assert measure("other", "broken") == 1
    assert "broken failed: yamame: no such thing" in capsys.readouterr().err
    (record,) = tmp_path.glob("*-2-cores-some-cpu-avx2.json")
    said = json.loads(record.read_text(encoding="utf-8"))
    assert {name: runs[0]["updates_per_second"] for name, runs in said.items()} == {"one": 1.0, "other": 2.0}
    page = record.with_suffix(".md").read_text(encoding="utf-8")
    assert "| one | **1**" in page and "| other | **2**" in page and "| broken" not in page
    assert measure("nothing-like-this") == 2


def test_the_last_line_that_a_command_prints_is_its_result(table: ModuleType) -> None:
    code = "print('talk'); print(chr(123) + chr(34) + 'figure' + chr(34) + ': {seed}' + chr(125))"
    row = replace(table.CPU[0], command=f'python -c "{code}"')
    said = table.ask(row, 7)
    assert said["figure"] == 7 and said["wall_seconds"] > 0.0
