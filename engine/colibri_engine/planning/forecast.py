"""How long a token takes: arithmetic over sizes and rates, nothing else.

Decoding one token of one conversation:

    weights   = bytes of always used weights / their kernels' rate
    experts   = bytes of the chosen experts / their kernels' rate
    attention = positions * multiply-adds of one / rate
    calls     = layers * calls of a layer * cost of a call
    reads     = bytes of missing experts / rate of the disk, + its latency for each layer
    hidden    = the part of the reads during which other experts of the layer are computed
    time      = weights + experts + attention + calls + reads - hidden

Reads of a layer begin when its router has chosen, so what hides them is the computing of the
layer's other experts; the last to arrive is computed when nothing is left to read. How many are
missing is binomial. With lookahead the disk begins earlier, while whatever lies between two
mixtures is computed, but it also reads what was guessed wrongly, and behind the last mixture only
guesses by score. A step of a prompt is the same with multiply-adds in place of bytes, and each
expert read once for all its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_engine.planning.rates import Rate

# Calls of kernels, the work of Python around them counted in such calls, too: of any layer, of a
# mixture that asks for its experts one by one, of what the engine does around a step.
CALLS_PER_LAYER: Final = 100
CALLS_PER_STREAMED_LAYER: Final = 1000
CALLS_PER_STEP: Final = 1500

# What it costs a step of many rows that experts are computed as they arrive, a few at a time, and
# not all in one call: measured on fixtures, expert_matmul streamed and in memory.
_APART: Final = 1.25

# Processor time of a direct read for each byte, which computing lacks: docs/measurements.md, Disks.
READ_CPU_S: Final = 0.1e-9

# Reads in vain for each missing expert, where the next router is asked beforehand: guesses come
# last and are taken back, so few of the wrong ones are read. Behind the last mixture guesses go by
# score alone, and this share of them is in vain. Counted on fixtures (benchmarks/plan_accuracy.py).
_VAIN: Final = 0.03
_VAIN_BY_SCORE: Final = 0.6


class Disk(NamedTuple):
    """How records are read.

    Args:
        bytes_per_s: With as many reads open as a layer asks for.
        latency_s: What a read takes beyond its share of that, once for each layer.
    """

    bytes_per_s: float
    latency_s: float = 0.0

    def seconds(self, nbytes: float) -> float:
        """Return how long the reads of a layer take together."""
        return self.latency_s + nbytes / self.bytes_per_s if nbytes > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Machine:
    """Rates that times follow from.

    Args:
        kinds: By kind of weight.
        experts: Of routed experts; None for a dense model.
        call_s: Seconds of a kernel call that computes next to nothing.
        disk: How records are read; None where nothing is.
        num_threads: Threads that compute.
    """

    kinds: Mapping[str, Rate]
    experts: Rate | None
    call_s: float
    disk: Disk | None
    num_threads: int = 1


class Experts(NamedTuple):
    """Layers whose routed experts are alike.

    Args:
        num_layers: How many.
        num_experts: Experts of each.
        per_token: Experts a row chooses.
        nbytes: Bytes of one in memory, which are those of its record on disk.
        num_weights: Weights of one.
        capacity: Slots of a layer; all of its experts where everything is in memory.
    """

    num_layers: int
    num_experts: int
    per_token: int
    nbytes: int
    num_weights: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Work:
    """What a model asks of a machine.

    Args:
        num_layers: Decoder layers.
        token_bytes: Weights outside of experts that a decoded token reads, by kind.
        token_weights: How many a prompt token multiplies with, by kind; without the head.
        position_macs: Multiply-adds of attention for each position that is looked at.
        experts: Its routed experts.
        hit_rate: Share of chosen experts that are in memory.
        distinct: Number of rows -> share of a layer's experts that they ask for.
        looks_ahead: Whether guessed experts are read before they are asked for.
    """

    num_layers: int
    token_bytes: Mapping[str, int]
    token_weights: Mapping[str, int]
    position_macs: int
    experts: tuple[Experts, ...]
    hit_rate: float
    distinct: Mapping[int, float]
    looks_ahead: bool = False

    @property
    def num_streamed(self) -> int:
        """Layers of which not every expert is in memory."""
        return sum(e.num_layers for e in self.experts if e.capacity < e.num_experts)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds of one step and what they are made of.

    Args:
        num_tokens: Tokens of the step.
        weights_s: Weights that are always used.
        experts_s: Routed experts.
        attention_s: Looking at the positions before.
        calls_s: What calls cost whatever they compute.
        read_s: Reads of missing experts.
        hidden_s: Of them, what computing hides.
        missed_bytes: Bytes that are read.
    """

    num_tokens: int
    weights_s: float
    experts_s: float
    attention_s: float
    calls_s: float
    read_s: float
    hidden_s: float
    missed_bytes: float

    @property
    def compute_s(self) -> float:
        """Seconds without any read."""
        return self.weights_s + self.experts_s + self.attention_s + self.calls_s

    @property
    def seconds(self) -> float:
        """Seconds of the step."""
        return self.compute_s + self.read_s - self.hidden_s

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second."""
        return self.num_tokens / self.seconds

    @property
    def hidden_share(self) -> float:
        """Share of the reads that computing hides."""
        return self.hidden_s / self.read_s if self.read_s > 0 else 1.0

    @property
    def bottleneck(self) -> str:
        """What takes most of the time: "disk", "memory" (reading weights) or "compute"."""
        waits = self.read_s - self.hidden_s
        if waits > self.compute_s:
            return "disk"
        streamed = self.weights_s + self.experts_s if self.num_tokens == 1 else 0.0
        return "memory" if streamed >= self.attention_s + self.calls_s else "compute"


def decode(work: Work, machine: Machine, num_positions: int) -> Forecast:
    """Return what a token of one conversation takes.

    Args:
        work: The model.
        machine: The rates.
        num_positions: Positions before it.
    """
    weights_s = sum(n / machine.kinds[kind].decode for kind, n in work.token_bytes.items())
    attention_s = _attention_s(work, machine, num_positions)
    calls_s = _calls_s(work, machine)
    between_s = (weights_s + attention_s + calls_s) / max(work.num_layers, 1)
    experts_s = read_s = hidden_s = missed = 0.0
    for experts in work.experts:
        assert machine.experts is not None
        one_s = experts.nbytes / machine.experts.decode
        experts_s += experts.num_layers * experts.per_token * one_s
        per_layer = experts.per_token * experts.nbytes * (1 - work.hit_rate)
        missed += experts.num_layers * per_layer
        if machine.disk is None or work.hit_rate >= 1.0:
            continue
        layer = _Mixture(experts, work.hit_rate, one_s, machine.disk)
        reads = layer.reads(between_s, _VAIN if work.looks_ahead else None)
        read_s += experts.num_layers * reads.read_s
        hidden_s += experts.num_layers * reads.hidden_s
    if work.looks_ahead and read_s:
        read_s += _score_guesses_s(work, machine, between_s)
    return Forecast(
        num_tokens=1,
        weights_s=weights_s,
        experts_s=experts_s,
        attention_s=attention_s,
        calls_s=calls_s + missed * READ_CPU_S / machine.num_threads,
        read_s=read_s,
        hidden_s=hidden_s,
        missed_bytes=missed,
    )


def prefill(work: Work, machine: Machine, num_rows: int) -> Forecast:
    """Return what the first step of a prompt takes.

    Args:
        work: The model.
        machine: The rates.
        num_rows: Tokens of the step.
    """
    products = work.token_weights.items()
    weights_s = num_rows * sum(n / machine.kinds[kind].batch for kind, n in products)
    experts_s = read_s = hidden_s = missed = 0.0
    for experts in work.experts:
        assert machine.experts is not None
        one_s = experts.num_weights / machine.experts.batch
        if experts.capacity < experts.num_experts:
            one_s *= _APART
        layer_s = num_rows * experts.per_token * one_s
        asked = experts.num_experts * work.distinct[num_rows]
        missing = max(0.0, asked - experts.capacity)
        read = 0.0
        if missing and machine.disk is not None:
            read = machine.disk.seconds(missing * experts.nbytes)
        exposed = max(layer_s, read + layer_s / max(asked, 1.0)) - layer_s if read else 0.0
        experts_s += experts.num_layers * layer_s
        read_s += experts.num_layers * read
        hidden_s += experts.num_layers * (read - exposed)
        missed += experts.num_layers * missing * experts.nbytes
    return Forecast(
        num_tokens=num_rows,
        weights_s=weights_s,
        experts_s=experts_s,
        attention_s=num_rows * _attention_s(work, machine, num_rows // 2),
        calls_s=_calls_s(work, machine) + missed * READ_CPU_S / machine.num_threads,
        read_s=read_s,
        hidden_s=hidden_s,
        missed_bytes=missed,
    )


def _attention_s(work: Work, machine: Machine, num_positions: int) -> float:
    rate = machine.kinds["f32"].batch
    return work.position_macs * num_positions / rate


def _calls_s(work: Work, machine: Machine) -> float:
    calls = CALLS_PER_STEP + CALLS_PER_LAYER * work.num_layers
    calls += CALLS_PER_STREAMED_LAYER * work.num_streamed
    return calls * machine.call_s


class _Reads(NamedTuple):
    read_s: float
    hidden_s: float


class _Mixture(NamedTuple):
    """One streamed mixture and one row."""

    experts: Experts
    hit_rate: float
    one_s: float
    disk: Disk

    def reads(self, between_s: float, wrong: float | None) -> _Reads:
        """Return the seconds of its reads, and how much of them computing hides.

        Args:
            between_s: What is computed between two mixtures.
            wrong: Experts read in vain for each that is missing; None: nothing is read ahead.
        """
        count = self.experts.per_token
        computing = count * self.one_s
        head_start = 0.0 if wrong is None else between_s
        read_s = waits = 0.0
        for missing in range(1, count + 1):
            chance = float(comb(count, missing))
            chance *= (1 - self.hit_rate) ** missing * self.hit_rate ** (count - missing)
            read = self.disk.seconds(missing * (1 + (wrong or 0.0)) * self.experts.nbytes)
            read_s += chance * read
            left = max(0.0, read - head_start)
            waits += chance * (max(computing, left + self.one_s) - computing)
        return _Reads(read_s, read_s - waits)


def _score_guesses_s(work: Work, machine: Machine, between_s: float) -> float:
    """Return what reads guessed by score delay the first mixture of the next token.

    Behind the last mixture that part of a row's experts is begun that is likely right; the head,
    the sampling and the layers before the first mixture go on meanwhile.
    """
    assert machine.disk is not None
    experts = work.experts[0]
    begun = max(1.0, (1 - _VAIN_BY_SCORE) * experts.per_token)
    vain = _VAIN_BY_SCORE * begun * experts.nbytes / machine.disk.bytes_per_s
    return max(0.0, vain - 2 * between_s - CALLS_PER_STEP * machine.call_s)
