"""Time of `act` by PyTorch, onnxruntime and `yamame serve` at steps 1, 100 and 1,000 of a trial, and what starts it.

python benchmarks/export_latency.py RUN POLICY.onnx [--trials 3] [--json]

POLICY.onnx is an export of RUN for one environment. Observations are samples of the observation space; both policies
act in turn on the same ones, with one thread. A step is the minimum over the trials and the steps around it, which
other work on the machine disturbs least. CPU seconds and memory are those of a fresh process (on Linux) that loads the
policy and acts once. The services have one session each, and play the same number of steps after their warm-up.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from serve_load import bodies, http_session, serving, websocket_session

import yamame
from yamame.training.run_files import read_task_spec

STEPS = (1, 100, 1000)
AROUND = 8
"""Steps on either side that count as a step."""
WARMUP_STEPS = 20
FRESH = """
import json, re, sys, time
import yamame
policy = yamame.load(sys.argv[1])
policy.act(policy.observation_space.sample())
kilobytes = int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1])  # of this program alone
print(json.dumps({"cpu_seconds": time.process_time(), "megabytes": kilobytes / 1024}))
"""


def latency_ms(run: Path, onnx: Path, trials: int) -> dict[str, dict[int, float]]:
    """Return the least milliseconds of a call of `act` near each of `STEPS`."""
    policies = {"torch": yamame.load(run), "onnx": yamame.load(onnx)}
    task = read_task_spec(run)
    task.observation_space.seed(0)
    length = min(task.horizon, max(STEPS) + AROUND)
    seconds = {name: np.zeros((trials, length)) for name in policies}
    for trial in range(-1, trials):  # the first one warms up
        for policy in policies.values():
            policy.reset()
        for step in range(length if trial >= 0 else WARMUP_STEPS):
            observation = task.observation_space.sample()
            for name, policy in policies.items():
                start = time.perf_counter()
                policy.act(observation)
                if trial >= 0:
                    seconds[name][trial, step] = time.perf_counter() - start
    return {name: at_steps(of_steps) for name, of_steps in seconds.items()}


def at_steps(seconds: np.ndarray) -> dict[int, float]:
    """Return the least milliseconds near each of `STEPS`, of seconds by trial and step."""
    length = seconds.shape[1]
    windows = {step: slice(max(0, step - 1 - AROUND), step + AROUND) for step in STEPS if step <= length}
    return {step: float(1e3 * seconds[:, window].min()) for step, window in windows.items()}


async def served_seconds(address: str, run: Path, trials: int, *, websocket: bool) -> np.ndarray:
    """Return the seconds of each request of a session, by trial and step."""
    requests, horizon = bodies(run)
    length = min(horizon, max(STEPS) + AROUND)
    seconds = np.zeros((trials, length))
    async with (websocket_session if websocket else http_session)(address) as ask:
        for trial in range(-1, trials):  # the first one warms up
            for step in range(length if trial >= 0 else WARMUP_STEPS):
                body = requests[step % len(requests)]
                start = time.perf_counter()
                await ask(f'{{"reset": true, {body[1:]}' if step == 0 else body)
                seconds[trial, step] = time.perf_counter() - start
    return seconds


def served_latency_ms(run: Path, policy: Path, trials: int) -> dict[str, dict[int, float]]:
    """Return the least milliseconds of a request to `yamame serve` near each of `STEPS`, by protocol."""
    with serving(policy, max_sessions=1) as address:
        return {
            name: at_steps(asyncio.run(served_seconds(address, run, trials, websocket=name == "WebSocket")))
            for name in ("HTTP", "WebSocket")
        }


def fresh_process(policy: Path) -> dict[str, float]:
    """Return seconds of CPU and megabytes of importing, loading and acting once."""
    command = [sys.executable, "-W", "ignore", "-c", FRESH, str(policy)]
    runs = [json.loads(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(3)]
    return min(runs, key=lambda found: found["cpu_seconds"])


def main() -> None:
    """Print a line for each policy."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("onnx", type=Path, metavar="POLICY.onnx")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    latency = latency_ms(options.run, options.onnx, options.trials)
    for name, path in (("torch", options.run), ("onnx", options.onnx)):
        fresh = fresh_process(path)
        if options.json:
            print(json.dumps({"policy": name, "step_ms": latency[name], **fresh}))
        else:
            steps = ", ".join(f"step {step}: {milliseconds:.2f} ms" for step, milliseconds in latency[name].items())
            first = f"{fresh['cpu_seconds']:.1f} s of CPU and {fresh['megabytes']:.0f} MB"
            print(f"{name}: {steps}; first action after {first}")
        for protocol, of_steps in served_latency_ms(options.run, path, options.trials).items():
            if options.json:
                print(json.dumps({"policy": name, "served": protocol, "step_ms": of_steps}))
            else:
                steps = ", ".join(f"step {step}: {milliseconds:.2f} ms" for step, milliseconds in of_steps.items())
                print(f"{name} served over {protocol}: {steps}")


if __name__ == "__main__":
    main()
