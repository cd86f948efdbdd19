"""A client of `yamame serve`, with Python's standard library alone. Copy this file into your program.

with PolicyClient("http://127.0.0.1:8000") as policy:
    action = policy.act(observation)
    action = policy.act(observation, reward=1.0)
    policy.reset()  # before the first observation of the next trial
"""

import http.client
import json
import time
from typing import Any
from urllib.parse import urlsplit

_IDLE_SECONDS = 3.0
"""After which a connection is not used again: the service closes those that were idle for 5 seconds."""


class PolicyError(Exception):
    """The service refused a request: its status and one line."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class PolicyClient:
    """One session of a service, with a memory of its own. One thread at a time may use it.

    Args:
        address: Address that `yamame serve` prints, such as `http://127.0.0.1:8000`.
        token: Token that it prints, if it does.
        timeout: Seconds after which a request fails with `TimeoutError`.
    """

    def __init__(self, address: str, token: str = "", timeout: float = 30.0) -> None:
        url = urlsplit(address)
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(url.netloc, timeout=timeout)
        self._prefix = url.path.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._last_used = time.monotonic()
        try:
            self._session = self._request("POST", "/sessions")["session"]
        except BaseException:
            self._connection.close()
            raise
        self._resets = False
        self.time = -1
        """Index in its trial of the action that `act` returned."""

    def act(
        self,
        observation: Any,
        reward: float = 0.0,
        *,
        episode_start: bool = False,
        deterministic: bool | None = None,
        action_mask: Any = None,
    ) -> Any:
        """Return the next action as numbers or nested lists of them.

        Args:
            observation: Observation in its space: numbers, nested lists, NumPy arrays, and dicts and tuples of them.
            reward: Reward of the previous action.
            episode_start: Whether a further episode of the trial starts.
            deterministic: Take the most likely action; None: as in the evaluation after training.
            action_mask: Allowed actions, if the policy was trained with masks in `info`.

        Raises:
            PolicyError: If the service refuses the request. Its memory is as before; after a failed reset, it is empty.
        """
        body = {"observation": observation, "reward": reward, "episode_start": episode_start, "reset": self._resets}
        if deterministic is not None:
            body["deterministic"] = deterministic
        if action_mask is not None:
            body["action_mask"] = action_mask
        answer = self._request("POST", f"/sessions/{self._session}/act", body)
        self._resets, self.time = False, answer["time"]
        return answer["action"]

    def reset(self) -> None:
        """Start a new trial: the memory is cleared before the next observation."""
        self._resets = True

    def close(self) -> None:
        """Close the session, so that another client can have its place."""
        try:
            self._request("DELETE", f"/sessions/{self._session}")
        finally:
            self._connection.close()

    def __enter__(self) -> "PolicyClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        content = None if body is None else json.dumps(body, default=_to_json)
        if time.monotonic() - self._last_used > _IDLE_SECONDS:
            self._connection.close()  # `request` opens another one
        self._connection.request(method, self._prefix + path, content, self._headers)
        response = self._connection.getresponse()
        text = response.read()
        self._last_used = time.monotonic()
        if response.status >= 400:
            raise PolicyError(response.status, json.loads(text)["error"])
        return json.loads(text) if text else None


def _to_json(value: Any) -> Any:
    """Convert arrays and numbers of NumPy and other libraries."""
    return value.tolist()
