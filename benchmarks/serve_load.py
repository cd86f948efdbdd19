"""Load on `yamame serve`: requests a second and their latency, by number of sessions that ask without a pause.

python benchmarks/serve_load.py RUN [--sessions 1 8 64] [--seconds 5] [--max-sessions 64] [--websocket] [--json]

Starts the service as a process on the loopback address, and plays trials in every session from this process. Server and
clients share the cores of one machine.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from websockets.asyncio.client import connect

from yamame.training.run_files import read_task_spec

NUM_BODIES = 32
"""Different requests, made before the time starts."""
WARMUP_SECONDS = 0.5
MAX_REQUESTS = 200_000
"""Requests of one measurement, at most."""

Ask = Callable[[str], Awaitable[None]]


@contextmanager
def serving(run: Path, max_sessions: int) -> Iterator[str]:
    """Start the service; yield its address."""
    command = [sys.executable, "-m", "yamame", "serve", str(run), "--port", "0", "--max-sessions", str(max_sessions)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield next(word for word in process.stdout.readline().split() if word.startswith("http"))
        finally:
            process.terminate()


def bodies(run: Path) -> tuple[list[str], int]:
    """Return requests with samples of the observation space, and the horizon."""
    task = read_task_spec(run)
    space = task.observation_space
    space.seed(0)
    requests = [json.dumps({"observation": to_json(space.sample()), "reward": 0.0}) for _ in range(NUM_BODIES)]
    return requests, task.horizon


def to_json(value: Any) -> Any:
    """Return an observation as JSON values."""
    if isinstance(value, dict):
        return {name: to_json(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [to_json(part) for part in value]
    return value if isinstance(value, str) else np.asarray(value).tolist()


@asynccontextmanager
async def http_session(address: str) -> AsyncIterator[Ask]:
    """Open a session over one kept connection; yield the function that sends a request."""
    url = urlsplit(address)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)

    async def request(method: str, path: str, body: str = "") -> dict[str, Any]:
        head = f"{method} {path} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write((head + body).encode())
        answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        status = int(answer.split()[1])
        length = int(answer.partition("content-length: ")[2].partition("\r")[0] or 0)
        content = await reader.readexactly(length)
        if status >= 400:
            raise RuntimeError(f"{status}: {content!r}")
        return json.loads(content or b"{}")

    session = (await request("POST", "/sessions"))["session"]

    async def ask(body: str) -> None:
        await request("POST", f"/sessions/{session}/act", body)

    yield ask
    await request("DELETE", f"/sessions/{session}")
    writer.close()


@asynccontextmanager
async def websocket_session(address: str) -> AsyncIterator[Ask]:
    """Open a WebSocket; yield the function that sends a request."""
    async with connect(f"ws{address.removeprefix('http')}websocket", compression=None) as socket:

        async def ask(body: str) -> None:
            await socket.send(body)
            answer = json.loads(await socket.recv())
            if "error" in answer:
                raise RuntimeError(str(answer))

        yield ask


async def load(
    address: str, requests: Sequence[str], horizon: int, *, sessions: int, seconds: float, websocket: bool
) -> tuple[np.ndarray, float]:
    """Return the latency of each request of all sessions, and the time of all, in seconds."""
    latencies: list[float] = []
    start = time.perf_counter() + WARMUP_SECONDS

    async def play(number: int) -> None:
        time_in_trial = number % horizon  # trials end at different times
        async with (websocket_session if websocket else http_session)(address) as ask:
            while (began := time.perf_counter()) < start + seconds and len(latencies) < MAX_REQUESTS:
                body = requests[(number + time_in_trial) % len(requests)]
                if time_in_trial == 0:
                    body = f'{{"reset": true, {body[1:]}'
                await ask(body)
                time_in_trial = (time_in_trial + 1) % horizon
                if began >= start:
                    latencies.append(time.perf_counter() - began)

    await asyncio.gather(*(play(number) for number in range(sessions)))
    return np.array(latencies), time.perf_counter() - start


def main() -> None:
    """Print a line for each number of sessions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--max-sessions", type=int, default=64)
    parser.add_argument("--websocket", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    seconds = min(options.seconds, 60.0)
    with serving(options.run, options.max_sessions) as address:
        requests, horizon = bodies(options.run)
        for sessions in options.sessions:
            latencies, passed = asyncio.run(
                load(address, requests, horizon, sessions=sessions, seconds=seconds, websocket=options.websocket)
            )
            p50, p99 = (float(np.percentile(1e3 * latencies, percent)) for percent in (50, 99))
            row = {"sessions": sessions, "requests_per_second": len(latencies) / passed, "p50_ms": p50, "p99_ms": p99}
            if options.json:
                print(json.dumps(row), flush=True)
            else:
                print(
                    f"{sessions} sessions: {row['requests_per_second']:,.0f} requests a second, "
                    f"p50 {p50:.2f} ms, p99 {p99:.2f} ms",
                    flush=True,
                )


if __name__ == "__main__":
    main()
