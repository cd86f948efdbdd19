"""Every line of code in the tables of the pages for users of other libraries works."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documents import SMALL_RUN
from guide_reader import DOCS, follow, small_runs

import yamame
from yamame import api, cli
from yamame.config.serialization import to_json
from yamame.run_config import RunConfig
from yamame.training.callbacks import Callback
from yamame.training.run_files import RunMetadata

pytestmark = pytest.mark.slow

SB3 = "migrating_from_sb3.md"
PAGES = (SB3, "migrating_from_cleanrl.md", "migrating_from_rllib.md")
NO_COUNTERPART = "no counterpart"
SEVERAL_EVALUATIONS = {**SMALL_RUN["eval"], "interval_env_steps": 96}


def rows(page: str) -> Iterator[tuple[str, str]]:
    """Habit and last column of each row."""
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and cells[0] != "habit":
            assert len(cells) == 3, line
            yield cells[0], cells[2]


def codes(page: str) -> Iterator[str]:
    """Code at the start of the last column of each row, and after an `or` or a comma behind it."""
    for habit, cell in rows(page):
        if cell.startswith(NO_COUNTERPART):
            continue
        first = re.match(r"`([^`]+)`(?:(?:[^`:;]* or|,) `([^`]+)`)?", cell)
        assert first, f"{habit} has no line of code"
        yield from filter(None, first.groups())


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the page's blocks define, and a run that was evaluated while it trained."""
    with pytest.MonkeyPatch.context() as patch, small_runs():
        patch.chdir(tmp_path_factory.mktemp("followed"))
        names = follow(SB3)
        names["run"] = api.train("CartPole-v1", env_steps=192, run_dir=Path("run").resolve(), num_envs=8, **{
            **SMALL_RUN, "eval": SEVERAL_EVALUATIONS,
        })  # fmt: skip
        return names


@pytest.mark.parametrize("code", sorted({code for page in PAGES for code in codes(page)}))
def test_a_line_of_a_table_works(
    code: str, names: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = names["run"]
    configs: list[RunConfig] = []

    def only_check(config: RunConfig, metadata: RunMetadata, *, callbacks: Any, **_: Any) -> Any:
        assert all(isinstance(callback, Callback) for callback in callbacks)
        to_json(config)
        configs.append(config)
        return {"run_dir": str(run.directory), "stopped_by": ""}

    monkeypatch.chdir(tmp_path)
    with small_runs(), pytest.MonkeyPatch.context() as patch:  # undone before the functions of `small_runs` are
        patch.setattr("yamame.training.start.train_run", only_check)
        patch.setattr(yamame, "train", api.train)
        if code.startswith("yamame "):
            assert cli.main([str(run.directory) if word == "RUN" else word for word in code.split()[1:]]) == 0
        elif re.match(r"\w+=", code):
            exec(f"yamame.train('CartPole-v1', {code})", names)
            assert configs
        else:
            exec(code, names)


def test_there_is_a_line_for_nearly_every_habit() -> None:
    cells = [cell for _, cell in rows(SB3)]
    assert len(cells) >= 50 and sum(cell.startswith(NO_COUNTERPART) for cell in cells) <= 8
    assert all(len(list(rows(page))) >= 20 for page in PAGES)


def test_the_loaded_policy_of_the_page_acted(names: dict[str, Any]) -> None:
    assert names["action"] in (0, 1) and names["best"] in (3e-4, 1e-3)
