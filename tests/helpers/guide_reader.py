"""Does what a page of the documentation says, block by block, as it is printed or at a small size."""

import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT, SMALL_RUN, Block, all_blocks
from tiny import TINY_NETWORK

import yamame
from yamame import api, cli, recipes
from yamame.algorithms.amago.config import AMAGOConfig
from yamame.config.overrides import apply_overrides
from yamame.run_config import RunConfig
from yamame.tools.bench import benchmarks
from yamame.training import start as session
from yamame.training.run_files import read_config

DOCS = ROOT / "docs"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))
RUN, SHOWN = "passive-tmaze-20261121-101500", ("python", "sh", "toml", "console", "text")
"""A run that pages mention without having made it; what a block can be: the last two are shown and not run."""
SMALL: dict[str, Any] = {**SMALL_RUN, "env_steps": 192}
SMALL_COMMAND = {**SMALL, "eval": {**SMALL_RUN["eval"], "interval_env_steps": 96}}
OF_AMAGO = ("updates_per_env_step", *TINY_NETWORK)
"""Settings that another algorithm refuses or lacks: their networks keep their size."""
SMALL_BENCH = ["--repeats", "1", "--warmup", "1"]


def follow(page: str, *, run: Path | None = None) -> dict[str, Any]:
    """Run a page's blocks in the working directory; the names that its Python blocks defined.

    `run` is copied to where the page has a run. Raises AssertionError where a command fails.
    """
    blocks = all_blocks(DOCS / page)
    if run is not None and any(RUN in block.content or " RUN" in block.content for block in blocks):
        shutil.copytree(run, Path("runs") / RUN)
        if any("./human" in block.content for block in blocks):
            assert cli.main(["data", "export", f"runs/{RUN}", "--output", "./human"]) == 0
    names: dict[str, Any] = {"__name__": page}
    for number, block in enumerate(blocks, start=1):
        follow_block(block, f"{page}, block {number}", names)
    return names


def follow_block(block: Block, where: str, names: dict[str, Any]) -> None:
    """Run one block; `names` are those of the Python blocks before it."""
    assert block.language in SHOWN, f"{where}: is a block of {block.language!r} run or not?"
    if block.title.endswith((".py", ".toml")):
        Path(block.title).write_text(block.content, encoding="utf-8")
    elif block.language == "python":
        exec(compile(block.content, where, "exec"), names)
    elif block.language == "sh":
        for words in commands(block):
            assert cli.main([f"runs/{RUN}" if word == "RUN" else word for word in words[1:]]) == 0, words


def commands(block: Block) -> Iterator[list[str]]:
    """The words of each line of a block of commands, all of which are ours."""
    for line in block.content.splitlines():
        words = shlex.split(line, comments=True)
        assert words[:1] in ([], ["yamame"]), f"the tests cannot run {line!r}: show it as console"
        if words:
            yield words


@contextmanager
def small_runs() -> Iterator[None]:
    """Inside, whatever trains or measures does so for a second, on networks of a few units."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yamame, "train", _train_briefly)
        patch.setattr(session, "train_run", _start_briefly(session.train_run))
        patch.setattr(session, "resume_run", _go_on_briefly(session.resume_run))
        patch.setattr(recipes, "config_from_flags", _shrink_settings(recipes.config_from_flags))
        patch.setattr(benchmarks, "parse_benchmark", _measure_briefly(benchmarks.parse_benchmark))
        patch.setattr("yamame.tools.bench.measure.PEAK_SECONDS", 0.01)
        yield


def shrunk(config: RunConfig) -> RunConfig:
    """The config of the same run, made small: few steps, short trials, a tiny network."""
    limits = {"horizon": 20, "attempt_length": 10}
    lengths = {name: getattr(config.env, name, None) or limit for name, limit in limits.items()}
    shorter = {name: min(lengths[name], limits[name]) for name in limits if hasattr(config.env, name)}
    env = replace(config.env, **shorter)
    context_length = min(config.context_length, env.max_trial_steps)
    offline = replace(config.offline, total_updates=min(config.offline.total_updates, 20))
    short = replace(config, env=env, context_length=context_length, offline=offline, num_envs=8)
    leaves_out = () if isinstance(config.algorithm, AMAGOConfig) else OF_AMAGO
    return apply_overrides(short, {name: value for name, value in SMALL_COMMAND.items() if name not in leaves_out})


def _train_briefly(task: Any, **settings: Any) -> yamame.Run:
    of_task = {"num_envs": 8} if isinstance(task, str) else {"env.num_workers": 0}
    own = {name: value for name, value in settings.items() if name.startswith("agent.")}
    if settings.get("num_envs") == 1:  # evaluations have a single environment then
        own |= {"eval": {**SMALL["eval"], "num_envs": 1}}
    return api.train(task, **{**settings, **SMALL, **of_task, **own})


def _start_briefly(start: Any) -> Any:
    return lambda config, about, **options: start(config, about, **{**options, "quiet": True})


def _go_on_briefly(go_on: Any) -> Any:
    def briefly(directory: Path, *, env_steps: int | None, **options: Any) -> Any:
        longer = read_config(directory).env_steps + 96 if env_steps else None
        return go_on(directory, env_steps=longer, **{**options, "quiet": True})

    return briefly


def _shrink_settings(config_from_flags: Any) -> Any:
    return lambda *args, **options: shrunk(config_from_flags(*args, **options))


def _measure_briefly(parse: Any) -> Any:
    return lambda name, flags: parse(
        name, [*flags, *SMALL_BENCH, *(["--batch", "2", "--no-compile"] if name == "learner" else [])]
    )
