"""Source: paper section 5 and appendix C.5: whole trials of memory, importance sampling of goals. Differs from the
paper: trials of 500 steps instead of 2000, which few agents would survive, a narrower network, fewer gammas, smaller
batches and a larger learning rate, to train on a CPU; values are bootstrapped at the horizon.
Unknown for `--preset paper`: the width of the embedding of textures and of their vector (4 and 192, the authors' later
code).

    yamame train crafter --env.instruction-source tech-tree --env.expanded
    yamame train crafter --env.observation-mode pixels
    yamame train crafter --env.undirected
"""

from dataclasses import replace

from yamame.algorithms.amago.agent import AgentConfig
from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.amago.learner import LearnerConfig
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.collect.exploration import BilevelEpsilonGreedy
from yamame.data.sampler import ReplayConfig
from yamame.envs.crafter.config import CrafterConfig
from yamame.recipes import RecipeInfo
from yamame.recipes.settings.paper import paper_agent, paper_config
from yamame.recipes.settings.presets import small_agent
from yamame.run_config import EvalConfig, RunConfig

RECIPE = RecipeInfo(
    summary="Follow an instruction in an unknown wilderness: gather, build, fight and travel.",
    command="yamame train crafter",
    minutes="12",
    score="0.22 sub-goals (random 0.08), 200,000 steps",
    cost="12 minutes on one thread for half of the run (--env-steps 200000); 0.7 GB, or 2.0 GB with --compute.dtype "
    "bfloat16; an environment step takes 0.3 ms of one core and a new world 16 ms",
    expected={
        "--env-steps 200000": "random instructions 0.22 / 0.23 / 0.20 sub-goals (seeds 0, 1, 2; random actions "
        "0.08); over 32 trials each collect sapling 0.97 / 1.00 / 1.00, place plant "
        "0.59 / 1.00 / 1.00, collect wood 0.62 / 0.69 / 0.69, drink 0.56 / 0.66 / 0.62, place table "
        "0.53 / 0.41 / 0.16, travel to (30, 30) 0.38 / 0.69 / 0.12",
    },
)

ENV_STEPS = 400_000
"""Length of a run."""


def config(env: CrafterConfig = CrafterConfig(horizon=500)) -> RunConfig:
    """The run for a view of the world and a kind of instructions."""
    return RunConfig(
        env=env,
        num_envs=24,
        env_steps=ENV_STEPS,
        algorithm=AMAGOConfig(
            agent=_with_textures(small_agent(acting_gamma=0.995), env),
            learner=LearnerConfig(
                td=TDLoss(truncation_is_terminal=False),
                learning_rate=5e-4,
                lr_warmup_updates=100,
                weight_decay=1e-4,
            ),
        ),
        exploration=BilevelEpsilonGreedy(anneal_env_steps=ENV_STEPS // 2),
        replay=ReplayConfig(batch_size=12),
        updates_per_env_step=0.02,
        env_steps_per_iteration=24 * min(env.horizon, 200),
        eval=EvalConfig(interval_env_steps=ENV_STEPS // 10, trials=64),
    )


def paper(env: CrafterConfig = CrafterConfig()) -> RunConfig:
    """Tables 3 and 4, column Crafter: at most 32 million steps."""
    agent = paper_agent(
        d_model=384,
        d_ff=1536,
        num_heads=12,
        num_layers=6,
        timestep_hidden=(384,),
        timestep_width=384,
        head_hidden=(400, 400),
    )
    tokens = replace(agent.timestep_encoder.tokens, output_size=192)
    agent = replace(agent, timestep_encoder=replace(agent.timestep_encoder, tokens=tokens))
    return paper_config(
        env,
        agent=_with_textures(agent, env),
        weight_decay=1e-4,
        batch_size=18,
        updates_per_epoch=1500,
        num_actors=8,
        epochs=2000,
    )


def _with_textures(agent: AgentConfig, env: CrafterConfig) -> AgentConfig:
    if env.observation_mode != "textures":
        return agent
    return replace(agent, timestep_encoder=replace(agent.timestep_encoder, encoder_overrides=("textures=tokens",)))
