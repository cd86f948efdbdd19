"""The page's shell in a real browser."""

from pathlib import Path

import pytest

pytest.importorskip("selenium")
from browser import chromium, complaints, texts, viewer, wait_for
from selenium.webdriver.common.by import By

pytestmark = pytest.mark.browser


def test_tabs_theme_and_an_empty_folder(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    with viewer(folder) as address, chromium(tmp_path / "profile") as driver:
        driver.get(address)
        wait_for(lambda: "No runs yet." in texts(driver, ".notice"), "the page says that there are none")
        before = driver.execute_script("return document.documentElement.dataset.theme")
        driver.find_element(By.ID, "theme").click()
        assert driver.execute_script("return document.documentElement.dataset.theme") != before
        driver.find_element(By.CSS_SELECTOR, '[data-view="rollouts"]').click()
        wait_for(lambda: texts(driver, "h1") == ["Choose a run"], "the request for a run in the rollouts' tab")
        assert complaints(driver) == []
