#!/bin/sh
# The figures in docs/figures, from runs of some minutes each: sh benchmarks/figures.sh [FOLDER OF THE RUNS]
set -eu
runs=${1:-runs/figures}
maze=$runs/maze tmaze=$runs/tmaze long=$runs/long
draw() { yamame figure "$@" --output "docs/figures/$1.png"; }

yamame sweep passive-tmaze --variants no-memory,no-multi-gamma --seeds 0,1,2 --output-dir "$tmaze" \
  --env.horizon 12 --env-steps 30000 --checkpoint.milestone-interval-env-steps 3000 --eval.interval-env-steps 1500
yamame train passive-tmaze --run-dir "$long" --env.horizon 20 --env-steps 40000 --checkpoint.milestone-interval-env-steps 4000 \
  --eval.stop-return None --eval.interval-env-steps 4000
yamame train maze-runner --run-dir "$maze" --env.size 11 --env.horizon 100 --env-steps 40000 --size tiny \
  --checkpoint.milestone-interval-env-steps 10000

draw learning-curves "$tmaze"
draw ablation-bars "$tmaze"
draw q-by-gamma "$long"
draw activations "$long"
draw attention tests/golden/solved-tmaze
draw exploration-schedule "$maze"
draw relabeling-priorities "$maze"
draw throughput benchmarks/2026-11-21-2-cores-amd-epyc-avx2.json
