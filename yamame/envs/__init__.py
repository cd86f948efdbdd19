"""Environments, one file a task."""

from gymnasium import register, registry


def register_environments() -> None:
    """Register `yamame/...` for `gymnasium.make` and `gymnasium.make_vec`. Idempotent."""
    if "yamame/PassiveTMaze-v0" in registry:
        return
    for name, module, stem, kwargs in (
        ("PassiveTMaze", "tmaze", "TMaze", {"passive": True}),
        ("ActiveTMaze", "tmaze", "TMaze", {"passive": False}),
        ("EndlessTMaze", "endless_tmaze", "EndlessTMaze", {}),
        ("DarkKeyToDoor", "dark_key_to_door", "DarkKeyToDoor", {}),
        ("Bandit", "bandit", "Bandit", {}),
        ("GridNavi", "gridnavi", "GridNavi", {}),
        ("Rooms", "rooms", "Rooms", {}),
        ("Wind", "wind", "Wind", {}),
    ):
        register(
            f"yamame/{name}-v0",
            entry_point=f"yamame.envs.{module}:{stem}Env",
            vector_entry_point=f"yamame.envs.{module}:{stem}VectorEnv",
            kwargs=kwargs,
        )


register_environments()
