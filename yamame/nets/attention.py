"""Causal attention over packed windows with one back end per kind of machine, and the key-value cache for acting."""

import math
from collections.abc import Callable, Mapping
from itertools import groupby

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional

from yamame.data.batch import Batch
from yamame.nets.ops import PaddedLayout, uncompiled
from yamame.types import State

AttentionKernel = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Queries `[B, C, H, F]`, keys and values `[B, K, H, F]`, mask `[C, K]` (True: attend) -> outputs `[B, C, H, F]`."""


def sdpa_attention(
    query_BLHF: Float[Tensor, "B L H F"],
    key_BLHF: Float[Tensor, "B L H F"],
    value_BLHF: Float[Tensor, "B L H F"],
    attention_window: int,
) -> Float[Tensor, "B L H F"]:
    """Causal attention within rows, over at most `attention_window` slots, by PyTorch's kernel; linear memory.

    On a CPU the kernel splits the keys into blocks of 512 and skips the blocks that lie entirely in the future. Rows
    of about that length would cost twice the work unless the queries are split into chunks.
    """
    length = query_BLHF.shape[1]
    chunk = 192
    single_cpu_block = query_BLHF.device.type == "cpu" and 2 * chunk <= length < 4 * chunk
    if length > attention_window or single_cpu_block:
        return _in_chunks(_sdpa_kernel, query_BLHF, key_BLHF, value_BLHF, attention_window, chunk)
    query, key, value = (x.transpose(1, 2) for x in (query_BLHF, key_BLHF, value_BLHF))
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2)


def matmul_attention(
    query_BLHF: Float[Tensor, "B L H F"],
    key_BLHF: Float[Tensor, "B L H F"],
    value_BLHF: Float[Tensor, "B L H F"],
    attention_window: int,
) -> Float[Tensor, "B L H F"]:
    """`sdpa_attention` by matrix products with the softmax in float32; memory is quadratic in the length.

    For half precision on a CPU, where the backward pass of PyTorch's kernel is several times slower.
    """
    length = query_BLHF.shape[1]
    chunk = math.ceil(length / max(1, round(length / 128)))
    return _in_chunks(_matmul_kernel, query_BLHF, key_BLHF, value_BLHF, attention_window, chunk)


def sliding_window_mask(queries: int, keys: int, attention_window: int, device: torch.device) -> Bool[Tensor, "C K"]:
    """Return True where one of the last `queries` slots attends to one of `keys`: 0 <= distance < attention_window."""
    slot = torch.arange(keys, device=device)
    distance = slot[keys - queries :, None] - slot
    return (distance >= 0) & (distance < attention_window)


def _in_chunks(
    kernel: AttentionKernel,
    query_BLHF: Tensor,
    key_BLHF: Tensor,
    value_BLHF: Tensor,
    attention_window: int,
    chunk: int,
) -> Tensor:
    """Run a kernel on `chunk` queries at a time, with the keys that at least one of them attends to."""
    length, device = query_BLHF.shape[1], query_BLHF.device
    outputs = []
    for start in range(0, length, chunk):
        end, first = min(start + chunk, length), max(0, start - attention_window + 1)
        visible = sliding_window_mask(end - start, end - first, attention_window, device)
        outputs.append(kernel(query_BLHF[:, start:end], key_BLHF[:, first:end], value_BLHF[:, first:end], visible))
    return torch.cat(outputs, dim=1)


def _sdpa_kernel(query_BCHF: Tensor, key_BKHF: Tensor, value_BKHF: Tensor, visible_CK: Tensor) -> Tensor:
    query, key, value = (x.transpose(1, 2) for x in (query_BCHF, key_BKHF, value_BKHF))
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=visible_CK).transpose(1, 2)


def _matmul_kernel(query_BCHF: Tensor, key_BKHF: Tensor, value_BKHF: Tensor, visible_CK: Tensor) -> Tensor:
    query, key, value = (x.transpose(1, 2) for x in (query_BCHF, key_BKHF, value_BKHF))
    bias = query.new_zeros(visible_CK.shape).masked_fill_(~visible_CK, -math.inf)
    score_BHCK = (query * query.shape[3] ** -0.5) @ key.transpose(2, 3) + bias
    # A half-precision softmax computes in float32 internally.
    return (score_BHCK.softmax(dim=3) @ value).transpose(1, 2)


AttentionBackend = Callable[[Tensor, Tensor, Tensor, Batch, int], Tensor]

MAX_MATMUL_SEQLEN = 1024
"""Longest window for which `matmul_attention` is used; beyond it the matrices take too much memory."""


def attend(
    query_NHF: Float[Tensor, "N H F"],
    key_NHF: Float[Tensor, "N H F"],
    value_NHF: Float[Tensor, "N H F"],
    batch: Batch,
    attention_window: int,
) -> Float[Tensor, "N H F"]:
    """Causal attention within each window of a batch, over at most `attention_window` tokens.

    Padding tokens get arbitrary finite outputs and give no gradient to other tokens. Computes in the dtype of the
    arguments (autocast off) without host synchronization.
    """
    deterministic = torch.are_deterministic_algorithms_enabled()
    backend = select_backend(query_NHF.device, query_NHF.dtype, query_NHF.shape[2], deterministic=deterministic)
    with torch.autocast(query_NHF.device.type, enabled=False):
        return backend(query_NHF, key_NHF, value_NHF, batch, attention_window)


def select_backend(
    device: torch.device, dtype: torch.dtype, head_width: int, *, deterministic: bool = False
) -> AttentionBackend:
    """Return the fastest back end for a device, dtype and head width, or the fastest that is deterministic."""
    if device.type == "cpu":
        return attend_per_segment
    half = device.type == "cuda" and dtype in (torch.bfloat16, torch.float16)
    if half and head_width % 8 == 0 and not deterministic:
        return attend_flash
    return attend_padded


@uncompiled  # lengths differ from batch to batch
def attend_per_segment(
    query_NHF: Float[Tensor, "N H F"],
    key_NHF: Float[Tensor, "N H F"],
    value_NHF: Float[Tensor, "N H F"],
    batch: Batch,
    attention_window: int,
) -> Float[Tensor, "N H F"]:
    """Attend window by window, consecutive windows of equal length together. Reads the lengths: for the CPU."""
    groups = [(len(list(run)), length) for length, run in groupby(batch.cu_seqlens.diff().tolist())]
    sizes = [rows * length for rows, length in groups]
    padding = query_NHF.shape[0] - sum(sizes)
    outputs = []
    for (rows, length), *inputs in zip(
        groups, *(x.split([*sizes, padding]) for x in (query_NHF, key_NHF, value_NHF)), strict=False
    ):
        if not length:  # windows of no tokens, which round up their number
            continue
        query, key, value = (x.unflatten(0, (rows, length)) for x in inputs)
        if query.dtype.itemsize > 2:
            out_BLHF = sdpa_attention(query, key, value, attention_window)
        elif length <= MAX_MATMUL_SEQLEN:
            out_BLHF = matmul_attention(query, key, value, attention_window)
        else:
            out_BLHF = sdpa_attention(query.float(), key.float(), value.float(), attention_window).to(query.dtype)
        outputs.append(out_BLHF.flatten(0, 1))
    return torch.cat([*outputs, torch.zeros_like(query_NHF[:padding])])


def attend_padded(
    query_NHF: Float[Tensor, "N H F"],
    key_NHF: Float[Tensor, "N H F"],
    value_NHF: Float[Tensor, "N H F"],
    batch: Batch,
    attention_window: int,
) -> Float[Tensor, "N H F"]:
    """Attend in rows padded to the length of the longest window: for any device."""
    layout = PaddedLayout.from_batch(batch)
    packed_ND = torch.cat([query_NHF, key_NHF, value_NHF], dim=1).flatten(1)
    query, key, value = layout.pad(packed_ND).unflatten(2, (3, *query_NHF.shape[1:])).unbind(2)
    out_BLHF = sdpa_attention(query, key, value, attention_window)
    return layout.unpad(out_BLHF.flatten(2)).view(query_NHF.shape)


def attend_flash(
    query_NHF: Float[Tensor, "N H F"],
    key_NHF: Float[Tensor, "N H F"],
    value_NHF: Float[Tensor, "N H F"],
    batch: Batch,
    attention_window: int,
) -> Float[Tensor, "N H F"]:
    """Attend by PyTorch's flash kernel for variable lengths; the padding is passed as one more window.

    For half precision on a GPU (Ampere or newer) and head widths that are multiples of 8.
    """
    from torch.nn.attention.varlen import varlen_attn  # imports the compiler, see `uncompiled`

    bounds = functional.pad(batch.cu_seqlens, (0, 1), value=query_NHF.shape[0]).to(torch.int32)
    max_seqlen = max(batch.max_seqlen, batch.max_padding)
    left = attention_window - 1 if batch.max_seqlen > attention_window else -1
    out = varlen_attn(query_NHF, key_NHF, value_NHF, bounds, bounds, max_seqlen, max_seqlen, window_size=(left, 0))
    return out if isinstance(out, Tensor) else out[0]


class KVCache:
    """Keys and values of the last timesteps of E environments, in a preallocated ring buffer per environment.

    Timestep t is stored in slot t mod `slots`. Environments may be at different times; slots beyond an environment's
    own time are masked, so that a new trial (time 0) needs no clearing. Call `start` once per timestep, then `attend`
    in every layer.
    """

    def __init__(self, *, layers: int, num_envs: int, heads: int, slots: int, width: int, like: Tensor) -> None:
        self.key = like.new_zeros(layers, num_envs, heads, slots, width)
        self.value = like.new_zeros(layers, num_envs, heads, slots, width)
        self.slots = slots
        self._rows = torch.arange(num_envs, device=like.device)
        self._used = 0
        self._slot: int | Tensor = 0
        self._mask_bias_E1S: Tensor | None = None

    def start(self, time_E: Int64[np.ndarray, "E"]) -> None:
        """Set the timestep of each environment (NumPy: no device synchronization)."""
        first, last = int(time_E.min()), int(time_E.max())
        self._used = min(last + 1, self.slots)
        same_time = first == last
        self._slot = last % self.slots if same_time else torch.from_numpy(time_E % self.slots).to(self.key.device)
        self._mask_bias_E1S = None
        if first + 1 < self._used:
            hidden_E1S = np.arange(self._used) > time_E[:, None, None]
            self._mask_bias_E1S = torch.from_numpy(np.where(hidden_E1S, -np.inf, 0.0)).to(self.key)

    def start_on_device(self, time_E: Int64[Tensor, "E"]) -> None:
        """Set the timestep of each environment by a tensor: `attend` then has the same shapes at every time."""
        self._used, self._slot = self.slots, time_E % self.slots
        is_empty_E1S = torch.arange(self.slots, device=time_E.device) > time_E[:, None, None]
        self._mask_bias_E1S = self.key.new_zeros(is_empty_E1S.shape).masked_fill_(is_empty_E1S, -math.inf)

    def attend(
        self,
        layer: int,
        query_EHF: Float[Tensor, "E H F"],
        key_EHF: Float[Tensor, "E H F"],
        value_EHF: Float[Tensor, "E H F"],
    ) -> Float[Tensor, "E H F"]:
        """Store keys and values of a layer's current timestep and attend to all stored timesteps, this one included."""
        key_EHSF, value_EHSF = self.key[layer], self.value[layer]
        if isinstance(self._slot, int):
            key_EHSF[:, :, self._slot] = key_EHF
            value_EHSF[:, :, self._slot] = value_EHF
        else:
            key_EHSF[self._rows, :, self._slot] = key_EHF
            value_EHSF[self._rows, :, self._slot] = value_EHF
        # faster than scaled_dot_product_attention for a single query
        query_B1F = (query_EHF * query_EHF.shape[2] ** -0.5).flatten(0, 1)[:, None]
        key_BSF, value_BSF = (ring[:, :, : self._used].flatten(0, 1) for ring in (key_EHSF, value_EHSF))
        score_B1S = torch.bmm(query_B1F, key_BSF.transpose(1, 2))
        if self._mask_bias_E1S is not None:
            score_B1S.unflatten(0, query_EHF.shape[:2])[:, :, 0].add_(self._mask_bias_E1S)
        return torch.bmm(score_B1S.softmax(-1), value_BSF).view(query_EHF.shape)

    def state_dict(self) -> State:
        """Return copies of the slots in use. The others are masked until they are written."""
        return {"key": self.key[..., : self._used, :].clone(), "value": self.value[..., : self._used, :].clone()}

    def load_state_dict(self, state: State) -> None:
        """Restore the slots of `state_dict`."""
        self._used = used = state["key"].shape[3]
        self.key[..., :used, :] = state["key"]
        self.value[..., :used, :] = state["value"]


class KVRingStep:
    """One timestep of `KVCache` as a function of tensors, for exported policies.

    Args:
        memory: Rings `key/LAYER` and `value/LAYER`, `[E, H, slots, F]`.
        time_E: Timestep of each environment.
    """

    def __init__(self, memory: Mapping[str, Tensor], time_E: Int64[Tensor, "E"]) -> None:
        self._memory = memory
        _, heads, slots, width = memory["key/0"].shape
        self._slot_EH1F = (time_E % slots)[:, None, None, None].expand(-1, heads, 1, width)
        self._is_empty_E1S = (torch.arange(slots, device=time_E.device) > time_E[:, None])[:, None]
        self.updated: dict[str, Tensor] = {}
        """The rings of the layers that have attended, with their keys and values of this timestep."""

    def attend(
        self,
        layer: int,
        query_EHF: Float[Tensor, "E H F"],
        key_EHF: Float[Tensor, "E H F"],
        value_EHF: Float[Tensor, "E H F"],
    ) -> Float[Tensor, "E H F"]:
        """Attend to all stored timesteps and this one, as `KVCache.attend`."""
        key_EHSF = self._memory[f"key/{layer}"].scatter(2, self._slot_EH1F, key_EHF[:, :, None])
        value_EHSF = self._memory[f"value/{layer}"].scatter(2, self._slot_EH1F, value_EHF[:, :, None])
        self.updated |= {f"key/{layer}": key_EHSF, f"value/{layer}": value_EHSF}
        query_EHF1 = (query_EHF * query_EHF.shape[2] ** -0.5)[..., None]
        score_EHS = (key_EHSF @ query_EHF1).squeeze(3).masked_fill(self._is_empty_E1S, -torch.inf)
        return (score_EHS.softmax(-1)[:, :, None] @ value_EHSF).squeeze(2)
