"""The notebook runs from its first cell to its last, and its agents learn."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

NOTEBOOK = ROOT / "docs" / "quickstart.ipynb"


def read() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)


def values(notebook: Any, source: str) -> list[str]:
    """Text and kinds of the outputs of the cell that contains `source`."""
    (cell,) = [cell for cell in notebook.cells if cell.cell_type == "code" and source in cell.source]
    return [f"{list(output.data)} {output.data.get('text/plain')}" for output in cell.outputs if "data" in output]


def test_it_has_no_outputs_and_its_links_exist() -> None:
    notebook = read()
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")
    text = "".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    pages = [part.partition(")")[0] for part in text.split("](")[1:]]
    local = [page for page in pages if "://" not in page]
    assert len(local) >= 4 and all((ROOT / "docs" / page).exists() for page in local)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(900)  # 43 s on two cores
def test_every_cell_runs_and_the_agents_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = read()
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for trained in ("run.evaluate(", "own.evaluate("):
        (shown,) = values(notebook, trained)
        assert float(shown.split()[-1]) >= 0.9, shown
    assert "True" in values(notebook, "policy.act")[0]
    assert "image/png" in values(notebook, "figure attention")[0] and "image/png" in values(notebook, "plt.plot")[0]
    assert values(notebook, "check_env") == ["['text/plain'] []"]
