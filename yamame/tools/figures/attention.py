"""Where each layer and head looks back to at a step of a trial (fig. 15), and what was seen there."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float32, UInt8

from yamame.errors import UserError, check_range
from yamame.runs import LATEST
from yamame.tools.plots import COLORS, finish, new_figure, plain
from yamame.tools.run_groups import single_run
from yamame.tools.trial_recording import TrialRecording, record_trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 8.2
"""Inches."""
KEEP = 256
"""Attention weights of a head that are looked at; of longer memories the lightest are left white."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of the picture."""

    step: int | None = None
    """At which the agent acts, from 0; None: the last of the trial."""
    frames: int = 4
    """Of the steps that are looked at most, shown below where the environment has pictures."""
    checkpoint: str = LATEST
    """latest, best, or a path."""
    seed: int | None = None
    """Of the trial; None: that of evaluations."""
    instruction: str = ""
    """What to do, instead of what the task would draw."""

    def __post_init__(self) -> None:
        check_range(self, "step", "seed", ge=0)
        check_range(self, "num_frames", ge=1)


def draw(paths: Sequence[Path], options: Options) -> "Figure":
    """A row for each head, a column for each step up to the one that looks; darker is more."""
    run = single_run(paths)
    played = record_trial(
        run, checkpoint=options.checkpoint, seed=options.seed, instruction=options.instruction, keep=KEEP
    )
    if played.insight.attention is None:
        raise UserError(f"{run} has no attention: attention needs a run with a Transformer")
    step = len(played) - 1 if options.step is None else options.step
    if step >= len(played):
        raise UserError(f"--step {step}: the trial has steps 0 to {len(played) - 1}")
    weight_LHT = played.insight.attention.for_query(step)
    seen = most_attended(weight_LHT, options.frames)
    pictures = {moment: picture for moment in seen if (picture := _picture(played, moment)) is not None}

    layers, heads, _ = weight_LHT.shape
    height = 1.2 + max(1.6, 0.16 * layers * heads)
    heights = [height, _height_of_frames(list(pictures.values()))] if pictures else [height]
    figure, panels = new_figure(
        rows=len(heights), width=WIDTH, height=sum(heights) + 0.3, gridspec_kw={"height_ratios": heights}
    )
    _heatmap(panels[0], weight_LHT, seen)
    about = f"{plain(played.task)}, step {step} of 0 to {len(played) - 1}, after {played.updates:,} updates"
    panels[0].set_title(f"Attention: {about}")
    if pictures:
        _frames(panels[1], pictures, weight_LHT, now=step)
    return finish(figure)


def most_attended(weight_LHT: Float32[np.ndarray, "L H T"], count: int) -> list[int]:
    """The steps with the largest weight on average over all heads, in the order of time."""
    weight_T = weight_LHT.mean(axis=(0, 1))
    heaviest = np.argsort(-weight_T, kind="stable")[:count]
    return sorted(int(moment) for moment in heaviest if weight_T[moment] > 0)


def _heatmap(axes: "Axes", weight_LHT: Float32[np.ndarray, "L H T"], seen: Sequence[int]) -> None:
    layers, heads, steps = weight_LHT.shape
    image = axes.imshow(
        weight_LHT.reshape(layers * heads, steps), cmap="Blues", vmin=0, vmax=float(weight_LHT.max()), aspect="auto",
        interpolation="nearest",
    )  # fmt: skip
    for layer in range(1, layers):
        axes.axhline(layer * heads - 0.5, color="black", linewidth=0.8)
    axes.set_yticks([layer * heads + (heads - 1) / 2 for layer in range(layers)], _layer_names(layers))
    axes.set(xlabel="step that is looked at", ylabel=f"{heads} heads of each layer")
    axes.locator_params(axis="x", integer=True)
    axes.grid(visible=False)
    for moment in seen:
        axes.plot(moment, layers * heads - 0.4, "^", color=COLORS[1], markersize=6, clip_on=False, zorder=4)
    axes.figure.colorbar(image, ax=axes, label="attention weight", pad=0.02)


def _layer_names(layers: int) -> list[str]:
    return [f"layer {layer + 1}" for layer in range(layers)]


def _height_of_frames(pictures: Sequence[UInt8[np.ndarray, "height width 3"]]) -> float:
    """Inches that pictures side by side take, with their titles."""
    return 0.4 + 0.85 * WIDTH / len(pictures) * max(picture.shape[0] / picture.shape[1] for picture in pictures)


def _frames(
    axes: "Axes", pictures: dict[int, UInt8[np.ndarray, "height width 3"]], weight_LHT: np.ndarray, *, now: int
) -> None:
    """Pictures side by side, each with its step and what it was given."""
    axes.set_axis_off()
    weight_T = weight_LHT.mean(axis=(0, 1))
    for place, (moment, picture) in enumerate(pictures.items()):
        inset = axes.inset_axes((place / len(pictures), 0.0, 0.94 / len(pictures), 0.84))
        inset.imshow(picture, interpolation="nearest")
        inset.set_xticks([])
        inset.set_yticks([])
        title = f"step {moment}{' (now)' if moment == now else ''}: {100 * weight_T[moment]:.0f} %"
        inset.set_title(title, fontsize=10)


def _picture(played: TrialRecording, moment: int) -> UInt8[np.ndarray, "height width 3"] | None:
    from PIL import Image

    frame = played.frames[moment]
    return None if frame is None else np.asarray(Image.open(BytesIO(frame)).convert("RGB"))
