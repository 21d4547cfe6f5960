"""One whole `coli bench`: loads, cold and warm, then speeds in rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colibri_cli.benchmark.figures import BenchResult
from colibri_cli.benchmark.measuring import (
    measure_cold,
    measure_speed,
    measure_warm_loads,
    peak_memory_of_children,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from colibri_cli.backends.native import NativeBackend
    from colibri_cli.benchmark.measuring import BenchPlan
    from colibri_protocol.settings import ResolvedSettings


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
        tell("loading, cold and warm")
        await measure_cold(make, plan, result, make().model_path)
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
