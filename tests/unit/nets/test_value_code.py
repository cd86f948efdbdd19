"""Another value code is one class and one config: two-hot classification over fixed bins (as in DreamerV3)."""

import sys
from dataclasses import dataclass, replace

import pytest
import torch
from gymnasium import spaces
from tiny_agents import TINY_AGENT, ActionSpace, every_action_space, random_windows, tiny_agent
from torch import Tensor

from yamame.algorithms.amago.learner import Learner, LearnerConfig
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.config.flags import parse_flags
from yamame.config.named_code import caller_modules
from yamame.config.serialization import from_json, to_json
from yamame.data.batch import pack
from yamame.nets.heads.critic import CriticConfig
from yamame.nets.heads.popart import PopArt
from yamame.nets.heads.value_code import ValueCode, ValueCodeConfig


@dataclass(frozen=True, kw_only=True)
class TwoHotConfig(ValueCodeConfig):
    bins: int = 21
    limit: float = 20.0

    def build(self, num_gammas: int, *, normalize: bool) -> "TwoHot":
        return TwoHot(self, num_gammas)


class TwoHot(ValueCode):
    def __init__(self, config: TwoHotConfig, num_gammas: int) -> None:
        super().__init__(num_gammas)
        self.num_outputs = config.bins
        self.center_Z: Tensor
        self.register_buffer("center_Z", torch.linspace(-config.limit, config.limit, config.bins), persistent=False)

    def decode(self, output: Tensor) -> Tensor:
        return (output.softmax(-1) * self.center_Z).sum(-1)

    def loss(self, output_NKGZ: Tensor, target_NG: Tensor) -> Tensor:
        width = self.center_Z[1] - self.center_Z[0]
        target = target_NG.clamp(self.center_Z[0], self.center_Z[-1])[..., None]
        label_NGZ = (1.0 - (target - self.center_Z).abs() / width).clamp(min=0.0)
        return -(label_NGZ[:, None] * output_NKGZ.log_softmax(-1)).sum(-1)


TWO_HOT = replace(TINY_AGENT, critic=CriticConfig(hidden_sizes=(16, 16), value_code=TwoHotConfig()))


def test_labels_average_to_the_target() -> None:
    code = TwoHot(TwoHotConfig(), 1)
    target_NG = torch.tensor([[3.3], [-19.9]])
    label = (1.0 - (target_NG[..., None] - code.center_Z).abs() / 2.0).clamp(min=0.0)
    torch.testing.assert_close(code.decode(label.clamp(min=1e-30).log()), target_NG)
    smallest = -(label * label.clamp(min=1e-30).log()).sum(-1)
    torch.testing.assert_close(code.loss(label.clamp(min=1e-30).log()[:, None], target_NG)[:, 0], smallest)


@pytest.mark.slow
@every_action_space
def test_critics_learn_with_it(action_space: ActionSpace) -> None:
    agent = tiny_agent(TWO_HOT, action_space, dtype=torch.float32)
    outputs = agent.critic.layers[-1].weight.shape[2]
    assert outputs == (21 * 3 * 3 if isinstance(action_space, spaces.Discrete) else 21)
    config = LearnerConfig(td=TDLoss(reward_scale=4.0), learning_rate=3e-3, lr_warmup_updates=1, weight_decay=0.0)
    learner = Learner(agent, config, generator=torch.Generator().manual_seed(0))
    batch = pack(random_windows(0, [12] * 4, action_space), pad_tokens_to_multiple_of=8)
    metrics = [learner.update(batch) for _ in range(150)]
    errors, losses = ([each[name].item() for each in metrics] for name in ("critic/td_error_abs", "loss/td"))
    assert sum(errors[-5:]) < 0.6 * sum(errors[:5])
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    assert learner.num_nonfinite == 0 and "critic/popart_std" not in metrics[-1]


def test_it_is_a_config_like_any_other() -> None:
    with caller_modules([sys.modules[__name__]]):
        assert from_json(type(TWO_HOT), to_json(TWO_HOT)) == TWO_HOT
    changed = parse_flags(TWO_HOT, ["--critic.value-code.bins", "51"], "prog")
    assert changed.critic.value_code == TwoHotConfig(bins=51)


@pytest.mark.parametrize("popart", [True, False])
def test_popart_is_the_default_and_has_its_flag(popart: bool) -> None:
    code = tiny_agent(replace(TINY_AGENT, popart=popart)).value_code
    assert isinstance(code, PopArt) and code.enabled == popart
