"""Documents whose blocks of code are run by tests, and settings that make what they train small."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiny import TINY_NETWORK

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r'^```(\w*)(?: title="(.*?)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)

SMALL_RUN: dict[str, Any] = {
    "replay.batch_size": 2,
    **TINY_NETWORK,
    "agent.trajectory_encoder": {"d_model": 16, "num_layers": 1},
    "updates_per_env_step": 0.05,
    "eval": {"trials": 8, "final_trials": 8, "num_envs": 8, "interval_env_steps": 0},
}


@dataclass(frozen=True)
class Block:
    """A fenced block of a Markdown file."""

    language: str
    title: str
    """What the page shows above it: the name of the file that it is, or how long it takes."""
    content: str


def all_blocks(document: Path) -> list[Block]:
    """Every fenced block, in order. AssertionError for a fence that is none of those of a block."""
    text = document.read_text(encoding="utf-8")
    found = [Block(*parts) for parts in _BLOCK.findall(text)]
    assert 2 * len(found) == text.count("```"), f"{document.name} has a fence that no test would see"
    return found


def blocks(document: Path, *languages: str) -> list[str]:
    """The blocks of a Markdown file that are in one of the languages."""
    return [block.content for block in all_blocks(document) if block.language in languages]
