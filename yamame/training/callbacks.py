"""Callbacks: objects of the user that a run calls at its start, after each iteration and evaluation, and at its end."""

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yamame.errors import UserError
from yamame.metrics.logger import is_metric_key
from yamame.metrics.registry import get_metric
from yamame.run_config import RunConfig
from yamame.training.evaluate import EvalResult


@dataclass
class RunProgress:
    """What callbacks see of a run, and what they can do."""

    directory: Path
    """Run directory."""
    config: RunConfig
    env_steps: int = 0
    updates: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metrics of the last iteration, by the keys of `metrics.jsonl`."""
    evaluation: EvalResult | None = None
    """Last evaluation, on the test tasks if the benchmark has them."""
    logged: dict[str, float] = field(default_factory=dict)
    """Values of `log` that are not written yet."""
    stop_reason: str = ""
    """Reason given to `stop`; "": the run goes on."""

    def log(self, values: Mapping[str, float]) -> None:
        """Add values to the metrics of this iteration, such as `{"mine/distance": 3.5}`.

        Raises `UserError` for a name without a group, such as `distance`, and for one of the metrics of every run.
        """
        for name in values:
            if not is_metric_key(name):
                raise UserError(
                    f"run.log: {name!r} is no name of a metric: make it GROUP/NAME, such as 'mine/distance'"
                )
            if get_metric(name).description:
                own = f"mine/{name.rpartition('/')[2]}"
                raise UserError(
                    f"run.log: {name!r} is a metric of every run, which it would overwrite: log it under a name of "
                    f"your own, such as {own}"
                )
        self.logged |= {name: float(value) for name, value in values.items()}

    def stop(self, reason: str) -> None:
        """End the run after this iteration: it is evaluated and finished, with `reason` in its result."""
        self.stop_reason = reason or "ended by a callback"


class Callback:
    """Base class of callbacks, whose methods do nothing. With several learners, the main rank calls them.

    An exception that a method raises ends the run as an error of the environment would: with its last checkpoint.
    """

    def on_start(self, run: RunProgress) -> None:
        """Called before the first iteration of a process, also after a resume."""

    def on_iteration(self, run: RunProgress) -> None:
        """Called after each iteration, before its metrics are written."""

    def on_evaluation(self, run: RunProgress) -> None:
        """Called after each evaluation during training, before `on_iteration`."""

    def on_end(self, run: RunProgress) -> None:
        """Called when training ends in this process: at its end, and after a signal or an error."""


METHODS = ("on_start", "on_iteration", "on_evaluation", "on_end")


def check_callbacks(callbacks: Any) -> None:
    """Raise `UserError` for what is no sequence of callbacks, or a callback whose methods take other arguments."""
    if isinstance(callbacks, Callback) or not isinstance(callbacks, Sequence):
        raise UserError(f"callbacks: expected a list of callbacks, got {type(callbacks).__name__}: put it into a list")
    for callback in callbacks:
        if isinstance(callback, type):
            raise UserError(f"callbacks: {callback.__name__} is a class: pass an object, {callback.__name__}()")
        if not isinstance(callback, Callback):
            raise UserError(
                f"callbacks: {type(callback).__name__} is no yamame.Callback: make it a subclass, whose methods are "
                f"{', '.join(METHODS)}"
            )
        for name in dir(callback):
            if name.startswith("on_") and name not in METHODS and callable(getattr(callback, name)):
                raise UserError(
                    f"callbacks: {type(callback).__name__}.{name} is never called: the methods are {', '.join(METHODS)}"
                )
        for method in METHODS:
            try:
                inspect.signature(getattr(callback, method)).bind(None)
            except TypeError as error:
                name = f"{type(callback).__name__}.{method}"
                raise UserError(f"callbacks: {name} cannot be called ({error}): define {method}(self, run)") from error


def call_back(callbacks: Sequence[Callback], method: str, run: RunProgress) -> dict[str, float]:
    """Call a method of all callbacks; return the metrics that they have logged.

    What `on_end` logs is written nowhere, which is printed.

    Raises `UserError` if a method returns False, which ends training in other libraries, and if two callbacks log a
    metric of the same name.
    """
    logged: dict[str, float] = {}
    for callback in callbacks:
        name = f"{type(callback).__name__}.{method}"
        if getattr(callback, method)(run) is False:
            raise UserError(f"callbacks: {name} returned False: to end a run, call run.stop(reason)")
        twice = sorted(logged.keys() & run.logged.keys())
        if twice:
            raise UserError(f"callbacks: {name} logs {twice[0]!r}, as another callback does: give each its own name")
        logged |= run.logged
        run.logged = {}
    if logged and method == "on_end":
        print(
            f"callbacks: what on_end logs is not written ({', '.join(logged)}): log it in on_iteration", file=sys.stderr
        )
        return {}
    return logged
