"""Where a run's config came from, for its report."""

import shlex
from collections.abc import Sequence

from yamame.run.config import RunConfig
from yamame.run.course import RunMetadata
from yamame.run.difference import differences
from yamame.settings.catalogue import Recipe


def about_run(recipe: Recipe, config: RunConfig, words: Sequence[str] = ()) -> RunMetadata:
    """The recipe, the command if words made it, and what differs from the recipe's defaults.

    Of the task that is what differs from the recipe's own, of the rest what differs from what follows from the task.
    """
    of_task = {f"env.{path}": pair for path, pair in differences(recipe.environment, config.env).items()}
    return RunMetadata(
        recipe=recipe.name,
        expected=recipe.about.get("expected", ""),
        command=shlex.join(words),
        overrides=of_task | differences(recipe.configure(config.env), config),
    )
