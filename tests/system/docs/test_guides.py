"""Every block of the pages in docs/ runs, and does what the text around it says; at a small size."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import all_blocks
from guide_reader import DOCS, PAGES, RUN, SHOWN, commands, follow, small_runs
from PIL import Image
from tracked_runs import read_trackio, read_wandb, trackers_in

from yamame import cli
from yamame.metrics.registry import read_metrics

pytestmark = pytest.mark.slow

WITH_TESTS_OF_THEIR_OWN = {
    "acting.md",
    "custom_environments.md",
    "custom_networks.md",
    "migrating_from_sb3.md",
    "offline_data.md",
    "serving.md",
    "tracking.md",
}
LONG = {"export.md", "goals_and_relabeling.md", "gpu.md", "memory_task.md", "meta_rl.md", "tuning.md"}
FOLLOWED = [
    pytest.param(page, marks=[pytest.mark.thorough] if page in LONG else [])
    for page in PAGES
    if all_blocks(DOCS / page) and page not in WITH_TESTS_OF_THEIR_OWN
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run in the corridor, of which there is a best checkpoint."""
    directory = tmp_path_factory.mktemp("runs") / RUN
    with small_runs():
        train = ["train", "passive-tmaze", "--env.horizon", "10", "--run-dir", str(directory)]
        assert cli.main(train) == 0
    return directory


@pytest.fixture(autouse=True)
def _small_runs_in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    with small_runs():
        yield


@pytest.mark.parametrize("page", FOLLOWED)
def test_a_page_can_be_followed(page: str, run: Path) -> None:
    follow(page, run=run)


def test_custom_environments(run: Path) -> None:
    names = follow("custom_environments.md", run=run)
    recall, doors, many_doors, urn, spot, errands = (
        names[name].result for name in ("recall", "doors", "many_doors", "urn", "spot", "errands")
    )
    assert names["flaky"].result["env_steps"] >= 192
    assert all(summary["env_steps"] == 192 for summary in (recall, doors, many_doors, urn, spot, errands))
    assert errands["success_rate"] is not None and errands["return_mean"] <= 2
    assert recall["success_rate"] is not None and len(recall["return_per_attempt"]) == 1
    for summary in (doors, many_doors):
        assert len(summary["return_per_attempt"]) == len(summary["success_per_attempt"]) == 6
        assert summary["return_per_attempt"] == summary["success_per_attempt"]
    assert names["many_doors"].config.num_envs == 16
    assert urn["return_per_attempt"] == [4.0] and names["urn"].config.env.action_mask_key == "action_mask"
    assert not names["environment"].left.any()
    for video, frames in (("spot.gif", 10), ("trial.gif", 3 * 12)):
        with Image.open(video) as image:
            assert image.n_frames == frames  # type: ignore[attr-defined]


@pytest.mark.thorough
def test_offline_data(run: Path) -> None:
    names = follow("offline_data.md", run=run)
    assert names["source"].result["env_steps"] == 192
    assert (names["learned"].result["env_steps"], names["learned"].result["updates"]) == (0, 400)


@pytest.mark.thorough
def test_tracking(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    pytest.importorskip("trackio")
    with trackers_in(tmp_path):
        names = follow("tracking.md", run=run)
        (trackio,) = read_trackio(tmp_path / "trackio")
    assert trackio.result and len(trackio.lines) == len(read_metrics(tmp_path / "runs" / RUN))
    wandb = read_wandb(tmp_path)
    assert len(wandb) == 2 and all(tracked.result for tracked in wandb)
    assert wandb[1].result["result/return_mean"] == names["run"].result["return_mean"]


def test_every_block_says_whether_it_is_run() -> None:
    for page in PAGES:
        for block in all_blocks(DOCS / page):
            assert block.language in SHOWN, f"{page} has a block of {block.language!r}"
            if block.language == "sh":
                assert list(commands(block)), f"{page} has a block without a command"
