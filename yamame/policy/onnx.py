"""`OnnxPolicy`: the policy of an ONNX file of `yamame export`, run by onnxruntime without PyTorch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped
from typing_extensions import override

from yamame.data.action_distribution import PolicyParameters, SupportsDistribution
from yamame.data.actions import ACTION_MASK_KEY
from yamame.data.step import PolicyInput
from yamame.errors import UserError
from yamame.policy.manifest import (
    DYNAMIC,
    MANIFEST_KEY,
    MEAN,
    POLICY_ACTION,
    PREVIOUS_ACTION,
    PROBABILITY,
    STD,
    PolicyManifest,
    TensorSpec,
    manifest_path,
)
from yamame.runs.shared_policy import file_digest
from yamame.types import State

MAX_SEED = 2**31 - 1
"""Seeds of the graph are below it."""
_ORT_DTYPES = {"float": "float32", "double": "float64"}
"""Names of onnxruntime that are not those of NumPy."""


class OnnxPolicy(SupportsDistribution):
    """Acts in E environments at different timesteps, as a policy of PyTorch does. Memory is kept between calls.

    A timestep that is passed twice replaces its first version. One thread computes. Actions that are not deterministic
    are sampled with another seed in each trial.

    Args:
        path: File of `yamame export`.
        num_envs: E.
        seed: Determines the seeds of the trials.

    Raises:
        UserError: If onnxruntime is missing, or the file is not one of `yamame export`, was exported for another number
            of environments, or differs from its manifest or from the manifest beside it.
    """

    def __init__(self, path: Path, *, num_envs: int, seed: int = 0) -> None:
        self._session = _open_session(path)
        metadata = self._session.get_modelmeta().custom_metadata_map
        if MANIFEST_KEY not in metadata:
            raise UserError(f"{path} has no manifest: write it with yamame export RUN --output {path.name}")
        self.manifest = PolicyManifest.from_json(metadata[MANIFEST_KEY], f"the manifest inside {path}")
        _check_graph(path, self.manifest.inputs, self._session.get_inputs())
        _check_graph(path, self.manifest.outputs, self._session.get_outputs())
        _check_manifest_beside(path, self.manifest)
        if self.manifest.num_envs not in (DYNAMIC, num_envs):
            raise UserError(
                f"{path} was exported for num_envs={self.manifest.num_envs}, not {num_envs}: export it again with "
                "--num-envs dynamic"
            )
        memory = {name: output for name, output in self.manifest.feedback.items() if name != PREVIOUS_ACTION}
        specs = {spec.name: spec for spec in self.manifest.inputs}
        found = {spec.name for spec in self.manifest.outputs}
        self._parameters = [name for name in (PROBABILITY, MEAN, STD) if name in found]
        self._last_parameters: list[np.ndarray] = []
        self._outputs = [POLICY_ACTION, *self._parameters, *memory.values()]
        self._memory = {
            name: np.zeros((num_envs, *map(int, specs[name].shape[1:])), specs[name].dtype) for name in memory
        }
        self._memory_before = self._memory
        self._time_E = np.full(num_envs, -1)
        self._takes_masks = ACTION_MASK_KEY in specs
        self._leaves = [name for name in specs if name.startswith("observation/")]
        self._rng = np.random.default_rng(seed)
        self._seed_E = np.zeros(num_envs, np.int64)

    def act(self, step: PolicyInput, *, deterministic: bool = False) -> Shaped[np.ndarray, "E ..."]:
        """Return actions: integers `[E]` or `[E, C]`, or float32 `[E, A]` in [-1, 1]."""
        num_envs = len(step.time)
        new_seed_E = self._rng.integers(MAX_SEED, size=num_envs)
        self._seed_E = np.where(step.time == 0, new_seed_E, self._seed_E)
        mask = step.observation.get(ACTION_MASK_KEY)
        if mask is not None and not self._takes_masks:
            raise UserError("the policy was trained and exported without action masks: leave action_mask out")
        is_repeated_E = step.time == self._time_E
        if is_repeated_E.any():
            self._memory = {
                name: np.where(is_repeated_E.reshape(-1, *(1,) * (after.ndim - 1)), self._memory_before[name], after)
                for name, after in self._memory.items()
            }
        action, *results = self._session.run(
            self._outputs,
            {
                **{name: np.ascontiguousarray(step.observation[name.partition("/")[2]]) for name in self._leaves},
                **({} if mask is None else {ACTION_MASK_KEY: mask}),
                PREVIOUS_ACTION: step.previous_action,
                "previous_reward": step.previous_reward,
                "episode_start": step.episode_start,
                "time": step.time,
                "deterministic": np.full(num_envs, deterministic),
                "seed": self._seed_E,
                **self._memory,
            },
        )
        self._memory_before, self._time_E = self._memory, step.time.copy()
        self._last_parameters = results[: len(self._parameters)]
        self._memory = dict(zip(self._memory, results[len(self._parameters) :], strict=True))
        return action

    @override
    def last_parameters(self) -> PolicyParameters:
        if not self._last_parameters:
            raise UserError("the policy has no action distribution: its algorithm exports none")
        found = zip(self._parameters, self._last_parameters, strict=True)
        return PolicyParameters(**{f"{name}_EA": array for name, array in found})

    def state_dict(self) -> State:
        """Return memory and random state, and the digest of the weights that made them."""
        return {
            "weights_digest": self.manifest.weights_digest,
            "memory": {name: tensor.copy() for name, tensor in self._memory.items()},
            "memory_before": {name: tensor.copy() for name, tensor in self._memory_before.items()},
            "time": self._time_E.copy(),
            "seed": self._seed_E.copy(),
            "generator": self._rng.bit_generator.state,
        }

    def load_state_dict(self, state: State) -> None:
        """Restore the result of `state_dict`.

        Raises:
            UserError: If other weights made it, or its tensors have other shapes.
        """
        if state["weights_digest"] != self.manifest.weights_digest:
            raise UserError(
                f"the memory was made by the weights {state['weights_digest']}, this policy has "
                f"{self.manifest.weights_digest}: start a new trial"
            )
        memory, memory_before = (self._checked_memory(state[name]) for name in ("memory", "memory_before"))
        self._memory, self._memory_before, self._time_E = memory, memory_before, state["time"].copy()
        self._seed_E = state["seed"].copy()
        self._rng.bit_generator.state = state["generator"]

    def _checked_memory(self, memory: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return a copy of a memory. Raises `UserError` if its tensors have other shapes than those of the graph."""
        for name, own in self._memory.items():
            found = memory[name] if name in memory else np.zeros(0)
            if (found.shape, found.dtype) != (own.shape, own.dtype):
                raise UserError(
                    f"expected {name!r} to be {own.dtype} {list(own.shape)}, got {found.dtype} {list(found.shape)}: "
                    "start a new trial"
                )
        return {name: memory[name].copy() for name in self._memory}


def _open_session(path: Path) -> Any:
    """Return the onnxruntime session of a file."""
    try:
        import onnxruntime
    except ImportError as missing:
        raise UserError("acting from an ONNX file needs onnxruntime: pip install 'yamame[onnx]'") from missing
    if not path.is_file():
        raise UserError(f"{path} does not exist: write it with yamame export RUN --output {path.name}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # the exception says it
    try:
        return onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    except Exception as problem:  # a corrupted file makes onnxruntime raise exceptions of many kinds
        raise UserError(f"{path} is not an ONNX file that onnxruntime reads ({problem})") from problem


def _check_graph(path: Path, declared: tuple[TensorSpec, ...], found: list[Any]) -> None:
    """Raise `UserError` if the manifest does not describe the tensors of the graph."""
    specs = {spec.name: f"{spec.dtype} {list(spec.shape)}" for spec in declared}
    actual = {}
    for tensor in found:
        dtype = tensor.type.removeprefix("tensor(").removesuffix(")")
        actual[tensor.name] = f"{_ORT_DTYPES.get(dtype, dtype)} {list(tensor.shape)}"
    for name in {**specs, **actual}:
        one, other = specs.get(name, "nothing"), actual.get(name, "nothing")
        if one != other:
            raise UserError(f"{path}: {name!r} is {other}, its manifest says {one}: export it again")


def _check_manifest_beside(path: Path, manifest: PolicyManifest) -> None:
    """Raise `UserError` if the manifest beside the file is that of another file."""
    beside = manifest_path(path)
    if not beside.exists():
        return
    try:
        text = beside.read_text(encoding="utf-8")
    except (OSError, ValueError) as problem:
        raise UserError(f"{beside} cannot be read ({problem})") from problem
    other = PolicyManifest.from_json(text, str(beside))
    for what, stale, found in (
        ("weights", other.weights_digest, manifest.weights_digest),
        ("file", other.file_digest, tagged_file_digest(path)),
    ):
        if stale != found:
            raise UserError(
                f"{beside} describes another export of {path.name} (digest of the {what}: {stale}, not {found}): "
                "export it again"
            )


def tagged_file_digest(path: Path) -> str:
    """Return the SHA-256 of a file as manifests of exported policies have it: `sha256:1f0c…`."""
    return f"sha256:{file_digest(path)}"
