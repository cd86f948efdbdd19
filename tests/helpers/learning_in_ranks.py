"""Updates made by several processes, each with a part of every batch, and by one with the whole."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import torch
from tiny_agents import DISCRETE, TINY_AGENT, ActionSpace, in_double, random_windows, tiny_agent
from torch import Tensor

from yamame.algorithms.amago.learner import Learner, LearnerConfig
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.data.batch import Batch, Window, pack
from yamame.distributed_context import (
    SINGLE_PROCESS,
    DistributedContext,
    PeerLostError,
    init_distributed,
    open_rendezvous,
)
from yamame.nets.heads.actor import Actor
from yamame.nets.heads.popart import PopArtConfig

UPDATES = 20
LENGTHS = [12] * 9 + [7, 11, 3] + [2, 1, 5, 1, 12, 2, 1, 3, 4, 1, 2, 6]
"""Transitions of the 24 windows of a batch: the second half has a third of the tokens."""
_MAX_TOKENS = 512


AGENT = replace(TINY_AGENT, critic=replace(TINY_AGENT.critic, value_code=PopArtConfig(initial_square=100.0)))
"""PopArt that starts from the data amplifies the rounding of a first batch in parts."""


@dataclass(frozen=True)
class Updates:
    """Some updates, the same however many processes make them."""

    action_space: ActionSpace = field(default_factory=lambda: DISCRETE)
    dtype: torch.dtype = torch.float32
    updates: int = UPDATES
    nan_at: int = -1
    """The update before which the last rank's rewards become NaN."""
    means_of_means: bool = False
    """An error on purpose: each process averages over its own tokens, and all average over processes."""
    agent: Any = AGENT
    learner: LearnerConfig = field(
        default_factory=lambda: LearnerConfig(
            learning_rate=3e-4, lr_warmup_updates=10, td=TDLoss(num_critics_in_target=4, n_step=3), tau=0.05
        )
    )


@dataclass(frozen=True)
class Outcome:
    state: dict[str, Tensor]
    """Of the agent, by name; of the optimizer under optimizer.*."""
    metrics: list[dict[str, float]]
    skipped: int


class MeansOfMeans(DistributedContext):
    """Counts this rank's transitions times the number of ranks instead of all transitions."""

    def all_reduce_sum_(self, *tensors: Tensor) -> None:
        if len(tensors) == 1 and not tensors[0].dim():
            tensors[0].mul_(self.world_size)
        else:
            super().all_reduce_sum_(*tensors)


def made(work: Updates, ranks: DistributedContext = SINGLE_PROCESS) -> Outcome:
    """The state of a learner after its part of the updates."""
    agent = tiny_agent(work.agent, work.action_space, dtype=work.dtype, seed=ranks.rank)
    context = MeansOfMeans(ranks.rank, ranks.world_size) if work.means_of_means else ranks
    learner = Learner(agent, work.learner, generator=torch.Generator().manual_seed(ranks.rank), distributed=context)
    learner.broadcast_parameters()
    metrics = []
    for update in range(work.updates):
        windows = random_windows(update, LENGTHS, work.action_space)
        batch, first = _share(windows, ranks, work.dtype)
        if update == work.nan_at and ranks.rank == ranks.world_size - 1:
            batch.reward[0] = torch.nan
        with _one_noise(agent.actor, agent.target_actor, seed=update, first=first):
            measured = learner.update(batch)
        metrics.append({name: float(value) for name, value in measured.items()})
    state = {name: value.clone() for name, value in agent.state_dict().items()}
    for number, moments in learner.optimizer.state_dict()["state"].items():
        state |= {f"optimizer.{number}.{name}": value.clone() for name, value in moments.items()}
    return Outcome(state, metrics, learner.num_nonfinite)


def in_processes(processes: Pool, work: Callable[..., Any], *arguments: Any, world: int = 2) -> list[Any]:
    """Results of `work(*arguments, ranks)` in as many of the processes. Ranks wait for each other: each has its own."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "rendezvous"
        results = [processes.apply_async(_in_rank, (rank, world, place, work, arguments)) for rank in range(world)]
        return [result.get(timeout=240) for result in results]


def _in_rank(rank: int, world: int, rendezvous: Path, work: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    place = open_rendezvous(rendezvous)
    with init_distributed(rank, world, local_rank=rank, local_world_size=world, device="cpu", store=place) as ranks:
        return work(*arguments, ranks)


def _share(windows: list[Window], ranks: DistributedContext, dtype: torch.dtype) -> tuple[Batch, int]:
    """A rank's part of a batch, and where its tokens start in the whole."""
    size = len(windows) // ranks.world_size
    start = ranks.rank * size
    batch = pack(windows[start : start + size], pad_tokens_to_multiple_of=8, pad_seqlen_to_multiple_of=13)
    first = sum(window.length + 1 for window in windows[:start])
    return (in_double(batch) if dtype is torch.float64 else batch), first


@contextmanager
def _one_noise(*actors: Actor, seed: int, first: int) -> Iterator[None]:
    """Random numbers of the actions sampled for the tokens of all ranks together, of which each takes its own."""

    def noise(actor: Actor, number: int) -> Callable[..., Tensor | None]:
        def drawn(state_ND: Tensor, generator: torch.Generator) -> Tensor | None:
            if actor.discrete:
                return None
            shape = (_MAX_TOKENS, actor.num_gammas, actor.action_size)
            whole = torch.randn(shape, generator=torch.Generator().manual_seed(2 * seed + number), dtype=torch.float64)
            return whole[first : first + len(state_ND)].to(state_ND.dtype)

        return drawn

    for number, actor in enumerate(actors):
        actor.sample_noise = noise(actor, number)  # type: ignore[method-assign]
    yield
    for actor in actors:
        del actor.sample_noise


def exchanged(ranks: DistributedContext) -> dict[str, Any]:
    """What each of the exchanges gives."""
    tensors = [torch.tensor([ranks.rank + 1.0]), torch.full((2,), float(ranks.rank))]
    ranks.all_reduce_sum_(*tensors)
    return {
        "max": ranks.all_reduce_max(ranks.rank + 1),
        "any": ranks.any_rank(ranks.rank == 1),
        "none": ranks.any_rank(False),
        "first": ranks.broadcast_object({"rank": ranks.rank}),
        "gathered": ranks.gather_object(ranks.rank),
        "tensors": [tensor.tolist() for tensor in tensors],
    }


def left_alone(ranks: DistributedContext) -> str:
    """How a failure of the second rank in what all do at once shows on each."""
    try:
        with ranks.propagate_failure():
            if ranks.rank:
                raise ValueError
    except PeerLostError:
        return "PeerLostError"
    except ValueError:
        return "failed"
    return ""


def listening(ranks: DistributedContext) -> list[str]:
    """Addresses at which this process listens, in the hexadecimal numbers of Linux, after an exchange."""
    ranks.any_rank(False)
    own = {str(file.readlink()) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()}
    addresses = []
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/self/net", table).read_text().splitlines()[1:]:
            _, address, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in own:
                addresses.append(address.split(":")[0])
    return addresses
