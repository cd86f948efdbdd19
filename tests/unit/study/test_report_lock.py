"""Reports of several processes in one directory."""

import json
import multiprocessing
from pathlib import Path

from yamame.runs.durable_files import write_json
from yamame.tools.study.report import report_lock

WRITERS, REPORTS = 3, 20


def _write(directory: Path, writer: int) -> None:
    for number in range(REPORTS):
        with report_lock(directory):
            write_json(directory / "results.json", {"writer": writer, "number": number})
            assert json.loads((directory / "results.json").read_text()) == {"writer": writer, "number": number}


def test_reports_of_several_processes_are_written_one_after_the_other(tmp_path: Path) -> None:
    processes = [multiprocessing.Process(target=_write, args=(tmp_path, writer)) for writer in range(WRITERS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * WRITERS
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
