"""The *Rollouts* view's answers: a checkpoint plays a trial; the page sees what it saw, did and remembered."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from yamame.records.errors import UserError
from yamame.run.run_directory import BEST, CHECKPOINTS, MILESTONES
from yamame.viewer.catalogue import RunIndex

if TYPE_CHECKING:
    from yamame.environments.config import EnvConfig

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
            instruction=query.get("instruction", "").strip()[:_LONGEST_INSTRUCTION],
            deterministic=_MANNERS[manner],
        )

    def key(self, of: str) -> str:
        """A name for what answers it, fit for an address."""
        return hashlib.sha256(repr((of, self)).encode(errors="surrogateescape")).hexdigest()[:24]


_MANNERS = {"": None, "likely": True, "sample": False}
_LONGEST_INSTRUCTION = 500


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
    from yamame.inspection.adaptation import load_final_adaptation
    from yamame.run.judge import EVALUATION_SEED
    from yamame.run.session import read_config

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
    from yamame.environments.goal_config import GoalEnvConfig

    plain = GoalEnvConfig.with_instruction
    return isinstance(env, GoalEnvConfig) and type(env).with_instruction is not plain


def _recording(wish: _Wish, key: str) -> CachedReply:
    from yamame.inspection.record import record_trial
    from yamame.viewer.rollout_json import Pictures, recording_to_json

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
    from yamame.inspection.adaptation import measure_adaptation

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
