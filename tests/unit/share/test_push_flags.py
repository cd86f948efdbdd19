"""Flags of `yamame push` that have no effect are refused."""

from pathlib import Path

import pytest
from command_runs import refused


def test_a_folder_cannot_be_private(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for repo in ([], ["someone/policy"]):
        words = ["zoo:passive-tmaze", *repo, "--output", str(tmp_path / "new"), "--private"]
        assert "--private has no effect with --output" in refused(capsys, "push", *words)
    assert list(tmp_path.iterdir()) == []
