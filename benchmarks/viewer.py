"""Speed and memory of `yamame view` with many runs, and its load during a run.

    python benchmarks/viewer.py                       # 200 runs with 2,000,000 logged numbers
    python benchmarks/viewer.py --lines 10000         # 200 runs with 2,000,000 lines of 30 numbers each: 3 GB
    python benchmarks/viewer.py --only-make runs      # only make such runs, in a folder

The runs are synthetic (synthetic_runs.py); the server is the command in a process of its own, the browser a headless
Chromium. Each view is the first of a server just started. Prints JSON: times in seconds, memory in MiB.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from synthetic_runs import make_runs

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
from browser import chromium, wait_for

COMMAND = "import sys; from yamame.cli import main; sys.exit(main(sys.argv[1:]))"
WATCH_SECONDS = 30.0
NOTE_WHEN = """
new MutationObserver(() => {
  globalThis.shown ??= document.querySelectorAll("%s").length >= %d ? performance.now() / 1000 : undefined;
}).observe(document, {childList: true, subtree: true});
"""


@contextmanager
def server(folder: Path) -> Iterator[tuple[int, str]]:
    """`yamame view` in a process of its own: its number and its address."""
    arguments = [sys.executable, "-c", COMMAND, "view", str(folder), "--no-browser"]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = next(word for word in process.stdout.readline().split() if word.startswith("http"))
        yield process.pid, address
    finally:
        process.terminate()
        process.communicate()


def memory(pid: int) -> int:
    """MiB that a process holds."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) >> 10


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def answer(url: str) -> tuple[float, bytes]:
    """Seconds of a request, and its answer."""
    began = time.perf_counter()
    with urllib.request.urlopen(url, timeout=600) as response:
        content: bytes = response.read()
    return time.perf_counter() - began, content


def view(driver: webdriver.Chrome, url: str, selector: str, count: int) -> float:
    """Seconds from asking for the page to when so many of these elements are there."""
    driver.get("about:blank")
    noted = driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": NOTE_WHEN % (selector, count)})
    driver.get(url)
    seconds = wait_for(lambda: driver.execute_script("return globalThis.shown"), f"{count} of {selector}", 600)
    driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", noted)
    return round(float(seconds), 3)


def measure(folder: Path, profile: Path) -> dict[str, Any]:
    """All figures."""
    files = list(folder.glob("*/metrics.jsonl"))
    found: dict[str, Any] = {
        "runs": len(files),
        "megabytes_of_metrics": round(sum(path.stat().st_size for path in files) / 1e6),
        "load_of_the_machine": os.getloadavg()[0],
    }
    with server(folder) as (pid, address):
        found["memory_idle"] = memory(pid)
        seconds, content = answer(f"{address}api/runs")
        found["runs_server_first"] = round(seconds, 3)
        found["runs_server_again"] = round(answer(f"{address}api/runs")[0], 3)
        found["memory_after_runs"] = memory(pid)
    ids = [run["id"] for run in json.loads(content)["runs"]]
    with chromium(profile) as driver:
        driver.set_page_load_timeout(600)
        with server(folder) as (_, address):
            view(driver, f"{address}static/icon.svg", "path", 1)  # Chromium itself is warm
            found["runs_browser_first"] = view(driver, f"{address}#/runs", "[data-run]", len(ids))
        for count in (1, 20, len(ids)):
            with server(folder) as (pid, address):
                chosen = f"{address}#/curves/{','.join(ids[:count])}"
                found[f"curves_of_{count}_browser_first"] = view(driver, chosen, "path.line", 1)
                if count == len(ids):
                    for key in ("loss/td", "actor/entropy", "time/env_steps_per_second"):
                        answer(f"{address}api/curves?runs={','.join(ids)}&key={key}")
                    found[f"memory_after_curves_of_{count}"] = memory(pid)
        with server(folder) as (pid, address):
            for name, url in (("runs", "#/runs"), ("curves_of_10", f"#/curves/{','.join(ids[:10])}")):
                view(driver, f"{address}{url}", "[data-run], path.line", 1)
                found[f"cpu_percent_while_{name}_is_looked_at"] = watched(pid, files[:2])
    return found


def watched(pid: int, growing: list[Path]) -> float:
    """Percent of one core that the server takes while two runs log a line a second each."""
    stop = threading.Event()

    def log() -> None:
        lines = [path.read_bytes().splitlines(keepends=True)[-1] for path in growing]
        while not stop.wait(1.0):
            for path, line in zip(growing, lines, strict=True):
                with path.open("ab") as file:
                    file.write(line)

    logging = threading.Thread(target=log)
    logging.start()
    time.sleep(5)
    before = cpu_seconds(pid)
    time.sleep(WATCH_SECONDS)
    used = cpu_seconds(pid) - before
    stop.set()
    logging.join()
    return round(100 * used / WATCH_SECONDS, 2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--only-make", type=Path)
    options = parser.parse_args()
    if options.only_make:
        make_runs(options.only_make, runs=options.runs, lines=options.lines)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            make_runs(Path(scratch) / "runs", runs=options.runs, lines=options.lines)
            figures = measure(Path(scratch) / "runs", Path(scratch) / "profile")
            print(json.dumps({"lines_a_run": options.lines, **figures}, indent=2))
