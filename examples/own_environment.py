"""Train on an environment of your own, then let the policy act in it."""

import gymnasium
import numpy as np

import yamame


class Recall(gymnasium.Env[np.ndarray, int]):
    """A number is shown once; eight steps later it must be named."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number, self.time = int(self.np_random.integers(2)), 0
        return self._observe(), {}

    def step(self, action):
        self.time += 1
        done = self.time == 8
        return self._observe(), float(done and action == self.number), done, False, {}

    def _observe(self):
        shown = self.time == 0
        return np.array([shown, shown and self.number, self.time == 7], np.float32)


def main() -> None:
    run = yamame.train(Recall, horizon=8, env_steps=12_000, seed=0)
    print(f"return {run.evaluate(trials=64)['return_mean']:.2f} (guessing earns 0.5), in {run.directory}")

    policy = yamame.load(run.directory)
    environment = Recall()
    observation, _ = environment.reset(seed=1)
    reward, done = 0.0, False
    while not done:
        action = policy.act(observation, reward=reward)
        observation, reward, done, _, _ = environment.step(action)
    print(f"it was {environment.number}, the policy says {action}")


if __name__ == "__main__":
    main()
