"""Wiring: build the parts of a run and loop over them.

config ── build ──> environments, agent, store
                         │
  ┌──────────────────────┴───────────────────────────┐
  │  collect -> store -> sample -> update -> refresh  │   local.py, one process; pace.py says how many updates
  └──────────────────────┬───────────────────────────┘
                         │
      metrics.jsonl, checkpoints/, report.md  in one run directory
"""
