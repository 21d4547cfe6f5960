"""Native kernels of the coli engine; see colibri_engine.kernels."""

from collections.abc import Sequence
import enum
from typing import Annotated

import numpy
from numpy.typing import NDArray


def available_isas() -> list[str]:
    """Names of the instruction sets this processor can run, best first."""

def built_isas() -> list[str]:
    """
    Names of the instruction sets in this build, whatever the processor, best first.
    """

def active_isa() -> str:
    """Name of the instruction set in use."""

def set_isa(name: str) -> None:
    """
    Force an instruction set. Raises ValueError when this processor lacks it.
    """

def num_threads() -> int:
    """Threads of the team, the caller included."""

def set_num_threads(n: int) -> None:
    """Resize the thread team (1..256)."""

def num_stalls() -> int:
    """How often the caller slept for work that another thread held."""

class ReadPriority(enum.IntEnum):
    """How much a read is waited for."""

    DEMAND = 0
    """A step waits for it."""

    NEXT_BLOCK = 1
    """The step will need it."""

    SPECULATIVE = 2
    """It may be needed."""

class SlotArena:
    """Slots of one size that expert records are read into."""

    def __init__(self, num_slots: int, slot_bytes: int) -> None:
        """
        Reserves addresses only; memory comes as slots are filled. Raises ValueError, MemoryError.
        """

    @property
    def num_slots(self) -> int: ...

    @property
    def slot_bytes(self) -> int:
        """Bytes of a slot, a multiple of 4096."""

    def release(self, slot: int) -> None:
        """
        Give a slot's memory back to the system; it then reads as zeros. Raises ValueError while a read into it is open, IndexError.
        """

    def array(self, slot: int) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]:
        """The bytes of a slot, (slot_bytes,) uint8; a view. Raises IndexError."""

class ReadCompletion:
    """A read that is over."""

    @property
    def tag(self) -> int: ...

    @property
    def error(self) -> int:
        """
        0, or an errno. ENODATA: the file ends before; ECANCELED: the engine was closed.
        """

    @property
    def bytes(self) -> int:
        """Bytes that arrived."""

    @property
    def service_s(self) -> float:
        """Seconds from the first part handed to the device to the last one back."""

    @property
    def direct(self) -> bool:
        """Whether it went around the page cache."""

    @property
    def file(self) -> int:
        """The file that failed, else the first."""

class ReadEngine:
    """Reads into slots, one queue per device. Thread-safe."""

    def __init__(self, mode: str = 'auto', depth: int = 32, num_threads: int = 8) -> None:
        """
        mode: io_uring, threads, or auto: io_uring where the kernel allows it. Per device `depth` parts of 1 MiB are under way with io_uring, `num_threads` without. Raises ValueError, RuntimeError.
        """

    @property
    def mode(self) -> str: ...

    @property
    def mode_reason(self) -> str:
        """Why not io_uring; or empty."""

    @property
    def depth(self) -> int:
        """Parts under way per device, at most."""

    def open(self, path: str, *, direct: bool) -> int:
        """
        Open a file, around the page cache with `direct` where the system allows it, and return its number. Raises OSError.
        """

    def close_file(self, file: int) -> None:
        """Close a file; reads of it that are open still end. Raises IndexError."""

    def is_direct(self, file: int) -> bool:
        """
        Whether reads go around the page cache; may end at the first read. Raises IndexError.
        """

    def device(self, file: int) -> int:
        """The number of the file's queue. Raises IndexError."""

    def submit(self, tag: int, file: int, offset: int, nbytes: int, arena: SlotArena, slot: int, slot_offset: int = 0, priority: ReadPriority = ReadPriority.DEMAND, stripes: Sequence[int] = []) -> None:
        """
        Read nbytes from offset on into a slot. `stripes` are further files with the same bytes: parts come from all in turn. `tag` names the read until it is over. Raises ValueError, IndexError.
        """

    def promote(self, tag: int, priority: ReadPriority) -> bool:
        """
        Raise the priority of an open read; False when there is none of this tag.
        """

    def cancel(self, tag: int) -> bool:
        """
        Forget a read that has not begun: True, and no completion comes. Else False.
        """

    def poll(self) -> list[ReadCompletion]:
        """What is over since the last look."""

    def wait(self, timeout: float) -> list[ReadCompletion]:
        """
        Wait some seconds for what is over; empty after them, or at once when no read is open.
        """

    @property
    def num_open(self) -> int:
        """Reads that are not over."""

    @property
    def num_queued(self) -> int:
        """Reads that have not begun."""

    @property
    def bytes_read(self) -> int:
        """Bytes that arrived so far."""

    def close(self) -> None:
        """Cancel what has not begun, wait for what has. Idempotent."""

class Rows:
    """A (capacity, width) float32 matrix; the first `rows` are in use."""

    def __init__(self, capacity: int, width: int) -> None: ...

    @property
    def capacity(self) -> int: ...

    @property
    def width(self) -> int: ...

    @property
    def rows(self) -> int: ...

    @rows.setter
    def rows(self, arg: int, /) -> None: ...

    @property
    def array(self) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]:
        """
        The rows in use as a (rows, width) array; a view, valid while these rows live.
        """

class Vector:
    """A float32 vector: norm weights."""

    def __init__(self, values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def __len__(self) -> int: ...

    @property
    def array(self) -> Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]:
        """The values, (n,) float32; a view that cannot be written."""

class Matrix:
    """Packed weights, [outputs, inputs]; immutable but for views of a slot."""

    @staticmethod
    def from_codes(codes: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], scales: Annotated[NDArray, dict(shape=(None, None), order='C', device='cpu')], zero: int | None, mins: Annotated[NDArray, dict(shape=(None, None), order='C', device='cpu')] | None, *, bits: int, group: int, rotated: bool = False, levels: bytes | None = None) -> Matrix:
        """
        Pack codes (O, I) uint8 with scales and, instead of a zero point, mins (O, ceil(I / group)) float16 or float32. Layers over a `rotated` matrix rotate their input. 4-bit codes may number 16 `levels`, bytes that stand in for them; then scales may be uint8, s for 2^(s - 128). Raises ValueError.
        """

    @staticmethod
    def from_packed(packed: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], shape: tuple[int, int], zero: int | None, *, bits: int, group: int, scale_bytes: int, rotated: bool = False, levels: bytes | None = None, fp8: bool = False) -> Matrix:
        """
        Take a copy of packed bytes (see `packed()`) of an (outputs, inputs) matrix; without a zero point they hold mins. Codes are E4M3 with `fp8`, which wants bits 8, zero 0 and scale_bytes 4. Raises ValueError.
        """

    @staticmethod
    def view_packed(arena: SlotArena, slot: int, offset: int, shape: tuple[int, int], zero: int | None, *, bits: int, group: int, scale_bytes: int, rotated: bool = False, levels: bytes | None = None, fp8: bool = False) -> Matrix:
        """
        Look at packed bytes in a slot, from `offset` (a multiple of 64) on, as from_packed would copy them. What is read into the slot later is the matrix then. Raises ValueError, IndexError.
        """

    @staticmethod
    def from_float(array: Annotated[NDArray, dict(shape=(None, None), order='C', device='cpu')], *, bf16: bool = False) -> Matrix:
        """
        Pack (O, I) float32 or float16, or bfloat16 bits as uint16. Raises ValueError.
        """

    @staticmethod
    def from_fp8(codes: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], scales: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], *, group: int) -> Matrix:
        """
        Pack E4M3 codes (O, I) uint8, none of them a NaN, with scales (O, ceil(I / group)) float32 from 0 to 2^110. Raises ValueError.
        """

    @property
    def num_outputs(self) -> int: ...

    @property
    def num_inputs(self) -> int: ...

    @property
    def kind(self) -> str: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def rotated(self) -> bool: ...

    def has_finite_scales(self) -> bool:
        """Whether every scale and minimum, and every E4M3 code, is a number."""

    def packed(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]:
        """The packed bytes as a new (nbytes,) uint8 array: codes, scales, mins."""

    def unpack(self, first: int = 0, count: int | None = None) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]:
        """
        The float32 values of some rows (all by default), as a new array: exact, or where the matrix is rotated those of the plain one.
        """

def rms_norm(x: Rows, weight: Vector, eps: float, out: Rows) -> None:
    """
    out (rows, width) = x / rms(x) * weight; x and out may be the same rows.
    """

def rms_norm_heads(x: Rows, offset: int, num_heads: int, weight: Vector, eps: float) -> None:
    """
    Norm num_heads heads of len(weight) columns from `offset` on, in place.
    """

def layer_norm(x: Rows, offset: int, weight: Vector, bias: Vector, eps: float) -> None:
    """
    Layer norm with bias of len(weight) columns from `offset` on, in place.
    """

def swiglu(gate_up: Rows, out: Rows) -> None:
    """
    out (rows, width) = silu(gate) * up; gate_up (rows, 2 * width) is gate, then up.
    """

def embed(table: Matrix, ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Rows) -> None:
    """
    out (len(ids), width) = rows `ids` (int32) of the table. Raises IndexError.
    """

class Linear:
    """One or more matrices over the same inputs, outputs joined."""

    def __init__(self, parts: Sequence[Matrix], bias: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, numerics: str = 'default') -> None: ...

    @property
    def num_inputs(self) -> int: ...

    @property
    def num_outputs(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

def linear(x: Rows, layer: Linear, out: Rows, add: bool = False) -> None:
    """
    out (rows, outputs) = x W^T + bias, added to out with `add`. Raises ValueError.
    """

class Expert:
    """A gated feed-forward block: down(silu(gate x) * up x)."""

    def __init__(self, gate_up: Linear, down: Linear, clamp: tuple[float, float] | None = None) -> None:
        """
        clamp (limit, alpha): g = min(gate x, limit) and u = up x within +-limit give down((u + 1) * g * sigmoid(alpha g)). Raises ValueError.
        """

def mlp(x: Rows, expert: Expert, out: Rows, add: bool = True) -> None:
    """out = expert(x), added to out with `add`. Raises ValueError."""

class ExpertTable:
    """The experts of one layer, all of one shape."""

    def __init__(self, experts: Sequence[Expert]) -> None: ...

    def __len__(self) -> int: ...

class Router:
    """How a row's experts follow from its router logits."""

    def __init__(self, num_choices: int, *, scoring: str, normalize: bool, scale: float, bias: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, num_groups: int = 1, kept_groups: int = 1, num_shared: int = 0) -> None:
        """
        scoring: sigmoid; softmax over all experts; or top_softmax, where logits choose and the weights are the softmax over the chosen. num_shared: the last experts, which every row takes besides those it chooses, all weighed together.
        """

    @property
    def num_choices(self) -> int:
        """Experts a row chooses, the shared ones not counted."""

    def ranking(self, num_choices: int, num_experts: int) -> Router:
        """
        A router that chooses more or fewer of num_experts experts, as far as it may, in the same order, counting for itself.
        """

    @property
    def counts(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')]:
        """How often each expert was chosen; empty before the first route()."""

class Choices:
    """Experts chosen for each row, and their weights."""

    def __init__(self) -> None: ...

    @property
    def ids(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu')]:
        """
        (rows, num_choices + num_shared) int32, best first, then the shared; a view until the next route().
        """

    @property
    def weights(self) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]:
        """
        (rows, num_choices + num_shared) float32; a view until the next route().
        """

def route(logits: Rows, router: Router, out: Choices) -> None:
    """
    Choose experts for every row of logits (rows, experts). Raises ValueError.
    """

class MoeStep:
    """A mixture in parts; see moe(), whose bits it gives."""

    def __init__(self) -> None: ...

    def begin(self, x: Rows, choices: Choices, num_experts: int, like: Expert) -> None:
        """
        Group the rows by expert. x stays as it is until the last run(); `like` is any expert of the layer. Raises ValueError, IndexError.
        """

    @property
    def ids(self) -> list[int]:
        """The experts that rows chose, ascending."""

    def run(self, ids: Sequence[int], experts: Sequence[Expert]) -> None:
        """
        Compute some of the chosen experts, in any order. Raises ValueError for one that nobody chose or that was computed before.
        """

    def end(self, out: Rows) -> None:
        """
        out += weighted sum of each row's experts. Raises ValueError when one is missing.
        """

def moe(x: Rows, experts: ExpertTable, choices: Choices, out: Rows) -> None:
    """
    out += weighted sum of each row's chosen experts. Raises ValueError, IndexError.
    """

class LayerLayout:
    """What one layer keeps of the past; 0: none of a kind."""

    def __init__(self, *, num_kv_heads: int = 0, head_dim: int = 0, latent_dim: int = 0, index_dim: int = 0, state_dim: int = 0) -> None: ...

    @property
    def num_kv_heads(self) -> int: ...

    @property
    def head_dim(self) -> int: ...

    @property
    def latent_dim(self) -> int:
        """Floats per position of latent attention."""

    @property
    def index_dim(self) -> int:
        """Floats per position of an indexer's key."""

    @property
    def state_dim(self) -> int:
        """Floats of recurrent state."""

class KvCache:
    """The past of one sequence, all layers."""

    def __init__(self, layers: Sequence[LayerLayout], dtype: str = 'f32') -> None:
        """
        dtype: what keys, values, latents and index keys are kept as, "f32" or "bf16" (rounded as they are written). Raises ValueError.
        """

    @property
    def dtype(self) -> str: ...

    @property
    def length(self) -> int:
        """Positions written."""

    @property
    def capacity(self) -> int:
        """Positions that fit without growing."""

    @property
    def nbytes(self) -> int: ...

    @property
    def has_state(self) -> bool:
        """Whether there is recurrent state, which belongs to one length."""

    def reserve(self, positions: int) -> None:
        """Make room. Raises MemoryError, keeping what is there."""

    def restorable(self, length: int) -> int:
        """
        The largest length up to `length` that truncate and copy_prefix accept: itself, unless there is recurrent state, which is known at the current length, at snapshots and at 0.
        """

    def snapshot(self) -> None:
        """
        Keep the recurrent state, if any, so that this length stays restorable.
        """

    def truncate(self, length: int) -> None:
        """
        Forget positions from `length` on. Raises ValueError where that is not restorable.
        """

    def copy_prefix(self, other: KvCache, length: int) -> None:
        """
        Become a copy of the first positions, a restorable length, of a cache of the same layers.
        """

    @property
    def layouts(self) -> list[LayerLayout]:
        """What each layer keeps."""

    @property
    def row_dim(self) -> int:
        """Floats of one position, all layers."""

    @property
    def state_dim(self) -> int:
        """Floats of recurrent state, all layers."""

    def append_rows(self, rows: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)]) -> None:
        """
        Append positions from rows (n, row_dim) float32 as KvReader gives them, rounded to the cache's dtype. With recurrent state, put_state follows. Raises ValueError, or MemoryError with nothing changed.
        """

    def put_state(self, length: int, state: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """
        Declare the recurrent state (state_dim,) of a length, which becomes restorable. Raises ValueError.
        """

class KvReader:
    """
    What a cache holds now, for any thread while its owner appends; rows are not to be read once the owner has truncated below them.
    """

    def __init__(self, cache: KvCache) -> None: ...

    @property
    def length(self) -> int:
        """Positions."""

    @property
    def row_dim(self) -> int:
        """Floats of one position, all layers."""

    @property
    def state_dim(self) -> int:
        """Floats of recurrent state, all layers."""

    @property
    def state_lengths(self) -> list[int]:
        """Lengths whose recurrent state is known, ascending."""

    def read_rows(self, begin: int, out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu')]) -> None:
        """
        Fill out (n, row_dim) float32 with rows from position `begin` on: layer by layer keys of all heads, values, latent, index key, each exactly. Raises ValueError.
        """

    def read_state(self, length: int, out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')]) -> None:
        """
        Fill out (state_dim,) with the recurrent state of a length. Raises ValueError.
        """

class Batch:
    """Which sequence and position each row of a step belongs to."""

    def __init__(self) -> None: ...

    def set(self, segments: Sequence[tuple[KvCache, int, int]]) -> None:
        """
        Take segments (cache, start position, rows) and reserve their room. Raises ValueError, MemoryError.
        """

    def commit(self) -> None:
        """Declare the rows of every segment written."""

    @property
    def rows(self) -> int: ...

    @property
    def end_position(self) -> int:
        """One past the last position of any row."""

class Rope:
    """Rotary embedding; interleaved rotates (2j, 2j+1), else (j, j+d/2)."""

    def __init__(self, rotated: int, inv_freq: Sequence[float], scale: float = 1.0, interleaved: bool = False) -> None: ...

def rope_store(qkv: Rows, batch: Batch, layer: int, rope: Rope, num_heads: int) -> None:
    """
    Rotate q and k of qkv (rows, q + k + v) in place; write k and v into the caches.
    """

class AttentionOptions:
    """What a layer has beyond plain causal attention; all of it optional."""

    def __init__(self, *, window: int = 0, sinks: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, profiles: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None = None, log_floor: float = 0.0, log_alpha: float = 0.0) -> None:
        """
        window: how many keys are seen, the query's own included; 0 for all. sinks (heads,): a score whose key has no value. profiles (P, extent): biases by distance, mixed by P weights per head that follow k and v in a row. log_floor: queries are scaled by 1 + log_alpha ln((position + 1) / log_floor) beyond it. Raises ValueError.
        """

def store_kv(rows: Rows, batch: Batch, layer: int, offset: int) -> None:
    """
    Write k and v, side by side from column `offset` on, into the caches. Raises ValueError.
    """

def attention(qkv: Rows, batch: Batch, layer: int, num_heads: int, scale: float, out: Rows, options: AttentionOptions | None = None) -> None:
    """
    out (rows, num_heads * head_dim) = causal attention of qkv's queries. Raises ValueError.
    """

class ShortConv:
    """A causal convolution of a few taps for each channel."""

    def __init__(self, weights: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], *, column: int = 0, state_offset: int = 0) -> None:
        """
        weights (channels, taps) float32, the current input's last. column: of the first channel in a row. state_offset: of its earlier inputs in the layer's state. Raises ValueError.
        """

    @property
    def state_dim(self) -> int:
        """Floats of state it needs."""

def short_conv(x: Rows, conv: ShortConv, batch: Batch, layer: int, residual: Rows | None = None) -> None:
    """
    Add to the channels of x their convolution, in place; with `residual` (rows, channels) add both to that and leave x. Raises ValueError.
    """

class HeadLinear:
    """A linear layer with one matrix per head."""

    def __init__(self, heads: Sequence[Matrix], input_scales: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)] | None = None, scale_outputs: int = 0, numerics: str = 'default') -> None: ...

    @property
    def num_heads(self) -> int: ...

    @property
    def num_inputs(self) -> int:
        """Inputs of one head."""

    @property
    def num_outputs(self) -> int:
        """Outputs of one head."""

    @property
    def nbytes(self) -> int: ...

def head_linear(x: Rows, layer: HeadLinear, out: Rows, offset: int = 0) -> None:
    """
    out (rows, heads * outputs): each head's product with its num_inputs columns of x (rows, heads * width) from `offset` within the head on. Raises ValueError.
    """

class Selection:
    """Which cached positions each row of a step attends to."""

    def __init__(self, topk: int, always_lists: bool = False) -> None: ...

    @property
    def topk(self) -> int: ...

    @property
    def rows(self) -> int: ...

    @property
    def fixed(self) -> bool:
        """While set, layers leave the choice as it is."""

    @fixed.setter
    def fixed(self, arg: bool, /) -> None: ...

    def reset(self, rows: int) -> None:
        """Let so many rows take all positions."""

    def keep(self, rows: Sequence[int]) -> None:
        """
        Keep some rows, in ascending order, as rows 0, 1, ... Raises ValueError.
        """

    def positions(self, row: int) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')] | None:
        """
        The positions of a row, ascending, as a new int32 array; None where it takes all.
        """

class IndexHeads:
    """Heads of an indexer: where their weights are, a scale."""

    def __init__(self, num_heads: int, weights_offset: int, scale: float) -> None: ...

def index_select(q: Rows, weights: Rows, batch: Batch, layer: int, heads: IndexHeads, selection: Selection) -> None:
    """
    Select for every row the topk positions up to its own with the largest scores, sum_h weight_h * relu(q_h . key). Raises ValueError.
    """

class LatentHeads:
    """Query heads of latent attention, and a score scale."""

    def __init__(self, num_heads: int, scale: float) -> None: ...

def rotate(x: Rows, batch: Batch, rope: Rope, offset: int, num_heads: int, stride: int) -> None:
    """
    Rotate in place the rope's channels at columns offset + h * stride of every head h.
    """

def store_latents(x: Rows, offset: int, batch: Batch, layer: int) -> None:
    """
    Write latent_dim columns from `offset` on into the caches. Raises ValueError.
    """

def store_index_keys(x: Rows, offset: int, batch: Batch, layer: int) -> None:
    """
    Write index_dim columns from `offset` on into the caches. Raises ValueError.
    """

def latent_attention(absorbed: Rows, q: Rows, batch: Batch, layer: int, heads: LatentHeads, selection: Selection | None = None) -> None:
    """
    Replace each head's absorbed query (rows, heads * value_dim) by the latents it attends to; the last channels of its head of q meet the rest of the latents. Raises ValueError.
    """
