"""`Recording`: one trial of a run's agent, as it looked and as the agent saw it.

T transitions, T + 1 moments: at moment t action t is chosen; moment T is where the last one led.
G discounts (the acting one stands last), A actions, L layers.
"""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import blake2b
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64, Shaped, UInt8
from PIL import Image
from torch import Tensor

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.amago.policy import Policy
from yamame.collect.collector import Collector
from yamame.collect.exploration import Explorer, NoExploration
from yamame.collect.faults import FaultToleranceConfig
from yamame.config import RunConfig
from yamame.data.actions import ACTION_MASK_KEY, PolicyActionSpace, num_choices
from yamame.data.goals import COMPLETED, INSTRUCTION_KEY
from yamame.data.packing import Window, pack
from yamame.data.spaces import DEFAULT_KEY
from yamame.data.step import EpisodeStep
from yamame.data.trajectory import Trajectory
from yamame.envs.base import EpisodeVectorEnv, RenderableVectorEnv
from yamame.envs.config import EnvConfig
from yamame.envs.wrappers.instruction import GoalEnvConfig, apply_instruction
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError
from yamame.evaluate import EVALUATION_SEED
from yamame.nets.heads.actor import PolicyDistribution
from yamame.nets.heads.distributions import CategoricalPolicy, FactoredPolicy, TanhGaussianPolicy
from yamame.nets.introspection import AttentionWeights, SupportsExplain
from yamame.runs import LATEST, load_model, read_config


@dataclass(frozen=True, kw_only=True)
class ActionDistributions:
    """What the policy of the acting discount might do at every moment."""

    choices: tuple[int, ...] = ()
    """How many there are of each component of a discrete action, which lie side by side in A; none if continuous."""
    probability_TA: Float32[np.ndarray, "moments A"] | None = None
    """Of each choice, as it acts: clipped, and 0 where a mask forbids it. None for continuous actions."""
    mean_TA: Float32[np.ndarray, "moments A"] | None = None
    """Of the Gaussian whose tanh is a continuous action. None for discrete ones."""
    std_TA: Float32[np.ndarray, "moments A"] | None = None
    """Its standard deviation."""


@dataclass(frozen=True, kw_only=True)
class AgentAnalysis:
    """What the agent made of a trial, by one forward over all of it."""

    gammas_G: Float32[np.ndarray, "G"]
    q_TG: Float32[np.ndarray, "T G"]
    """Value of the action taken, the mean over the critics, in units of the task's reward."""
    value_TG: Float32[np.ndarray, "moments G"]
    """Value of each discount's own policy: the expectation over a discrete action, or that of the most likely one."""
    action_distributions: ActionDistributions
    attention: AttentionWeights | None
    """None where the sequence model has none. Its tokens are moments."""
    max_abs_LPT: Float32[np.ndarray, "L P moments"] | None
    """The largest absolute number at each of `PLACES` of each layer (paper, figure 14); None like `attention`."""


@dataclass(frozen=True, kw_only=True)
class TrialRecording:
    """One trial as a checkpoint of a run played it."""

    task: str
    checkpoint: str
    """Name of its folder."""
    updates: int
    """Of the checkpoint."""
    seed: int
    instruction: str
    """What the agent was told, if it was not what the task drew."""
    deterministic: bool
    """Whether it took the most likely action, and not a sample."""
    truncated: bool
    """Whether the trial would have gone on, but is longer than may be recorded."""
    trajectory: Trajectory
    """What happened: observations of T + 1 moments, T actions, rewards, successes, goals."""
    frames: tuple[bytes | None, ...]
    """A PNG of each of the T + 1 moments; None where the environment has no pictures."""
    attempt_end_frames: Mapping[int, bytes]
    """Transition that ended an attempt after which another began -> a PNG of where it had led."""
    observation_texts: tuple[str, ...]
    """What the agent saw at each moment, in a few words."""
    action_names: tuple[str, ...]
    """Of the A choices, or dimensions."""
    sub_goals: tuple[str, ...]
    """The instruction for people to read; empty where there is none."""
    goals_completed: Int64[np.ndarray, "moments"]
    """Sub-goals completed at each moment."""
    insight: AgentAnalysis

    def __len__(self) -> int:
        """T."""
        return len(self.trajectory)

    @property
    def attempt(self) -> Int64[np.ndarray, "moments"]:
        """Number of the attempt that each moment belongs to, from 1."""
        return np.cumsum(self.trajectory.episode_start)


class FrameRecorder:
    """`Environments` that behave as those behind it, and keep PNGs of the first one until its first trial is over.

    `frames` are those of the moments at which an action is chosen, then that of the end; `ends` those of transitions
    that ended an attempt, by the number of the transition. A trial that breaks off since its environment failed is
    forgotten: what follows it is kept.
    """

    def __init__(self, environments: EpisodeVectorEnv, *, wanted: bool = True) -> None:
        self._environments = environments
        self.num_envs = environments.num_envs
        self.observation_space = environments.observation_space
        self.action_space = environments.action_space
        self.env_action_space = environments.env_action_space
        self.frames: list[bytes | None] = []
        self.ends: dict[int, bytes] = {}
        self._wanted = wanted and isinstance(environments, RenderableVectorEnv)
        self._over = False
        self._drawn: dict[bytes, bytes] = {}

    def reset(
        self, reset_mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """See `Environments.reset`."""
        observation = self._environments.reset(reset_mask, new_task)
        self._over |= bool(new_task[0] and self.frames)
        if reset_mask[0] and not self._over:
            end = self.frames.pop() if self.frames else None
            if end is not None:
                self.ends[len(self.frames) - 1] = end
            self.frames.append(self._picture())
        return observation

    def step(self, action: Shaped[np.ndarray, "E ..."]) -> EpisodeStep:
        """See `Environments.step`."""
        answer = self._environments.step(action)
        if self._over:
            return answer
        if answer.failed is not None and answer.failed[0]:
            self.frames.clear()
            self.ends.clear()
        elif not answer.is_transition[0] and self.frames:
            self.frames.pop()  # the attempt begins only now
        self.frames.append(self._picture())
        return answer

    def close(self) -> None:
        """Close what is behind."""
        self._environments.close()

    def _picture(self) -> bytes | None:
        if not self._wanted or not isinstance(self._environments, RenderableVectorEnv):
            return None
        try:
            picture = self._environments.render()
        except UserError:
            self._wanted = False
            return None
        digest = blake2b(picture.tobytes(), digest_size=16).digest()
        if digest not in self._drawn:
            self._drawn[digest] = encode_png(picture)
        return self._drawn[digest]


def encode_png(picture: UInt8[np.ndarray, "height width 3"]) -> bytes:
    """A picture as a PNG, quickly made: one of few colours is small in any case."""
    file = BytesIO()
    Image.fromarray(picture).save(file, "PNG", compress_level=1)
    return file.getvalue()


FEW = 12
"""Numbers of a leaf that are written out; of larger ones the shape and the range are."""


def describe_observation(observation: Mapping[str, Shaped[np.ndarray, "..."]]) -> str:
    """One observation, leaf by leaf; instructions and masks are told elsewhere."""
    shown = {name: leaf for name, leaf in observation.items() if name not in (INSTRUCTION_KEY, ACTION_MASK_KEY)}
    return "   ".join(_leaf(leaf) if name == DEFAULT_KEY else f"{name} {_leaf(leaf)}" for name, leaf in shown.items())


def _leaf(leaf: Shaped[np.ndarray, "..."]) -> str:
    if leaf.ndim == 0:
        return f"{leaf.item():.3g}"
    if leaf.size <= FEW:
        return "[" + ", ".join(f"{number:.3g}" for number in leaf.flatten().tolist()) + "]"
    shape = " × ".join(map(str, leaf.shape))
    return f"{shape} numbers from {float(leaf.min()):.3g} to {float(leaf.max()):.3g}"


@torch.no_grad()
def analyze_trajectory(
    agent: Agent, trajectory: Trajectory, *, reward_scale: float, keep: int | None = None
) -> AgentAnalysis:
    """What the agent makes of the trajectory; equal to what the policy saw while acting (tests/contracts).

    `reward_scale` is the learner's, so that values are in units of the task's reward. `keep` attention weights are kept
    of each moment (None: as many as take a few megabytes). Leaves the agent in evaluation mode.
    """
    agent.eval()
    window = Window(trajectory=trajectory, start=0, length=len(trajectory))
    batch = pack([window], pad_tokens_to_multiple_of=1).to(agent.gammas_G.device)
    timestep_ND = agent.timestep_encoder(agent.features(batch), batch.observation)
    encoder = agent.trajectory_encoder
    told = encoder.explain(timestep_ND, batch, keep=keep) if isinstance(encoder, SupportsExplain) else None
    state_ND = told.state_TD if told else encoder(timestep_ND, batch)
    policy = agent.actor(state_ND, batch.action_mask)
    q_NKG, value_NKG = agent.critic.q_values(state_ND, batch.action, policy, _no_chance(agent, state_ND))

    def in_rewards(raw_NKG: Float[Tensor, "N K G"]) -> np.ndarray:
        return (agent.popart.denormalize(raw_NKG).mean(1) / reward_scale).float().cpu().numpy()

    return AgentAnalysis(
        gammas_G=agent.gammas_G.float().cpu().numpy(),
        q_TG=in_rewards(q_NKG)[:-1],
        value_TG=in_rewards(value_NKG),
        action_distributions=_intention(agent, policy),
        attention=told.attention if told else None,
        max_abs_LPT=told.max_abs_LPT if told else None,
    )


def _no_chance(agent: Agent, state_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N G A"] | None:
    """The noise by which a policy's `action_vector` is the most likely action."""
    if agent.actor.discrete:
        return None
    return state_ND.new_zeros(len(state_ND), len(agent.gammas_G), agent.actor.action_size)


def _intention(agent: Agent, policy: PolicyDistribution) -> ActionDistributions:
    """What the policy of the acting discount might do."""
    acting = agent.acting_index
    match policy:
        case CategoricalPolicy():
            probability = policy.probability_NGA
            return ActionDistributions(choices=(probability.shape[2],), probability_TA=_numpy(probability[:, acting]))
        case FactoredPolicy(components=components, categorical=each):
            sizes = tuple(components.real_CK.sum(1).tolist())
            side_by_side = components.unpad(each.probability_NGA)
            return ActionDistributions(choices=sizes, probability_TA=_numpy(side_by_side[:, acting]))
        case TanhGaussianPolicy():
            deviation = policy.log_std_NGA.exp()
            return ActionDistributions(mean_TA=_numpy(policy.mean_NGA[:, acting]), std_TA=_numpy(deviation[:, acting]))


def _numpy(x: Float[Tensor, "N A"]) -> np.ndarray:
    return x.float().cpu().numpy()


MAX_TRIAL_LENGTH = 2000
"""Transitions after which a trial is cut, so that a recording stays small enough to be looked at."""


def record_trial(
    directory: Path,
    *,
    checkpoint: str = LATEST,
    seed: int | None = None,
    instruction: str = "",
    deterministic: bool | None = None,
    pictures: bool = True,
    keep: int | None = None,
    longest: int = MAX_TRIAL_LENGTH,
    config: RunConfig | None = None,
) -> TrialRecording:
    """One trial of what the run is judged on, begun from `seed` (evaluations' own if None).

    `checkpoint` and `config` are as in `evaluate`, `instruction` is what to do instead of what the task would draw,
    `deterministic` whether the most likely action is taken (None: as the run's evaluations do). `keep` is as of
    `insight`. Raises `UserError` where there is no such checkpoint, and for an instruction that nobody can
    follow there.
    """
    if longest < 1:
        raise UserError(f"cannot record {longest} steps: give at least 1")
    seed = EVALUATION_SEED if seed is None else seed
    if seed < 0:
        raise UserError(f"cannot record from seed {seed}: give at least 0")
    config = config or read_config(directory)
    env = apply_instruction(config.env.eval_config(), instruction)
    agent, loaded = load_model(directory, checkpoint, config)
    assert isinstance(agent, Agent) and isinstance(config.algorithm, AMAGOConfig)
    deterministic = config.deterministic_actions if deterministic is None else deterministic
    with closing(env.build_for_rendering(seed)) as plain:
        if not isinstance(plain, TrialWrapper):
            raise UserError(f"{env.task_name} cannot be recorded: its trials are not made of attempts")
        kept = FrameRecorder(plain.environments, wanted=pictures)
        trials = TrialWrapper(kept, horizon=min(plain.horizon, longest), attempts=plain.attempts)
        trajectory = _first_trial(agent, trials, config.fault_tolerance, seed=seed, deterministic=deterministic)
        names = _action_names(env, trials.action_space)
    trajectory = replace(trajectory, task=env.task_name, horizon=plain.horizon)
    texts, done = _instruction(env, trajectory)
    return TrialRecording(
        task=env.task_name,
        checkpoint=loaded.path.name,
        updates=loaded.step,
        seed=seed,
        instruction=instruction,
        deterministic=deterministic,
        truncated=len(trajectory) == longest < plain.horizon and not trajectory.terminated[-1],
        trajectory=trajectory,
        frames=tuple(kept.frames[: len(trajectory) + 1]),
        attempt_end_frames=kept.ends,
        observation_texts=tuple(
            describe_observation({name: leaf[moment] for name, leaf in trajectory.observation.items()})
            for moment in range(len(trajectory) + 1)
        ),
        action_names=names,
        sub_goals=texts,
        goals_completed=done,
        insight=analyze_trajectory(agent, trajectory, reward_scale=config.algorithm.learner.td.reward_scale, keep=keep),
    )


def _first_trial(
    agent: Agent, trials: TrialWrapper, faults: FaultToleranceConfig, *, seed: int, deterministic: bool
) -> Trajectory:
    """The first trial of the first environment, without exploration."""
    generator = torch.Generator(agent.gammas_G.device).manual_seed(seed)
    policy = Policy(agent, num_envs=trials.num_envs, generator=generator)
    explorer = Explorer(NoExploration(), trials.action_space, trials.num_envs, np.random.default_rng(0))
    collector = Collector(trials, "", explorer, replace(faults, on_fault="drop"))
    while True:
        for env, trajectory in collector.step(policy, deterministic=deterministic):
            if env == 0:
                return trajectory


def _instruction(env: EnvConfig, trajectory: Trajectory) -> tuple[tuple[str, ...], Int64[np.ndarray, "moments"]]:
    """The sub-goals for people to read, and how many of them were completed at each moment."""
    shown: Shaped[np.ndarray, "moments slots goal"] | None = trajectory.observation.get(INSTRUCTION_KEY)
    if shown is None or trajectory.goals is None:
        return (), np.zeros(len(trajectory) + 1, np.int64)
    text = env.goal_text if isinstance(env, GoalEnvConfig) else _plain_text
    return tuple(map(text, trajectory.goals.instruction)), (shown == COMPLETED).all(axis=2).sum(axis=1)


def _plain_text(goal: Shaped[np.ndarray, "goal"]) -> str:
    return "(" + ", ".join(f"{number:g}" for number in goal) + ")"


def _action_names(env: EnvConfig, action_space: PolicyActionSpace) -> tuple[str, ...]:
    """What the task calls its actions, numbers where it has no names for them."""
    sizes = num_choices(action_space)
    if len(sizes) > 1:
        return tuple(f"{component}: {choice}" for component, size in enumerate(sizes) for choice in range(size))
    count = sizes[0] if sizes else int(np.prod(action_space.shape or (1,)))
    return env.action_names if len(env.action_names) == count else tuple(map(str, range(count)))
