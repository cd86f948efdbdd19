"""A real browser for tests of pages: headless Chromium, and a viewer in this process for it."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from yamame.tools.viewer.app import Access, build_viewer_app
from yamame.tools.viewer.run_index import RunIndex

DRIVER = Path("/usr/bin/chromedriver")
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
]


@contextmanager
def chromium(profile: Path, downloads: Path | None = None) -> Iterator[webdriver.Chrome]:
    """A browser with a fresh profile, 1280 pixels wide. A test without one fails with a line that says what to do."""
    assert DRIVER.exists(), "there is no Chromium to test pages with: make .venv/chromium"
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={profile}", "--window-size=1280,900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    several_at_once = {"profile.default_content_setting_values.automatic_downloads": 1}
    options.add_experimental_option("prefs", several_at_once)
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        if downloads is not None:
            behavior = {"behavior": "allow", "downloadPath": str(downloads)}
            driver.execute_cdp_cmd("Browser.setDownloadBehavior", behavior)
        yield driver
    finally:
        driver.quit()


@contextmanager
def viewer(*roots: Path) -> Iterator[str]:
    """A viewer over these folders, served from a thread of this process; its address, without a slash at the end."""
    config = uvicorn.Config(build_viewer_app(RunIndex(roots), Access()), port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started, "the viewer listens")
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def wait_for(found: Callable[[], Any], what: str, seconds: float = 20.0) -> Any:
    """What `found` gives as soon as that is something; AssertionError if it never is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if value := found():
                return value
        except StaleElementReferenceException:
            pass
        time.sleep(0.05)
    raise AssertionError(f"waited in vain: {what}")


def texts(driver: webdriver.Chrome, selector: str) -> list[str]:
    """What the elements show."""
    return [element.text for element in driver.find_elements(By.CSS_SELECTOR, selector)]


def resize(driver: webdriver.Chrome, *, width: int, height: int = 900) -> None:
    """Make the page itself so wide and high, however narrow (a window cannot be 400 pixels wide)."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def complaints(driver: webdriver.Chrome, allowed: Sequence[str] = ()) -> list[str]:
    """What the browser's console has said that is an error, such as a script that the page may not run."""
    return [
        entry["message"]
        for entry in driver.get_log("browser")
        if entry["level"] == "SEVERE" and not any(part in entry["message"] for part in allowed)
    ]
