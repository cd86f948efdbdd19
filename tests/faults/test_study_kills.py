"""`kill -9` of sweeps, reproductions and searches at random moments: run again, they end as those never killed."""

import json
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_runs import SMALL
from killable import KILLED, counts_touches, dies_at_touch, killed_after, start, wait
from left_behind import fingerprint, measured, replay_of

from yamame.cli import main
from yamame.tools.study import cost

KILLS = 20
TINY = [*SMALL, "--env.horizon", "3", "--checkpoint.interval-seconds", "0"]
COMMANDS = {
    "sweep": ["sweep", "passive-tmaze", "--variants", "gru", "--env-steps", "96", "--eval.interval-env-steps", "32"],
    "reproduce": ["reproduce", "fig5", "--panels", "Passive", "--budget", "0.002"],
    "tune": [
        *("tune", "passive-tmaze", "--trials", "3", "--env-steps", "96", "--eval.interval-env-steps", "32"),
        *("--search", "learner.learning_rate=log:1e-4..1e-2", "--search", "replay.batch_size=2,4"),
    ],
}


def without_seconds(content: Any) -> Any:
    """Return JSON content without what a clock said."""
    if isinstance(content, dict):
        return {key: without_seconds(value) for key, value in content.items() if "second" not in key}
    return [without_seconds(value) for value in content] if isinstance(content, list) else content


def left_in(directory: Path) -> dict[str, Any]:
    """Return all results: of the command's own files and of its runs."""
    results = {path.name: without_seconds(json.loads(path.read_text())) for path in directory.glob("*.json")}
    runs = sorted(path.parent for path in directory.rglob("config.json"))
    texts = {path.name: path.read_text() for path in directory.glob("*.md")} if "study.journal" in results else {}
    of_runs = {
        run.name: (fingerprint(run), replay_of(run), measured(run), sorted(path.name for path in run.glob("*.*")))
        for run in runs
    }
    files = sorted(path.name for path in directory.iterdir() if not path.name.endswith(".lock"))
    return results | texts | of_runs | {"files": files}


@pytest.mark.faults
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", list(COMMANDS))
def test_killed_at_twenty_moments_it_ends_as_the_one_never_killed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place"  # results name their directory
    words = [*COMMANDS[name], *TINY, "--quiet", "--output-dir", str(place)]
    place.mkdir()

    def command(before: Callable[[], None] = lambda: None) -> int:
        def work() -> None:
            before()
            assert main(words) == 0

        return start(work)

    monkeypatch.setattr(cost, "MEASURE_SECONDS", 0.01)
    monkeypatch.setattr(cost, "MAX_TOKENS", 16)
    touches = multiprocessing.Value("q")
    began = time.monotonic()
    assert wait(command(counts_touches(touches))) == 0
    seconds = time.monotonic() - began
    expected = left_in(place)
    assert len(expected) > 3 and touches.value > 100
    rng = np.random.default_rng(0)
    kills, times = 0, 0
    while kills < KILLS:
        times += 1
        place.rename(tmp_path / f"ended-{times}")
        code = KILLED
        while code == KILLED:
            if rng.random() < 0.5:
                code = wait(command(dies_at_touch(int(rng.integers(touches.value // 2)))))
            else:
                code = killed_after(command(), float(rng.uniform(0.0, seconds / 2)))
            kills += code == KILLED
        assert code == 0
        assert left_in(place) == expected
        print(json.dumps({"command": name, "times": times, "kills": kills}))
