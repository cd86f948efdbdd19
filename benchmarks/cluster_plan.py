"""What a cluster run is made of, and on paper how fast each part of it lets the whole be."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a task costs: seconds of one core, bytes."""

    environments: int
    """That each collector steps."""
    trial_steps: int
    vector_step_seconds: float
    """Of all environments of a collector, the policy's forward included."""
    trajectory_bytes: float
    put_seconds: float
    """Of a collector, for each trajectory that it hands to the object store."""
    get_seconds: float
    """Of a learner, for each trajectory that it takes out."""
    append_seconds: float
    """Of a learner, for each trajectory that it encodes and stores."""
    weights_bytes: float
    publish_seconds: float
    """Of a learner, for putting weights into the object store."""
    load_seconds: float
    """Of a collector, for loading weights and making the policy."""
    update_seconds: float
    """Of a learner alone that makes the whole batch."""
    updates_per_env_step: float
    request_seconds: float = 0.0
    """Of a learner, for one request and its answer."""
    poll_seconds: float = 0.0
    """Of a learner, for each collector that it waits for, at each answer."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a run is spread; bits and seconds of what lies between."""

    collectors: int
    learners: int = 1
    collectors_per_node: int = 16
    """They share a network and an object store, into which weights come once."""
    bits_per_second: float = 10e9
    """Of each node, in either direction."""
    latency_seconds: float = 1e-3
    """Of each message."""
    relayed: bool = False
    """Weights go from node to node in a binary tree, instead of from the learner to all."""
    all_reduce_seconds: float = 0.0
    """Of each update of several learners."""
    max_policy_lag: int = 2
    requests_per_collector: int = 2
    max_request_seconds: float = 1.0
    """Maximum time that a request takes."""
    iteration_steps: int = 0
    """Vector steps of an iteration; 0: those of a trial."""
    near: bool = False
    """Whether collectors are on the learners' machine, whose object store they share."""

    def update_seconds(self, work: Work) -> float:
        """Of one update, each learner making its part of the batch."""
        return work.update_seconds / self.learners + (self.all_reduce_seconds if self.learners > 1 else 0.0)


def limits(work: Work, plan: Plan) -> dict[str, float]:
    """On paper: environment steps a second that each resource allows if nothing else is in the way."""
    steps, each = plan.iteration_steps or work.trial_steps, work.environments
    per_iteration = steps * each * plan.collectors
    trajectories = per_iteration / work.trial_steps
    requests_per_collector = max(
        plan.requests_per_collector, math.ceil(steps * work.vector_step_seconds / plan.max_request_seconds)
    )
    requests = requests_per_collector * plan.collectors / plan.learners
    poll_total = work.request_seconds + work.poll_seconds * plan.collectors / plan.learners
    nodes = math.ceil(plan.collectors / plan.collectors_per_node)
    copies = plan.learners if plan.relayed else max(nodes, plan.learners)
    new_weights = min(1.0, per_iteration * work.updates_per_env_step)
    seconds = {
        "collectors": steps * work.vector_step_seconds
        + trajectories / plan.collectors * work.put_seconds
        + new_weights * work.load_seconds,
        "updates": per_iteration * work.updates_per_env_step * plan.update_seconds(work)
        + trajectories * work.append_seconds / plan.learners
        + new_weights * work.publish_seconds,
        "receiving results": requests * poll_total + trajectories * work.get_seconds / plan.learners,
        "network, results": 0.0 if plan.near else trajectories * work.trajectory_bytes * 8 / plan.bits_per_second,
        "network, weights": 0.0 if plan.near else new_weights * copies * work.weights_bytes * 8 / plan.bits_per_second,
    }
    return {name: per_iteration / spent if spent else math.inf for name, spent in seconds.items()}
