"""Make the screenshots of docs/viewer.md from a folder of runs.

python benchmarks/viewer_screenshots.py RUNS --columns FIELD FIELD --curves RUN RUN --run RUN

RUNS: a folder of runs. FIELD: hyperparameters that the table shows. RUN: names of the runs that the Curves view and the
page of a run show. The rollout is of tests/golden/solved-tmaze.
"""

import argparse
import io
import json
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
from browser import chromium, resize, viewer, wait_for

DOCS = Path(__file__).parents[1] / "docs"
GOLDEN = Path(__file__).parents[1] / "tests" / "golden"


def screenshot(driver: webdriver.Chrome) -> Image.Image:
    """Return what the page shows."""
    return Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")


def save(image: Image.Image, name: str) -> None:
    """Write an image into docs."""
    image.save(DOCS / name, optimize=True)
    print(f"docs/{name}: {(DOCS / name).stat().st_size:,} bytes")


def show(driver: webdriver.Chrome, url: str, selector: str, *, theme: str, width: int, height: int = 900) -> None:
    """Open a view and wait until it has such elements, and the charts on the screen."""
    driver.get("about:blank")
    resize(driver, width=width, height=height)
    driver.get(url)
    driver.execute_script("localStorage.setItem('yamame-theme', arguments[0])", theme)
    driver.refresh()
    wait_for(lambda: driver.find_elements(By.CSS_SELECTOR, selector), f"{selector} is there", 60)
    time.sleep(3)


def show_junction(driver: webdriver.Chrome) -> None:
    """Move to the last decision of the trial."""
    slider = driver.find_element(By.CSS_SELECTOR, ".r-slider")
    slider.send_keys(Keys.END, Keys.ARROW_LEFT)
    driver.execute_script("document.activeElement.blur(); scrollTo(0, 0)")


def zoom_and_point(driver: webdriver.Chrome) -> None:
    """Zoom into the first half of all panels, and point at the first one."""
    panel = driver.find_element(By.CSS_SELECTOR, ".drawing")
    ActionChains(driver).move_to_element_with_offset(panel, -120, 0).click_and_hold().move_by_offset(
        180, 0
    ).release().perform()
    time.sleep(2)
    ActionChains(driver).move_to_element_with_offset(panel, 60, 0).perform()
    time.sleep(1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--columns", nargs="*", default=[])
    parser.add_argument("--curves", nargs="+", required=True)
    parser.add_argument("--run", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, chromium(Path(scratch) / "profile") as driver:
        with viewer(options.runs) as address:
            runs = f"{address}/#/runs"
            show(driver, runs, "[data-run]", theme="light", width=1280, height=720)
            driver.execute_script("localStorage.setItem('yamame-columns', arguments[0])", json.dumps(options.columns))
            show(driver, runs, ".hyperparameter", theme="light", width=1400, height=760)
            save(screenshot(driver), "viewer_runs.png")
            rows = driver.find_elements(By.CSS_SELECTOR, "[data-run]")
            ids = {row.find_element(By.CSS_SELECTOR, "td.name > a").text: row.get_attribute("data-run") for row in rows}
            run = f"{address}/#/run/{ids[options.run]}"
            show(driver, run, "textarea", theme="light", width=1280, height=860)
            save(screenshot(driver), "viewer_run.png")
            curves = f"{address}/#/curves/{','.join(ids[name] for name in options.curves)}"
            show(driver, curves, "path.line", theme="dark", width=1280, height=860)
            zoom_and_point(driver)
            save(screenshot(driver), "viewer_curves.png")
            narrow = Image.new("RGB", (1240, 860), "white")
            for left, url, selector in ((0, runs, "[data-run]"), (420, run, "textarea"), (840, curves, "path.line")):
                show(driver, url, selector, theme="dark", width=400, height=860)
                narrow.paste(screenshot(driver), (left, 0))
            save(narrow, "viewer_narrow.png")
        with viewer(GOLDEN) as address:
            show(driver, f"{address}/#/rollouts", ".choice a", theme="light", width=1280, height=1356)
            driver.find_element(By.CSS_SELECTOR, ".choice a").click()
            wait_for(lambda: driver.find_elements(By.CSS_SELECTOR, ".r-stage"), "a trial has been played", 60)
            show_junction(driver)
            save(screenshot(driver), "viewer_rollout.png")
