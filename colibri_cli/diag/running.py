"""Running the phases on one backend, one after the other."""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING

from colibri_cli.diag.asking import Asker
from colibri_cli.diag.phase_names import FIRST, PHASES
from colibri_cli.diag.phases.base import Bench, PhaseResult
from colibri_cli.diag.report import Report
from colibri_cli.errors import CapabilityMissing, ServerRefused, UsageError
from colibri_protocol.errors import ColibriError
from colibri_protocol.settings import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from colibri_cli.backends.base import Backend
    from colibri_cli.diag.phases.base import Phase


def phases_of(text: str) -> tuple[str, ...]:
    """Return the phases of a list such as "smoke,quality", in their order; `system` always.

    Raises:
        UsageError: naming one that does not exist.
    """
    wanted = {word.strip() for word in text.split(",")}
    for word in wanted.difference(PHASES):
        near = nearest(word, set(PHASES))
        hint = f"did you mean {near}?" if near else None
        raise UsageError(f"--phases: there is no phase {word!r} ({', '.join(PHASES)})", hint=hint)
    return tuple(name for name in PHASES if name in {*wanted, FIRST})


async def run_phases(
    backend: Backend,
    phases: Sequence[str],
    tell: Callable[[str], None],
    *,
    server: str | None = None,
) -> Report:
    """Open the backend, run the phases and close it.

    Args:
        backend: Whom to ask.
        phases: Their names, in order.
        tell: Called with one line about what is going on.
        server: Address of the server that is asked, None: an engine of ours.

    Raises:
        ColibriError: the model cannot be opened; later errors stand in the report.
    """
    report = Report()
    if server is None:
        tell("loading the model")
    began = time.monotonic()
    try:
        await backend.open()
        load_s = time.monotonic() - began if server is None else None
        card = (await backend.models())[0]
        bench = Bench(backend, card, Asker(backend, card), load_s, tell, server)
        for name in phases:
            await _run(name, bench, report)
    finally:
        await backend.close()
    return report


async def _run(name: str, bench: Bench, report: Report) -> None:
    run: Phase = importlib.import_module(f"colibri_cli.diag.phases.{name}").run
    began = time.monotonic()
    try:
        report.phases[name] = await run(bench)
    except (CapabilityMissing, ServerRefused) as error:
        if bench.server is None:  # our own engine can do all that it announced
            report.errors[name] = error.message
        else:
            report.phases[name] = PhaseResult(skipped=f"the server cannot: {error.message}")
    except ColibriError as error:  # the others may still tell something
        report.errors[name] = error.message
    finally:
        report.seconds[name] = time.monotonic() - began
