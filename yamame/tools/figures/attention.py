"""Attention of each layer and head at a step of a trial (fig. 15), and the frames it attends to."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float32, UInt8

from yamame.errors import UserError, check_range
from yamame.runs.directory import LATEST
from yamame.tools.options import config_with_env
from yamame.tools.palette import COLORS
from yamame.tools.plots import new_figure, plain, set_whole_ticks
from yamame.tools.run_groups import single_run
from yamame.tools.trial_recording import TrialRecording, record_trial
from yamame.training.trained_run import load_trained_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 8.2
"""Inches."""
KEEP = 256
"""Attention weights kept per head; the smallest ones of longer memories are left white."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of the figure."""

    step: int | None = None
    """Step whose attention is shown, from 0; None: the last one."""
    num_frames: int = 4
    """Frames of the most attended steps, if the environment renders any."""
    checkpoint: str = LATEST
    """latest, best, or a path."""
    seed: int | None = None
    """Seed of the trial; None: that of evaluations."""
    env: str = ""
    """Environment of the trial: your module:function, or a Gymnasium id; empty: that of the run."""
    instruction: str = ""
    """Instruction of the trial; empty: sampled by the task."""

    def __post_init__(self) -> None:
        check_range(self, "step", "seed", ge=0)
        check_range(self, "num_frames", ge=1)


def draw(paths: Sequence[Path], options: Options) -> "Figure":
    """A row per head, a column per step up to the attending one; darker is more."""
    run = single_run(paths)
    trained = load_trained_run(run, options.checkpoint, config_with_env(run, options.env or None))
    played = record_trial(trained, seed=options.seed, instruction=options.instruction, keep=KEEP)
    if played.analysis is None or played.analysis.attention is None:
        raise UserError(f"{run} has no attention: attention needs a run with a Transformer")
    step = len(played) - 1 if options.step is None else options.step
    if step >= len(played):
        raise UserError(f"--step {step}: the trial has steps 0 to {len(played) - 1}")
    weight_LHT = played.analysis.attention.for_query(step)
    attended = most_attended(weight_LHT, options.num_frames)
    frames = {time: frame for time in attended if (frame := _frame(played, time)) is not None}

    layers, heads, _ = weight_LHT.shape
    height = 1.2 + max(1.6, 0.16 * layers * heads)
    heights = [height, _height_of_frames(list(frames.values()))] if frames else [height]
    figure, panels = new_figure(
        rows=len(heights), width=WIDTH, height=sum(heights) + 0.3, gridspec_kw={"height_ratios": heights}
    )
    _heatmap(panels[0], weight_LHT, attended)
    about = f"{plain(played.task)}, step {step} of 0 to {len(played) - 1}, after {played.updates:,} updates"
    panels[0].set_title(f"Attention: {about}")
    if frames:
        _frames(panels[1], frames, weight_LHT, now=step)
    return figure


def most_attended(weight_LHT: Float32[np.ndarray, "L H T"], count: int) -> list[int]:
    """Return the steps with the largest weight averaged over all heads, in the order of time."""
    weight_T = weight_LHT.mean(axis=(0, 1))
    heaviest = np.argsort(-weight_T, kind="stable")[:count]
    return sorted(int(time) for time in heaviest if weight_T[time] > 0)


def _heatmap(axes: "Axes", weight_LHT: Float32[np.ndarray, "L H T"], attended: Sequence[int]) -> None:
    layers, heads, steps = weight_LHT.shape
    image = axes.imshow(
        weight_LHT.reshape(layers * heads, steps), cmap="Blues", vmin=0, vmax=float(weight_LHT.max()), aspect="auto",
        interpolation="nearest",
    )  # fmt: skip
    for layer in range(1, layers):
        axes.axhline(layer * heads - 0.5, color="black", linewidth=0.8)
    middles = [layer * heads + (heads - 1) / 2 for layer in range(layers)]
    axes.set_yticks(middles, [f"layer {layer + 1}" for layer in range(layers)])
    axes.set(xlabel="attended step", ylabel=f"{heads} heads of each layer")
    set_whole_ticks(axes)
    axes.grid(visible=False)
    for time in attended:
        axes.plot(time, layers * heads - 0.4, "^", color=COLORS[1], markersize=6, clip_on=False, zorder=4)
    axes.figure.colorbar(image, ax=axes, label="attention weight", pad=0.02)


def _height_of_frames(frames: Sequence[UInt8[np.ndarray, "height width 3"]]) -> float:
    """Return the height in inches of frames side by side with their titles."""
    return 0.4 + 0.85 * WIDTH / len(frames) * max(frame.shape[0] / frame.shape[1] for frame in frames)


def _frames(
    axes: "Axes", frames: dict[int, UInt8[np.ndarray, "height width 3"]], weight_LHT: np.ndarray, *, now: int
) -> None:
    """Draw frames side by side with their steps and weights."""
    axes.set_axis_off()
    weight_T = weight_LHT.mean(axis=(0, 1))
    for place, (time, frame) in enumerate(frames.items()):
        inset = axes.inset_axes((place / len(frames), 0.0, 0.94 / len(frames), 0.84))
        inset.imshow(frame, interpolation="nearest")
        inset.set_xticks([])
        inset.set_yticks([])
        title = f"step {time}{' (now)' if time == now else ''}: {100 * weight_T[time]:.0f} %"
        inset.set_title(title, fontsize=10)


def _frame(played: TrialRecording, time: int) -> UInt8[np.ndarray, "height width 3"] | None:
    from PIL import Image

    frame = played.frames[time]
    return None if frame is None else np.asarray(Image.open(BytesIO(frame)).convert("RGB"))
