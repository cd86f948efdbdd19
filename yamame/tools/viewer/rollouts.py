"""API of the *Rollouts* view: plays one trial of a checkpoint and measures its adaptation over attempts."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from yamame.config.named_code import caller_module_names, without_environments
from yamame.envs.config import GoalEnvConfig
from yamame.errors import UserError
from yamame.runs.checkpoint import MANIFEST, STATE, TENSORS, list_checkpoints
from yamame.runs.directory import BEST, CHECKPOINTS, CONFIG, LATEST, METADATA, MILESTONES, RESULT, SPACES
from yamame.tools.options import config_with_env
from yamame.tools.run_groups import checkpoint_updates
from yamame.tools.trial_recording import record_trial
from yamame.tools.viewer.player_process import PlayerProcess
from yamame.tools.viewer.recording_json import UniqueFrames, recording_to_json
from yamame.tools.viewer.run_index import MAX_JSON_BYTES, RunIndex, UnreadableError, open_regular_file
from yamame.tools.web.finite_json import FiniteJSONResponse
from yamame.training.evaluate import EVALUATION_SEED
from yamame.training.run_files import read_config, read_result
from yamame.training.trained_run import TrainedRun, load_trained_run

CACHE_BYTES = 128 * 2**20
"""Recordings and adaptation curves in memory; the least recently used are dropped first."""
PLAY_SECONDS = 110.0
"""Maximum time of a trial, or of an adaptation curve."""
WAIT_SECONDS = 120.0
"""Longest time that a request waits for another trial to end."""
ADAPTATION_TRIALS = 64
_MODES = {"": None, "mode": True, "sample": False}
"""Query value -> whether actions are deterministic; empty: as in the run's evaluations."""
_MAX_INSTRUCTION = 500
_MAX_BYTES = {TENSORS: 4 << 30, STATE: 256 << 20}
"""Maximum sizes of the files of a checkpoint; of all other files: `MAX_JSON_BYTES`."""


@dataclass(frozen=True)
class CachedReply:
    """A reply in memory."""

    body: bytes
    """JSON."""
    frames: bytes = b""

    @property
    def num_bytes(self) -> int:
        """Size in memory."""
        return len(self.body) + len(self.frames)


class TrialPlayer:
    """Plays one trial at a time and caches the replies. Thread-safe."""

    def __init__(self, cache_bytes: int = CACHE_BYTES, wait_seconds: float = WAIT_SECONDS) -> None:
        self._cache: OrderedDict[str, CachedReply] = OrderedDict()
        self._cache_bytes, self._wait_seconds = cache_bytes, wait_seconds
        self._cache_lock, self._play_lock = threading.Lock(), threading.Lock()

    def get_or_play(self, key: str, play: Callable[[], CachedReply]) -> CachedReply:
        """Return the cached reply of a key, or call `play` for it. `UserError` if another trial takes too long."""
        reply = self.find(key)
        if reply is not None:
            return reply
        if not self._play_lock.acquire(timeout=self._wait_seconds):
            raise UserError("another trial is being played: try again when it is done")
        try:
            reply = self.find(key) or play()
        except UserError:
            raise
        except Exception as problem:  # third-party environments may raise anything
            raise UserError(f"this trial cannot be played: {problem!r}") from problem
        finally:
            self._play_lock.release()
        with self._cache_lock:
            self._cache[key] = reply
            self._cache.move_to_end(key)
            while len(self._cache) > 1 and sum(kept.num_bytes for kept in self._cache.values()) > self._cache_bytes:
                self._cache.popitem(last=False)
        return reply

    def find(self, key: str) -> CachedReply | None:
        """Return the cached reply of a key; None if there is none."""
        with self._cache_lock:
            reply = self._cache.get(key)
            if reply is not None:
                self._cache.move_to_end(key)
            return reply


def routes(index: RunIndex, env: str | None = None) -> list[Route]:
    """Return `/api/rollouts/<run>` (choices of the form) and below it `recording`, `frames/<key>`, `adaptation`.

    Args:
        index: The runs.
        env: Environment in which policies play, as `module:function` or a Gymnasium id; None: that of the run.
    """
    player, process = TrialPlayer(), PlayerProcess(caller_module_names(), timeout_seconds=PLAY_SECONDS)

    def run_dir(request: Request) -> Path:
        return index.entry(request.path_params["run_id"]).path

    def choices(request: Request) -> Response:
        return FiniteJSONResponse(_choices(run_dir(request), env))

    def recording(request: Request) -> Response:
        query = _Query.from_request(request, run_dir(request), env)
        key = query.key("recording")
        reply = player.get_or_play(key, lambda: process.call(_record, query, key))
        return Response(reply.body, media_type="application/json")

    def frames(request: Request) -> Response:
        run_dir(request)
        reply = player.find(request.path_params["key"])
        if reply is None:
            raise UserError("these frames are not in memory any more: play the trial again")
        return Response(reply.frames, media_type="application/octet-stream")

    def adaptation(request: Request) -> Response:
        query = _Query.from_request(request, run_dir(request), env)
        reply = player.get_or_play(query.key("adaptation"), lambda: process.call(_measure, query))
        return Response(reply.body, media_type="application/json")

    run = "/api/rollouts/{run_id}"
    return [
        Route(run, choices),
        Route(f"{run}/recording", recording),
        Route(f"{run}/frames/{{key}}", frames),
        Route(f"{run}/adaptation", adaptation),
    ]


@dataclass(frozen=True, kw_only=True)
class _Query:
    """A request for a trial or for an adaptation curve."""

    directory: Path
    env: str | None
    checkpoint: str
    """`latest`, `best`, or the path of a milestone."""
    path: Path
    """Folder of the checkpoint at the time of the request."""
    digest: str
    """Of its content, by its manifest: a run that was trained anew in place is another one."""
    seed: int
    instruction: str
    deterministic: bool | None

    @staticmethod
    def from_request(request: Request, directory: Path, env: str | None) -> "_Query":
        query = request.query_params
        seed, mode = query.get("seed", ""), query.get("actions", "")
        if not (seed.isascii() and seed.isdigit() and len(seed) <= 9):
            raise UserError("the seed must be a whole number of at most 9 digits")
        if mode not in _MODES:
            raise UserError(f"actions must be one of {', '.join(filter(None, _MODES))}")
        _check_files(directory)
        checkpoints = _checkpoints(directory)
        checkpoint = query.get("checkpoint", LATEST)
        if checkpoint not in checkpoints:
            raise UserError("this checkpoint does not exist any more: choose another one")
        return _Query(
            directory=directory,
            env=env,
            checkpoint=checkpoint if checkpoint in (LATEST, "best") else str(checkpoints[checkpoint]),
            path=checkpoints[checkpoint],
            digest=_digest(checkpoints[checkpoint]),
            seed=int(seed),
            instruction=query.get("instruction", "").strip()[:_MAX_INSTRUCTION],
            deterministic=_MODES[mode],
        )

    def load(self) -> TrainedRun:
        """Load the policy, which acts in the environment of the query."""
        return load_trained_run(self.directory, self.checkpoint, config_with_env(self.directory, self.env))

    def key(self, kind: str) -> str:
        """Return a name for the reply that is valid in a URL."""
        return hashlib.sha256(repr((kind, self)).encode(errors="surrogateescape")).hexdigest()[:24]


def _check_files(directory: Path) -> None:
    """Raise `UserError` if a file that is read to play a trial is too large, or a link, which may lead elsewhere.

    Also if a checkpoint cannot be read, which a running run may have removed meanwhile.
    """
    try:
        _check_each_file(directory)
    except OSError as problem:
        raise UserError(f"its checkpoints cannot be read ({problem.strerror}): try again") from problem


def _check_each_file(directory: Path) -> None:
    folders = [directory / name for name in (CHECKPOINTS, BEST, MILESTONES)]
    checkpoints = [checkpoint for folder in folders for checkpoint in _complete(folder)]
    files = [directory / name for name in (CONFIG, SPACES, METADATA, RESULT)]
    for path in (
        *files,
        *folders,
        *checkpoints,
        *(file for checkpoint in checkpoints for file in checkpoint.iterdir()),
    ):
        if path.is_symlink():
            raise UserError(f"{path.relative_to(directory)} is a link and was not followed")
        limit = _MAX_BYTES.get(path.name, MAX_JSON_BYTES)
        if path.is_file() and path.stat().st_size > limit:
            raise UserError(f"{path.relative_to(directory)} is larger than {limit >> 20:,} MiB and was not read")


def _digest(checkpoint: Path) -> str:
    """Return a digest of a checkpoint's manifest, which has the checksums of all else; "" if it cannot be read."""
    try:
        with open_regular_file(checkpoint / MANIFEST) as file:
            return hashlib.sha256(file.read(MAX_JSON_BYTES)).hexdigest()
    except (OSError, UnreadableError):
        return ""  # playing it says what is wrong


def _checkpoints(directory: Path) -> dict[str, Path]:
    """Return the checkpoints by their names in the form: latest, best, then milestones, newest first."""
    latest, best, milestones = (_complete(directory / folder) for folder in (CHECKPOINTS, BEST, MILESTONES))
    named = {LATEST: latest[0]} if latest else {}
    named |= {"best": best[0]} if best else {}
    return named | {f"milestone-{path.name.removeprefix('update-')}": path for path in milestones}


def _complete(folder: Path) -> list[Path]:
    """Return the complete checkpoints in a folder, newest first."""
    try:
        return [path for path in list_checkpoints(folder) if path.is_dir() and not path.name.endswith(".replaced")]
    except OSError:
        return []


def _choices(directory: Path, env: str | None) -> dict[str, Any]:
    _check_files(directory)
    with without_environments() if env else nullcontext():  # none is made in this process
        config, adaptation = read_config(directory), load_final_adaptation(directory)
    takes_instruction = (
        env is None
        and isinstance(config.env, GoalEnvConfig)
        and type(config.env).with_instruction is not GoalEnvConfig.with_instruction
    )
    return {
        "task": config.env.eval_config().task_name if env is None else env.rpartition(":")[2],
        "checkpoints": [
            {"name": name, "updates": checkpoint_updates(path)} for name, path in _checkpoints(directory).items()
        ],
        "seed": EVALUATION_SEED,
        "deterministic": (read_result(directory) or {}).get("deterministic_actions", config.deterministic_actions),
        "takes_instruction": takes_instruction,
        "adaptation": None if adaptation is None else asdict(adaptation),
    }


def _record(query: _Query, key: str) -> CachedReply:
    run = query.load()
    recording = record_trial(run, seed=query.seed, instruction=query.instruction, deterministic=query.deterministic)
    frames = UniqueFrames.from_recording(recording)
    body = FiniteJSONResponse({"key": key, **recording_to_json(recording, frames)}).body
    return CachedReply(bytes(body), frames.content)


def _measure(query: _Query) -> CachedReply:
    run = query.load()
    curve = measure_adaptation(run, seed=query.seed, instruction=query.instruction)
    return CachedReply(bytes(FiniteJSONResponse(asdict(curve)).body))


Intervals = list[tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class AdaptationCurve:
    """Means over trials of each attempt, with 95 % intervals."""

    source: str
    """Origin of the numbers, such as `the end of the run`."""
    trials: int
    return_per_attempt: list[float]
    return_ci95: Intervals
    success_per_attempt: list[float] | None
    """None if the task does not report success."""
    success_ci95: Intervals | None


def load_final_adaptation(directory: Path) -> AdaptationCurve | None:
    """Return the curve of the final evaluation of a run; None if the run is not finished."""
    result = read_result(directory)
    if result is None or result.get("return_per_attempt") is None:
        return None
    return _adaptation_curve(result, "the end of the run", directory)


def measure_adaptation(
    run: TrainedRun, *, trials: int = ADAPTATION_TRIALS, seed: int | None = None, instruction: str = ""
) -> AdaptationCurve:
    """Evaluate a run. Arguments and errors as for `TrainedRun.evaluate`."""
    result = run.evaluate(trials=trials, seed=seed, instruction=instruction)
    return _adaptation_curve(result, f"the checkpoint of update {result['updates']:,}", run.directory)


def _adaptation_curve(result: Mapping[str, Any], source: str, directory: Path) -> AdaptationCurve:
    try:
        success, success_ci95 = result["success_per_attempt"], result["success_per_attempt_ci95"]
        return AdaptationCurve(
            source=source,
            trials=int(result["trials"]),
            return_per_attempt=[float(mean) for mean in result["return_per_attempt"]],
            return_ci95=_intervals(result["return_per_attempt_ci95"]),
            success_per_attempt=None if success is None else [float(rate) for rate in success],
            success_ci95=None if success_ci95 is None else _intervals(success_ci95),
        )
    except (KeyError, TypeError, ValueError) as problem:
        raise UserError(f"{directory} has no readable result ({problem!r}): its files are corrupted") from None


def _intervals(pairs: Any) -> Intervals:
    return [(float(low), float(high)) for low, high in pairs]
