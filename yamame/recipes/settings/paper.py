"""Settings that the paper's experiments share: `paper_config` builds the `paper` preset of every recipe.

Source: paper, appendix D, tables 3 and 4. The defaults here are the column "Other Domains" of table 4 and the column
POPGym of table 3. The paper does not state the following, which come from the authors' first code: the warm-up of the
learning rate (ten epochs), the dropout of the Transformer (0.05), its learned positions, the reward scales, and the
threshold of filtered BC. Evaluations are not specified either.
"""

from yamame.algorithms.amago.agent import AgentConfig
from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.amago.learner import LearnerConfig
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.collect.exploration import BilevelEpsilonGreedy, ExplorationConfig
from yamame.data.sampler import ReplayConfig
from yamame.envs.config import EnvConfig
from yamame.nets.heads.actor import MANY_CHOICES, ActorConfig
from yamame.nets.heads.critic import CriticConfig
from yamame.nets.heads.popart import PopArtConfig
from yamame.nets.sequence.transformer import TransformerConfig
from yamame.nets.timestep.encoder import TimestepEncoderConfig
from yamame.nets.timestep.instruction import InstructionCoordinatesConfig
from yamame.nets.timestep.tokens import TokenEncoderConfig
from yamame.run_config import EvalConfig, RunConfig

WARMUP_EPOCHS = 10
ANNEAL_STEPS_PER_ACTOR = 1_000_000
REWARD_SCALE = 10.0
INITIAL_SQUARE = 100.0
"""Mean square of the targets before the first update, and factor of the rewards: the authors' defaults."""
EPOCHS_PER_EVALUATION = 20
"""Differs from the authors' code, which evaluates less often in some scripts and more often in others."""


def paper_agent(
    *,
    d_model: int = 256,
    d_ff: int = 1024,
    num_heads: int = 8,
    num_layers: int = 3,
    timestep_hidden: tuple[int, ...] = (512, 512),
    timestep_width: int = 200,
    head_hidden: tuple[int, ...] = (256, 256),
    acting_gamma: float = AgentConfig.acting_gamma,
) -> AgentConfig:
    """Return an agent of table 3: the sizes of the Transformer, of the timestep encoder, and of actor and critics.

    The gammas are the paper's, for discrete or continuous actions. Coordinates of instructions are not scaled.
    """
    return AgentConfig(
        timestep_encoder=TimestepEncoderConfig(
            hidden_sizes=timestep_hidden,
            output_size=timestep_width,
            tokens=TokenEncoderConfig(embedding_dim=4),
            instruction_coordinates=InstructionCoordinatesConfig(normalize=False),
        ),
        trajectory_encoder=TransformerConfig(
            d_model=d_model,
            d_ff=d_ff,
            num_heads=num_heads,
            num_layers=num_layers,
            dropout=0.05,
            position_embedding="learned",
        ),
        actor=ActorConfig(hidden_sizes=head_hidden),
        critic=CriticConfig(hidden_sizes=head_hidden, value_code=PopArtConfig(initial_square=INITIAL_SQUARE)),
        acting_gamma=acting_gamma,
        max_one_hot_choices=MANY_CHOICES,
    )


def paper_config(
    env: EnvConfig,
    *,
    agent: AgentConfig | None = None,
    reward_scale: float = REWARD_SCALE,
    learning_rate: float = 1e-4,
    weight_decay: float = 1e-3,
    batch_size: int = 24,
    capacity_trajectories: int = 20_000,
    updates_per_epoch: int = 1000,
    num_actors: int = 12,
    steps_per_epoch: int | None = None,
    epochs: int = 625,
    exploration: ExplorationConfig | None = None,
) -> RunConfig:
    """Return the config of a run of table 4, with whole trials as context.

    Args:
        env: Task.
        agent: Network; None: that of POPGym.
        reward_scale: Factor of the rewards in targets.
        learning_rate: "Learning Rate".
        weight_decay: "L2 Penalty".
        batch_size: "Batch Size".
        capacity_trajectories: "Max Buffer Size".
        updates_per_epoch: "Gradient Updates Per Epoch".
        num_actors: "Parallel Actors".
        steps_per_epoch: "Timesteps Per Actor Per Epoch"; None: H, a whole trial.
        epochs: "Epochs".
        exploration: Noise; None: the paper's schedule, annealed over a million steps of each actor.
    """
    per_iteration = num_actors * (steps_per_epoch or env.max_trial_steps)
    env_steps = epochs * per_iteration
    return RunConfig(
        env=env,
        num_envs=num_actors,
        env_steps=env_steps,
        algorithm=AMAGOConfig(
            agent=agent or paper_agent(),
            learner=LearnerConfig(
                td=TDLoss(reward_scale=reward_scale),
                learning_rate=learning_rate,
                lr_warmup_updates=WARMUP_EPOCHS * updates_per_epoch,
                weight_decay=weight_decay,
            ),
        ),
        exploration=exploration or BilevelEpsilonGreedy(anneal_env_steps=ANNEAL_STEPS_PER_ACTOR * num_actors),
        replay=ReplayConfig(capacity_trajectories=capacity_trajectories, batch_size=batch_size),
        updates_per_env_step=updates_per_epoch / per_iteration,
        env_steps_per_iteration=per_iteration,
        eval=EvalConfig(interval_env_steps=EPOCHS_PER_EVALUATION * per_iteration),
    )
