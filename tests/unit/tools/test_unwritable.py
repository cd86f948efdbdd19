"""Files that cannot be written end a command in one line."""

from pathlib import Path

import numpy as np
import pytest

from yamame.errors import UserError
from yamame.tools.study.report import write_texts
from yamame.tools.video import open_video


def obstruct(path: Path) -> None:
    """Put a folder where `path` is written to first: as root, tests may write everywhere else."""
    (path.parent / f".partial-{path.name}").mkdir()


@pytest.mark.parametrize("name", ["video.gif", "video.mp4"])
def test_a_video_is_refused_before_its_first_frame(name: str, tmp_path: Path) -> None:
    if name.endswith("mp4"):
        pytest.importorskip("imageio_ffmpeg")
    obstruct(tmp_path / name)
    with pytest.raises(UserError, match=r"cannot write to .*video"), open_video(tmp_path / name, 5.0):
        pytest.fail("frames were rendered")


def test_a_video_that_a_full_disk_ends_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("PIL.Image.Image.save", fail)
    with (
        pytest.raises(UserError, match=r"video.gif \(No space left on device\): free disk space"),
        open_video(tmp_path / "video.gif", 5.0) as video,
    ):
        video.add(np.zeros((4, 4, 3), np.uint8))
    assert list(tmp_path.iterdir()) == []


def test_errors_of_the_environment_keep_their_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="textures"), open_video(tmp_path / "video.gif", 5.0):
        raise FileNotFoundError("textures")
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_cannot_be_written(tmp_path: Path) -> None:
    obstruct(tmp_path / "results.md")
    with pytest.raises(UserError, match=r"cannot write to .*results.md"):
        write_texts(tmp_path, {"results.md": "text"})
