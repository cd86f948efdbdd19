"""The Rollouts view in a real browser, on a solved T-maze; and what its server answers, to invalid requests as well."""

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

pytest.importorskip("selenium")
from browser import chromium, complaints, resize, texts, viewer, wait_for
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from solved_tmaze import JUNCTION, solved_tmaze

from yamame.errors import UserError
from yamame.runs.checkpoint import load_checkpoint_at, save_checkpoint
from yamame.tools.trial_recording import record_trial
from yamame.tools.viewer.recording_json import UniqueFrames, recording_to_json, to_numbers
from yamame.tools.viewer.rollouts import CachedReply, TrialPlayer
from yamame.training.trained_run import load_trained_run

pytestmark = [pytest.mark.slow, pytest.mark.browser]

SEED = "1000000"


@contextmanager
def client_for(root: Path) -> Iterator[httpx.Client]:
    with viewer(root) as address, httpx.Client(base_url=address, timeout=120.0, trust_env=False) as client:
        yield client


def run_of(client: httpx.Client) -> str:
    (run,) = client.get("/api/runs").json()["runs"]
    return f"/api/rollouts/{run['id']}"


def moment(driver: WebDriver) -> int:
    return int(driver.find_element(By.CSS_SELECTOR, ".r-stage").get_attribute("data-timestep") or -1)


def heads(driver: WebDriver) -> list[tuple[int, float]]:
    """The step with the largest weight of each head, and the weight."""
    rows = driver.find_elements(By.CSS_SELECTOR, ".r-headrow")
    return [(int(row.get_attribute("data-peak") or -1), float(row.get_attribute("data-weight") or 0)) for row in rows]


def test_a_rollout_plays_and_attention_at_the_junction_is_on_the_cue(tmp_path: Path) -> None:
    solved_tmaze(tmp_path)
    with viewer(tmp_path) as address, chromium(tmp_path / "profile") as driver:
        driver.get(f"{address}/#/rollouts")
        wait_for(lambda: texts(driver, ".choice a"), "the runs are listed")
        driver.find_element(By.CSS_SELECTOR, ".choice a").click()
        wait_for(lambda: driver.find_elements(By.CSS_SELECTOR, ".r-stage"), "a trial has been played", 60)
        assert moment(driver) == 0 and texts(driver, ".r-place") == [f"step 0 of {JUNCTION + 1}"]

        driver.find_element(By.CSS_SELECTOR, '.r-transport option[value="50"]').click()
        first = driver.find_element(By.CSS_SELECTOR, ".r-view.now img").get_attribute("src")
        driver.find_element(By.CSS_SELECTOR, ".r-play").click()
        wait_for(lambda: moment(driver) == JUNCTION + 1, "it plays to its end")
        assert texts(driver, ".r-play") == ["▶ Play"]
        assert driver.find_element(By.CSS_SELECTOR, ".r-view.now img").get_attribute("src") != first
        assert "yes" in texts(driver, ".r-facts dd")

        ActionChains(driver).send_keys(Keys.ARROW_LEFT).perform()
        assert moment(driver) == JUNCTION
        peak, weight = max(heads(driver), key=lambda found: found[1])
        assert peak == 0 and weight > 0.5
        assert driver.find_element(By.CSS_SELECTOR, ".r-tops li").get_attribute("data-step") == "0"
        past = driver.find_element(By.CSS_SELECTOR, ".r-view.past")
        assert past.find_element(By.TAG_NAME, "b").text == "step 0"
        assert past.find_element(By.TAG_NAME, "img").get_attribute("src") == first
        taken = driver.find_element(By.CSS_SELECTOR, ".r-bar.taken").get_attribute("data-action")
        assert taken in ("up", "down") and f"{taken}" in texts(driver, ".r-facts dd")
        assert len(driver.find_elements(By.CSS_SELECTOR, ".r-q path")) == 7

        strip = driver.find_element(By.CSS_SELECTOR, ".r-strip")  # another past step, pointed at and kept
        width = strip.size["width"] / (JUNCTION + 2)
        ActionChains(driver).move_to_element_with_offset(
            strip, -strip.size["width"] / 2 + 3.5 * width, 0
        ).click().perform()
        assert past.find_element(By.TAG_NAME, "b").text == "step 3" and "pinned" in (past.get_attribute("class") or "")
        driver.execute_script("document.querySelector('.r-slider').focus()")
        ActionChains(driver).send_keys(Keys.HOME).perform()
        assert moment(driver) == 0
        for width in (1280, 400):
            resize(driver, width=width)
            wait_for(lambda: driver.execute_script("return document.documentElement.scrollWidth <= innerWidth"), "fits")
        assert complaints(driver) == []


def test_what_the_server_says_of_a_trial(tmp_path: Path) -> None:
    run = solved_tmaze(tmp_path)
    with client_for(tmp_path) as client:
        address = run_of(client)
        offer = client.get(address).json()
        assert offer["checkpoints"] == [{"name": "latest", "updates": 1501}]
        assert offer["adaptation"]["success_per_attempt"] == [1.0] and not offer["takes_instruction"]
        recorded = client.get(f"{address}/recording", params={"seed": SEED}).json()
        recording = record_trial(load_trained_run(run))
        assert recorded["steps"] == len(recording) and recorded["actions"] == ["right", "up", "left", "down"]
        assert [places[0] for places in recorded["actions_taken"]] == recording.trajectory.action.tolist()
        np.testing.assert_allclose(recorded["analysis"]["q"], recording.analysis.q_TG, rtol=1e-4, atol=1e-6)
        check_attention(recorded["analysis"]["attention"], recording.analysis.attention)
        content = client.get(f"{address}/frames/{recorded['key']}").content
        sizes = recorded["frames"]["sizes"]
        assert len(content) == sum(sizes) and content[: sizes[0]] == recording.frames[0]
        measured = client.get(f"{address}/adaptation", params={"seed": "3", "checkpoint": "latest"}).json()
        assert measured["trials"] == 64 and measured["return_per_attempt"] == [1.0]


def test_a_run_that_was_trained_anew_in_place_is_played_anew(tmp_path: Path) -> None:
    run = solved_tmaze(tmp_path)
    with client_for(tmp_path) as client:
        address = run_of(client)

        def returns() -> Any:
            played = client.get(f"{address}/recording", params={"seed": SEED}).json()
            assert played["key"] == client.get(f"{address}/recording", params={"seed": SEED}).json()["key"]
            adapted = client.get(f"{address}/adaptation", params={"seed": SEED}).json()
            return played["key"], adapted["return_per_attempt"]

        key, solved = returns()
        (path,) = (run / "checkpoints").glob("update-*")
        read = load_checkpoint_at(path)
        blank = {name: torch.zeros_like(tensor) for name, tensor in read.tensors.items()}
        save_checkpoint(path.parent, step=read.step, tensors=blank, state=read.state)
        other_key, blank_returns = returns()
    assert solved == [1.0] and blank_returns != solved and key != other_key


def check_attention(recorded: dict[str, Any], attention: Any) -> None:
    shape = [recorded[name] for name in ("layers", "heads", "timesteps", "kept")]
    weight, key = (np.frombuffer(base64.b64decode(recorded[name]), "<u2").reshape(shape) for name in ("weight", "key"))
    np.testing.assert_allclose(weight / 65535, attention.weight_LHTS, atol=1e-5)
    np.testing.assert_array_equal(key, attention.key_LHTS)


@pytest.mark.parametrize(
    ("wish", "line"),
    [
        ({"seed": "-1"}, "whole number"),
        ({"seed": "1; rm"}, "whole number"),
        ({"seed": SEED, "checkpoint": "../../../etc/passwd"}, "does not exist any more"),
        ({"seed": SEED, "checkpoint": "milestone-7"}, "does not exist any more"),
        ({"seed": SEED, "actions": "badly"}, "actions must be"),
        ({"seed": SEED, "instruction": "<script>alert(1)</script>"}, "has no instructions"),
    ],
)
def test_mistakes_are_reported_in_a_line(wish: dict[str, str], line: str, tmp_path: Path) -> None:
    solved_tmaze(tmp_path)
    with client_for(tmp_path) as client:
        answer = client.get(f"{run_of(client)}/recording", params=wish)
        assert answer.status_code == 422 and line in answer.json()["error"] and "\n" not in answer.json()["error"]


def test_corrupted_runs_and_expired_frames(tmp_path: Path) -> None:
    run = solved_tmaze(tmp_path)
    with client_for(tmp_path) as client:
        address = run_of(client)
        assert client.get(f"{address}/frames/0123").status_code == 422
        assert client.get("/api/rollouts/000000000000").status_code == 404
        (run / "checkpoints" / "update-000001501" / "tensors.safetensors").write_bytes(b"nonsense")
        corrupted = client.get(f"{address}/recording", params={"seed": SEED})
        assert corrupted.status_code == 422 and "are corrupted" in corrupted.json()["error"]
        (run / "result.json").write_text('{"return_per_attempt": [1.0]}')
        assert "corrupted" in client.get(address).json()["error"]
        (run / "config.json").write_text("{")
        assert "cannot be read" in client.get(address).json()["error"]


def test_a_result_with_nan_is_no_error_of_the_server(tmp_path: Path) -> None:
    run = solved_tmaze(tmp_path)
    result = json.loads((run / "result.json").read_text())
    result["return_per_attempt"] = [float("nan"), 1e400]
    (run / "result.json").write_text(json.dumps(result))
    with client_for(tmp_path) as client:
        answer = client.get(run_of(client))
        assert answer.status_code in (200, 422) and "NaN" not in answer.text and "Infinity" not in answer.text


@pytest.mark.parametrize("name", ["config.json", "spaces.json", "checkpoints", "tensors.safetensors"])
def test_links_are_not_followed(name: str, tmp_path: Path) -> None:
    run = solved_tmaze(tmp_path)
    path = next(iter(run.rglob(name)))
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with client_for(tmp_path) as client:
        address = run_of(client)
        for url in (address, f"{address}/recording?seed={SEED}"):
            answer = client.get(url)
            assert answer.status_code == 422 and f"{name} is a link and was not followed" in answer.json()["error"]


def test_a_checkpoint_that_goes_away_meanwhile_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running run removes its older ones."""
    solved_tmaze(tmp_path)
    gone = FileNotFoundError(2, "No such file or directory")
    with client_for(tmp_path) as client:
        address = run_of(client)
        listed = Path.iterdir

        def iterdir(path: Path) -> Any:
            if path.name.startswith("update-"):
                raise gone
            return listed(path)

        monkeypatch.setattr(Path, "iterdir", iterdir)
        answer = client.get(f"{address}/recording?seed={SEED}")
    assert answer.status_code == 422
    assert answer.json()["error"] == "its checkpoints cannot be read (No such file or directory): try again"


@pytest.mark.parametrize("name", ["config.json", "spaces.json", "manifest.json", "state.json", "tensors.safetensors"])
def test_files_that_are_too_large_are_not_read(name: str, tmp_path: Path) -> None:
    run = solved_tmaze(tmp_path)
    os.truncate(next(iter(run.rglob(name))), 5 << 30)  # takes no room on the disk
    with client_for(tmp_path) as client:
        address = run_of(client)
        for url in (address, f"{address}/recording?seed={SEED}"):
            answer = client.get(url)
            assert answer.status_code == 422 and f"{name} is larger than" in answer.json()["error"]


def test_a_failing_environment_is_reported_in_a_line() -> None:
    stage = TrialPlayer()
    with pytest.raises(UserError, match=r"cannot be played: ValueError\('no'\)"):
        stage.get_or_play("a", lambda: _broken())
    assert stage.get_or_play("a", lambda: CachedReply(b"{}")).body == b"{}"


def _broken() -> CachedReply:
    raise ValueError("no")


def test_one_trial_at_a_time_and_few_are_kept() -> None:
    stage = TrialPlayer(cache_bytes=250, wait_seconds=0.05)

    def impatient() -> CachedReply:
        with pytest.raises(UserError, match="another trial is being played"):
            stage.get_or_play("second", lambda: CachedReply(b""))
        return CachedReply(b"x" * 100)

    stage.get_or_play("first", impatient)
    for key in ("second", "third"):
        stage.get_or_play(key, lambda: CachedReply(b"x" * 100))
    assert stage.find("first") is None and stage.find("second") is not None
    assert stage.get_or_play("third", _broken).body == b"x" * 100


def test_numbers_that_json_does_not_have(tmp_path: Path) -> None:
    assert to_numbers(np.array([[1.23456789, np.nan], [np.inf, -2.0]])) == [[1.2346, None], [None, -2.0]]
    recording = record_trial(load_trained_run(solved_tmaze(tmp_path)), max_length=3)
    recorded = recording_to_json(recording, UniqueFrames.from_recording(recording))
    assert json.loads(json.dumps(recorded, allow_nan=False))["truncated"] is True
    without = recording_to_json(replace(recording, analysis=None), UniqueFrames.from_recording(recording))
    assert without["analysis"] is None and without | {"analysis": recorded["analysis"]} == recorded
