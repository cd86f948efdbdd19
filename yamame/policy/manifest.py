"""`PolicyManifest`: what an exported policy takes, returns and was made from, as JSON. Needs no PyTorch."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from yamame.config.serialization import from_json, parse_json
from yamame.errors import UserError

MANIFEST_KEY = "yamame"
"""Key of the manifest in the metadata of an ONNX file, and its name in the archive of a .pt2 file."""
FORMAT_VERSION = 1
UNSPECIFIED = "unspecified"
"""License of weights of which the user says nothing."""
DYNAMIC: Literal["dynamic"] = "dynamic"
PREVIOUS_ACTION, POLICY_ACTION = "previous_action", "policy_action"
PROBABILITY, MEAN, STD = "probability", "mean", "std"
"""Outputs with the distribution of the action."""
NumEnvs = int | Literal["dynamic"]
"""Environments of a step; `dynamic`: any number."""
NUM_ENVS = "num_envs"
"""Name of the first dimension where it is dynamic."""


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """An input or output of an exported policy."""

    name: str
    dtype: str
    """Name of a NumPy dtype."""
    shape: tuple[int | str, ...]
    """Environments first; the name of a dimension that is dynamic."""
    low: float | None = None
    """Smallest value; None: no bound."""
    high: float | None = None
    """Largest value; None: no bound."""
    about: str = ""


@dataclass(frozen=True, kw_only=True)
class PolicyManifest:
    """Description of an exported policy. It is inside the exported file, and in a JSON file of its own beside it."""

    format_version: int
    yamame_version: str
    task: str
    env_steps: int
    """Environment steps of the checkpoint; 0 if it was trained on stored data alone."""
    updates: int
    """Updates of the checkpoint."""
    weights_digest: str
    """SHA-256 of names, types, shapes and content of the weights that act, such as `sha256:1f0c…`."""
    license: str
    """License of the weights, as the user who exported them says."""
    num_envs: NumEnvs
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    feedback: Mapping[str, str]
    """Input -> output of the previous step that it takes."""
    action_names: tuple[str, ...]
    """Names of the discrete actions, or of the dimensions of a continuous action; empty: unnamed."""
    reset: str
    """How a trial starts, in words."""
    sampling: str
    """How `seed` determines an action, in words."""
    deterministic: bool
    """Whether the policy takes the mode by default, as in training."""
    horizon: int
    """Maximum number of steps of a trial in training."""
    attempts: int | None
    """Episodes of a trial; None: as many as fit."""
    action_mask_key: str
    """Name of the action mask in observation or info."""
    needs_action_masks: bool
    observation_space: Mapping[str, Any]
    """As in `spaces.json` of a run directory."""
    action_space: Mapping[str, Any]
    observes_selection: bool = False
    """Whether the environment's observations may have leaves that `observation_space` lacks."""
    file_digest: str = field(default="")
    """SHA-256 of the exported file; only in the JSON file beside it."""

    def to_json(self) -> str:
        """Return JSON. Infinite bounds of spaces are the strings "inf" and "-inf"."""
        return json.dumps(_without_infinities(asdict(self)), indent=2, allow_nan=False)

    @staticmethod
    def from_json(text: str, where: str) -> "PolicyManifest":
        """Parse the result of `to_json`. Raises `UserError` with `where` in it for anything else."""
        try:
            content = parse_json(text)
            found = content["format_version"]
            if found != FORMAT_VERSION:
                raise UserError(f"{where} has format {found!r}, this version reads {FORMAT_VERSION}: export it again")
            for name in ("inputs", "outputs"):
                content[name] = [{**tensor, "type": TensorSpec} for tensor in content[name]]
            return from_json(PolicyManifest, {**content, "type": PolicyManifest}, "manifest")
        except (KeyError, TypeError, ValueError, RecursionError) as problem:
            raise UserError(f"{where} is not a manifest of yamame export ({problem})") from problem


def manifest_path(exported: Path) -> Path:
    """Return the path of the manifest beside an exported file: `policy.onnx.json`."""
    return exported.with_name(f"{exported.name}.json")


def _without_infinities(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_infinities(part) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_without_infinities(part) for part in value]
    return str(value) if isinstance(value, float) and math.isinf(value) else value
