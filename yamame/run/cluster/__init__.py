"""Collecting in processes of a Ray cluster.

`Round` sees a collector and a policy as ever (`stand_in.py`); behind them a fleet of Ray actors (`fleet.py`) works off
orders: act for so many vector steps with these weights. What comes back is a harvest.

                    weights, once a round                     Order
    learner ────────────────────────────> Fleet ─────────────────────────────> CollectorActor (CollectorWorker)
       ^                                    │ <───────────────────────────────   its environments, its policy,
       └──── trajectories, in the order ────┘                Harvest             the trials in flight
             in which they arrive
"""
