"""What every phase gets and gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from colibri_cli.backends.base import Backend, ModelCard
    from colibri_cli.diag.asking import Asker


@dataclass(slots=True)
class PhaseResult:
    """What a phase found.

    Args:
        details: Its part of the report, plain data.
        metrics: The figures that are compared, by name.
        skipped: Why it was not done, for this model or engine; None: it was.
        problems: What went wrong in it, one line each.
    """

    details: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    skipped: str | None = None
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Bench:
    """The model on the bench.

    Args:
        backend: Open.
        card: Its model.
        asker: Asks it.
        load_s: How long it took to load; None: a server had it already.
        tell: Whom to tell progress.
        server: Address of the server that is asked instead of an engine of ours, or None.
    """

    backend: Backend
    card: ModelCard
    asker: Asker
    load_s: float | None
    tell: Callable[[str], None]
    server: str | None = None


class Phase(Protocol):
    """One phase; `Bench` in, its part of the report out."""

    async def __call__(self, bench: Bench) -> PhaseResult:
        """Run it."""
        ...
