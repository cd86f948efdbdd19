"""Which leaf shows an instruction."""

from dataclasses import dataclass

from gymnasium import spaces

from yamame.model.timestep_encoders.leaf import LeafEncoderConfig
from yamame.records.goals import COMPLETED, INSTRUCTION_LEAF
from yamame.records.spaces import Leaf


@dataclass(frozen=True, kw_only=True)
class InstructionEncoderConfig(LeafEncoderConfig):
    """Base of the configs of encoders of instructions: what `Instructed` environments show as `INSTRUCTION_LEAF`.

    Sub-goals are the rows of such a leaf, `[slots, goal]`; its lower bound leaves room for rows of `COMPLETED`. Any
    other leaf that happens to have the name is left to the encoders of its space.
    """

    def matches(self, name: str, leaf: Leaf) -> bool:
        """See the class."""
        if name != INSTRUCTION_LEAF or self.unsupported_reason(leaf):
            return False
        return isinstance(leaf, spaces.Box) and bool((leaf.low <= COMPLETED).all())

    def unsupported_reason(self, leaf: Leaf) -> str:
        """Anything but rows of numbers."""
        is_table = isinstance(leaf, spaces.Box) and len(leaf.shape) == 2
        return "" if is_table else "is no Box of two dimensions, sub-goals and the numbers of each"
