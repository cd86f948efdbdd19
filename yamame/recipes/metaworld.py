"""Source: paper section 5 and appendix C.4. Differs from the paper: attempts of 50 steps instead of 500, tasks of
version 3 (the paper: version 2), and the default agent (`settings.presets.default_config`), whose networks and
runs are small, to train on a CPU. Unknown for `--preset paper`: the tasks and context lengths of figure 6, and the
attempts of a trial; 5 are the default of the authors' script.
"""

import math

from yamame.envs.metaworld import MetaworldConfig
from yamame.recipes import RecipeInfo
from yamame.recipes.settings.paper import paper_agent, paper_config
from yamame.recipes.settings.presets import default_config
from yamame.run_config import RunConfig

RECIPE = RecipeInfo(
    summary="Find the goal of a robot arm from rewards: ML1, ML10 and ML45 of Meta-World.",
    command="yamame train metaworld --env.name reach-v3 --env.attempts 3 --env.attempt-length 50",
    minutes="8 to 11",
    score="928 of 1,500 (random 221)",
    cost="8 to 11 minutes of one busy core: 12,500 updates, and 0.3 to 1 ms for each environment step; ML45 takes 40 "
    "seconds to start",
    expected={
        "": "919 / 927 / 938 of 1,500 on held-out goals of reach-v3 (seeds 0, 1, 2), and 61 / 66 / 67 % of the trials "
        "succeed (random actions 221, none succeed)",
    },
)


def config(
    env: MetaworldConfig = MetaworldConfig(name="reach-v3", attempts=3, attempt_length=50), *, env_steps: int = 120_000
) -> RunConfig:
    """The run for a task or a benchmark."""
    return default_config(env, env_steps=env_steps)


def paper(env: MetaworldConfig = MetaworldConfig(name="reach-v3")) -> RunConfig:
    """Tables 3 and 4: 10 million steps."""
    agent = paper_agent(timestep_hidden=(256, 256))
    return paper_config(env, agent=agent, epochs=math.ceil(10_000_000 / (12 * env.max_trial_steps)))
