"""The service without a network: answers, refusals, 1,000 malformed bodies, access."""

import asyncio
import base64
import json
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served_runs import STEPS, body, mask, observe, to_json, train_panel
from solved_tmaze import solved_tmaze

import yamame

pytest.importorskip("starlette")
pytest.importorskip("httpx")
import httpx

from yamame.tools.serve.app import Service, build_service_app
from yamame.tools.serve.limits import Limits

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # starlette prefers a successor of httpx
    from starlette.testclient import TestClient, WebSocketDenialResponse

HERE = "http://127.0.0.1:8000"
GO = {"observation": [0.0, 1.0], "deterministic": True}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return solved_tmaze(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def panel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_panel(tmp_path_factory.mktemp("runs"), "gru")


@pytest.fixture
def client(run: Path) -> Iterator[TestClient]:
    limits = Limits(max_sessions=3, max_body_bytes=10_000)
    with TestClient(build_service_app(Service(run, "latest", limits)), base_url=HERE) as asking:
        yield asking


@pytest.mark.slow
def test_an_exported_file_is_served_as_its_run(run: Path, tmp_path: Path) -> None:
    """Two sessions take turns, so that each step leaves the other's memory as it is."""
    pytest.importorskip("onnxscript")
    yamame.open(run).export(tmp_path / "policy.onnx", num_envs="dynamic")
    actions = []
    for source in (run, tmp_path / "policy.onnx"):
        with TestClient(build_service_app(Service(source, "latest", Limits(max_sessions=2))), base_url=HERE) as client:
            sessions = [open_session(client), open_session(client)]
            cues = list(zip(sessions, (-1.0, 1.0), strict=True))
            seen = [(at, [float(time == 9), 0.0 if time else cue]) for time in range(10) for at, cue in cues]
            bodies = [client.post(f"{at}/act", json={"observation": row, "deterministic": True}) for at, row in seen]
            actions.append([answer.json()["action"] for answer in bodies])
    assert actions[0] == actions[1] and len(set(actions[0])) > 1


def open_session(client: TestClient) -> str:
    answer = client.post("/sessions")
    assert answer.status_code == 201
    return f"/sessions/{answer.json()['session']}"


def line(answer: Any, status: int) -> str:
    """The one line of a refusal."""
    assert answer.status_code == status, answer.text
    (error,) = answer.json().values()
    assert error and "\n" not in error
    return str(error)


def test_a_session_from_its_start_to_its_end(client: TestClient) -> None:
    about = client.get("/policy").json()
    assert about["action_space"] == {"kind": "Discrete", "n": 4, "start": 0} and about["horizon"] == 16
    session = open_session(client)
    first = client.post(f"{session}/act", json=GO).json()
    assert first["time"] == 0 and first["action"] in range(4)
    assert client.post(f"{session}/act", json={**GO, "reward": 0.5}).json()["time"] == 1
    assert client.post(f"{session}/act", json={**GO, "reset": True}).json() == first
    health = client.get("/health").json()
    assert health == {"status": "ok", "sessions": 1, "max_sessions": 3, "requests": 3, "batches": 3}
    assert client.delete(session).status_code == 204
    assert "no such session" in line(client.post(f"{session}/act", json=GO), 404)
    assert "no such session" in line(client.delete(session), 404)


def test_a_trial_longer_than_those_of_training_is_refused(client: TestClient) -> None:
    session = open_session(client)
    for _ in range(16):
        assert client.post(f"{session}/act", json=GO).status_code == 200
    assert "all 16 steps" in line(client.post(f"{session}/act", json=GO), 409)
    assert client.post(f"{session}/act", json={**GO, "reset": True}).json()["time"] == 0


def test_limits(client: TestClient) -> None:
    sessions = [open_session(client) for _ in range(3)]
    assert "all 3 sessions are in use" in line(client.post("/sessions"), 429)
    with pytest.raises(WebSocketDenialResponse) as denied, client.websocket_connect("ws://127.0.0.1:8000/websocket"):
        pass
    assert denied.value.status_code == 429
    large = json.dumps({"observation": [0.0] * 10_000})
    assert "larger than 10,000 bytes" in line(client.post(f"{sessions[0]}/act", content=large), 413)
    parts = (large[start : start + 1000].encode() for start in range(0, len(large), 1000))
    assert "larger than 10,000 bytes" in line(client.post(f"{sessions[0]}/act", content=parts), 413)
    for method, path, status in (("GET", "/", 404), ("GET", "/sessions", 405), ("PUT", "/health", 405)):
        line(client.request(method, path), status)


def test_a_websocket_is_a_session(client: TestClient) -> None:
    session = open_session(client)
    expected = [client.post(f"{session}/act", json={**GO, "reward": n}).json() for n in range(4)]
    with client.websocket_connect("ws://127.0.0.1:8000/websocket") as socket:
        for number in range(4):
            socket.send_text("no JSON")
            assert socket.receive_json()["status"] == 400
            socket.send_bytes(b"\xff")
            assert socket.receive_json()["status"] == 400
            socket.send_json({**GO, "reward": number})
            assert socket.receive_json() == expected[number]
        assert client.get("/health").json()["sessions"] == 2
    assert client.get("/health").json()["sessions"] == 1


def test_a_failure_at_a_reset_leaves_the_session_at_the_start_of_a_trial(panel: Path) -> None:
    """The policy clears the memory before it acts, so that a trial cannot go on."""
    service = Service(panel, "latest", Limits(max_sessions=2))
    rng = np.random.default_rng(0)
    act = service.policy._policy.act

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("broken")

    with TestClient(build_service_app(service), base_url=HERE) as asking:
        session = asking.post("/sessions").json()["session"]
        values = to_json({"observation": observe(rng), "action_mask": mask(rng)})
        times = []
        for reset, breaks in ((False, False), (False, False), (True, True), (False, False)):
            service.policy._policy.act = fails if breaks else act  # type: ignore[method-assign]
            answer = asking.post(f"/sessions/{session}/act", json={**values, "reset": reset})
            assert answer.status_code == (500 if breaks else 200), answer.text
            times += [] if breaks else [answer.json()["time"]]
    assert times == [0, 1, 0]


def test_many_sessions_act_as_policies_of_their_own(panel: Path) -> None:
    """Images, categories, tuples, texts and masks; by lists and by bytes; in all orders, at different times."""
    service = Service(panel, "latest", Limits(max_sessions=6))
    rng = np.random.default_rng(0)
    walks = [[(observe(rng), mask(rng), float(rng.normal())) for _ in range(STEPS)] for _ in range(6)]

    async def walk(asking: httpx.AsyncClient, number: int) -> list[int]:
        session = (await asking.post("/sessions")).json()["session"]
        actions = []
        for time, (observation, allowed, reward) in enumerate(walks[number]):
            values: dict[str, Any] = to_json({"observation": observation, "action_mask": allowed, "reward": reward})
            if number % 2:
                content = base64.b64encode(observation["image"].tobytes()).decode()
                values["observation"]["image"] = {"base64": content}
            answer = await asking.post(f"/sessions/{session}/act", json={**values, "deterministic": True})
            assert answer.status_code == 200, answer.text
            assert answer.json()["time"] == time
            actions.append(answer.json()["action"])
            for _ in range(number):
                await asyncio.sleep(0)
        return actions

    async def play() -> list[list[int]]:
        transport = httpx.ASGITransport(build_service_app(service))
        async with httpx.AsyncClient(transport=transport, base_url=HERE) as asking:
            return await asyncio.gather(*(walk(asking, number) for number in range(6)))

    found = asyncio.run(play())
    assert service.batcher.num_batches < service.batcher.num_requests == 6 * STEPS
    for actions, steps in zip(found, walks, strict=True):
        alone = yamame.load(panel)
        expected = [
            int(alone.act(observation, reward, deterministic=True, action_mask=allowed))
            for observation, allowed, reward in steps
        ]
        assert actions == expected
        assert all(allowed[action] for action, (_, allowed, _) in zip(actions, steps, strict=True))


def test_what_does_not_fit_is_named(panel: Path) -> None:
    rng = np.random.default_rng(0)
    good = {"observation": to_json(observe(rng)), "action_mask": to_json(mask(rng))}
    seen = good["observation"]
    image = seen["image"]
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"observation": None}, "expected an object with ['image', 'state', 'word'], got null"),
        ({"observation": {**seen, "more": 1}}, "expected an object with ['image', 'state', 'word']"),
        ({"observation": {**seen, "image": image[:5]}}, "observation.image: expected shape [6, 6, 3], got [5, 6, 3]"),
        ({"observation": {**seen, "image": [*image[:5], [0]]}}, "got lists of other lengths"),
        ({"observation": {**seen, "image": np.full((6, 6, 3), 256).tolist()}}, "whole numbers from 0 to 255"),
        ({"observation": {**seen, "image": np.full((6, 6, 3), 0.5).tolist()}}, "whole numbers from 0 to 255"),
        ({"observation": {**seen, "image": {"base64": "AAAA"}}}, "108 bytes (uint8 of shape [6, 6, 3]), got 3"),
        ({"observation": {**seen, "image": {"base64": "?"}}}, "observation.image: base64 cannot be decoded"),
        ({"observation": {**seen, "image": {"base64": 7}}}, "observation.image: base64 cannot be decoded"),
        ({"observation": {**seen, "state": [[0.0, 0.0]]}}, "observation.state: expected a list of 2 parts, got 1"),
        ({"observation": {**seen, "state": [[0.0, 1e39], 3]}}, "observation.state.0 has numbers that are not finite"),
        ({"observation": {**seen, "state": [["a", "b"], 3]}}, "observation.state.0: expected numbers of shape [2]"),
        ({"observation": {**seen, "state": [[0.0, 0.0], 7]}}, "'state/1' is 7, which is not in Discrete(4, start=3)"),
        ({"observation": {**seen, "state": [[0.0, 0.0], 2]}}, "'state/1' is 2, which is not in Discrete(4, start=3)"),
        ({"observation": {**seen, "word": "abcab"}}, "has 5 characters"),
        ({"observation": {**seen, "word": "x"}}, "the character 'x'"),
        ({"observation": {**seen, "word": 3}}, "observation.word: expected a text, got a number"),
        ({"reward": "1"}, "reward: expected a number below 1e+15 in size"),
        ({"reward": True}, "reward: expected a number below 1e+15 in size"),
        ({"reward": 1e16}, "reward: expected a number below 1e+15 in size"),
        ({"reward": 1e39}, "reward: expected a number below 1e+15 in size"),
        ({"episode_start": 1}, "episode_start: expected true or false, got 1"),
        ({"reset": None}, "reset: expected true or false"),
        ({"deterministic": "yes"}, "deterministic: expected true or false"),
        ({"action_mask": None}, "pass action_mask at every call"),
        ({"action_mask": [True]}, "action_mask: expected 5 booleans or numbers"),
        ({"action_mask": ["a"] * 5}, "action_mask: expected 5 booleans or numbers"),
        ({"action_mask": [-3.2, 0.1, 0.4, 5, 1]}, "action_mask: expected 1 or true for allowed choices"),
        ({"action_mask": [0, 1, 2, 3, 4]}, "action_mask: expected 1 or true for allowed choices"),
        ({"action_mask": [0] * 5}, "allows no action"),
        ({"observatoin": 1}, "unknown field observatoin"),
    ]  # fmt: skip
    with TestClient(build_service_app(Service(panel, "latest", Limits(max_sessions=1))), base_url=HERE) as asking:
        unbounded = asking.get("/policy").json()["observation_space"]["spaces"]["state"]["spaces"][0]
        assert unbounded["low"] is None and unbounded["high"] is None
        session = open_session(asking)
        for values, expected in refusals:
            assert expected in line(asking.post(f"{session}/act", json={**good, **values}), 422)
        lone = b'{"\\ud800": 1}'
        refused = asking.post(f"{session}/act", content=lone, headers={"content-type": "application/json"})
        assert refused.status_code == 422 and "unknown field ?" in line(refused, 422)
        assert "observation is missing" in line(asking.post(f"{session}/act", json={}), 422)
        assert asking.post(f"{session}/act", json=good).json()["time"] == 0


MALFORMED = [
    b"",
    b"\x00",
    b"\xff\xfe\xfa",
    b"null",
    b"3",
    b"[]",
    b'"text"',
    b"{",
    b"{}",
    b"[" * 9_000,
    b'{"observation":' * 600,
    b'{"observation": ' + b"[" * 4_000 + b"]" * 4_000 + b"}",
    b'{"observation": [0.0, 1.0], "action_mask": ' + b"[" * 900 + b"]" * 900 + b"}",
    b'{"observation": [0.0, ' + b"9" * 8_000 + b"]}",
    b'{"observation": [0.0, 1e400]}',
    b'{"observation": [0.0, NaN]}',
    b'{"observation": [Infinity, 0.0]}',
    b'{"observation": {"base64": "AAAA"}}',
    b'{"observation": [0.0, 1.0], "reward": 1e400}',
    b'{"observation": [0.0, 1.0], "action_mask": [true, true, true, true]}',
    b'{"observation": [0.0, [1.0]]}',
    b'{"observation": [0.0, null]}',
]


def malformed(number: int) -> bytes:
    """Something that is no request: truncated, with a byte or a value replaced."""
    rng = random.Random(number)
    good = body(observation=np.array([0.0, 1.0]), reward=0.5, episode_start=False, deterministic=True).encode()
    if number < len(MALFORMED):
        return MALFORMED[number]
    match rng.randrange(3):
        case 0:
            return good[: rng.randrange(len(good))]
        case 1:
            start = rng.randrange(len(good))
            return good[:start] + bytes(rng.randrange(128, 256) for _ in range(3)) + good[start + 1 :]
    values = json.loads(good)
    name = rng.choice(list(values))
    wrong = ["x", {}, {"a": []}, [[]], [1, 2, 3], -(10**30), [None], {"base64": None}, [[0.0, 1.0]]]
    return json.dumps({**values, name: rng.choice(wrong)} if name != "reward" else {**values, name: "x"}).encode()


def test_a_thousand_malformed_bodies(client: TestClient) -> None:
    """Each gets one line with a status of 400 to 499, and the session goes on as if there had been none."""
    session, undisturbed = open_session(client), open_session(client)
    for number in range(1000):
        answer = client.post(f"{session}/act", content=malformed(number))
        assert 400 <= answer.status_code < 500, (number, malformed(number), answer.text)
        line(answer, answer.status_code)
        if number % 100 == 0:
            act = {**GO, "reward": number / 1000}
            same = [client.post(f"{each}/act", json=act).json() for each in (session, undisturbed)]
            assert same[0] == same[1] and same[0]["time"] == number // 100
    assert client.get("/health").json()["requests"] == 20


def test_other_pages_and_other_names_are_refused(client: TestClient) -> None:
    for headers in (
        {"host": "evil.example"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://["},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"},
    ):
        for path in ("/health", "/policy"):
            line(client.get(path, headers=headers), 403)
        line(client.post("/sessions", headers=headers), 403)
        with (
            pytest.raises(WebSocketDenialResponse) as denied,
            client.websocket_connect("ws://127.0.0.1:8000/websocket", headers=headers),
        ):
            pass
        assert denied.value.status_code == 403
    answer = client.post("/sessions", headers={"origin": HERE})
    assert answer.status_code == 201 and "access-control-allow-origin" not in answer.headers
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_token(run: Path) -> None:
    app = build_service_app(Service(run, "latest", Limits(max_sessions=1)), token="s3cret-s3cret-s3cret")
    with TestClient(app, base_url="http://box.example") as asking:
        assert asking.get("/health").status_code == 200
        for given in ("", "Bearer", "Bearer s3cret", "Basic s3cret-s3cret-s3cret", "Bearer é"):
            headers = {"authorization": given.encode()}
            assert "s3cret" not in line(asking.post("/sessions", headers=headers), 401)
            with (
                pytest.raises(WebSocketDenialResponse),
                asking.websocket_connect("ws://127.0.0.1:8000/websocket", headers={"x": given[:6]}),
            ):
                pass
        headers = {"authorization": "Bearer s3cret-s3cret-s3cret"}
        assert asking.get("/policy", headers=headers).status_code == 200
        with asking.websocket_connect("ws://127.0.0.1:8000/websocket", headers=headers) as socket:
            socket.send_json(GO)
            assert socket.receive_json()["time"] == 0
