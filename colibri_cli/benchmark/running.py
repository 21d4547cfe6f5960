"""One whole `coli bench`: loads, cold and warm, then speeds in rounds; or a server's speeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from colibri_cli.benchmark.figures import BenchResult
from colibri_cli.benchmark.measuring import (
    measure_cold,
    measure_speed,
    measure_warm_loads,
    peak_memory_of_children,
)
from colibri_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from colibri_cli.backends.native import NativeBackend
    from colibri_cli.backends.upstreams.backend import UpstreamBackend
    from colibri_cli.benchmark.measuring import BenchPlan
    from colibri_protocol.settings import ResolvedSettings


# What HTTP does not tell. Speeds hold the way there and back.
_ABSENT: Final = (
    "load times and first answers after them, which are over before there is a server",
    "peak memory, kernels, threads, numerics and processor, which no route tells",
    "prefill without the way to the server: it is timed up to the first token",
)
_ABSENT_LENGTH: Final = (
    "answers of full length: the server cannot be told to run on, some may have ended earlier"
)


async def run_attached_bench(
    settings: ResolvedSettings, url: str, plan: BenchPlan, tell: Callable[[str], None]
) -> BenchResult:
    """Measure the speeds of a running server and return them, and what could not be measured.

    Raises:
        UsageError: its context is too short for the plan.
        ServerUnreachable: it does not answer.
    """
    from colibri_cli.backends.attaching import named_server

    backend = await named_server(settings, url, tell)
    try:
        result = BenchResult(*await _model_of(backend, plan), "")
        result.server = {"url": backend.url, "kind": backend.kind.name}
        runs_on = "ignore_eos" in backend.kind.options
        result.absent = _ABSENT if runs_on else (*_ABSENT, _ABSENT_LENGTH)
        await measure_speed(backend, plan, result, tell)
    finally:
        await backend.close()
    return result


async def _model_of(backend: UpstreamBackend, plan: BenchPlan) -> tuple[str, Mapping[str, object]]:
    """Return name and details of the served model, which must have room for the plan."""
    card = (await backend.models())[0]
    room = card.context_length
    if room is not None and room < plan.context_needed:
        raise UsageError(
            f"the server's context of {room} tokens is too short: {plan.context_needed} are needed",
            hint="choose a smaller --prompt, --context or --generate",
        )
    return card.id, card.details


async def run_bench(
    settings: ResolvedSettings, plan: BenchPlan, tell: Callable[[str], None], *, has_loads: bool
) -> BenchResult:
    """Measure and return everything.

    Args:
        settings: Effective settings of the command.
        plan: What to measure.
        tell: Called with one line about what is going on.
        has_loads: Measure loading too, and the first answer after it.
    """

    def make() -> NativeBackend:
        return _backend(settings, plan)

    result = BenchResult("", {}, "")
    if has_loads:
        model_path = make().model_path  # or there is none, which is said alone
        tell("loading, cold and warm")
        await measure_cold(make, plan, result, model_path)
        await measure_warm_loads(make, plan, result)
    backend = make()
    try:
        await backend.open()
        card = (await backend.models())[0]
        hardware = backend.telemetry().hardware
        result.model, result.details = card.id, card.details
        result.cpu = hardware.cpu if hardware else ""
        await measure_speed(backend, plan, result, tell)
    finally:
        await backend.close()
    result.rows.sort(key=lambda row: row.kind == "decode")  # cold ones beside their like
    result.peak_memory_bytes = peak_memory_of_children()
    return result


def _backend(settings: ResolvedSettings, plan: BenchPlan) -> NativeBackend:
    """Return a backend whose engine has the context and the slots the plan needs."""
    from colibri_cli.backends.opening import native_backend

    # Nothing but the model is measured, nothing is found computed, and runs do not differ.
    extra: dict[str, object] = {"kv_save": 0, "usage_save": 0}
    if not settings.is_given("draft"):
        extra["draft"] = "off"  # the words of a measurement are all too easily guessed
    if not settings.is_given("ctx"):
        extra["ctx"] = plan.context_needed
    if not settings.is_given("kv_slots"):
        extra["kv_slots"] = max(plan.batches)
    return native_backend(settings, extra=extra)
