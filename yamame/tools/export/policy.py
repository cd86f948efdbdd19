"""One step of a policy as a graph: by `torch.export`, and from there to ONNX."""

import hashlib
import json
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from yamame.algorithms.functional_policy import MEMORY, SupportsExport
from yamame.algorithms.selection import algorithm_name
from yamame.data.spaces import space_to_json
from yamame.errors import UserError, wrap_os_errors
from yamame.nets.hashed_noise import CONSTANTS, FACTORS
from yamame.policy.manifest import (
    DYNAMIC,
    FORMAT_VERSION,
    MANIFEST_KEY,
    NUM_ENVS,
    POLICY_ACTION,
    PREVIOUS_ACTION,
    UNSPECIFIED,
    NumEnvs,
    PolicyManifest,
    manifest_path,
)
from yamame.policy.onnx import tagged_file_digest
from yamame.run_config import RunConfig
from yamame.runs.durable_files import replace_atomically, write_json
from yamame.tools.export.graph import NEXT, StepGraph, Tensors
from yamame.training.trained_run import TrainedRun, actual_env_steps

ONNX, PT2 = ".onnx", ".pt2"
OPSET = 18
"""Of ONNX; 18 is that of PyTorch's translations."""
MAX_ABS_ERROR = 1e-4
"""Largest difference between a graph and its network at which the graph is written, relative to values above 1."""
_EXAMPLE_ENVS, _CHECKED_ENVS, _CHECKED_STEPS = 3, 5, 12
_RESET = (
    "A trial of an environment starts with time = 0: memory, previous_action and previous_reward are then ignored, in "
    "that environment alone. They are zeros before the first step. Add 1 to time at each step of the trial; time goes "
    "on where a further episode of the same trial starts, at which episode_start is true."
)
_SAMPLING = (
    "Where deterministic is true, the mode. Otherwise a function of probability (or mean and std), seed and time: with "
    f"p = 2^31 - 1, x[i] = {FACTORS[0]} seed + {FACTORS[1]} time + {FACTORS[2]} i mod p, then x <- (x^5 + c) mod p for "
    f"c = {', '.join(map(str, CONSTANTS))} in turn; "
    "u[i] = (floor(x[i] / 256) + 1/2) / 2^23. A discrete action "
    "is argmax over the choices i of each component of log probability[i] - log(-log u[i]). A continuous action is "
    "tanh(mean[i] + std[i] n[i]), n[i] = sqrt(-2 log u[i]) cos(2 pi u[A + i]), A the number of its dimensions. Give "
    "each environment and trial a seed of its own."
)


def export_policy(
    run: TrainedRun, output: Path, *, num_envs: NumEnvs = 1, license: str = UNSPECIFIED
) -> PolicyManifest:
    """Write one step of a run's policy as an ONNX or PyTorch graph, and its manifest beside it.

    Before the file gets its name, the graph acts for a few steps and is compared with the network.

    Args:
        run: The run.
        output: Output file, .onnx or .pt2.
        num_envs: Number of environments that a step takes; `dynamic`: any.
        license: License of the weights, for the manifest.

    Raises:
        UserError: If the algorithm has no graph, a part of the network cannot be exported, or the file cannot be
            written.
    """
    if output.suffix not in (ONNX, PT2):
        raise UserError(f"--output {output}: give a file that ends in {ONNX} or {PT2}")
    if not output.absolute().parent.is_dir():
        raise UserError(f"cannot write to {output}: there is no folder {output.parent}")
    if num_envs != DYNAMIC and (isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1):
        raise UserError(f"num_envs is {num_envs!r}: pass at least 1, or {DYNAMIC}")
    if output.suffix == ONNX:
        _require_exporter()
    config, task, takes_masks = run.config, run.task, run.train_state.has_action_masks
    if not isinstance(config.algorithm, SupportsExport):
        raise UserError(
            f"{algorithm_name(config.algorithm)} cannot be exported: the algorithm has no functional policy"
        )
    graph = StepGraph(config.algorithm.functional_policy(run.model.eval()), task, takes_masks=takes_masks)
    rng = np.random.default_rng(0)
    examples = graph.sample_inputs(_EXAMPLE_ENVS if num_envs == DYNAMIC else num_envs, rng)
    program = _trace(graph, examples, is_dynamic=num_envs == DYNAMIC)
    with torch.no_grad():
        results = graph(examples)
    manifest = PolicyManifest(
        format_version=FORMAT_VERSION,
        yamame_version=version("yamame"),
        task=config.env.task_name,
        env_steps=actual_env_steps(config, run.checkpoint.state["env_steps"]),
        updates=run.checkpoint.step,
        weights_digest=weights_digest(config.algorithm.acting_state(run.model)),
        license=license,
        num_envs=num_envs,
        inputs=graph.describe(examples, num_envs),
        outputs=graph.describe(results, num_envs),
        feedback={
            PREVIOUS_ACTION: POLICY_ACTION,
            **{name: f"{NEXT}{name}" for name in examples if name.startswith(MEMORY)},
        },
        action_names=_action_names(config),
        reset=_RESET,
        sampling=_SAMPLING,
        deterministic=config.deterministic_actions,
        horizon=task.horizon,
        attempts=getattr(config.env, "attempts", None),
        action_mask_key=task.action_mask_key,
        needs_action_masks=takes_masks,
        observes_selection=config.env.observes_selection,
        observation_space=space_to_json(task.observation_space),
        action_space=space_to_json(task.action_space),
    )
    with wrap_os_errors(output), replace_atomically(output) as partial:
        save, step = (_save_onnx, _onnx_step) if output.suffix == ONNX else (_save_pt2, _pt2_step)
        save(program, manifest, partial)
        _check(graph, step(partial), _CHECKED_ENVS if num_envs == DYNAMIC else num_envs, rng)
        digest = tagged_file_digest(partial)
    write_json(manifest_path(output), json.loads(replace(manifest, file_digest=digest).to_json()))
    return manifest


def weights_digest(tensors: Mapping[str, Shaped[Tensor, "..."]]) -> str:
    """Return the SHA-256 of the names, types, shapes and contents of tensors."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        array = np.ascontiguousarray(tensor.detach().cpu().numpy())
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return f"sha256:{digest.hexdigest()}"


def _action_names(config: RunConfig) -> tuple[str, ...]:
    try:
        return config.env.action_names
    except Exception:  # names that only the environment's package knows, which acting does not need
        return ()


def _require_exporter() -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        if find_spec(package) is None:
            raise UserError(f"an .onnx file is written with the package {package}: pip install 'yamame[export]'")


def _trace(graph: StepGraph, examples: Tensors, *, is_dynamic: bool) -> torch.export.ExportedProgram:
    """Return the graph of a step. Raises `UserError` for a network that `torch.export` cannot follow."""
    shapes = _dynamic_shapes(examples, torch.export.Dim(NUM_ENVS, min=1)) if is_dynamic else None
    try:
        with torch.no_grad(), _quiet():
            program = torch.export.export(graph, (examples,), dynamic_shapes=shapes, strict=False)
    except Exception as problem:  # a module of a user's can fail in any way
        raise _not_exportable(problem) from problem
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # names files of this machine
    program.example_inputs = None
    return program


def _dynamic_shapes(names: Iterable[str], dim: Any) -> tuple[dict[str, dict[int, Any]]]:
    return ({name: {0: dim} for name in names},)


def _not_exportable(problem: Exception) -> UserError:
    first, *_ = str(problem).strip().splitlines() or [""]
    return UserError(f"the network cannot be exported ({type(problem).__name__}: {first})")


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the warnings of PyTorch's exporter about packages and itself."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _save_onnx(program: torch.export.ExportedProgram, manifest: PolicyManifest, path: Path) -> None:
    names = [spec.name for spec in manifest.inputs]
    try:
        with _quiet():
            exported = torch.onnx.export(
                program,
                dynamo=True,
                input_names=names,
                output_names=[spec.name for spec in manifest.outputs],
                dynamic_shapes=_dynamic_shapes(names, NUM_ENVS) if manifest.num_envs == DYNAMIC else None,
                opset_version=OPSET,
                verbose=False,
            )
    except Exception as problem:  # a module of a user's can use operators without a translation
        raise _not_exportable(problem) from problem
    assert exported is not None
    model = exported.model
    for node in model.graph.all_nodes():
        node.metadata_props.clear()  # names files of this machine
    model.metadata_props[MANIFEST_KEY] = manifest.to_json()
    exported.save(path)


def _save_pt2(program: torch.export.ExportedProgram, manifest: PolicyManifest, path: Path) -> None:
    with _quiet(), path.open("wb") as file:
        torch.export.save(program, file, extra_files={f"{MANIFEST_KEY}.json": manifest.to_json()})


_Step = Callable[[Tensors], Mapping[str, Shaped[np.ndarray, "E ..."]]]


def _onnx_step(path: Path) -> _Step:
    import onnxruntime

    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def step(inputs: Tensors) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
        return dict(zip(names, session.run(None, arrays), strict=True))

    return step


def _pt2_step(path: Path) -> _Step:
    with _quiet(), path.open("rb") as file:
        module = torch.export.load(file).module()
    return lambda inputs: {name: tensor.numpy() for name, tensor in module(inputs).items()}


def _check(graph: StepGraph, step: _Step, num_envs: int, rng: np.random.Generator) -> None:
    """Raise `UserError` if the exported graph does not compute what the network computes."""
    inputs = graph.sample_inputs(num_envs, rng)
    time = np.zeros(num_envs, np.int64)
    for number in range(_CHECKED_STEPS):
        with torch.no_grad():
            expected = graph(inputs)
        found = step(inputs)
        for name, tensor in expected.items():
            array = tensor.numpy()
            close = np.allclose(found[name], array, rtol=MAX_ABS_ERROR, atol=MAX_ABS_ERROR)
            if array.dtype.kind == "f" and not close:
                error = float(np.abs(found[name] - array).max())
                raise UserError(
                    f"the network cannot be exported: at step {number} its graph differs by {error:.2g} in {name}, "
                    "probably because the network depends on values in Python"
                )
        time = np.where(np.arange(num_envs) == number - 3, 0, time + 1)
        memory = {name: expected[f"{NEXT}{name}"] for name in inputs if name.startswith(MEMORY)}
        others = {"time": torch.from_numpy(time), PREVIOUS_ACTION: expected[POLICY_ACTION]}
        inputs = graph.sample_inputs(num_envs, rng) | others | memory
