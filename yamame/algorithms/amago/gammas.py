"""Lists of gammas. Imports no PyTorch."""

PAPER_DISCRETE = (
    0.7, 0.9, 0.93, 0.95, 0.98, 0.99, 0.992, 0.994, 0.995, 0.997, 0.998, 0.999, 0.9991, 0.9992, 0.9993, 0.9994, 0.9995,
)  # fmt: skip
"""The paper's gammas for discrete actions."""

PAPER_CONTINUOUS = (0.9, 0.95, 0.99, 0.993, 0.996)
"""The paper's gammas for continuous actions."""

SHORT_GAMMAS = (0.1, 0.9, 0.95, 0.97, 0.99, 0.995)
"""Default of the official code, at a third of the cost of `PAPER_DISCRETE`."""

DEFAULT_GAMMAS = (0.1, 0.9, 0.97)
"""Of the agent of a new environment, besides the acting one. With the first, whose values are hardly more than the next
reward, noise of later rewards does not hide what an action earns at once."""

DEFAULT_SEPARATE_GAMMA = 0.9999
"""Of the separate heads of that agent: a later reward that is only a little larger is worth waiting for."""
