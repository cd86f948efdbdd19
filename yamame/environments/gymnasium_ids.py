"""Gymnasium ids of our own environments."""

import gymnasium


def register_environments() -> None:
    """Let `gymnasium.make` and `make_vec` know `yamame/...`; a second call does nothing."""
    if "yamame/PassiveTMaze-v0" in gymnasium.registry:
        return
    maze, batched_maze = "yamame.environments.single:make_tmaze", "yamame.environments.tmaze:TMazeVectorEnv"
    gymnasium.register(
        "yamame/PassiveTMaze-v0", entry_point=maze, vector_entry_point=batched_maze, kwargs={"passive": True}
    )
    gymnasium.register(
        "yamame/ActiveTMaze-v0", entry_point=maze, vector_entry_point=batched_maze, kwargs={"passive": False}
    )
    gymnasium.register(
        "yamame/DarkKeyToDoor-v0",
        entry_point="yamame.environments.single:make_dark_key_to_door",
        vector_entry_point="yamame.environments.dark_key_to_door:DarkKeyToDoorVectorEnv",
    )
