"""Every block of the guides in docs/ runs, and does what the text around it says; at a small size."""

import shlex
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT, SMALL_RUN, blocks
from PIL import Image

import yamame
from yamame import api, cli
from yamame.settings.catalogue import load_recipe
from yamame.settings.resolve import settings_from_flags

pytestmark = pytest.mark.slow

DOCS = ROOT / "docs"
GUIDES = sorted(path.name for path in DOCS.glob("*.md"))
SMALL: dict[str, Any] = {**SMALL_RUN, "env_steps": 192}


@pytest.fixture(autouse=True)
def _small_runs_in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train_briefly(task: Any, **settings: Any) -> yamame.Run:
        of_task = {"num_envs": 8} if isinstance(task, str) else {"env.workers": 0}
        return api.train(task, **{**settings, **SMALL, **of_task})

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(yamame, "train", train_briefly)
    monkeypatch.setattr("yamame.run.session.write_report", lambda *_, **__: None)


def run_blocks(guide: str) -> dict[str, Any]:
    """All names that its Python blocks define, one after the other."""
    names: dict[str, Any] = {"__name__": guide}
    for number, block in enumerate(blocks(DOCS / guide, "python"), start=1):
        exec(compile(block, f"{guide}, block {number}", "exec"), names)
    return names


def test_your_own_environment() -> None:
    names = run_blocks("your_own_environment.md")
    recall, doors, many_doors, urn, spot, errands = (
        names[name].summary for name in ("recall", "doors", "many_doors", "urn", "spot", "errands")
    )
    assert names["flaky"].summary["env_steps"] >= 192
    assert all(summary["env_steps"] == 192 for summary in (recall, doors, many_doors, urn, spot, errands))
    assert errands["success_rate"] is not None and errands["return_mean"] <= 2
    assert recall["success_rate"] is not None and len(recall["return_per_attempt"]) == 1
    for summary in (doors, many_doors):
        assert len(summary["return_per_attempt"]) == len(summary["success_per_attempt"]) == 6
        assert summary["return_per_attempt"] == summary["success_per_attempt"]
    assert names["many_doors"].config.num_envs == 16
    assert urn["return_per_attempt"] == [4.0] and names["urn"].config.env.mask_key == "action_mask"
    assert not names["environment"].left.any()
    with Image.open("spot.gif") as film:
        assert film.n_frames == 10  # type: ignore[attr-defined]


def test_offline_data() -> None:
    names = run_blocks("offline_data.md")
    assert names["source"].summary["env_steps"] == 192
    assert (names["learned"].summary["env_steps"], names["learned"].summary["updates"]) == (0, 400)


@pytest.mark.parametrize("guide", GUIDES)
def test_commands_in_guides_can_be_read(guide: str) -> None:
    lines = [line for block in blocks(DOCS / guide, "sh") for line in block.splitlines() if line.startswith("yamame ")]
    for line in lines:
        options, rest = cli._parser().parse_known_args(shlex.split(line, comments=True)[1:])
        if options.command is cli._train:
            settings_from_flags(load_recipe(options.recipe), options.variant, rest)
        else:
            assert rest == []


def test_there_are_guides_and_every_one_of_them_is_tested() -> None:
    with_python = {guide for guide in GUIDES if blocks(DOCS / guide, "python")}
    assert with_python == {"offline_data.md", "your_own_environment.md"}
    assert len(blocks(DOCS / "your_own_environment.md", "python")) >= 7
