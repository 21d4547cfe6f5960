"""The Prometheus text format, as much of it as is needed. Source: its exposition format page."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_cli.gateway.statistics import Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX: Final = "colibri_"


class MetricsText:
    """Collects families of metrics; `text` is the whole page."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    @property
    def text(self) -> str:
        """Everything so far."""
        return "\n".join([*self._lines, ""])

    def counter(self, name: str, help_text: str, value: float) -> None:
        """Add one number that only grows."""
        self.family(name, help_text, "counter", {"": value})

    def gauge(self, name: str, help_text: str, value: float) -> None:
        """Add one number that comes and goes."""
        self.family(name, help_text, "gauge", {"": value})

    def family(
        self, name: str, help_text: str, kind: str, values: Mapping[str, float], label: str = ""
    ) -> None:
        """Add one number per value of a label."""
        full = _PREFIX + name
        self._head(full, help_text, kind)
        for word, value in values.items():
            labels = f'{{{label}="{_escaped(word)}"}}' if label else ""
            self._lines.append(f"{full}{labels} {_number(value)}")

    def histogram(self, name: str, help_text: str, histogram: Histogram) -> None:
        """Add a distribution."""
        full = _PREFIX + name
        self._head(full, help_text, "histogram")
        total = 0
        for bound, count in zip((*histogram.bounds, math.inf), histogram.counts, strict=True):
            total += count
            self._lines.append(f'{full}_bucket{{le="{_number(bound)}"}} {total}')
        self._lines.append(f"{full}_sum {_number(histogram.total)}")
        self._lines.append(f"{full}_count {total}")

    def _head(self, full: str, help_text: str, kind: str) -> None:
        self._lines.append(f"# HELP {full} {help_text}")
        self._lines.append(f"# TYPE {full} {kind}")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
