"""How soon SIGTERM ends a run with a checkpoint: `python benchmarks/stopping.py [RECIPE ...] [--moments 3]`.

Every recipe with its own settings, in a process of its own, is stopped at moments spread over its first seconds of
learning. Target: a checkpoint within ten seconds, at every recipe.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from yamame.recipes import recipe_names
from yamame.runs.checkpoint import load_latest_checkpoint

NEED_SETTINGS = {
    "gymnasium": ("--env.id", "CartPole-v1", "--env.horizon", "500"),
    "gymnax": ("--env.name", "MemoryChain-bsuite", "--env.horizon", "8"),
    "metaworld": ("--env.name", "reach-v3", "--env.attempts", "3", "--env.attempt-length", "100"),
    "minigrid": ("--env.name", "MiniGrid-MemoryS7-v0", "--env.horizon", "245"),
    "popgym": ("--env.name", "RepeatPreviousEasy"),
}
STARTS_WITHIN = 240.0


def train(recipe: str, directory: Path) -> subprocess.Popen[str]:
    command = [str(Path(sys.executable).with_name("yamame")), "train", recipe, *NEED_SETTINGS.get(recipe, ())]
    return subprocess.Popen(
        [*command, "--run-dir", str(directory), "--eval.final-trials", "16"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def learning(process: "subprocess.Popen[str]", directory: Path) -> bool:
    """Wait until a run has something to lose: its first lines of progress."""
    began = time.monotonic()
    assert process.stderr
    for line in process.stderr:
        if "updates" in line and " 0 updates" not in line:
            return True
        if time.monotonic() - began > STARTS_WITHIN:
            return False
    return False


def seconds_to_stop(recipe: str, wait: float) -> tuple[float, str]:
    """(seconds from the signal to the end of the process, what it left)."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        process = train(recipe, directory)
        if not learning(process, directory):
            process.kill()
            process.communicate()
            return float("nan"), "no update was made"
        time.sleep(wait)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.communicate()
        seconds = time.monotonic() - began
        checkpoint = load_latest_checkpoint(directory / "checkpoints")
        return seconds, f"{checkpoint.state['env_steps']:,} environment steps, {checkpoint.step:,} updates"


def measured(recipes: list[str], moments: int) -> Iterator[str]:
    yield "| recipe | seconds to stop | slowest left |"
    yield "|---|---|---|"
    for recipe in recipes:
        outcomes = [seconds_to_stop(recipe, 0.7 * moment) for moment in range(moments)]
        _, left = max(outcomes)
        yield f"| {recipe} | {' / '.join(f'{each:.1f}' for each, _ in outcomes)} | {left} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*")
    parser.add_argument("--moments", type=int, default=3)
    options = parser.parse_args()
    for line in measured(options.recipes or list(recipe_names()), options.moments):
        print(line, flush=True)


if __name__ == "__main__":
    main()
