"""What it costs to collect in other processes: trajectories, weights and requests through Ray's object store.

python benchmarks/cluster_cost.py [--repeats 15] [--trajectories 8] [--json]

A Ray cluster of two nodes on this machine: `near` is an actor on the learner's node, which shares its memory, `far` one
on the other, whose object store is filled through a socket of this machine. Everything is of one trajectory (of
a result, divided) or of one broadcast; medians of the repeats, with minimum and maximum.
What one thread computes alone (encode, append, load, set_up, steps, updates) is in seconds of its core, so that other
work of the machine does not count; the rest is by the clock. `poll` is one poll of the pending answers,
of which a learner has as many as it has collectors.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import ray
import torch
from ray_nodes import cluster_of
from trajectories import TASKS, own, whole_trials

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.amago.policy import AMAGOPolicy
from yamame.algorithms.base import build_model
from yamame.data.codec import encode
from yamame.data.sampler import ReplayConfig
from yamame.data.store import LMDBReplayStore
from yamame.data.trajectory import Trajectory
from yamame.distributed.ray.worker import actor_state, load_actor_state
from yamame.envs.tmaze import PassiveTMazeConfig
from yamame.recipes import config_from_flags, load_recipe
from yamame.recipes.settings.presets import small_agent
from yamame.run_config import RunConfig
from yamame.tools.bench.measure import describe_machine, format_machine
from yamame.tools.bench.options import SIZES
from yamame.training.components import build_components

ACTORS = (1, 2, 4)
WAITED_FOR = (10, 100, 1000)
AGENTS = ("small", "base")
NUM_ENVS = 24
RECIPES: Mapping[str, tuple[str, Sequence[str]]] = {
    "T-Maze, 31 steps": ("passive-tmaze", ()),
    "Package Delivery, 180 steps": ("package-delivery", ()),
    "Crafter, 500 steps of 7 x 9 tokens": ("crafter", ("--env.num-workers", "0")),
    "Crafter, 500 steps of 64 x 64 pixels": ("crafter", ("--env.num-workers", "0", "--env.observation-mode", "pixels")),
}
"""Kind of trajectory -> the recipe that makes such ones, and its flags."""
Figure = dict[str, float]
"""`median`, `min`, `max`."""


@ray.remote(num_cpus=0)
class Collector:
    """Holds what a collector would have made, and loads weights."""

    def __init__(self) -> None:
        torch.set_num_threads(1)

    def ping(self, request: object) -> object:
        return request

    def keep(self, trajectories: list[Trajectory]) -> None:
        """Copies in memory of its own, as a collector's are."""
        self.trajectories = [own(trajectory) for trajectory in trajectories]

    def result(self) -> tuple[float, list[ray.ObjectRef]]:
        """Seconds of handing them to the object store, and where they are."""
        began = time.perf_counter()
        ref = ray.put(self.trajectories)
        return time.perf_counter() - began, [ref]

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def act_for(self, size: str) -> None:
        self.agent = agent_of(size)
        self.policy = AMAGOPolicy(self.agent, num_envs=NUM_ENVS, generator=torch.Generator().manual_seed(0))

    def load_weights(self, weights: list[ray.ObjectRef]) -> tuple[float, float, float]:
        """Seconds of fetching, of loading into the agent, of making the policy that acts."""
        began = time.perf_counter()
        arrays = ray.get(weights[0])
        fetched, began_loading = time.perf_counter(), time.thread_time()
        load_actor_state(AMAGOConfig(), self.agent, arrays)
        loaded = time.thread_time()
        self.policy.load_weights(self.agent, version=1)
        return fetched - began, loaded - began_loading, time.thread_time() - loaded


def agent_of(size: str) -> Agent:
    """That of the T-Maze recipe, or the paper's for POPGym."""
    task = PassiveTMazeConfig(horizon=30)
    agent = small_agent(acting_gamma=0.9999) if size == "small" else SIZES["popgym"].agent("transformer")
    config = RunConfig(env=task, algorithm=AMAGOConfig(agent=agent))
    trials = task.build(1, 0)
    return build_model(
        config.algorithm, config.env.task_spec(trials), context_length=config.resolved_context_length, seed=0
    )


def of_trajectories(name: str, actors: Mapping[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """One kind's row of the table."""
    trials = whole_trials(name, options.trajectories)
    for actor in actors.values():
        ray.get(actor.keep.remote(trials))
    seconds: dict[str, list[float]] = {key: [] for key in ("put", "get_near", "get_far", "encode", "append")}
    with tempfile.TemporaryDirectory() as folder:
        defaults = ReplayConfig()
        with LMDBReplayStore(Path(folder), capacity_trajectories=10**6, cache_bytes=defaults.cache_bytes) as store:
            for _ in range(options.repeats + 1):
                for place, actor in actors.items():
                    put, (ref,) = ray.get(actor.result.remote())
                    began = time.perf_counter()
                    result = ray.get(ref)
                    seconds[f"get_{place}"].append(time.perf_counter() - began)
                    seconds["append"].append(_core_seconds(partial(store.extend, result)))
                    seconds["put"].append(put)
                    del result, ref
                seconds["encode"].append(_core_seconds(lambda: [encode(trial) for trial in trials]))
    warm = {key: [each / len(trials) for each in values[2:]] for key, values in seconds.items()}
    return {
        "steps": len(trials[0]),
        "bytes": len(ray.cloudpickle.dumps(trials)) / len(trials),
        "encoded_bytes": sum(len(encode(trial)) for trial in trials) / len(trials),
        "microseconds": {key: figure(values, 1e6) for key, values in warm.items()},
    }


def of_weights(size: str, actors: Mapping[str, Sequence[Any]], repeats: int) -> dict[str, Any]:
    """One agent's rows of the table."""
    agent = agent_of(size)
    measured: dict[str, Any] = {}
    for place, all_of_node in actors.items():
        ray.get([actor.act_for.remote(size) for actor in all_of_node])
        for count in ACTORS:
            seconds: dict[str, list[float]] = {key: [] for key in ("put", "fetch", "load", "set_up", "all")}
            for _ in range(repeats + 1):
                began = time.perf_counter()
                ref = ray.put(actor_state(AMAGOConfig(), agent))
                put = time.perf_counter() - began
                parts = ray.get([actor.load_weights.remote([ref]) for actor in all_of_node[:count]])
                everything = time.perf_counter() - began
                slowest = [max(part) for part in zip(*parts, strict=True)]
                for key, value in zip(seconds, (put, *slowest, everything), strict=True):
                    seconds[key].append(value)
                del ref
            measured[f"{count} {place}"] = {key: figure(values[1:], 1e6) for key, values in seconds.items()}
    return {
        "bytes": sum(array.nbytes for array in actor_state(AMAGOConfig(), agent).values()),
        "microseconds": measured,
    }


def round_trip(actor: Any, repeats: int) -> tuple[Figure, Figure]:
    """A request of a few numbers, and its answer: by the clock, and seconds of the core of the thread that asks."""
    request = {"iteration": 1, "version": 1, "vector_steps": 30}
    seconds, core_seconds = [], []
    for _ in range(20 * repeats):
        began, core_began = time.perf_counter(), time.thread_time()
        ray.get(actor.ping.remote(request))
        seconds.append(time.perf_counter() - began)
        core_seconds.append(time.thread_time() - core_began)
    return figure(seconds[repeats:], 1e6), figure(core_seconds[repeats:], 1e6)


def poll(actor: Any, waited_for: int, repeats: int) -> Figure:
    """One poll of so many answers, none of which has arrived."""
    pending = [actor.sleep.remote(2.0), *(actor.ping.remote(None) for _ in range(waited_for - 1))]
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        ready, _ = ray.wait(pending, num_returns=1, timeout=0)
        seconds.append(time.perf_counter() - began)
        assert not ready, "the machine is too slow for this"
    ray.get(pending)
    return figure(seconds[1:], 1e6)


def of_recipe(name: str, flags: Sequence[str], repeats: int) -> dict[str, Any]:
    """What one core makes of a recipe: a vector step of `NUM_ENVS` environments, and an update."""
    config = replace(config_from_flags(load_recipe(name), [], flags), num_envs=NUM_ENVS)
    with tempfile.TemporaryDirectory() as folder, closing(build_components(config, Path(folder), restarts=0)) as parts:
        steps, trajectories = [], list[Trajectory]()
        while len(trajectories) < NUM_ENVS:
            began = time.thread_time()
            ended = parts.collector.step(parts.policy, deterministic=config.deterministic_actions)
            steps.append(time.thread_time() - began)
            trajectories += [trajectory for _, trajectory in ended]
        parts.replay.store.extend(trajectories)
        batches = parts.replay.sampler.iter_batches(repeats + 1)
        updates = [_core_seconds(partial(parts.algorithm.update, batch)) for batch in batches]
        return {
            "environments": NUM_ENVS,
            "updates_per_env_step": config.updates_per_env_step,
            "microseconds": {"vector_step": figure(steps[1:], 1e6), "update": figure(updates[1:], 1e6)},
        }


def figure(values: Sequence[float], unit: float = 1.0) -> Figure:
    return {
        "median": round(unit * statistics.median(values), 2),
        "min": round(unit * min(values), 2),
        "max": round(unit * max(values), 2),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    recipes = {name: of_recipe(*recipe, options.repeats) for name, recipe in RECIPES.items()}
    with cluster_of(("near", "far"), cpus=8):
        actors = {
            place: [Collector.options(resources={place: 1}).remote() for _ in range(max(ACTORS))]  # type: ignore[attr-defined]
            for place in ("near", "far")
        }
        ray.get([actor.ping.remote(None) for of_node in actors.values() for actor in of_node])
        first = {place: of_node[0] for place, of_node in actors.items()}
        trips = {place: round_trip(actor, options.repeats) for place, actor in first.items()}
        return {
            "recipes": recipes,
            "trajectories_per_result": options.trajectories,
            "repeats": options.repeats,
            "round_trip_microseconds": {place: trip for place, (trip, _) in trips.items()},
            "request_microseconds": trips["near"][1],
            "poll_microseconds": {str(count): poll(first["near"], count, options.repeats) for count in WAITED_FOR},
            "trajectories": {name: of_trajectories(name, first, options) for name in TASKS},
            "weights": {size: of_weights(size, actors, options.repeats) for size in AGENTS},
            "machine": describe_machine(torch.device("cpu")),
            "ray": ray.__version__,
        }


def table(costs: Mapping[str, Any]) -> Iterator[str]:
    yield f"{format_machine(costs['machine'])}, Ray {costs['ray']}"
    yield ""
    yield "| trajectory | bytes | encoded | put, us | get near, us | get far, us | encode, us | append, us |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, row in costs["trajectories"].items():
        cells = [words(row["microseconds"][key]) for key in ("put", "get_near", "get_far", "encode", "append")]
        yield f"| {name} | {row['bytes']:,.0f} | {row['encoded_bytes']:,.0f} | {' | '.join(cells)} |"
    yield ""
    yield "| weights | bytes | collectors | put, us | fetch, us | load, us | set up, us | all of it, us |"
    yield "|---|---|---|---|---|---|---|---|"
    for size, row in costs["weights"].items():
        for actors, parts in row["microseconds"].items():
            cells = [words(parts[key]) for key in ("put", "fetch", "load", "set_up", "all")]
            yield f"| {size} | {row['bytes']:,.0f} | {actors} | {' | '.join(cells)} |"
    yield ""
    yield "| recipe | environments | vector step, us | update, us |"
    yield "|---|---|---|---|"
    for name, row in costs["recipes"].items():
        cells = [words(row["microseconds"][key]) for key in ("vector_step", "update")]
        yield f"| {name} | {row['environments']} | {' | '.join(cells)} |"
    yield ""
    for place, value in costs["round_trip_microseconds"].items():
        yield f"A request and its answer, {place}: {words(value)} us"
    yield f"Of this, the core of the thread that asks: {words(costs['request_microseconds'])} us"
    for count, value in costs["poll_microseconds"].items():
        yield f"A poll of {count} pending answers: {words(value)} us"


def words(value: Figure) -> str:
    return f"**{value['median']:,.0f}** ({value['min']:,.0f}-{value['max']:,.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--trajectories", type=int, default=8, help="trajectories in a result")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args()
    costs = measure(options)
    print("\n".join(table(costs)))
    if options.json:
        print(json.dumps(costs))


def _core_seconds(work: Callable[[], object]) -> float:
    """Seconds of a core, whatever else the machine does."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


if __name__ == "__main__":
    main()
