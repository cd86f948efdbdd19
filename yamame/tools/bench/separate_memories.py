"""Speed of recurrent off-policy agents, to compare it with the agent of the paper (figures 6 and 29)."""

from dataclasses import dataclass, replace
from typing import Literal

import torch

from yamame.algorithms.base import build_model
from yamame.algorithms.recurrent_sac.agent import RecurrentAgentConfig
from yamame.algorithms.recurrent_sac.config import RecurrentSACConfig
from yamame.algorithms.recurrent_sac.learner import RecurrentSAC
from yamame.run_config import RunConfig
from yamame.tools.bench.measure import BenchResult, time_updates
from yamame.tools.bench.options import BatchOptions, pack_windows, run_config
from yamame.training.components import resolve_run_compute

Arm = Literal["separate-gru", "shared-gru", "separate-transformer", "shared-transformer"]
LABELS: dict[str, str] = {
    "separate-gru": "recurrent SAC, a GRU each for actor and critics",
    "shared-gru": "recurrent SAC, one GRU",
    "separate-transformer": "recurrent SAC, a Transformer each for actor and critics",
    "shared-transformer": "recurrent SAC, one Transformer",
}


@dataclass(frozen=True, kw_only=True)
class RecurrentSACBench(BatchOptions):
    """Updates per second of recurrent SAC on one synthetic batch, as those of `LearnerBench`.

    Its memories and heads are as wide and as deep as those of `LearnerBench` with the same trajectory encoder: two
    critics and one discount factor, where that has four and eighteen.
    """

    encoder: Arm = "separate-gru"  # type: ignore[assignment]

    def run(self) -> BenchResult:
        """Run the benchmark."""
        self.use_threads()
        learner = self.make_learner()
        compute, device = learner.compute, learner.compute.device
        batch = pack_windows(self, self._config().replay).to(device)
        self.print_warmup(compute, "update")
        times = time_updates(lambda: learner.update(batch), warmup=self.warmup, repeats=self.repeats, device=device)
        learner.raise_if_diverged()
        transitions = int(batch.loss_mask.sum())
        samples = {
            "updates_per_second": [1.0 / each for each in times.seconds],
            "tokens_per_second": [transitions / each for each in times.seconds],
        }
        scalars = {
            "tokens_per_update": transitions,
            "warmup_seconds": times.warmup_seconds,
            "peak_memory_bytes": times.peak_memory_bytes,
        }
        return self.result("learner", compute, samples, scalars)

    def make_learner(self) -> RecurrentSAC:
        """Return a learner with networks of random weights, which is not trained yet."""
        config = self._config()
        envs = config.env.build(1, self.seed)
        task = config.env.task_spec(envs)
        envs.close()
        model = build_model(config.algorithm, task, context_length=self.context, seed=self.seed)
        compute = resolve_run_compute(config)
        generator = torch.Generator(compute.device).manual_seed(self.seed)
        learner = config.algorithm.build(model, compute=compute, generator=generator)
        assert isinstance(learner, RecurrentSAC)
        return learner

    def _config(self) -> RunConfig:
        kind, _, encoder = self.encoder.partition("-")
        agent = self.network.agent(encoder)
        own = RecurrentAgentConfig(shared=kind == "shared")
        own = replace(
            own,
            timestep_encoder=agent.timestep_encoder,
            trajectory_encoder=agent.trajectory_encoder,
            actor=replace(own.actor, hidden_sizes=agent.actor.hidden_sizes),
            critic_hidden_sizes=agent.critic.hidden_sizes,
        )
        options = BatchOptions(**{**vars(self), "encoder": encoder})
        config = run_config(options, self.network.task(self.context))
        return replace(config, algorithm=RecurrentSACConfig(agent=own))
