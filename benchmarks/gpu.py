"""Everything worth measuring in a few minutes on a GPU, each part bounded in time and written as soon as it ends.

python benchmarks/gpu.py --minutes 9 --output-dir DIR [--parts machine learner-tmaze-64 …] [--device cuda] [--list]

Needs an installed Yamame (`pip install --editable .`; without network, and with its dependencies there, `pip install
--no-deps --no-build-isolation --editable .`). The tests also need pytest, pytest-timeout and hypothesis, and two parts
need popgym; they are left out without.

Every part is a process of its own. DIR/PART.json has its command, seconds, exit code, and the JSON object or the end of
the text that it printed; a part that exceeds its time is stopped and says so. DIR/summary.md is the table of all parts,
written anew after each. On a CPU (`--device cpu`) the parts run at tiny size, which shows that the program works.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TAIL_CHARACTERS = 4000
"""Kept of the text of a part that prints no JSON object."""
STOP_SECONDS = 10
"""Between the request to a part to end and its kill."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One process."""

    name: str
    command: Sequence[str]
    """Arguments of Python."""
    seconds: int
    """Most seconds it may take."""
    packages: Sequence[str] = ()
    """Packages without which it is left out."""
    figures: Sequence[str] = ()
    """Keys of the JSON object that the table shows."""


def parts(device: str, folder: Path) -> list[Part]:
    """Return all parts, the most informative first."""
    tiny = device == "cpu"
    speeds = ["--json", "--device", device, *(["--repeats", "1", "--warmup", "1"] if tiny else [])]
    plain = ["--dtype", "float32", "--no-compile"]  # compilers take longer than all else at tiny size
    learner_figures = ["updates_per_second", "matmul_peak_fraction", "peak_memory_bytes"]

    def learner(name: str, seconds: int, *flags: str) -> Part:
        flags = ("--size", "tmaze", "--context", "8", "--batch", "2", *plain) if tiny else flags
        command = ["-m", "yamame", "bench", "learner", *flags, *speeds]
        return Part(name=f"learner-{name}", command=command, seconds=seconds, figures=learner_figures)

    def collector(name: str, seconds: int, *flags: str, packages: Sequence[str] = ()) -> Part:
        small = ["--size", "tmaze", "--context", "8", "--num-envs", "2", *plain] if tiny else []
        command = ["-m", "yamame", "bench", "collector", *flags, *small, *speeds]
        figures = ["env_steps_per_second", "milliseconds_per_act"]
        return Part(name=f"collector-{name}", command=command, seconds=seconds, figures=figures, packages=packages)

    def end_to_end(name: str, seconds: int, *flags: str) -> Part:
        steps = "600" if tiny else "40000"
        small = ["--env.horizon", "10"] if tiny else []
        command = ["-m", "yamame", "bench", "end-to-end", "--env-steps", steps, *small, *flags, *speeds]
        figures = ["env_steps_per_second", "updates_per_second", "wait_fraction"]
        return Part(name=f"end-to-end-{name}", command=command, seconds=seconds, figures=figures)

    def train(name: str, seconds: int, *flags: str, packages: Sequence[str] = ()) -> Part:
        run = ["--run-dir", str(folder / f"run-{name}"), "--json", "--quiet", "--compute.device", device]
        small = ["--env-steps", "600", "--eval.final-trials", "4", "--eval.trials", "4"] if tiny else []
        command = ["-m", "yamame", "train", *flags, *run, *small]
        figures = ["return_mean", "success_rate", "env_steps", "updates", "train_seconds"]
        return Part(name=f"train-{name}", command=command, seconds=seconds, figures=figures, packages=packages)

    # pytest imports every file that it is given, and the others import packages that may be missing
    files = [str(path) for path in sorted(ROOT.glob("tests/**/test_*.py")) if "mark.gpu" in path.read_text("utf-8")]
    tests = ["-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "-m", "gpu", *files]
    tests += ["--collect-only"] if tiny else []
    maze = ["--env.horizon", "10"] if tiny else []
    repeat = ["popgym", "--env.name", "RepeatPreviousEasy"]
    return [
        Part(
            name="machine",
            command=[str(Path(__file__)), "--measure-machine", "--device", device],
            seconds=60,
            figures=[
                "bfloat16_gflops",
                "float32_gflops",
                "copy_gb_per_second",
                "to_device_gb_per_second",
            ],
        ),
        Part(name="tests", command=tests, seconds=150, packages=["pytest", "pytest_timeout", "hypothesis"]),
        learner("popgym-128", 150, "--size", "popgym", "--context", "128"),
        train("tmaze-30", 90, "passive-tmaze", *maze),
        learner("popgym-512", 60, "--size", "popgym", "--context", "512"),
        learner("popgym-128-float32", 60, "--size", "popgym", "--context", "128", "--dtype", "float32"),
        learner("popgym-128-not-compiled", 60, "--size", "popgym", "--context", "128", "--no-compile"),
        learner("tmaze-64", 60, "--size", "tmaze", "--context", "64"),
        learner("gru-128", 60, "--size", "popgym", "--context", "128", "--encoder", "gru"),
        collector("tmaze-24", 40, "--size", "popgym", "--env", "passive-tmaze", "--num-envs", "24"),
        collector("tmaze-24-eager", 40, "--env", "passive-tmaze", "--num-envs", "24", "--no-cuda-graph"),
        collector("tmaze-512", 40, "--size", "popgym", "--env", "passive-tmaze", "--num-envs", "512"),
        train("repeat-previous", 120, *repeat, packages=["popgym"]),
        end_to_end("in-turn", 60),
        end_to_end("async", 60, "--async-collection"),
        collector("popgym-24", 40, "--env", "popgym:RepeatPreviousEasy", "--num-envs", "24", packages=["popgym"]),
        learner("crafter-2000", 90, "--size", "crafter", "--context", "2000", "--batch", "18"),
        learner("tmaze-10000", 90, "--size", "tmaze", "--context", "10000", "--batch", "24"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--minutes", type=float, default=9.0, help="time of all parts together (default: 9)")
    parser.add_argument("--output-dir", type=Path, default=Path("gpu"), help="folder of the results (default: gpu)")
    parser.add_argument("--parts", nargs="+", metavar="NAME", help="these parts only")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu for parts of tiny size (default: cuda)")
    parser.add_argument("--list", action="store_true", help="print the parts and their commands, run nothing")
    parser.add_argument("--measure-machine", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure_machine:
        print(json.dumps(measure_machine(options.device)))
        return 0
    everything = parts(options.device, options.output_dir)
    unknown = set(options.parts or ()) - {part.name for part in everything}
    if unknown:
        parser.error(
            f"no part {', '.join(sorted(unknown))}: choose among {', '.join(part.name for part in everything)}"
        )
    chosen = [part for part in everything if not options.parts or part.name in options.parts]
    if options.list:
        print("\n".join(f"{part.name:26} {part.seconds:4} s  python {' '.join(part.command)}" for part in chosen))
        return 0
    options.output_dir.mkdir(parents=True, exist_ok=True)
    return run_parts(chosen, options.output_dir, time.monotonic() + 60 * options.minutes)


def run_parts(chosen: Sequence[Part], folder: Path, deadline: float) -> int:
    """Run the parts until the deadline; return 0 if each that ran has succeeded."""
    results: dict[str, dict[str, Any]] = {}
    for part in chosen:
        seconds = min(part.seconds, deadline - time.monotonic() - STOP_SECONDS)
        missing = [name for name in part.packages if importlib.util.find_spec(name) is None]
        if missing:
            result = {"skipped": f"not installed: {', '.join(missing)}"}
        elif seconds <= 0:
            result = {"skipped": "no time left"}
        else:
            result = run_part(part, seconds)
        results[part.name] = result
        record = {"command": ["python", *part.command], **result}
        (folder / f"{part.name}.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        (folder / "summary.md").write_text(table(chosen, results), encoding="utf-8")
        print(f"{part.name}: {describe(part, result)}", flush=True)
    return int(any(result.get("exit_code", 0) for result in results.values()))


def run_part(part: Part, seconds: float) -> dict[str, Any]:
    """Run a part; stop it, with a checkpoint if it trains, when its time is over."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *part.command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    stopped = False
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        stopped = True
        process.terminate()
        try:
            text, _ = process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            text, _ = process.communicate()
    result: dict[str, Any] = {"seconds": round(time.monotonic() - started, 1), "exit_code": process.returncode}
    if stopped:
        result["stopped_after_seconds"] = round(seconds, 1)
    printed = last_json_object(text)
    return {**result, "result": printed} if printed else {**result, "text": text[-TAIL_CHARACTERS:]}


def last_json_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object on the last line of a text; None if there is none."""
    last = next(reversed(text.strip().splitlines()), "")
    try:
        value = json.loads(last)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def table(chosen: Sequence[Part], results: Mapping[str, dict[str, Any]]) -> str:
    rows = "".join(
        f"| {part.name} | {results[part.name].get('seconds', '')} | {describe(part, results[part.name])} |\n"
        for part in chosen
        if part.name in results
    )
    return f"| part | seconds | result |\n|---|---|---|\n{rows}"


def describe(part: Part, result: Mapping[str, Any]) -> str:
    """Return the figures of a part in one line, or why there are none."""
    if "skipped" in result:
        return f"left out: {result['skipped']}"
    printed = result.get("result", {})
    found = [f"{name} {printed[name]:.4g}" for name in part.figures if isinstance(printed.get(name), int | float)]
    lines = result.get("text", "").strip().splitlines()
    notes = ["stopped: its time was over"] if "stopped_after_seconds" in result else []
    notes += [f"exit code {result['exit_code']}"] if result["exit_code"] else []
    return ", ".join([*found, *notes, *(lines[-1:] if not found else [])]).replace("|", "/")


def measure_machine(device_name: str) -> dict[str, Any]:
    """Return versions, the device, its fastest matrix products, and the bandwidth of copies."""
    import torch

    from yamame.tools.bench.measure import describe_machine, matmul_peak, seconds_per_call

    device = torch.device(device_name)
    size = 64 if device.type == "cpu" else 8192
    numbers = torch.zeros(size * size // 4, device=device)
    pinned = torch.zeros(len(numbers), pin_memory=device.type == "cuda")
    copied = torch.empty_like(numbers)
    gigabytes = numbers.numel() * numbers.element_size() / 1e9
    products = {
        f"{str(dtype).removeprefix('torch.')}_gflops": matmul_peak(device, dtype, [(size, size, size)]) / 1e9
        for dtype in (torch.bfloat16, torch.float32)
    }
    on_device = min(seconds_per_call(lambda: copied.copy_(numbers), repeats=3, device=device))
    to_device = min(seconds_per_call(lambda: copied.copy_(pinned, non_blocking=True), repeats=3, device=device))
    return {
        **describe_machine(device),
        **products,
        "copy_gb_per_second": 2 * gigabytes / on_device,
        "to_device_gb_per_second": gigabytes / to_device,
    }


if __name__ == "__main__":
    sys.exit(main())
