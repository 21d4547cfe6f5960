"""One plan: what of a model goes where under some settings, and how fast that would be."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from colibri_engine.errors import InsufficientMemory
from colibri_engine.experts.budget import MemoryBudget, gb
from colibri_engine.memory_plan import needs_of
from colibri_engine.planning.forecast import Disk, Experts, Forecast, Machine, Work, decode, prefill
from colibri_engine.planning.hits import distinct_share, hit_rate
from colibri_engine.planning.placement import expected_placement, step_shape

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from colibri_engine.engine_config import EngineConfig
    from colibri_engine.loader.base import Checkpoint
    from colibri_engine.machine import Memory
    from colibri_engine.planning.model_sizes import ModelSizes
    from colibri_engine.planning.placement import Expected
    from colibri_engine.planning.rates import Rate

    Choices = npt.NDArray[np.float64]
    Tiers = dict[str, dict[str, Any]]

_POSITIONS: Final = 256  # of the conversation whose next token is estimated


@dataclass(frozen=True, slots=True)
class Subject:
    """What is planned for.

    Args:
        checkpoint: Its files.
        sizes: Its sizes.
        choices: (experts,) how often a token chooses each; None for a dense model.
        from_history: Whether that is this model's own history.
    """

    checkpoint: Checkpoint
    sizes: ModelSizes
    choices: Choices | None
    from_history: bool


@dataclass(frozen=True, slots=True)
class Case:
    """Settings and the machine they are for.

    Args:
        config: What the engine would be told.
        memory: What the machine leaves.
        machine: How fast it is.
    """

    config: EngineConfig
    memory: Memory
    machine: Machine


def plan(subject: Subject, case: Case) -> dict[str, Any]:
    """Return the plan as plain data: whether it runs, tiers, times, warnings."""
    warnings = _in_use(case.memory)
    try:
        expected = expected_placement(subject.checkpoint, subject.sizes, case.config, case.memory)
    except InsufficientMemory as refusal:
        return _refused(subject.sizes, case, refusal)
    streams = expected.streams
    if expected.excess is not None:
        warnings.append(expected.excess)
    work = _work(subject, expected.held, case.config)
    token = decode(work, case.machine, min(_POSITIONS, case.config.context_length))
    rows = next(iter(work.distinct))
    step = prefill(work, case.machine, rows)
    if streams and case.machine.disk is None:
        warnings.append("the disk was not measured: times are without any read")
    return {
        "runs": True,
        "mode": "streamed" if streams else "resident",
        "settings": _settings(case.config),
        "tiers": _tiers(subject.sizes, expected.placement.budget, case, expected),
        "hit_rate": work.hit_rate,
        "hit_source": _hit_source(subject, streams=streams),
        "decode": _forecast(token),
        "prefill": _forecast(step),
        "bottleneck": token.bottleneck,
        "warnings": warnings,
    }


def with_speeds(
    machine: Machine, *, threads: tuple[int, int], memory: float | None, disk: float | None
) -> Machine:
    """Return what another machine would give.

    Args:
        machine: What was measured.
        threads: Threads it was measured with, and those there would be.
        memory: Bytes per second of its memory; None: as measured.
        disk: Bytes per second of its disk; None: as measured.
    """
    before, after = threads
    if memory is not None or after != before:
        # The best that was seen from memory is what it gives to whoever reads fast enough.
        best = max(rate.decode for rate in machine.kinds.values())
        factor = after / before

        def scaled(rate: Rate) -> Rate:
            limit = best if memory is None else memory
            return rate._replace(decode=min(limit, rate.core * after), batch=rate.batch * factor)

        kinds = {kind: scaled(rate) for kind, rate in machine.kinds.items()}
        experts = None if machine.experts is None else scaled(machine.experts)
        machine = replace(machine, kinds=kinds, experts=experts, num_threads=after)
    if disk is not None:
        latency_s = 0.0 if machine.disk is None else machine.disk.latency_s
        machine = replace(machine, disk=Disk(disk, latency_s))
    return machine


def _work(subject: Subject, held: tuple[int, ...], config: EngineConfig) -> Work:
    sizes = subject.sizes
    rows = config.prefill_chunk
    capacities = held[: len(sizes.expert_layers)]
    alike = Counter(
        (layer.num_experts, layer.expert_bytes, _num_weights(layer.kinds), capacity)
        for layer, capacity in zip(sizes.expert_layers, capacities, strict=True)
    )
    per_token = sizes.config.num_experts_per_token
    experts = tuple(
        Experts(count, number, per_token, nbytes, weights, capacity)
        for (number, nbytes, weights, capacity), count in alike.items()
    )
    hits, distinct = 1.0, 0.0
    if subject.choices is not None and capacities:
        found = [_hit_rate(subject, capacity) for capacity in capacities]
        hits = sum(found) / len(found)
        distinct = distinct_share(subject.choices, rows)
    head = sizes.head
    return Work(
        num_layers=sizes.config.num_layers,
        token_bytes={kind: amount.nbytes for kind, amount in sizes.token.items()},
        token_weights={
            kind: amount.num_weights - (head[kind].num_weights if kind in head else 0)
            for kind, amount in sizes.token.items()
        },
        position_macs=sizes.position_macs,
        experts=experts,
        hit_rate=hits,
        distinct={rows: distinct},
        looks_ahead=config.memory.looks_ahead,
    )


def _hit_rate(subject: Subject, capacity: int) -> float:
    assert subject.choices is not None
    return _cached_rate(tuple(subject.choices.tolist()), capacity, subject.from_history)


@cache
def _cached_rate(choices: tuple[float, ...], capacity: int, is_known: bool) -> float:
    import numpy as np

    return hit_rate(np.array(choices), capacity, is_known=is_known)


def _num_weights(kinds: Any) -> int:  # noqa: ANN401 - a mapping of amounts
    return sum(amount.num_weights for amount in kinds.values())


def _refused(sizes: ModelSizes, case: Case, refusal: InsufficientMemory) -> dict[str, Any]:
    budget = MemoryBudget.of(case.memory, case.config.memory.ram_bytes)
    needed = refusal.needed_bytes
    return {
        "runs": False,
        "mode": "refused",
        "settings": _settings(case.config),
        "tiers": _tiers(sizes, budget, case, None),
        "needed_bytes": needed,
        "missing_bytes": max(0, needed - budget.nbytes),
        "reason": refusal.message,
        "hint": refusal.hint,
        "warnings": _in_use(case.memory),
    }


def _in_use(memory: Memory) -> list[str]:
    """Say that others take most of the memory: when they end, there is a better plan."""
    if memory.limit is not None or 2 * memory.available >= memory.total:
        return []
    free, total = gb(memory.available), gb(memory.total)
    return [f"most of the memory is in use: {free} of {total} are available to this plan"]


def _settings(config: EngineConfig) -> dict[str, Any]:
    return {
        "ctx": config.context_length,
        "kv_slots": config.num_slots,
        "prefill_chunk": config.prefill_chunk,
        "cap": config.memory.cap,
        "numerics": config.numerics,
        "kv_dtype": config.kv_dtype,
    }


def _tiers(sizes: ModelSizes, budget: MemoryBudget, case: Case, found: Expected | None) -> Tiers:
    """Return what is where; without a placement nothing can run, and every expert is on disk.

    `ram`: budget = dense + runtime + room for experts, and that is taken or free.
    """
    layers = sizes.all_expert_layers
    held = (0,) * len(layers) if found is None else found.held
    needs = needs_of(
        sizes.resident_bytes, step_shape(sizes), sizes.config.num_experts_per_token, case.config
    )
    reads = 0 if found is None else found.placement.working_bytes
    runtime = needs.nbytes - needs.resident_bytes + reads
    room = max(0, budget.nbytes - needs.resident_bytes - runtime)
    cold = [layer.num_experts - count for layer, count in zip(layers, held, strict=True)]
    cold_bytes = sum(n * layer.expert_bytes for n, layer in zip(cold, layers, strict=True))
    warm_bytes = sizes.expert_bytes - cold_bytes
    slots = found.placement.capacities if found is not None and found.streams else None
    return {
        # Experts are computed by the processor: the keys are there, for whoever reads every tier.
        "vram": {
            "devices": [],
            "budget_bytes": 0,
            "hot_expert_bytes": 0,
            "expert_capacity": 0,
            "requires_host_backing": False,
            "experts": 0,
        },
        "ram": {
            "available_bytes": case.memory.available,
            "budget_bytes": budget.nbytes,
            "budget_source": budget.source,
            "dense_bytes": needs.resident_bytes,
            "runtime_bytes": runtime,
            "conversations_bytes": needs.kv_bytes,
            "steps_bytes": needs.step_bytes,
            "process_bytes": needs.process_bytes,
            "reads_bytes": reads,
            "expert_cache_bytes": room,
            "warm_expert_bytes": warm_bytes,
            "free_bytes": max(0, room - warm_bytes),
            "experts": sum(held),
            "cache_slots_per_layer": min(held, default=0) if slots is None else min(slots),
            "max_slots_per_layer": max(held, default=0) if slots is None else max(slots),
        },
        "disk": {
            "model_bytes": sizes.file_bytes,
            "cold_expert_bytes": cold_bytes,
            "experts": sum(cold),
        },
    }


def _forecast(forecast: Forecast) -> dict[str, Any]:
    return {
        "tokens": forecast.num_tokens,
        "tokens_per_second": forecast.tokens_per_s,
        "seconds": forecast.seconds,
        "terms": {
            "weights_s": forecast.weights_s,
            "experts_s": forecast.experts_s,
            "attention_s": forecast.attention_s,
            "calls_s": forecast.calls_s,
            "read_s": forecast.read_s,
            "hidden_s": forecast.hidden_s,
        },
        "missed_bytes": forecast.missed_bytes,
        "hidden_share": forecast.hidden_share,
    }


def _hit_source(subject: Subject, *, streams: bool) -> str:
    if not streams:
        return "everything is in memory"
    return "history" if subject.from_history else "usual shares"
