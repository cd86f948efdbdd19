"""Who is let in, and what every answer carries."""

from pathlib import Path

import pytest
from runs_to_view import client, ids, line, write_run

from yamame.tools.viewer.app import Access


def test_only_this_machines_own_names_are_answered(tmp_path: Path) -> None:
    with client(tmp_path) as asking:
        for host in ("127.0.0.1", "127.0.0.1:8123", "localhost:1", "LOCALHOST", "[::1]:80"):
            assert asking.get("/api/runs", headers={"host": host}).status_code == 200
        for host in ("evil.example", "127.0.0.1.evil.example", "", "localhost.evil.example:8000", "[::2]:80"):
            for path in ("/", "/api/runs", "/static/app.js"):
                answer = asking.get(path, headers={"host": host})
                assert answer.status_code == 403 and "127.0.0.1" in answer.text


def test_another_sites_page_may_link_here_but_not_ask(tmp_path: Path) -> None:
    with client(tmp_path) as asking:
        foreign = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
        assert asking.get("/api/runs", headers=foreign).status_code == 403
        assert asking.get("/", headers={**foreign, "sec-fetch-mode": "navigate"}).status_code == 200
        assert asking.get("/api/runs", headers={**foreign, "sec-fetch-site": "same-origin"}).status_code == 200


def test_from_other_machines_the_token_is_required_and_then_kept(tmp_path: Path) -> None:
    access = Access(token="s3cret-token", cookie="yamame-view-80")
    with client(tmp_path, access=access, host="box.example") as asking:
        for path in ("/", "/api/runs", "/static/app.js", "/?token=", "/?token=s3cret-toke", "/?token=s3cret-tokenn"):
            answer = asking.get(path)
            assert answer.status_code == 403 and "s3cret" not in answer.text
        for cookie in ("yamame-view-80=wrong", "other=s3cret-token", "yamame-view-80=", "yamame-view-80=é", ";;=="):
            assert asking.get("/api/runs", headers={"cookie": cookie.encode()}).status_code == 403
        first = asking.get("/?token=s3cret-token&x=1")
        assert first.status_code == 303 and first.headers["location"] == "/?x=1"
        assert "HttpOnly" in first.headers["set-cookie"] and "SameSite=lax" in first.headers["set-cookie"]
        assert asking.get("/api/runs").status_code == 200


def test_the_way_on_from_the_token_stays_here(tmp_path: Path) -> None:
    """`//evil.example/?token=…` must not become an address of another machine."""
    with client(tmp_path, access=Access(token="s3cret"), host="box.example") as asking:
        assert (
            asking.get("http://box.example//evil.example/?token=s3cret").headers["location"].startswith("/evil.example")
        )


@pytest.mark.parametrize("path", ["/", "/api/runs", "/static/app.js", "/nothing", "/api/curves?x=wrong"])
def test_every_answer_forbids_foreign_scripts_and_guessing(tmp_path: Path, path: str) -> None:
    with client(tmp_path) as asking:
        headers = asking.get(path).headers
    assert "default-src 'self'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e%2f%2e%2e%2f%2e%2e%2fetc/passwd",
        "/static//etc/passwd",
        "/api/runs/../../secret",
        "/..%2f..%2f..%2fetc/passwd",
    ],
)
def test_no_address_leads_out(tmp_path: Path, path: str) -> None:
    (tmp_path / "secret").write_text("hidden treasure")
    with client(tmp_path / "runs") as asking:
        answer = asking.get(path)
    assert answer.status_code in (404, 405)
    assert "root:" not in answer.text and "treasure" not in answer.text and "import" not in answer.text


@pytest.mark.parametrize("run_id", ["../secret", "..", "/etc", "%2e%2e%2fsecret", "runs", "\x00", "a" * 5000])
def test_runs_have_no_other_names_than_their_ids(tmp_path: Path, run_id: str) -> None:
    write_run(tmp_path / "secret", [line(1, loss__td=4321.0)])
    write_run(tmp_path / "runs" / "one", [line(1, loss__td=1.0)])
    with client(tmp_path / "runs") as asking:
        one = ids(asking)["one"]
        answer = asking.get("/api/curves", params={"runs": run_id, "key": "loss/td"})
        assert answer.json()["curves"] == {"loss/td": []}
        assert "4321" not in asking.get("/api/curves.csv", params={"runs": run_id, "key": "loss/td"}).text
        differences = asking.get("/api/differences", params={"runs": f"{one},{run_id}"})
        assert differences.status_code == 404 and "no such run" in differences.json()["error"]


OWN = {"origin": "http://127.0.0.1:8000", "x-yamame-view": "1", "content-type": "application/json"}
"""Headers of a request that the page itself sends to write."""


def test_nothing_is_changed_by_asking(tmp_path: Path) -> None:
    with client(tmp_path) as asking:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert asking.request(method, "/api/runs", headers=OWN).status_code == 405


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://127.0.0.1:8000"},  # what a form or a link can send
        {"x-yamame-view": "1"},
        {**OWN, "origin": "http://evil.example"},
        {**OWN, "origin": "http://127.0.0.1:9000"},  # another server of this machine
        {**OWN, "origin": "null"},
        {**OWN, "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"},
        {**OWN, "origin": "http://evil.example", "host": "evil.example"},  # DNS rebinding
    ],
)
def test_no_other_page_may_write(tmp_path: Path, headers: dict[str, str]) -> None:
    run = write_run(tmp_path / "one")
    with client(tmp_path) as asking:
        url = f"/api/runs/{ids(asking)['one']}/notes"
        body = {"text": "x", "tags": [], "version": asking.get(url).json()["version"]}
        for method in ("PUT", "POST"):
            answer = asking.request(method, url, json=body, headers=headers)
            assert answer.status_code == 403 and not (run / "notes.json").exists()
        preflight = {"origin": "http://evil.example", "access-control-request-method": "PUT"}
        answer = asking.options(url, headers=preflight)
        assert answer.status_code == 403 and "access-control-allow-origin" not in answer.headers
        assert asking.put(url, json=body, headers=OWN).status_code == 200 and (run / "notes.json").exists()


def test_writing_requires_the_token_too(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one")
    with client(tmp_path, access=Access(token="s3cret"), host="box.example") as asking:
        own = {**OWN, "origin": "http://box.example:8000"}
        asking.get("/?token=s3cret")
        url = f"/api/runs/{ids(asking)['one']}/notes"
        body = {"text": "x", "tags": [], "version": asking.get(url).json()["version"]}
        asking.cookies.clear()
        assert asking.put(url, json=body, headers=own).status_code == 403 and not (run / "notes.json").exists()
        asking.get("/?token=s3cret")
        assert asking.put(url, json=body, headers=own).status_code == 200


def test_read_only_writes_nothing(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one")
    with client(tmp_path, access=Access(read_only=True)) as asking:
        one = ids(asking)["one"]
        assert asking.get(f"/api/runs/{one}").json()["read_only"] is True
        version = asking.get(f"/api/runs/{one}/notes").json()["version"]
        body = {"text": "x", "tags": [], "version": version}
        answer = asking.put(f"/api/runs/{one}/notes", json=body, headers=OWN)
    assert answer.status_code == 403 and "--read-only" in answer.text and not (run / "notes.json").exists()
