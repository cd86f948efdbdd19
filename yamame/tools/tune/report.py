"""Report of a search: a table of its trials, the best settings as a command, a figure."""

import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from yamame.tools.palette import COLORS, RANDOM_COLOR
from yamame.tools.plots import new_figure, save, set_whole_ticks
from yamame.tools.study.report import format_score, markdown_table, write_texts
from yamame.tools.tune.space import Choices
from yamame.tools.tune.study import ERROR
from yamame.tools.tune.trial import TuneConfig

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKDOWN, JSON, FIGURE = "results.md", "results.json", "search.png"
MAX_COLUMNS = 3


def write_search_report(study: optuna.Study, config: TuneConfig) -> tuple[dict[str, Any], str]:
    """Write `results.json`, `results.md` and `search.png`; return the results and the text."""
    trials = study.get_trials(deepcopy=False)
    results, text = _to_json(trials, config), _to_text(trials, config)
    title = f"# Search for settings of {config.recipe.name}"
    texts = {
        JSON: json.dumps(results, indent=1) + "\n",
        MARKDOWN: f"{title}\n\n{text}\n\n![{FIGURE}]({FIGURE})\n",
    }
    write_texts(config.directory, texts)
    save(plot_search(trials, config), config.directory / FIGURE)
    return results, text


def plot_search(trials: Sequence[FrozenTrial], config: TuneConfig) -> "Figure":
    """Plot the return of each trial, first in their order, then against each setting."""
    columns = min(MAX_COLUMNS, 1 + len(config.space))
    rows = -(-(1 + len(config.space)) // columns)
    figure, panels = new_figure(rows=rows, columns=columns, width=4.2 * columns, height=3.2 * rows)
    _scatter(panels[0], trials, [trial.number for trial in trials])
    complete = _complete(trials)
    best = [max(other.value or 0.0 for other in complete[: n + 1]) for n in range(len(complete))]
    panels[0].step([trial.number for trial in complete], best, where="post", color=COLORS[1], label="best so far")
    panels[0].set(xlabel="trial", ylabel="mean return", title=config.recipe.name)
    panels[0].legend(frameon=False, fontsize=8)
    set_whole_ticks(panels[0])
    for axes, (flag, parameter) in zip(panels[1:], config.space.items(), strict=False):
        axes.set(xlabel=flag.removeprefix("--"))
        if isinstance(parameter, Choices):
            axes.set_xticks(range(len(parameter.values)), parameter.values)
            axes.set_xlim(-0.5, len(parameter.values) - 0.5)
            _scatter(axes, trials, [parameter.values.index(trial.params[flag]) for trial in trials])
        else:
            axes.set_xscale("log" if parameter.log else "linear")
            _scatter(axes, trials, [trial.params[flag] for trial in trials])
            if parameter.is_int and not parameter.log:
                set_whole_ticks(axes)
    for axes in panels[1 + len(config.space) :]:
        axes.set_visible(False)
    return figure


def _scatter(axes: "Axes", trials: Sequence[FrozenTrial], x: Sequence[int | float]) -> None:
    for is_pruned, marker, color, label in ((False, "o", COLORS[0], "trials"), (True, "x", RANDOM_COLOR, "pruned")):
        points = [
            (position, value)
            for position, trial in zip(x, trials, strict=True)
            if (value := _value(trial)) is not None and (trial.state is TrialState.PRUNED) is is_pruned
        ]
        positions, values = [position for position, _ in points], [value for _, value in points]
        axes.plot(positions, values, marker, color=color, markersize=5, linestyle="none", label=label)


def _value(trial: FrozenTrial) -> float | None:
    """The final return; of a pruned trial, that of its last evaluation."""
    return trial.value if trial.value is not None or trial.last_step is None else _last(trial)


def _last(trial: FrozenTrial) -> float:
    assert trial.last_step is not None
    return trial.intermediate_values[trial.last_step]


def _best(trials: Sequence[FrozenTrial]) -> FrozenTrial | None:
    return max(_complete(trials), key=lambda trial: trial.value or 0.0, default=None)


def _complete(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials with a final return. Optuna gives a pruned trial a value, too: that of its last evaluation."""
    return [trial for trial in trials if trial.value is not None and trial.state is TrialState.COMPLETE]


def _command(trial: FrozenTrial, config: TuneConfig) -> str:
    imports = [word for module in config.imports for word in ("--import", module)]
    return shlex.join([*config.train_command(trial.params), *imports])


def _settings(trial: FrozenTrial, config: TuneConfig) -> dict[str, str]:
    return {flag: " ".join(config.space[flag].words(value)) for flag, value in trial.params.items()}


def _to_json(trials: Sequence[FrozenTrial], config: TuneConfig) -> dict[str, Any]:
    best = _best(trials)
    return {
        "recipe": config.recipe.name,
        "output_dir": str(config.directory),
        "best": None
        if best is None
        else {"trial": best.number, "return_mean": best.value, "command": _command(best, config)},
        "trials": [
            {
                "trial": trial.number,
                "state": trial.state.name.lower(),
                "return_mean": _value(trial),
                "settings": _settings(trial, config),
                **({"error": trial.user_attrs[ERROR]} if ERROR in trial.user_attrs else {}),
            }
            for trial in trials
        ],
    }


def _to_text(trials: Sequence[FrozenTrial], config: TuneConfig) -> str:
    ranks = {
        trial.number: rank for rank, trial in enumerate(sorted(_complete(trials), key=lambda t: -(t.value or 0.0)))
    }
    ranked = sorted(trials, key=lambda trial: (ranks.get(trial.number, len(ranks)), trial.number))
    rows = [
        {
            "trial": str(trial.number),
            "return": format_score(_value(trial)),
            "state": trial.state.name.lower(),
            **{flag[2:]: setting for flag, setting in _settings(trial, config).items()},
        }
        for trial in ranked
    ]
    table = markdown_table(rows) if rows else "No trials."
    best = _best(trials)
    command = "No trial is complete." if best is None else f"Best: trial {best.number}\n\n    {_command(best, config)}"
    note = (
        "A pruned trial was stopped: at one of its evaluations others were better. Its return is that of its last one."
    )
    is_pruned = any(trial.state is TrialState.PRUNED for trial in trials)
    return "\n\n".join([table, command, *([note] if is_pruned else [])])
