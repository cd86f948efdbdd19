"""Our update against a plain PyTorch port of it, in one process, by turns.

python benchmarks/against_naive.py --size popgym --context 128 --lengths full [--json]

Takes the flags of `yamame bench learner`, which concern our side: the port (naive_update.py) is float32 and eager.
"""

import json
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import torch
from naive_update import NaiveLearner, PaddedBatch

from yamame.config.flags import parse_flags
from yamame.errors import UserError
from yamame.tools.bench.benchmarks import LearnerBench
from yamame.tools.bench.measure import BenchResult, seconds_per_call
from yamame.tools.bench.options import pack_windows, run_config, spell_out_switches
from yamame.training.components import build_components


def main() -> int:
    flags = [flag for flag in sys.argv[1:] if flag != "--json"]
    try:
        result = compare(parse_flags(LearnerBench(), spell_out_switches(flags), "against_naive.py"))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(result.to_json()) if "--json" in sys.argv else result.to_text())
    return 0


def compare(options: LearnerBench) -> BenchResult:
    if options.encoder != "transformer":
        raise UserError("the plain port is a Transformer: leave --encoder out")
    options.use_threads()
    config = run_config(options, options.network.task(options.context))
    with tempfile.TemporaryDirectory() as folder, closing(build_components(config, Path(folder), restarts=0)) as parts:
        learner, device = parts.algorithm, parts.algorithm.compute.device
        batch = pack_windows(options, config.replay).to(device)
        rows = PaddedBatch.of(batch, options.network.actions)
        naive = NaiveLearner(learner.model, config.algorithm.learner, generator=torch.Generator(device).manual_seed(0))
        for _ in range(options.warmup):
            learner.update(batch)
        naive.update(rows)
        ours, theirs = [], []
        for _ in range(options.repeats):
            ours += seconds_per_call(lambda: learner.update(batch), repeats=1, device=device)
            theirs += seconds_per_call(lambda: naive.update(rows), repeats=1, device=device)
        learner.raise_if_diverged()
        samples = {
            "updates_per_second": [1.0 / each for each in ours],
            "naive_updates_per_second": [1.0 / each for each in theirs],
            "ratio": [plain / fast for plain, fast in zip(theirs, ours, strict=True)],
        }
        return options.result("against_naive", learner.compute, samples, scalars={})


if __name__ == "__main__":
    sys.exit(main())
