"""Figure 29: updates per second at growing contexts, Transformer, GRU, and GRUs of separate networks."""

from yamame.experiments import Analysis, Experiment

EXPERIMENT = Experiment(
    title="Training throughput",
    source="appendix D, figure 29",
    analyses=(
        Analysis(title="throughput", figure="throughput", flags=("--encoders", "transformer", "gru", "separate-gru")),
    ),
    notes=("The paper's numbers, of an A5000, are not known.",),
)
