"""The clients of `yamame serve` in examples/serving, and the OpenAPI description, with which other clients are made."""

import importlib.util
import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from documents import ROOT
from exported_runs import VECTOR, train
from gymnasium import spaces
from served_runs import mask, observe, serving, to_json, train_panel
from solved_tmaze import JUNCTION, solved_tmaze

pytest.importorskip("uvicorn")
pytest.importorskip("websockets")
jsonschema = pytest.importorskip("jsonschema")
pytest.importorskip("httpx")

from yamame.tools.serve.app import Service, build_service_app
from yamame.tools.serve.limits import Limits
from yamame.tools.serve.openapi import space_schema

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # starlette prefers a successor of httpx
    from starlette.testclient import TestClient

HERE = "http://127.0.0.1:8000"
CLIENTS = ROOT / "examples" / "serving"
UP, DOWN = 1, 3
WALK = [[float(time == JUNCTION), float(time == 0)] for time in range(JUNCTION + 1)]
"""What an agent that always goes right observes, with the cue that the goal is up."""


@pytest.fixture(scope="module")
def client() -> ModuleType:
    spec = importlib.util.spec_from_file_location("client", CLIENTS / "client.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["client"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_client_in_python(client: ModuleType, tmp_path: Path) -> None:
    run = solved_tmaze(tmp_path)
    with serving(run, "--token", "--max-sessions", "1") as (process, address):
        assert process.stdout is not None
        token = process.stdout.readline().split()[-1]
        with pytest.raises(client.PolicyError, match="a token is required") as caught:
            client.PolicyClient(address)
        assert caught.value.status == 401
        with client.PolicyClient(address, token) as policy:
            for cue, last in ((1.0, UP), (-1.0, DOWN)):
                policy.reset()
                seen = [np.array([at_end, cue * first], np.float32) for at_end, first in WALK]
                actions = [policy.act(each, np.float32(0), deterministic=True) for each in seen]
                assert actions[-1] == last and policy.time == JUNCTION
            with pytest.raises(client.PolicyError, match=r"expected shape \[2\], got \[3\]") as caught:
                policy.act([0.0, 0.0, 0.0])
            assert caught.value.status == 422
            policy.reset()
            policy._last_used = -1e9  # longer ago than connections live
            assert policy.act(WALK[0], deterministic=True) == 0 and policy.time == 0
        with client.PolicyClient(address, token) as policy:  # the session was closed: there is only one
            policy.act(WALK[0])


PLAY = """
import { PolicyClient, PolicyError } from "%s";

const [address, walk] = [process.argv[2], JSON.parse(process.argv[3])];
const policy = await PolicyClient.connect(address);
const actions = [];
for (const cue of [1, -1]) {
    policy.reset();
    for (const [atEnd, first] of walk) {
        const observation = new Float32Array([atEnd, cue * first]);
        actions.push(await policy.act(observation, { reward: 0, deterministic: true }));
    }
}
let refusal = null;
try {
    await policy.act([0, 0, 0]);
} catch (error) {
    refusal = [error instanceof PolicyError, error.status, error.message];
}
await policy.close();
console.log(JSON.stringify({ actions, time: policy.time, refusal }));
"""


@pytest.mark.browser
def test_the_client_in_javascript(tmp_path: Path) -> None:
    program = tmp_path / "play.mjs"
    program.write_text(PLAY % (CLIENTS / "client.mjs").as_uri())
    with serving(solved_tmaze(tmp_path), "--max-sessions", "1") as (_, address):
        command = ["node", str(program), address, json.dumps(WALK)]
        for _ in range(2):  # the session was closed: there is only one
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["actions"][JUNCTION], found["actions"][-1]) == (UP, DOWN) and found["time"] == JUNCTION
    is_policy_error, status, message = found["refusal"]
    assert is_policy_error and status == 422 and "expected shape [2], got [3]" in message


def body_schema(description: dict[str, Any]) -> dict[str, Any]:
    content = description["paths"]["/sessions/{session}/act"]["post"]["requestBody"]["content"]
    return content["application/json"]["schema"]


@pytest.fixture
def panel(tmp_path: Path) -> Iterator[TestClient]:
    service = Service(train_panel(tmp_path, "gru"), "latest", Limits(max_sessions=2))
    with TestClient(build_service_app(service), base_url=HERE) as asking:
        yield asking


@pytest.mark.slow
def test_the_description_is_that_of_the_service(panel: TestClient) -> None:
    """Every route, every answer that was asked for, and bodies that the service takes or refuses."""
    description = panel.get("/openapi.json").json()
    assert description["openapi"] == "3.1.0" and "security" not in description
    routes = {route.path: getattr(route, "methods", None) or {"GET"} for route in panel.app.routes}  # type: ignore[attr-defined]
    described = {
        path: {method.upper() for method in methods if method != "parameters"}
        for path, methods in description["paths"].items()
    }
    assert {path: methods - {"HEAD"} for path, methods in routes.items()} == described

    def checked(method: str, path: str, **options: Any) -> Any:
        answer = panel.request(method, path.replace("{session}", session), **options)
        responses = description["paths"][path][method.lower()]["responses"]
        content = responses[str(answer.status_code)].get("content")
        if content is None:
            assert answer.content == b""
            return None
        jsonschema.validate(answer.json(), content["application/json"]["schema"], jsonschema.Draft202012Validator)
        return answer.json()

    session = "missing"
    checked("GET", "/health")
    checked("GET", "/policy")
    checked("DELETE", "/sessions/{session}")
    session = checked("POST", "/sessions")["session"]
    rng = np.random.default_rng(0)
    good = {"observation": to_json(observe(rng)), "action_mask": to_json(mask(rng))}
    validator = jsonschema.Draft202012Validator(body_schema(description))
    seen = good["observation"]
    for changes, is_valid in (
        ({}, True),
        ({"reward": 1.5, "reset": True, "episode_start": False, "deterministic": None}, True),
        ({"observation": {**seen, "image": {"base64": "AAAA" * 36}}}, True),
        ({"observation": {**seen, "image": seen["image"][:5]}}, False),
        ({"observation": {**seen, "state": [[0.0, 0.0], 7]}}, False),
        ({"observation": {**seen, "state": [[0.0, 0.0], 2]}}, False),
        ({"observation": {**seen, "state": [[0.0, 0.0]]}}, False),
        ({"observation": {**seen, "word": "abcab"}}, False),
        ({"observation": {**seen, "more": 0}}, False),
        ({"observation": {"image": seen["image"]}}, False),
        ({"action_mask": [True]}, False),
        ({"reward": "1"}, False),
        ({"reset": None}, False),
        ({"observatoin": 1}, False),
    ):
        request = {**good, **changes}
        assert validator.is_valid(request) is is_valid, changes
        answer = checked("POST", "/sessions/{session}/act", json=request)
        assert ("action" in answer) is is_valid
    checked("DELETE", "/sessions/{session}")


@pytest.mark.slow
def test_the_token_is_described(tmp_path: Path) -> None:
    service = Service(solved_tmaze(tmp_path), "latest", Limits(max_sessions=1))
    with TestClient(build_service_app(service, token="s3cret-s3cret-s3cret"), base_url=HERE) as asking:
        assert asking.get("/openapi.json").status_code == 401
        headers = {"authorization": "Bearer s3cret-s3cret-s3cret"}
        description = asking.get("/openapi.json", headers=headers).json()
    assert description["security"] == [{"token": []}] and description["paths"]["/health"]["get"]["security"] == []
    assert description["info"]["title"] == "yamame serve: solved-tmaze"


NESTED = spaces.Dict(
    go=spaces.Discrete(3, start=-1),
    arms=spaces.Tuple([spaces.MultiDiscrete([3, 2], start=[1, 5]), spaces.MultiBinary(2)]),
)
BOXES = spaces.Tuple([spaces.Box(-2.0, 3.0, (2, 1), np.float32), spaces.Box(0, 9, (2,), np.int64)])


@pytest.mark.slow
@pytest.mark.parametrize("action_space", [NESTED, BOXES], ids=["discrete", "continuous"])
def test_nested_actions(action_space: Any, tmp_path: Path) -> None:
    run = train(tmp_path, "feedforward", VECTOR, action_space)
    expected = run.load().act(np.zeros(3), deterministic=True)
    service = Service(run.directory, "latest", Limits(max_sessions=2))
    with TestClient(build_service_app(service), base_url=HERE) as asking:
        session = asking.post("/sessions").json()["session"]
        body = {"observation": [0.0, 0.0, 0.0], "deterministic": True}
        action = asking.post(f"/sessions/{session}/act", json=body).json()["action"]
    assert _rounded(action) == _rounded(to_json(expected))  # a session is one row of a batch
    jsonschema.validate(action, space_schema(action_space), jsonschema.Draft202012Validator)


def _rounded(value: Any) -> Any:
    """Return JSON with numbers to five decimals."""
    return json.loads(json.dumps(value), parse_float=lambda number: round(float(number), 5))
