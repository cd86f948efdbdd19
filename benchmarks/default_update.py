"""The update of the default agent on replay data of four tasks, two source trees by turns, on one thread.

git worktree add /tmp/old COMMIT
python benchmarks/default_update.py --old /tmp/old [--tasks cartpole repeat dark minigrid] [--rounds 9] [--profile]

Each tree has a process of its own, which collects trials with random weights, samples batches as a run does, and then
makes updates when it is asked: a round is one of the old tree and one of the new one. CPU time, not wall time: other
processes may run beside.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

TASKS = ("cartpole", "repeat", "dark", "minigrid")
KINDS = {
    "matrix products": ("mm", "addmm", "bmm", "baddbmm", "mv", "dot", "linear"),
    "views": ("view", "as_strided", "transpose", "t", "permute", "slice", "select", "expand", "unsqueeze", "squeeze",
              "reshape", "_unsafe_view", "narrow", "split", "unbind", "unflatten", "flatten", "alias", "detach"),
    "allocations": ("empty", "empty_like", "empty_strided", "resize_", "zeros", "zeros_like", "ones_like", "full"),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--old", type=Path)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--updates", type=int, default=20, help="of a round")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--serve", choices=TASKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.updates)
        return
    here = Path(__file__).resolve().parent.parent
    trees = {"old": options.old, "new": here} if options.old else {"new": here}
    for task in options.tasks:
        compare(task, trees, options)


def compare(task: str, trees: dict[str, Path], options: argparse.Namespace) -> None:
    command = [sys.executable, str(Path(__file__).resolve()), "--serve", task, "--updates", str(options.updates)]
    servers = {
        name: subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, tree in trees.items()
    }
    facts = {name: _ask(server, None) for name, server in servers.items()}
    rounds: dict[str, list[float]] = {name: [] for name in servers}
    for _ in range(options.rounds):
        for name, server in servers.items():
            rounds[name].append(float(_ask(server, "time")))
    for name, times in rounds.items():
        print(
            f"{task:9} {name}: {statistics.median(times):6.2f} ms CPU an update "
            f"(least {min(times):.2f}, most {max(times):.2f}); {facts[name]}; {_ask(servers[name], 'count')}"
        )
    if "old" in rounds:
        ratios = [old / new for old, new in zip(rounds["old"], rounds["new"], strict=True)]
        print(f"{task:9} old / new: {statistics.median(ratios):.2f} (least {min(ratios):.2f}, most {max(ratios):.2f})")
    if options.profile:
        for name, server in servers.items():
            print(f"{task} {name}\n" + _ask(server, "profile").replace(";", "\n"))
    for server in servers.values():
        server.communicate()


def _ask(server: subprocess.Popen[str], question: str | None) -> str:
    if question:
        server.stdin.write(question + "\n")
        server.stdin.flush()
    return server.stdout.readline().strip()


def serve(task: str, updates: int) -> None:
    import torch

    from yamame.training.components import build_components

    torch.set_num_threads(1)
    config = default_agent(task)
    with tempfile.TemporaryDirectory() as folder, closing(build_components(config, Path(folder), restarts=0)) as parts:
        algorithm, sampler = parts.algorithm, parts.replay.sampler
        parts.experience.load_weights(algorithm.model, version=0)
        while len(parts.replay.store) < 200:
            parts.replay.store.extend(parts.experience.collect(100, lambda: False)[0])
        batches = [sampler.sample() for _ in range(updates)]

        def run() -> None:
            for batch in batches:
                algorithm.update(batch)

        run()
        windows = statistics.mean(batch.num_segments for batch in batches)
        tokens = statistics.mean(len(batch.reward) for batch in batches)
        print(f"{windows:.0f} windows, {tokens:.0f} tokens", flush=True)
        for question in sys.stdin:
            if question == "time\n":
                started = time.process_time()
                run()
                print(1e3 * (time.process_time() - started) / updates, flush=True)
            else:
                print(profile(run, updates, full=question == "profile\n"), flush=True)


def profile(run, updates: int, *, full: bool) -> str:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    with torch_profile(activities=[ProfilerActivity.CPU]) as profiler:
        run()
    events = [event for event in profiler.key_averages() if event.key.startswith("aten::")]
    calls = sum(event.count for event in events) / updates
    if not full:
        return f"{calls:,.0f} operator calls"
    kinds: Counter[str] = Counter()
    for event in events:
        name = event.key.removeprefix("aten::")
        matches = (kind for kind, names in KINDS.items() if name in names)
        kind = "attention" if "attention" in name else next(matches, "other")
        kinds[kind] += event.self_cpu_time_total / updates / 1e3
    lines = [f"  {kind:16} {ms:6.2f} ms" for kind, ms in kinds.most_common()]
    for event in sorted(events, key=lambda event: -event.self_cpu_time_total)[:45]:
        per_update = event.self_cpu_time_total / updates / 1e3
        lines.append(f"  {event.key:45} {event.count / updates:8.1f} calls {per_update:6.3f} ms")
    return ";".join(lines)


def default_agent(task: str):
    from yamame.envs.dark_key_to_door import DarkKeyToDoorConfig
    from yamame.envs.gymnasium import GymnasiumConfig
    from yamame.envs.minigrid import MinigridConfig
    from yamame.envs.popgym import PopgymConfig
    from yamame.recipes.settings.presets import default_config

    envs = {
        "cartpole": GymnasiumConfig(id="CartPole-v1", horizon=500),
        "repeat": PopgymConfig(name="RepeatPreviousEasy"),
        "dark": DarkKeyToDoorConfig(size=5, horizon=100, attempt_length=25),
        "minigrid": MinigridConfig(),
    }
    return replace(default_config(envs[task]), seed=0)


if __name__ == "__main__":
    main()
