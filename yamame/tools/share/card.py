"""The model card of a policy, generated from its files."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from yamame.envs.config import EnvConfig
from yamame.envs.env_fn import EnvFnConfig, environment_flags
from yamame.runs.locate import HUB, import_hub
from yamame.tools.video import renders_frames
from yamame.training.run_files import RunMetadata, read_metadata, read_result

TAGS = ("reinforcement-learning", "in-context-reinforcement-learning", "meta-reinforcement-learning", "yamame")


def render_card(folder: Path, repo: str, env: EnvConfig, *, curve: str) -> str:
    """Return the text of `README.md`.

    Args:
        folder: Policy folder.
        repo: `user/repo`.
        env: Environment in which the policy was evaluated. Its commands are printed as far as they work: without one
            for a video if it has no frames.
        curve: File name of the learning curve.
    """
    metadata, result = read_metadata(folder), read_result(folder) or {}
    task = env.task_name
    hub = import_hub()
    actions = "the most likely actions" if result.get("deterministic_actions") else "sampled actions"
    scores = {"mean return": result["return_mean"], _success_label(result): result["success_rate"]}
    data = hub.ModelCardData(
        library_name="yamame",
        pipeline_tag="reinforcement-learning",
        tags=list(TAGS),
        model_name=f"{metadata.recipe}",
        eval_results=[
            hub.EvalResult(
                task_type="reinforcement-learning",
                task_name="reinforcement-learning",
                dataset_type=task,
                dataset_name=task,
                metric_type="mean_return" if name == "mean return" else "success_rate",
                metric_name=f"{name} over {result['trials']} trials",
                metric_value=round(value, 6),
            )
            for name, value in scores.items()
            if value is not None
        ],
    )
    lines = [
        *("---", data.to_yaml(), "---", ""),
        f"# {repo.partition('/')[2]}",
        "",
        f"A policy of the task `{task}`, trained with Yamame. Its weights are fixed; it acts on what it remembers of "
        "the trial.",
        "",
        *("## Scores", ""),
        *_scores(result, result.get("random_baseline")),
        "",
        f"Of the weights in this repository over {result['trials']} trials without exploration noise, by {actions}, "
        "with 95 % intervals.",
        "",
        *("## Use", ""),
        *_use(repo, env, result),
        "",
        *("## Training", ""),
        *_training(metadata, result),
        "",
        f"![Return against environment steps]({curve})",
    ]
    return "\n".join(lines) + "\n"


def _scores(result: Mapping[str, Any], baseline: Mapping[str, Any] | None) -> Iterator[str]:
    yield "| | value | 95 % interval |"
    yield "|---|---|---|"
    yield _row("mean return", result["return_mean"], result["return_ci95"])
    if result["success_rate"] is not None:
        interval = result["success_per_attempt_ci95"][0] if len(result["success_per_attempt"]) == 1 else None
        yield _row(_success_label(result), result["success_rate"], interval)
    if len(result["return_per_attempt"]) > 1:
        pairs = zip(result["return_per_attempt"], result["return_per_attempt_ci95"], strict=True)
        for number, (mean, interval) in enumerate(pairs, start=1):
            yield _row(f"return of attempt {number}", mean, interval)
    if baseline is not None:
        label = f"mean return of random actions, {baseline['trials']} trials"
        yield _row(label, baseline["return_mean"], baseline["return_ci95"])


def _success_label(result: Mapping[str, Any]) -> str:
    return "success rate of any attempt" if len(result["return_per_attempt"]) > 1 else "success rate"


def _row(name: str, value: float, interval: Sequence[float] | None = None) -> str:
    ends = "" if interval is None else f"{interval[0]:.4g} to {interval[1]:.4g}"
    return f"| {name} | {value:.4g} | {ends} |"


def _use(repo: str, env: EnvConfig, result: Mapping[str, Any]) -> Iterator[str]:
    source = f"{HUB}{repo}"
    extras = ",".join(filter(None, ("hub", env.required_extra)))
    made_by = environment_flags(env)
    made_by += "  # makes the environment" if isinstance(env, EnvFnConfig) else ""
    yield from ("```sh", f"pip install '.[{extras}]'  # in a checkout of Yamame")
    yield f"yamame eval {source} --trials {result['trials']}{made_by}"
    if renders_frames(env):
        yield f"yamame play {source} --output trial.gif{made_by}"
    yield from ("```", "")
    yield from ("```python", "import yamame", "", f'policy = yamame.load("{source}")', "policy.reset()")
    yield from ("action = policy.act(observation, reward=0.0, episode_start=True)", "```", "")
    yield "The files are JSON and safetensors. Nothing in them is executed, and their digests are checked."


def _training(metadata: RunMetadata, result: Mapping[str, Any]) -> Iterator[str]:
    if metadata.command:
        yield from ("```sh", *metadata.command.splitlines(), "```", "")
    made = [f"{result['env_steps']:,} environment steps", f"{result['updates']:,} updates"]
    if (seconds := result.get("train_seconds")) is not None:
        made.append(f"{seconds / 60:.1f} minutes of training")
    yield f"Recipe `{metadata.recipe}`, preset `{metadata.preset}`, seed {result['seed']}: {', '.join(made)}."
    if metadata.overrides:
        yield from ("", "| field | recipe | this run |", "|---|---|---|")
        for field, (default, value) in metadata.overrides.items():
            yield f"| `{field}` | `{json.dumps(default)}` | `{json.dumps(value)}` |"
