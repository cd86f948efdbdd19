"""Make the screenshots of docs/viewer.md from a folder of runs: python benchmarks/viewer_screenshots.py RUNS CURVES.

RUNS: a folder of runs. CURVES: the name of the run that the Curves view shows. The rollout is of
tests/golden/solved-tmaze.
"""

import argparse
import io
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from selenium import webdriver
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("curves")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, chromium(Path(scratch) / "profile") as driver:
        with viewer(options.runs) as address:
            show(driver, f"{address}/#/runs", "[data-run]", theme="light", width=1280, height=720)
            save(screenshot(driver), "viewer_runs.png")
            link = f"//tr[@data-run][.//a[text()='{options.curves}']]"
            run_id = driver.find_element(By.XPATH, link).get_attribute("data-run")
            curves = f"{address}/#/curves/{run_id}"
            show(driver, curves, "path.line", theme="dark", width=1280, height=860)
            save(screenshot(driver), "viewer_curves.png")
            narrow = Image.new("RGB", (820, 860), "white")
            for left, url, selector in ((0, f"{address}/#/runs", "[data-run]"), (420, curves, "path.line")):
                show(driver, url, selector, theme="dark", width=400, height=860)
                narrow.paste(screenshot(driver), (left, 0))
            save(narrow, "viewer_narrow.png")
        with viewer(GOLDEN) as address:
            show(driver, f"{address}/#/rollouts", ".choice a", theme="light", width=1280, height=1356)
            driver.find_element(By.CSS_SELECTOR, ".choice a").click()
            wait_for(lambda: driver.find_elements(By.CSS_SELECTOR, ".r-stage"), "a trial has been played", 60)
            show_junction(driver)
            save(screenshot(driver), "viewer_rollout.png")
