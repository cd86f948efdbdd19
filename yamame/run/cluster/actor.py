"""`CollectorActor`: what Ray runs in a process of its own. It never raises: what goes wrong is an answer, too."""

import os
import socket
import threading
import time
import traceback
from collections.abc import Callable
from typing import TypeVar

import torch

from yamame.records.errors import UserError
from yamame.run.cluster.collector import CollectorWorker
from yamame.run.cluster.orders import CollectorFailure, CollectorInfo, CollectResult, CollectRequest, PolicyWeights
from yamame.run.config import RunConfig

_LOOKS = 8
"""So often in `keep_seconds` it is looked whether anybody still asks."""

_Answer = TypeVar("_Answer")


class CollectorActor:
    """Made in an instant, so that Ray's answer says that it has a place; `prepare` then takes its time.

    With `keep_seconds` the process ends by itself when nobody has asked anything of it for so long.
    """

    def __init__(self, config: RunConfig, seed: tuple[int, ...], *, keep_seconds: float | None) -> None:
        self._config, self._seed = config, seed
        self._collector: CollectorWorker | None = None
        self._learner = ""
        self._asked, self._busy = time.monotonic(), False
        if keep_seconds is not None:
            threading.Thread(target=self._leave_when_forgotten, args=(keep_seconds,), daemon=True).start()

    def ping(self) -> CollectorInfo:
        """Who this is; nothing else happens, but that somebody has asked."""
        self._asked = time.monotonic()
        return CollectorInfo(host=socket.gethostname(), pid=os.getpid())

    def setup(self, learner: str = "") -> CollectorInfo | CollectorFailure:
        """Build environments and network; or, for a learner that takes it over from another one, begin new trials.

        Part of the trials in flight was ordered by the other one, whose count nobody has; what it has ordered besides
        and was not worked off yet never will be. `learner` names the one that counts from now on.
        """
        self._learner = learner
        return self._answered(self._prepare)

    def collect(self, request: CollectRequest, weights: PolicyWeights, learner: str = "") -> CollectResult | CollectorFailure:
        """See `CollectorWorker.work`; nothing is done for another learner than the one that it was prepared for."""
        if learner != self._learner:
            return CollectorFailure(message="it works for another learner")
        return self._answered(lambda: self._prepared().collect(request, weights))

    def _prepare(self) -> CollectorInfo:
        if self._collector is None:
            self._prepared()
        else:
            self._collector.reset_trials()
        return self.ping()

    def _prepared(self) -> CollectorWorker:
        if self._collector is None:
            torch.set_num_threads(max(1, int(self._config.remote.cpus_per_collector)))
            self._collector = CollectorWorker(self._config, seed=self._seed)
        return self._collector

    def _answered(self, work: Callable[[], _Answer]) -> _Answer | CollectorFailure:
        self._busy = True
        try:
            return work()
        except UserError as problem:
            return CollectorFailure(message=str(problem))
        except Exception as problem:
            what = " ".join(f"{type(problem).__name__}: {problem}".split())
            return CollectorFailure(message=what, traceback=traceback.format_exc())
        finally:
            self._asked, self._busy = time.monotonic(), False

    def _leave_when_forgotten(self, keep_seconds: float) -> None:
        while self._busy or time.monotonic() - self._asked < keep_seconds:
            time.sleep(keep_seconds / _LOOKS)
        os._exit(0)
