"""Acting for many sessions: requests that arrive while a batch is computed are acted on together in the next one."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from yamame.data.actions import split_env_actions
from yamame.errors import describe_error
from yamame.policy.loaded import LoadedPolicy
from yamame.tools.serve.protocol import ActRequest, RequestError


@dataclass(frozen=True, kw_only=True, eq=False)
class _Waiting:
    """A request until its batch is taken, and the future of its action."""

    slot: int
    request: ActRequest
    resets: bool
    action: asyncio.Future[Any]


class Batcher:
    """Acts for sessions in batches, in a thread of its own. For one event loop.

    Args:
        policy: Policy with one environment for each slot.
        num_slots: Number of environments of the policy.
        timeout_seconds: Longest time that a request waits until its batch starts.
    """

    def __init__(self, policy: LoadedPolicy, *, num_slots: int, timeout_seconds: float) -> None:
        self.num_requests = self.num_batches = 0
        self._policy, self._num_slots, self._timeout_seconds = policy, num_slots, timeout_seconds
        self._waiting: list[_Waiting] = []
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="policy")
        self._loop_task: asyncio.Task[None] | None = None

    async def act(self, slot: int, request: ActRequest, *, resets: bool) -> Any:
        """Return the action of a slot as JSON values, and advance its memory, which `resets` clears before.

        Raises:
            RequestError: 503 if the request had to wait for too long, and 500 if the policy failed. The memory is
                as it was after the former.
        """
        action = asyncio.get_running_loop().create_future()
        waiting = _Waiting(slot=slot, request=request, resets=resets, action=action)
        self._waiting.append(waiting)
        if self._loop_task is None or self._loop_task.done():
            self._loop_task = asyncio.create_task(self._act_in_batches())
        await asyncio.wait([action], timeout=self._timeout_seconds)
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            raise RequestError(503, f"no action within {self._timeout_seconds:g} s: the service is overloaded")
        return await action

    async def _act_in_batches(self) -> None:
        await asyncio.sleep(0)  # requests that arrived together are acted on together
        while self._waiting:
            mode = self._waiting[0].request.deterministic
            batch = [waiting for waiting in self._waiting if waiting.request.deterministic is mode]
            self._waiting = [waiting for waiting in self._waiting if waiting.request.deterministic is not mode]
            try:
                actions = await asyncio.get_running_loop().run_in_executor(self._thread, self._act, batch)
            except Exception as error:
                problem = RequestError(500, f"the policy failed: {describe_error(error)}")
                for waiting in batch:
                    waiting.action.set_exception(problem)
                continue
            self.num_requests, self.num_batches = self.num_requests + len(batch), self.num_batches + 1
            for waiting, action in zip(batch, actions, strict=True):
                waiting.action.set_result(action)

    def _act(self, batch: Sequence[_Waiting]) -> list[Any]:
        slots = [waiting.slot for waiting in batch]
        requests = [waiting.request for waiting in batch]
        self._policy.reset(self._mask([waiting.slot for waiting in batch if waiting.resets]))
        observations = [request.observation for request in requests]
        action = self._policy.act(
            _stack(self._policy.observation_space, observations, slots, self._num_slots),
            reward=self._rows(slots, [request.reward for request in requests], np.float32),
            episode_start=self._rows(slots, [request.episode_start for request in requests], np.bool_),
            deterministic=requests[0].deterministic,
            action_mask=self._action_masks(batch),
            step_mask=self._mask(slots),
        )
        actions = split_env_actions(self._policy.action_space, action)
        return [_to_json(actions[slot]) for slot in slots]

    def _mask(self, slots: Sequence[int]) -> np.ndarray:
        return self._rows(slots, True, np.bool_)

    def _rows(self, slots: Sequence[int], values: Any, dtype: Any) -> np.ndarray:
        rows = np.zeros(self._num_slots, dtype)
        rows[list(slots)] = values
        return rows

    def _action_masks(self, batch: Sequence[_Waiting]) -> list[Any] | None:
        if not self._policy.needs_action_mask:
            return None
        masks: list[Any] = [None] * self._num_slots
        for waiting in batch:
            masks[waiting.slot] = waiting.request.action_mask
        return masks


def _to_json(action: Any) -> Any:
    if isinstance(action, Mapping):
        return {str(name): _to_json(part) for name, part in action.items()}
    return [_to_json(part) for part in action] if isinstance(action, tuple) else action.tolist()


def _stack(space: spaces.Space[Any], observations: Sequence[Any], slots: Sequence[int], num_slots: int) -> Any:
    """Stack observations into the rows of their slots; the other rows are zeros."""
    if isinstance(space, spaces.Dict):
        return {
            name: _stack(part, [each[name] for each in observations], slots, num_slots)
            for name, part in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        return tuple(
            _stack(part, [each[index] for each in observations], slots, num_slots)
            for index, part in enumerate(space.spaces)
        )
    if isinstance(space, spaces.Text):
        rows = np.full(num_slots, "", object)
    else:
        rows = np.zeros((num_slots, *(space.shape or ())), space.dtype)
    rows[list(slots)] = observations
    return rows
