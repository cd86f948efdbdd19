"""How far a cluster run carries: 10, 100 and 1,000 collectors, by events and on paper.

    python benchmarks/cluster_simulation.py [--costs benchmarks/cluster_costs.json] [--learner gpu] [--output FILE.png]

The costs of a trajectory, of weights, of a request and of a step are measured (by cluster_cost.py); the rest is assumed
and printed above the tables: the network, the number of collectors on a node, and for `--learner gpu` updates
per second.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cluster_model import Outcome, simulate
from cluster_plan import Plan, Work, limits

from yamame.tools.bench.measure import format_machine

HERE = Path(__file__).parent
COLLECTORS = (1, 2, 3, 10, 100, 1000)
GPU_UPDATES_PER_SECOND = 50.0
"""Of one learner on a GPU. Assumed: none was measured."""
ALL_REDUCE_SECONDS = 5e-4
"""Of the gradient of one update among GPUs of one machine. Assumed."""
PIXELS = "Crafter, 500 steps of 64 x 64 pixels"
MOST = 1_000_000


def work_of(costs: Mapping[str, Any], kind: str, *, size: str) -> Work:
    """A task as it was measured, weights as those of an agent of a size."""
    trajectory, recipe = costs["trajectories"][kind], costs["recipes"][kind]
    weights = costs["weights"][size]
    alone = weights["microseconds"]["1 far"]
    poll_total = {int(count): seconds(value) for count, value in costs["poll_microseconds"].items()}
    low, high = min(poll_total), max(poll_total)
    of_trajectory = {key: seconds(value) for key, value in trajectory["microseconds"].items()}
    return Work(
        environments=recipe["environments"],
        trial_steps=trajectory["steps"],
        vector_step_seconds=seconds(recipe["microseconds"]["vector_step"]),
        trajectory_bytes=trajectory["bytes"],
        put_seconds=of_trajectory["put"],
        get_seconds=of_trajectory["get_near"],
        append_seconds=of_trajectory["append"],
        weights_bytes=weights["bytes"],
        publish_seconds=seconds(alone["put"]),
        load_seconds=seconds(alone["load"]) + seconds(alone["set_up"]),
        update_seconds=seconds(recipe["microseconds"]["update"]),
        updates_per_env_step=recipe["updates_per_env_step"],
        request_seconds=seconds(costs["request_microseconds"]) + poll_total[low],
        poll_seconds=max(0.0, (poll_total[high] - poll_total[low]) / (high - low)),
    )


def seconds(measured: Mapping[str, float]) -> float:
    return measured["median"] / 1e6


def works(costs: Mapping[str, Any], learner: str) -> dict[str, Work]:
    """Return the work of each task; its learner is a core as measured, or an assumed GPU."""
    found = {}
    for kind in costs["recipes"]:
        if learner == "core":
            found[kind] = work_of(costs, kind, size="small")
        else:
            work = work_of(costs, kind, size="base")
            found[kind] = replace(work, update_seconds=1.0 / GPU_UPDATES_PER_SECOND)
    return found


def encoded_by_collectors(work: Work, costs: Mapping[str, Any], kind: str) -> Work:
    """Collectors compress what they send; a learner stores it as it comes."""
    trajectory = costs["trajectories"][kind]
    encode = seconds(trajectory["microseconds"]["encode"])
    return replace(
        work,
        trajectory_bytes=trajectory["encoded_bytes"],
        put_seconds=work.put_seconds + encode,
        append_seconds=max(0.0, work.append_seconds - encode),
    )


def table(all_works: Mapping[str, Work], plan: Plan) -> Iterator[str]:
    """A row for each task and number of collectors."""
    yield (
        "| task | collectors | env steps/s | on paper | its limit | updates/s | learner busy | receiving busy "
        "| network busy | collectors idle | policy lag, updates |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for kind, work in all_works.items():
        for collectors in COLLECTORS:
            spread = replace(plan, collectors=collectors)
            allowed = limits(work, spread)
            name = min(allowed, key=allowed.__getitem__)
            yield f"| {kind} | {collectors:,} | {row(simulate(work, spread), paper=allowed[name], limit=name)} |"


def row(outcome: Outcome, *, paper: float, limit: str) -> str:
    return (
        f"**{outcome.env_steps_per_second:,.0f}** | {paper:,.0f} | {limit} | {outcome.updates_per_second:,.2f} | "
        f"{outcome.learner_busy:.0%} | {outcome.receiving_busy:.0%} | {outcome.network_busy:.1%} | "
        f"{outcome.collector_idle:.0%} | {outcome.policy_lag_updates:,.0f}"
    )


def saturation(all_works: Mapping[str, Work], plan: Plan) -> Iterator[str]:
    """From how many collectors on each resource allows less than they could collect."""
    kinds = list(all_works)
    yield f"| resource | {' | '.join(kinds)} |"
    yield f"|---|{'---|' * len(kinds)}"
    for resource in limits(all_works[kinds[0]], plan):
        if resource != "collectors":
            cells = [enough(work, plan, resource) for work in all_works.values()]
            yield f"| {resource} | {' | '.join(cells)} |"


def enough(work: Work, plan: Plan, resource: str) -> str:
    """Return the minimum number of collectors that keep a resource busy."""

    def busy(collectors: int) -> bool:
        allowed = limits(work, replace(plan, collectors=collectors))
        return allowed[resource] <= allowed["collectors"]

    if not busy(MOST):
        return f"over {MOST:,}"
    too_few, many = 0, MOST
    while many - too_few > 1:
        middle = (too_few + many) // 2
        too_few, many = (too_few, middle) if busy(middle) else (middle, many)
    return f"{many:,}"


def levers(costs: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    """The task with pixels at 1,000 collectors, after each of several cumulative changes."""
    work = works(costs, "gpu")[PIXELS]
    changes: list[tuple[str, Work, Plan]] = [("as it is", work, plan)]
    plan = replace(plan, iteration_steps=work.trial_steps // 10)
    changes.append(("iterations of a tenth of a trial", work, plan))
    plan = replace(plan, learners=8, all_reduce_seconds=ALL_REDUCE_SECONDS)
    changes.append(("8 learners on one machine", work, plan))
    work = replace(work, updates_per_env_step=work.updates_per_env_step / 10)
    changes.append(("a tenth of the updates for each step", work, plan))
    work = encoded_by_collectors(work, costs, PIXELS)
    changes.append(("collectors compress what they send", work, plan))
    work = replace(work, weights_bytes=work.weights_bytes / 2)
    changes.append(("weights in bfloat16", work, plan))
    plan = replace(plan, relayed=True)
    changes.append(("weights relayed from node to node", work, plan))
    plan = replace(plan, learners=20)
    changes.append(("20 learners", work, plan))
    plan = replace(plan, bits_per_second=10 * plan.bits_per_second)
    changes.append(("a network of 100 Gbit/s", work, plan))
    yield "| change | env steps/s | on paper | its limit | updates/s | learner | receiving | network | idle | lag |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, changed, spread in changes:
        allowed = limits(changed, spread)
        limit = min(allowed, key=allowed.__getitem__)
        outcome = simulate(changed, spread, iterations=4, warm_up=3)
        yield f"| {name} | {row(outcome, paper=allowed[limit], limit=limit)} |"


def draw(all_works: Mapping[str, Work], plan: Plan, path: Path) -> None:
    """Simulated points on the curves of what is allowed on paper."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7), layout="constrained")
    counts = sorted({*COLLECTORS, *(round(10 ** (step / 8)) for step in range(25))})
    for axes, (kind, work) in zip(figure.subplots(2, 2).flat, all_works.items(), strict=True):
        curves = [limits(work, replace(plan, collectors=count)) for count in counts]
        for resource in curves[0]:
            axes.plot(counts, [curve[resource] for curve in curves], label=resource, linewidth=1)
        speeds = [simulate(work, replace(plan, collectors=count)).env_steps_per_second for count in COLLECTORS]
        axes.plot(COLLECTORS, speeds, "ko", label="simulated")
        axes.set(xscale="log", yscale="log", xlabel="collectors", ylabel="env steps/s", title=kind)
        axes.set_ylim(min(speeds) / 3, max(curves[-1]["collectors"], max(speeds)) * 3)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--costs", type=Path, default=HERE / "cluster_costs.json", help="output of cluster_cost.py")
    parser.add_argument(
        "--learner", choices=("core", "gpu"), default="gpu", help="a core as measured, or an assumed GPU"
    )
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    costs = json.loads(options.costs.read_text(encoding="utf-8"))
    plan, all_works = Plan(collectors=1000), works(costs, options.learner)
    print(f"{format_machine(costs['machine'])}, Ray {costs['ray']}\n")
    print(f"Assumed: {', '.join(f'{key} {value:g}' for key, value in asdict(plan).items() if key != 'collectors')}")
    if options.learner == "gpu":
        print(f"and {GPU_UPDATES_PER_SECOND:g} updates a second of the base size.")
    for part in (table(all_works, plan), saturation(all_works, plan), levers(costs, plan)):
        print()
        for line in part:
            print(line, flush=True)
    if options.output:
        draw(all_works, plan, options.output)


if __name__ == "__main__":
    main()
