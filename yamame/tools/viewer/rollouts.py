"""The *Rollouts* view's answers: a checkpoint plays a trial; the page sees what it saw, did and remembered."""

import hashlib
import threading
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Shaped
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from yamame.errors import UserError
from yamame.nets.introspection import AttentionWeights
from yamame.run_dir import BEST, CHECKPOINTS, MILESTONES
from yamame.runs import LATEST, evaluate, read_result
from yamame.tools.trial_recording import ActionDistributions, TrialRecording
from yamame.tools.viewer.run_index import RunIndex

if TYPE_CHECKING:
    from yamame.envs.config import EnvConfig

KEPT_BYTES = 128 * 2**20
"""Recordings and curves kept for pages that ask again, the oldest forgotten first."""
PATIENCE_SECONDS = 120.0
"""So long a request waits while another one plays."""
TRIALS = 64
"""Of a measured adaptation curve."""


@dataclass(frozen=True)
class CachedReply:
    """What was answered once."""

    body: bytes
    """JSON."""
    pictures: bytes = b""


class TrialPlayer:
    """Where one trial at a time is played, and what the last ones gave. Safe to use from several threads."""

    def __init__(self, kept_bytes: int = KEPT_BYTES, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._kept: OrderedDict[str, CachedReply] = OrderedDict()
        self._kept_bytes, self._patience_seconds = kept_bytes, patience_seconds
        self._guard, self._playing = threading.Lock(), threading.Lock()

    def get_or_play(self, key: str, play: Callable[[], CachedReply]) -> CachedReply:
        """What `play` gave for this key, now or before. `UserError` where the stage stays taken."""
        found = self.find(key)
        if found is not None:
            return found
        if not self._playing.acquire(timeout=self._patience_seconds):
            raise UserError("another trial is being played: try again when it is done")
        try:
            found = self.find(key) or play()
        except UserError:
            raise
        except Exception as problem:  # third-party environments: they may raise anything
            raise UserError(f"this trial cannot be played: {problem!r}") from problem
        finally:
            self._playing.release()
        self._keep(key, found)
        return found

    def find(self, key: str) -> CachedReply | None:
        """What is kept under a key."""
        with self._guard:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def _keep(self, key: str, one: CachedReply) -> None:
        with self._guard:
            self._kept[key] = one
            self._kept.move_to_end(key)
            while len(self._kept) > 1 and sum(map(_size, self._kept.values())) > self._kept_bytes:
                self._kept.popitem(last=False)


def routes(catalogue: RunIndex) -> list[Route]:
    """`/api/rollouts/<run>`: what can be played; below it `recording`, `pictures/<key>` and `adaptation`."""
    stage = TrialPlayer()

    def offered(request: Request) -> Response:
        return JSONResponse(_offered(_run(catalogue, request)))

    def recording(request: Request) -> Response:
        directory = _run(catalogue, request)
        wish = _Wish.from_request(request, directory)
        key = wish.key("recording")
        return Response(stage.get_or_play(key, lambda: _recording(wish, key)).body, media_type="application/json")

    def pictures(request: Request) -> Response:
        _run(catalogue, request)
        found = stage.find(request.path_params["key"])
        if found is None:
            raise UserError("these pictures are not kept any more: play the trial again")
        return Response(found.pictures, media_type="application/octet-stream")

    def adaptation(request: Request) -> Response:
        wish = _Wish.from_request(request, _run(catalogue, request))
        kept = stage.get_or_play(wish.key("adaptation"), lambda: _adaptation(wish))
        return Response(kept.body, media_type="application/json")

    run = "/api/rollouts/{run_id}"
    return [
        Route(run, offered),
        Route(f"{run}/recording", recording),
        Route(f"{run}/pictures/{{key}}", pictures),
        Route(f"{run}/adaptation", adaptation),
    ]


@dataclass(frozen=True, kw_only=True)
class _Wish:
    """What a page asks to be played."""

    directory: Path
    which: str
    """`latest`, `best`, or the path of a milestone."""
    folder: Path
    """Where that lay when it was asked for."""
    seed: int
    instruction: str
    deterministic: bool | None

    @staticmethod
    def from_request(request: Request, directory: Path) -> "_Wish":
        """Read a query. `UserError` for what cannot be read or is not there."""
        query = request.query_params
        seed, manner = query.get("seed", ""), query.get("manner", "")
        if not (seed.isascii() and seed.isdigit() and len(seed) <= 9):
            raise UserError("the seed must be a whole number of at most 9 digits")
        if manner not in _MANNERS:
            raise UserError(f"the manner must be one of {', '.join(filter(None, _MANNERS))}")
        checkpoints = _checkpoints(directory)
        checkpoint = query.get("checkpoint", "latest")
        if checkpoint not in checkpoints:
            raise UserError("this checkpoint is not there any more: choose another one")
        return _Wish(
            directory=directory,
            which=checkpoint if checkpoint in ("latest", "best") else str(checkpoints[checkpoint]),
            folder=checkpoints[checkpoint],
            seed=int(seed),
            instruction=query.get("instruction", "").strip()[:_MAX_INSTRUCTION],
            deterministic=_MANNERS[manner],
        )

    def key(self, of: str) -> str:
        """A name for what answers it, fit for an address."""
        return hashlib.sha256(repr((of, self)).encode(errors="surrogateescape")).hexdigest()[:24]


_MANNERS = {"": None, "likely": True, "sample": False}
_MAX_INSTRUCTION = 500


def _run(catalogue: RunIndex, request: Request) -> Path:
    return catalogue.path(request.path_params["run_id"])


def _checkpoints(directory: Path) -> dict[str, Path]:
    """What the page may call a checkpoint -> its folder; the newest first, the best, then milestones."""
    newest, best = _complete(directory / CHECKPOINTS), _complete(directory / BEST)
    milestones = _complete(directory / MILESTONES)
    named = {"latest": newest[:1], "best": best[:1]}
    named |= {f"milestone-{path.name.removeprefix('update-')}": [path] for path in milestones}
    return {name: paths[0] for name, paths in named.items() if paths}


def _complete(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the newest first."""
    try:
        names = [entry.name for entry in folder.iterdir() if entry.is_dir()]
    except OSError:
        return []
    whole = [name for name in names if name.removeprefix("update-").isdigit() and name.startswith("update-")]
    return [folder / name for name in sorted(whole, key=lambda name: int(name.removeprefix("update-")), reverse=True)]


def _offered(directory: Path) -> dict[str, Any]:
    """What the page offers to choose from, and the adaptation curve of the run's end."""
    # MERGED
    from yamame.evaluate import EVALUATION_SEED
    from yamame.runs import read_config

    config = read_config(directory)
    found = load_final_adaptation(directory)
    return {
        "task": config.env.eval_config().task_name,
        "checkpoints": [
            {"name": name, "updates": int(path.name.removeprefix("update-"))}
            for name, path in _checkpoints(directory).items()
        ],
        "seed": EVALUATION_SEED,
        "deterministic": config.deterministic_actions,
        "instructed": _takes_instructions(config.env),
        "adaptation": None if found is None else asdict(found),
    }


def _takes_instructions(env: "EnvConfig") -> bool:
    """Whether people can say what to do, in words or numbers."""
    from yamame.envs.wrappers.instruction import GoalEnvConfig

    plain = GoalEnvConfig.with_instruction
    return isinstance(env, GoalEnvConfig) and type(env).with_instruction is not plain


def _recording(wish: _Wish, key: str) -> CachedReply:
    from yamame.tools.trial_recording import record_trial
    # MERGED

    played = record_trial(
        wish.directory,
        checkpoint=wish.which,
        seed=wish.seed,
        instruction=wish.instruction,
        deterministic=wish.deterministic,
    )
    pictures = Pictures.from_recording(played)
    body = JSONResponse({"key": key, **recording_to_json(played, pictures)}).body
    return CachedReply(bytes(body), pictures.content)


def _adaptation(wish: _Wish) -> CachedReply:
    # MERGED

    found = measure_adaptation(
        wish.directory,
        checkpoint=wish.which,
        trials=TRIALS,
        seed=wish.seed,
        instruction=wish.instruction,
    )
    return CachedReply(bytes(JSONResponse(asdict(found)).body))


def _size(one: CachedReply) -> int:
    return len(one.body) + len(one.pictures)


_DIGITS = 5
_WHOLE_WEIGHT = 65535
"""What a weight of 1 is sent as."""


@dataclass(frozen=True)
class Pictures:
    """The different pictures of a recording, laid end to end."""

    content: bytes
    sizes: list[int]
    """Bytes of each."""
    of_moment: list[int | None]
    """Which one each moment looks like."""
    of_end: dict[int, int]
    """The like of transitions that ended an attempt."""

    @staticmethod
    def from_recording(recording: TrialRecording) -> "Pictures":
        """Each picture once, however often it was seen."""
        different: dict[bytes, int] = {}

        def place(frame: bytes | None) -> int | None:
            return None if frame is None else different.setdefault(frame, len(different))

        of_moment = [place(frame) for frame in recording.frames]
        of_end = {
            step: different.setdefault(frame, len(different)) for step, frame in recording.attempt_end_frames.items()
        }
        return Pictures(b"".join(different), [len(frame) for frame in different], of_moment, of_end)


def recording_to_json(recording: TrialRecording, pictures: Pictures) -> dict[str, Any]:
    """Everything but the bytes of the pictures."""
    trajectory, insight = recording.trajectory, recording.insight
    intention = insight.action_distributions
    return {
        "task": recording.task,
        "checkpoint": recording.checkpoint,
        "updates": recording.updates,
        "seed": recording.seed,
        "instruction": recording.instruction,
        "deterministic": recording.deterministic,
        "truncated": recording.truncated,
        "steps": len(recording),
        "pictures": {"sizes": pictures.sizes, "of_moment": pictures.of_moment, "of_end": pictures.of_end},
        "seen": recording.observation_texts,
        "attempt": recording.attempt.tolist(),
        "reward": numbers(trajectory.reward),
        "success": None if trajectory.success is None else trajectory.success.tolist(),
        "sub_goals": recording.sub_goals,
        "goals_completed": recording.goals_completed.tolist(),
        "actions": recording.action_names,
        "choices": intention.choices,
        "actions_taken": _taken(recording),
        "probability": numbers(intention.probability_TA),
        **_spread(intention),
        "discounts": numbers(insight.gammas_G),
        "q": numbers(insight.q_TG),
        "value": numbers(insight.value_TG),
        "attention": None if insight.attention is None else _attention(insight.attention),
    }


def numbers(array: Shaped[np.ndarray, "..."] | None) -> Any:
    """Nested lists of numbers with a few digits; None for those that are not finite, which JSON does not know."""
    if array is None:
        return None
    if array.ndim > 1:
        return [numbers(row) for row in array]
    return [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None for value in array.tolist()]


def _spread(intention: ActionDistributions) -> dict[str, Any]:
    """A continuous action in [-1, 1]: the most likely one, and a deviation to both sides of it."""
    mean, deviation = intention.mean_TA, intention.std_TA
    if mean is None or deviation is None:
        return {"mean": None, "low": None, "high": None}
    low, high = np.tanh(mean - deviation), np.tanh(mean + deviation)
    return {"mean": numbers(np.tanh(mean)), "low": numbers(low), "high": numbers(high)}


def _taken(recording: TrialRecording) -> list[list[int]] | list[list[float]]:
    """For every transition the places in `actions` of the choices made, or the numbers of a continuous action."""
    action = recording.trajectory.action
    rows = action.reshape(len(action), -1)
    sizes = recording.insight.action_distributions.choices
    if not sizes:
        return rows.tolist()
    return (rows + np.array([0, *accumulate(sizes)][:-1])).tolist()


def _attention(attention: AttentionWeights) -> dict[str, Any]:
    layers, heads, moments, kept = attention.weight_LHTS.shape
    weight = np.rint(attention.weight_LHTS * _WHOLE_WEIGHT).astype("<u2")
    return {
        "layers": layers,
        "heads": heads,
        "moments": moments,
        "kept": kept,
        "memory_length": attention.attention_window,
        "weight": b64encode(weight.tobytes()).decode(),
        "key": b64encode(attention.key_LHTS.astype("<u2").tobytes()).decode(),
    }


Pairs = list[tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class AdaptationCurve:
    """Means over trials, attempt by attempt, with 95 % intervals."""

    source: str
    """What was judged, such as `the end of the run`."""
    trials: int
    return_per_attempt: list[float]
    return_ci95: Pairs
    success_per_attempt: list[float] | None
    """None where the task announces no success."""
    success_ci95: Pairs | None


def load_final_adaptation(directory: Path) -> AdaptationCurve | None:
    """What the evaluation at the end of a run has found; None where it has not come to its end."""
    result = read_result(directory)
    if result is None or result.get("return_per_attempt") is None:
        return None
    return _adaptation_adaptation(result, "the end of the run", directory)


def measure_adaptation(
    directory: Path, *, checkpoint: str = LATEST, trials: int = 64, seed: int | None = None, instruction: str = ""
) -> AdaptationCurve:
    """What a checkpoint achieves now; arguments and errors as of `evaluate`."""
    found = evaluate(directory, trials=trials, seed=seed, instruction=instruction, checkpoint=checkpoint)
    return _adaptation_adaptation(found, f"the checkpoint of update {found['updates']:,}", directory)


def _adaptation_adaptation(found: Mapping[str, Any], source: str, directory: Path) -> AdaptationCurve:
    try:
        success, success_ci95 = found["success_per_attempt"], found["success_per_attempt_ci95"]
        return AdaptationCurve(
            source=source,
            trials=int(found["trials"]),
            return_per_attempt=[float(mean) for mean in found["return_per_attempt"]],
            return_ci95=_pairs(found["return_per_attempt_ci95"]),
            success_per_attempt=None if success is None else [float(rate) for rate in success],
            success_ci95=None if success_ci95 is None else _pairs(success_ci95),
        )
    except (KeyError, TypeError, ValueError) as problem:
        raise UserError(
            f"the result of {directory} cannot be read ({problem!r}): the run directory is damaged"
        ) from None


def _pairs(pairs: Any) -> Pairs:
    return [(float(low), float(high)) for low, high in pairs]
