"""`insight`: what an agent makes of a trajectory, by one forward over the whole of it."""

from yamame.inspection.recording import Insight
from yamame.model.agent import Agent
from yamame.records.trajectory import Trajectory


def insight(agent: Agent, trajectory: Trajectory, *, reward_scale: float, keep: int = 32) -> Insight:
    """What the agent makes of the trajectory; it equals what the policy saw while acting (tests/contracts).

    `reward_scale` is the learner's, so that values are in units of the task's reward. `keep` attention weights are kept
    of each moment.
    """
    raise NotImplementedError
