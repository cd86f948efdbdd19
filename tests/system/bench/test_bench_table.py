"""The table's rows are commands that exist, and the page shows what they said."""

import json
import shlex
from pathlib import Path

import pytest
import table
from rows import CPU, GPU, Row

from yamame.config.flags import parse_flags
from yamame.recipes import config_from_flags, load_recipe
from yamame.tools.bench.benchmarks import CollectorBench, LearnerBench, ReplayBench
from yamame.tools.bench.options import BenchOptions, spell_out_switches

BENCHES: dict[str, BenchOptions] = {"learner": LearnerBench(), "collector": CollectorBench(), "replay": ReplayBench()}


def test_rows_have_names_of_their_own_and_flags_that_are_taken() -> None:
    for rows in (CPU, GPU):
        assert len({row.name for row in rows}) == len(rows)
        for row in rows:
            program, *words = shlex.split(row.command.format(seed=0, folder="folder"))
            flags = [word for word in words if word != "--json"]
            if program == "python":
                parse_flags(LearnerBench(), spell_out_switches(flags[1:]), "")
            elif flags[0] == "train":
                config_from_flags(load_recipe(flags[1]), [], flags[2 : flags.index("--quiet")])
            elif flags[1] in BENCHES:
                parse_flags(BENCHES[flags[1]], spell_out_switches(flags[2:]), "")
            else:
                assert flags[1] == "end-to-end"


def printing(name: str, answer: object, figure: str = "updates_per_second", **settings: object) -> Row:
    """A row whose command prints a result as `yamame bench` does."""
    command = f"python -c {shlex.quote(f'print(1); print({json.dumps(answer)!r})')}"
    command = command.replace("{", "{{").replace("}", "}}")
    return Row(name=name, title=name, command=command, figure=figure, **settings)  # type: ignore[arg-type]


def test_the_page_shows_the_newest_result_of_each_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    speed = {
        "updates_per_second": 5.0,
        "spread": {"updates_per_second": [4.0, 6.0]},
        "matmul_peak_fraction": 0.25,
        "matmul_peak_gflops": 170.0,
        "peak_memory_bytes": 5e8,
    }
    learner = printing("learner", speed, authors=3.8, target=12)
    trained = {"return_mean": 1.0, "success_rate": 0.5}
    broken = Row(name="broken", title="broken", command="python -c 'raise SystemExit(\"no such thing\")'")

    def measure(*rows: Row) -> tuple[int, str]:
        monkeypatch.setattr(table, "CPU", rows)
        monkeypatch.setattr(table, "GPU", rows)
        monkeypatch.setattr("sys.argv", ["table.py", "--folder", str(tmp_path)])
        code = table.main()
        (page,) = tmp_path.glob("*.md")
        return code, page.read_text(encoding="utf-8")

    train = printing("train", trained, figure="wall_seconds", runs=2, unit="s")
    code, page = measure(learner, train, printing("memory-1000", speed))
    assert code == 0
    assert "| learner | **5** updates/s | 4-6 | 25% of 170 GFLOP/s | 0.50 GB | 3.8 | 12 |" in page
    assert "| train (success 0.500, 0.500) | **0." in page and "| memory-1000 | 0.50 GB | 5 | 4-6 |" in page

    code, page = measure(printing("learner", {"updates_per_second": 7.0}), broken)
    assert code == 1 and "broken failed: no such thing" in capsys.readouterr().err
    assert "| learner | **7** updates/s" in page and "| broken" not in page
