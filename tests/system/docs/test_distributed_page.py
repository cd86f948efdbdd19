"""The commands of the page about distributed training, which needs a cluster, are accepted by their parsers."""

import re
import shlex
from collections.abc import Iterator

import pytest
from documents import all_blocks
from guide_reader import DOCS

from yamame.distributed.sharding import resolve_parallelism, shard_config
from yamame.recipes import config_from_flags, load_recipe

PAGE = DOCS / "distributed.md"


def lines() -> Iterator[str]:
    """The commands of all blocks, with continued lines joined."""
    for block in all_blocks(PAGE):
        yield from re.sub(r"\\\n\s*", "", block.content).splitlines()


TRAININGS = [line.partition("yamame train ")[2].removesuffix(" &") for line in lines() if "yamame train" in line]
STARTS = [line.partition("ray start ")[2] for line in lines() if line.startswith("$ ray start")]
SYMMETRIC = [line.partition("symmetric-run ")[2] for line in lines() if "symmetric-run" in line]


def test_there_is_something_to_check() -> None:
    assert len(TRAININGS) == 6 and len(STARTS) == 2 and len(SYMMETRIC) == 1


@pytest.mark.parametrize("command", TRAININGS)
def test_trainings_have_valid_flags_and_even_shards(command: str) -> None:
    recipe, *flags = shlex.split(command)
    if "--run-dir" in flags:
        where = flags.index("--run-dir")
        del flags[where : where + 2]
    size = flags[flags.index("--size") + 1] if "--size" in flags else None
    if size:
        flags.remove("--size")
        flags.remove(size)
    config = resolve_parallelism(config_from_flags(load_recipe(recipe), [], flags))
    assert config.ray.num_collectors or config.num_learners > 1
    assert shard_config(config).num_envs * config.num_learners == config.num_envs


def test_ray_has_the_options() -> None:
    scripts = pytest.importorskip("ray.scripts.scripts")
    known = {option for parameter in scripts.start.params for option in parameter.opts}
    named = {word for command in STARTS for word in shlex.split(command) if word.startswith("--")}
    in_text = set(re.findall(r"`(--(?:node|object|min|max)-[\w-]+)`", PAGE.read_text(encoding="utf-8")))
    assert len(named) == 6 and len(in_text) == 4
    assert named | in_text <= known
    (symmetric,) = SYMMETRIC
    own = {option for parameter in scripts.cli.commands["symmetric-run"].params for option in parameter.opts}
    requested = [word for word in symmetric.partition(" -- ")[0].split() if word.startswith("--")]
    assert len(requested) == 3 and set(requested) <= own | known
