"""What a user does with the pages in a real browser: zoom, search, columns, filters, the page of a run, notes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("selenium")
from browser import chromium, complaints, resize, texts, viewer, wait_for
from PIL import Image
from runs_to_view import line, write_run
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

pytestmark = [pytest.mark.slow, pytest.mark.browser]

HOSTILE = "<img src=x onerror=alert(1)>"
RETURN, LOSS = '[data-keys="rollout/return_mean"]', '[data-keys="loss/td"]'
TICKS = "return [...document.querySelectorAll(arguments[0] + ' svg text[text-anchor=middle]')].map(e => e.textContent)"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("chromium") / "profile") as driver:
        yield driver


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three runs of a task that differ in a rate and a model."""
    for number, (rate, model) in enumerate(((0.001, "a.b:GRU"), (0.01, "a.b:GRU"), (0.0003, "a.b:Transformer"))):
        lines = [
            line(step, loss__td=step / 100, rollout__return_mean=step * (number + 1)) | {"mine/distance": 3.5}
            for step in range(0, 1001, 10)
        ]
        learner = {"learning_rate": rate, "td": {"n_step": number}}
        write_run(tmp_path / f"run-{'abc'[number]}", lines, env={"type": "m:Maze"}, learner=learner, model=model)
    return tmp_path


@pytest.fixture
def address(runs: Path) -> Iterator[str]:
    with viewer(runs) as address:
        yield address


def show(driver: Chrome, url: str, selector: str) -> None:
    """Open a page in its first state."""
    resize(driver, width=1280)
    driver.get("about:blank")
    driver.get(url)
    driver.execute_script("localStorage.clear()")
    driver.refresh()
    wait_for(lambda: driver.find_elements(By.CSS_SELECTOR, selector), f"{selector} is there")


def ids_by_name(driver: Chrome, address: str) -> dict[str, str]:
    show(driver, f"{address}/#/runs", "[data-run]")
    rows = driver.find_elements(By.CSS_SELECTOR, "[data-run]")
    return {row.find_element(By.CSS_SELECTOR, "td.name > a").text: str(row.get_attribute("data-run")) for row in rows}


def show_curves(driver: Chrome, address: str) -> None:
    ids = ids_by_name(driver, address).values()
    show(driver, f"{address}/#/curves/{','.join(ids)}", f"{RETURN} path.line")
    wait_for(lambda: driver.find_elements(By.CSS_SELECTOR, f"{LOSS} path.line"), "both panels are drawn")


def ticks(driver: Chrome, panel: str) -> list[str]:
    """What stands below a panel."""
    return list(driver.execute_script(TICKS, panel))


def drag(driver: Chrome, panel: str, start: int, end: int, *, shift: bool = False) -> None:
    """Drag over a panel, from and to pixels right of its middle."""
    drawing = driver.find_element(By.CSS_SELECTOR, f"{panel} .drawing")
    chain = ActionChains(driver, duration=20)
    if shift:
        chain.key_down(Keys.SHIFT)
    chain.move_to_element_with_offset(drawing, start, 0).click_and_hold().move_by_offset(end - start, 0).release()
    if shift:
        chain.key_up(Keys.SHIFT)
    chain.perform()


def names(driver: Chrome) -> list[str]:
    return sorted(texts(driver, ".runs-table td.name > a"))


def test_dragging_zooms_all_panels_and_a_double_click_shows_all(driver: Chrome, address: str) -> None:
    show_curves(driver, address)
    whole = ticks(driver, RETURN)
    assert whole[0] == "0" and whole[-2:] == ["1k", "environment steps"]
    assert not driver.find_element(By.CSS_SELECTOR, ".zoom").is_displayed()
    drag(driver, RETURN, -60, 60)
    wait_for(lambda: ticks(driver, RETURN) != whole, "the panel is zoomed")
    zoomed = ticks(driver, RETURN)
    assert "0" not in zoomed and "1k" not in zoomed and "500" in zoomed
    wait_for(lambda: ticks(driver, LOSS) == zoomed, "so are the others")
    lines = driver.find_elements(By.CSS_SELECTOR, f"{RETURN} path.line")
    assert all(20 < str(one.get_attribute("d")).count("L") < 60 for one in lines)  # of a hundred points

    drag(driver, RETURN, 0, 100, shift=True)
    wait_for(lambda: ticks(driver, LOSS) != zoomed, "Shift pans")
    panned = [int(text) for text in ticks(driver, LOSS)[:-1]]
    assert max(panned) < max(int(text) for text in zoomed[:-1])
    drag(driver, RETURN, -150, 150, shift=True)
    drag(driver, RETURN, -150, 150, shift=True)
    wait_for(lambda: ticks(driver, LOSS)[0] == "0", "not past the start")

    drawing = driver.find_element(By.CSS_SELECTOR, f"{LOSS} .drawing")
    ActionChains(driver).double_click(drawing).perform()
    wait_for(lambda: ticks(driver, RETURN) == whole == ticks(driver, LOSS), "a double click shows all")
    driver.execute_script("arguments[0].focus()", drawing)
    ActionChains(driver).send_keys("+").perform()
    wait_for(lambda: ticks(driver, RETURN) not in (whole, zoomed), "keys zoom too")
    driver.find_elements(By.CSS_SELECTOR, ".zoom button")[-1].click()
    wait_for(lambda: ticks(driver, RETURN) == whole, "so does the button")
    assert complaints(driver) == []


def test_the_cursor_shows_values_in_all_panels(driver: Chrome, address: str) -> None:
    show_curves(driver, address)
    drawing = driver.find_element(By.CSS_SELECTOR, f"{RETURN} .drawing")
    ActionChains(driver).move_to_element(drawing).perform()
    values = wait_for(lambda: texts(driver, f"{LOSS} .mark"), "the values of the other panel")
    assert len(set(values)) == 1 and 3 < float(values[0]) < 7 and len(values) == 3  # of a loss from 0 to 10
    assert len(driver.find_elements(By.CSS_SELECTOR, f"{LOSS} .dots i")) == 3
    assert driver.find_element(By.CSS_SELECTOR, f"{LOSS} .crosshair").is_displayed()
    assert texts(driver, f"{RETURN} .mark") in ([], [""] * 3) and "run-a" in texts(driver, f"{RETURN} .readout")[0]
    ActionChains(driver).move_to_element(driver.find_element(By.CSS_SELECTOR, "h1")).perform()
    wait_for(lambda: not driver.find_element(By.CSS_SELECTOR, f"{LOSS} .crosshair").is_displayed(), "it goes away")
    assert "TD error" in texts(driver, f"{LOSS} .description")[0]


def test_search_over_metrics(driver: Chrome, address: str) -> None:
    show_curves(driver, address)
    assert texts(driver, ".sections h2") == ["Returns", "Losses", "mine"]
    box = driver.find_element(By.ID, "metric-search")
    box.send_keys("DISTANCE")
    shown = [panel.text for panel in driver.find_elements(By.CSS_SELECTOR, ".panel h3") if panel.is_displayed()]
    assert shown == ["mine/distance"] and [text for text in texts(driver, ".sections h2") if text] == ["mine"]
    wait_for(lambda: driver.find_elements(By.CSS_SELECTOR, '[data-keys="mine/distance"] path.line'), "it is drawn")
    box.send_keys(" no such")
    assert texts(driver, "main .notice") == ["No metric matches the search."]
    box.clear()
    box.send_keys("td_l")
    box.send_keys(Keys.BACKSPACE, Keys.BACKSPACE)
    assert [text for text in texts(driver, ".sections h2") if text] == ["Losses"]


def test_columns_and_filters_of_hyperparameters(driver: Chrome, address: str) -> None:
    show(driver, f"{address}/#/runs", "[data-field]")
    driver.find_element(By.CSS_SELECTOR, ".columns summary").click()
    assert texts(driver, ".choices label > span:first-of-type") == [
        "learner.learning_rate",
        "learner.td.n_step",
        "model",
    ]
    for field in ("learner.learning_rate", "model"):
        driver.find_element(By.CSS_SELECTOR, f'[data-field="{field}"]').click()
    wait_for(lambda: len(texts(driver, ".hyperparameter button")) == 6, "two columns of values")
    assert texts(driver, "thead th button")[-2:] == ["learning_rate", "model"]
    driver.find_element(By.CSS_SELECTOR, ".columns summary").click()
    driver.find_elements(By.CSS_SELECTOR, "thead th button")[-2].click()
    shown = texts(driver, ".runs-table td.name > a")
    assert shown == ["run-c", "run-a", "run-b"]  # by number, not by text
    driver.find_elements(By.CSS_SELECTOR, "thead th button")[-2].click()
    assert texts(driver, ".runs-table td.name > a") == shown[::-1]

    box = driver.find_element(By.ID, "filter")
    for condition, found in (
        ("learning_rate<0.005", ["run-a", "run-c"]),
        ("learning_rate>=1e-3 model!=transformer", ["run-a", "run-b"]),
        ("n_step=2", ["run-c"]),  # not a column
        ("learner.td.n_step!=2 run", ["run-a", "run-b"]),
        ("learning_rate>0.5", []),
        ("nothing=1", []),
    ):
        box.send_keys(condition)
        wait_for(lambda found=found: names(driver) == found, condition)  # type: ignore[misc]
        box.send_keys(Keys.CONTROL, "a")
        box.send_keys(Keys.BACKSPACE)
        wait_for(lambda: len(names(driver)) == 3, "no filter")
    button = next(e for e in driver.find_elements(By.CSS_SELECTOR, ".hyperparameter button") if e.text == "Transformer")
    button.click()
    wait_for(lambda: names(driver) == ["run-c"], "a click on a value filters")
    assert box.get_attribute("value") == "model=Transformer"
    resize(driver, width=400)
    driver.find_element(By.CSS_SELECTOR, ".columns summary").click()
    menu = driver.find_element(By.CSS_SELECTOR, ".menu").rect
    assert menu["x"] >= 0 and menu["x"] + menu["width"] <= 400
    resize(driver, width=1280)
    driver.refresh()
    wait_for(lambda: texts(driver, "thead th button")[-2:] == ["learning_rate", "model"], "the columns are kept")
    assert complaints(driver) == []


def test_the_page_of_a_run(driver: Chrome, address: str, runs: Path) -> None:
    run = runs / "run-b"
    origin = {
        "recipe": "made-up",
        "command": f"yamame train made-up {HOSTILE}",
        "overrides": {"learner.learning_rate": [0.5, 0.01]},
    }
    (run / "metadata.json").write_text(json.dumps(origin))
    (run / "result.json").write_text(json.dumps({"return_mean": 12.5, "env_steps": 1000, "note": HOSTILE}))
    (run / "report.md").write_text(
        f"# Title {HOSTILE}\n\nSome **bold** and `code`.\n\n| a | b |\n|---|---|\n| x \\| y | {HOSTILE} |\n\n- point\n"
        "\n![A plot](plot.png)\n\n![Away](https://evil.example/x.png)\n\n```\n<script>alert(1)</script>\n```\n"
    )
    Image.new("RGB", (30, 20), "red").save(run / "plot.png")
    show(driver, f"{address}/#/runs", "[data-run]")
    driver.find_element(By.LINK_TEXT, "run-b").click()
    wait_for(lambda: texts(driver, ".parts a"), "the page of the run")
    assert texts(driver, "h1") == ["run-b"] and texts(driver, ".pill") == ["finished"]
    assert texts(driver, ".parts a") == ["Overview", "Config", "Report", "Curves", "Rollouts"]
    assert texts(driver, "section pre") == [origin["command"]]
    assert {"12.5", HOSTILE} <= set(texts(driver, "section td"))
    assert "plot.png" in texts(driver, ".files a") and "report.md" in texts(driver, ".files a")
    picture = driver.find_element(By.CSS_SELECTOR, ".pictures img")
    wait_for(lambda: driver.execute_script("return arguments[0].naturalWidth", picture) == 30, "the picture")

    driver.find_element(By.LINK_TEXT, "Config").click()
    wait_for(lambda: texts(driver, "tr.changed th") == ["learner.learning_rate"], "what differs from the recipe")
    assert texts(driver, "tr.changed td") == ["0.01", "0.5"] and len(texts(driver, "tbody tr")) == 1
    driver.find_element(By.ID, "only-changed").click()
    assert {"model", "seed", "env.type"} <= set(texts(driver, "tbody th")) and len(texts(driver, "tr.changed")) == 1

    driver.find_element(By.LINK_TEXT, "Report").click()
    wait_for(lambda: texts(driver, ".markdown h2"), "the report")
    assert texts(driver, ".markdown h2") == [f"Title {HOSTILE}"] and texts(driver, ".markdown strong") == ["bold"]
    assert texts(driver, ".markdown td") == ["x | y", HOSTILE] and texts(driver, ".markdown li") == ["point"]
    assert texts(driver, ".markdown pre") == ["<script>alert(1)</script>"]
    assert len(driver.find_elements(By.CSS_SELECTOR, ".markdown img")) == 1  # none of another server
    assert driver.execute_script("return document.querySelectorAll('main script').length") == 0

    driver.find_elements(By.CSS_SELECTOR, ".parts a")[3].click()
    wait_for(lambda: driver.find_elements(By.CSS_SELECTOR, ".run .sections path.line"), "its curves")
    assert texts(driver, ".chip .name") == ["run-b"]
    driver.get(driver.current_url.rpartition("/run/")[0] + "/run/nothing")
    wait_for(lambda: any("no such run" in text for text in texts(driver, ".notice")), "a run that is not there")
    assert complaints(driver, ["404"]) == []


def test_notes_and_tags_are_written_shown_and_filtered(driver: Chrome, address: str, runs: Path) -> None:
    run = ids_by_name(driver, address)["run-a"]
    show(driver, f"{address}/#/run/{run}", "textarea")
    save = driver.find_element(By.CSS_SELECTOR, ".save button")
    assert not save.is_enabled()
    driver.find_element(By.CSS_SELECTOR, "textarea").send_keys(f"too wide {HOSTILE}")
    driver.find_element(By.CSS_SELECTOR, ".notes input").send_keys(f"baseline, two words, {HOSTILE}")
    save.click()
    wait_for(lambda: texts(driver, ".save span") == ["saved"], "the notes are saved")
    saved = {"text": f"too wide {HOSTILE}", "tags": ["baseline", "two words", HOSTILE]}
    assert json.loads((runs / "run-a" / "notes.json").read_text()) == saved
    show(driver, f"{address}/#/runs", ".tag")
    assert texts(driver, ".tag") == saved["tags"] and texts(driver, ".note") == [saved["text"]]
    driver.find_elements(By.CSS_SELECTOR, ".tag")[1].click()
    wait_for(lambda: names(driver) == ["run-a"], "a click on a tag filters")
    assert driver.find_element(By.ID, "filter").get_attribute("value") == 'tag="two words"'
    show(driver, f"{address}/#/run/{run}", "textarea")
    driver.find_element(By.CSS_SELECTOR, "textarea").send_keys(" and long")
    driver.find_element(By.LINK_TEXT, "Config").click()  # leaving the page saves
    wait_for(lambda: "and long" in (runs / "run-a" / "notes.json").read_text(), "what was typed is saved")

    show(driver, f"{address}/#/run/{run}", "textarea")
    (runs / "run-a" / "notes.json").write_text(json.dumps({"text": "other", "tags": []}))
    driver.find_element(By.CSS_SELECTOR, "textarea").send_keys("!")
    driver.find_element(By.CSS_SELECTOR, ".save button").click()
    wait_for(lambda: "changed elsewhere" in texts(driver, ".save span")[0], "it was changed elsewhere")
    assert complaints(driver, ["422"]) == []
