"""*Runs* and *Curves* in a real browser, over real runs."""

import csv
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("selenium")
from browser import chromium, complaints, resize, texts, viewer, wait_for
from command_runs import SMALL
from PIL import Image
from runs_to_view import line, train, write_run
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By

from yamame.metrics.registry import read_metrics
from yamame.runs.directory import is_locked

pytestmark = [pytest.mark.slow, pytest.mark.browser]

INNER = "return [document.documentElement.scrollWidth, innerWidth]"
HOSTILE = "<img src=x onerror=alert(1)><script>alert(1)<∕script>"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    folder = tmp_path_factory.mktemp("chromium")
    with chromium(folder / "profile", downloads=folder / "downloads") as driver:
        driver.downloads = folder / "downloads"  # type: ignore[attr-defined]
        yield driver


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real runs: two seeds that differ in nothing else, and one that is narrower."""
    folder = tmp_path_factory.mktemp("view") / "runs"
    for seed in (0, 1):
        train(folder / f"maze-seed-{seed}", "--seed", str(seed), "--eval.interval-env-steps", "128")
    train(folder / "narrow", "--agent.actor.hidden-sizes", "4", "--env-steps", "192")
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with viewer(folder) as address:
        yield address


def click(driver: Chrome, selector: str, number: int = 0) -> None:
    driver.execute_script("arguments[0].click()", driver.find_elements(By.CSS_SELECTOR, selector)[number])


def names(driver: Chrome) -> list[str]:
    return texts(driver, ".runs-table td.name > a")


def open_runs(driver: Chrome, address: str, count: int) -> None:
    resize(driver, width=1280)
    driver.get("about:blank")
    driver.get(f"{address}/#/runs")
    wait_for(lambda: len(names(driver)) == count, "all runs are shown")


def open_curves(driver: Chrome, address: str) -> None:
    """Of all runs, by clicking."""
    open_runs(driver, address, 3)
    if not driver.find_element(By.CSS_SELECTOR, "thead input").is_selected():
        click(driver, "thead input")
    click(driver, "#to-curves")
    wait_for(lambda: panel_line(driver, "rollout/return_mean"), "a curve is drawn")


def panel_line(driver: Chrome, key: str) -> str:
    """The first line of a panel, as SVG says it."""
    found = driver.find_elements(By.CSS_SELECTOR, f'[data-keys="{key}"] path.line')
    return str(found[0].get_attribute("d")) if found else ""


def test_runs_are_listed_filtered_sorted_and_compared(driver: Chrome, address: str) -> None:
    open_runs(driver, address, 3)
    assert set(texts(driver, ".pill")) == {"finished"} and texts(driver, "#count") == ["3"]
    assert "256 / 256" in texts(driver, "td.steps")[0] + texts(driver, "td.steps")[2]
    click(driver, "thead th:nth-child(2) button")
    assert names(driver) == ["maze-seed-0", "maze-seed-1", "narrow"]
    click(driver, "thead th:nth-child(2) button")
    assert names(driver) == ["narrow", "maze-seed-1", "maze-seed-0"]
    box = driver.find_element(By.ID, "filter")
    box.send_keys("maze- finished")
    assert names(driver) == ["maze-seed-1", "maze-seed-0"] and texts(driver, "#count") == ["2 of 3"]
    click(driver, "#by-recipe")
    assert len(texts(driver, "tr.group")) == 1 and "passive-tmaze 2 runs, mean return" in texts(driver, "tr.group")[0]
    click(driver, "#by-recipe")
    box.clear()
    box.send_keys("no such")
    assert names(driver) == [] and texts(driver, "main .notice") == ["No run matches the filter."]
    for _ in "no such":
        box.send_keys("\b")
    click(driver, '[aria-label="Choose narrow"]')
    click(driver, '[aria-label="Choose maze-seed-0"]')
    assert texts(driver, ".actions span") == ["2 chosen"]
    click(driver, "#to-differences")
    wait_for(lambda: "algorithm.agent.actor.hidden_sizes" in texts(driver, "tbody th"), "the fields that differ")
    assert texts(driver, "tbody th") == ["env_steps", "algorithm.agent.actor.hidden_sizes", "eval.interval_env_steps"]
    assert "[4]" in texts(driver, "tbody td") and "[8]" in texts(driver, "tbody td")
    assert complaints(driver) == []


def test_curves_of_several_runs(driver: Chrome, address: str, folder: Path) -> None:
    open_curves(driver, address)
    wait_for(lambda: len(texts(driver, ".chip .name")) == 2, "seeds are one line")
    assert texts(driver, ".chip .name")[-1] != "" and "maze (2 seeds)" in texts(driver, ".chip .name")
    # two seeds have no band, but a line each
    assert len(driver.find_elements(By.CSS_SELECTOR, '[data-keys="rollout/return_mean"] path.seed')) == 2
    assert texts(driver, ".sections h2")[:2] == ["Returns", "Losses"]
    before = panel_line(driver, "rollout/return_mean")
    click(driver, '[data-axis="wall_seconds"]')
    wait_for(lambda: panel_line(driver, "rollout/return_mean") != before, "another axis is another plot")
    assert "wall time" in driver.find_element(By.CSS_SELECTOR, '[data-keys="rollout/return_mean"] svg').text
    click(driver, '[data-axis="env_steps"]')
    click(driver, "#grouped")
    wait_for(lambda: len(texts(driver, ".chip .name")) == 3, "every run is a line")
    panel = '[data-keys="rollout/return_mean"]'
    wait_for(lambda: len(driver.find_elements(By.CSS_SELECTOR, f"{panel} path.line")) == 3, "three lines")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", driver.find_element(By.CSS_SELECTOR, panel))
    ActionChains(driver).move_to_element(driver.find_element(By.CSS_SELECTOR, f"{panel} .drawing")).perform()
    shown = wait_for(
        lambda: driver.find_element(By.CSS_SELECTOR, f"{panel} .readout").text, "what is under the pointer"
    )
    assert "environment steps" in shown and all(name in shown for name in ("maze-seed-0", "maze-seed-1", "narrow"))
    click(driver, ".chip button")
    wait_for(lambda: len(driver.find_elements(By.CSS_SELECTOR, f"{panel} path.line")) == 2, "one is hidden")
    click(driver, "#grouped")
    assert complaints(driver) == []


def test_what_is_saved_is_valid(driver: Chrome, address: str, folder: Path) -> None:
    open_curves(driver, address)
    panel, downloads = '[data-keys="loss/td"]', driver.downloads  # type: ignore[attr-defined]
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", driver.find_element(By.CSS_SELECTOR, panel))
    wait_for(lambda: panel_line(driver, "loss/td"), "the panel is drawn")
    for number in range(3):
        click(driver, f"{panel} .tool", number)
    png, svg, table = (downloads / f"td_loss.{kind}" for kind in ("png", "svg", "csv"))
    wait_for(lambda: all(path.exists() and path.stat().st_size for path in (png, svg, table)), "the files are there")
    with Image.open(png) as image:
        assert image.format == "PNG" and image.width > 600 and len(image.convert("RGB").getcolors(1 << 20) or []) > 20
    root = ElementTree.parse(svg).getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg" and "TD loss" in [text.text for text in root.iter(f"{space}text")]
    assert panel_line(driver, "loss/td") in [path.get("d") for path in root.iter(f"{space}path")]
    assert not list(root.iter(f"{space}script")) and "style" not in {
        name for part in root.iter() for name in part.attrib
    }
    rows = list(csv.DictReader(table.read_text().splitlines()))
    for run in folder.iterdir():
        logged = {
            entry["env_steps"]: entry["loss/td"] for entry in read_metrics(run) if entry.get("loss/td") is not None
        }
        saved = {int(row["env_steps"]): float(row["loss/td"]) for row in rows if row["run"] == run.name}
        assert saved == pytest.approx(logged, rel=1e-8) and logged
    assert complaints(driver) == []


def test_a_live_run_grows_and_its_end_is_shown(driver: Chrome, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "live"
    command = "import sys; from yamame.cli import main; sys.exit(main(sys.argv[1:]))"
    flags = [
        "train",
        "passive-tmaze",
        "--env.horizon",
        "3",
        "--env-steps",
        "10000000",
        *SMALL,
        "--eval.stop-return",
        "99",
    ]
    training = subprocess.Popen(
        [sys.executable, "-c", command, *flags, "--run-dir", str(run), "--quiet"], stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: (run / "metrics.jsonl").exists() and len(read_metrics(run)) > 3, "the run has started", 60)
        assert is_locked(run)
        with viewer(tmp_path / "runs") as address:
            open_runs(driver, address, 1)
            wait_for(lambda: texts(driver, ".pill") == ["running"], "it is running")
            steps = texts(driver, "td.steps")
            wait_for(lambda: texts(driver, "td.steps") != steps, "more steps")
            click(driver, "td.name a.aside")
            first = wait_for(lambda: panel_line(driver, "rollout/return_mean"), "its curve")
            assert texts(driver, ".live") == ["live"]
            longer = wait_for(
                lambda: (d := panel_line(driver, "rollout/return_mean")).count("L") > first.count("L") and d,
                "the curve grows",
            )
            assert len(re.findall(r"[ML]", longer)) <= len(read_metrics(run))
            training.send_signal(signal.SIGINT)
            assert training.wait(60) == 0
            wait_for(lambda: texts(driver, ".live") in ([], [""]), "it is live no more")
            driver.get(f"{address}/#/runs")
            wait_for(lambda: texts(driver, ".pill") == ["stopped"], "it has stopped")
            assert texts(driver, ".reason") == ["by SIGINT"]
    finally:
        if training.poll() is None:
            training.kill()
            training.wait()
    assert complaints(driver) == []


def test_hostile_runs_do_nothing_and_are_reported(driver: Chrome, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    script = "</script><script>alert(1)</script>"
    run = write_run(
        runs / HOSTILE, [line(step, loss__td=step) | {f"x/{script}": 1.0} for step in range(3)], name=script
    )
    (run / "metadata.json").write_text(f'{{"recipe": "{script}"}}')
    (run / "status.json").write_text(f'{{"status": "failed", "reason": "{script}"}}')
    with (run / "metrics.jsonl").open("a") as file:
        file.write("\x00 junk\n[[[[\n" + '{"env_steps": 4, "upda')
    broken = write_run(runs / "broken")
    (broken / "config.json").write_text("[" * 100_000)
    with viewer(runs) as address:
        open_runs(driver, address, 2)
        assert HOSTILE in names(driver) and script in texts(driver, ".reason")
        assert texts(driver, ".problem") == ["config.json is nested too deeply and was not read"]
        click(driver, "#by-recipe")
        assert any(script in heading for heading in texts(driver, "tr.group"))
        click(driver, "thead input")
        click(driver, "#to-curves")
        wait_for(lambda: panel_line(driver, "loss/td"), "what can be read is drawn")
        shown = texts(driver, ".warnings p")
        assert any("2 lines were skipped" in problem for problem in shown), shown
        assert any("nested too deeply" in problem for problem in shown), shown
        assert any(script in title for title in texts(driver, ".panel h3"))
        run.rename(tmp_path / "away")
        wait_for(lambda: any("no such run" in problem for problem in texts(driver, ".warnings p")), "it has vanished")
        assert driver.execute_script("return document.querySelectorAll('main script, main img').length") == 0
    assert complaints(driver) == []


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_sticks_out_of_the_page(driver: Chrome, address: str, width: int) -> None:
    open_curves(driver, address)
    run = driver.current_url.rpartition("/")[2].partition(",")[0]
    for view in ("runs", "curves", f"run/{run}", f"run/{run}/config", f"run/{run}/curves"):
        driver.get(f"{address}/#/{view}")
        wait_for(lambda: driver.find_elements(By.CSS_SELECTOR, ".pill, path.line, td"), "the view is there")
        resize(driver, width=width)
        wait_for(lambda: driver.execute_script(INNER) == [width, width], f"it fits into {width} pixels")
