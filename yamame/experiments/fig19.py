"""Figure 19: Transformer and GRU in Dark Key-To-Door."""

from dataclasses import replace

from yamame.experiments import Experiment
from yamame.experiments.fig5 import dark_key_to_door

_PANEL = dark_key_to_door()

EXPERIMENT = Experiment(
    title="Trajectory encoders in Dark Key-To-Door",
    source="appendix C.2, figure 19; curves read from figure 5",
    panels=(replace(_PANEL, arms=_PANEL.arms[:2]),),
)
