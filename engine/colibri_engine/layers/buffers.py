"""The float rows of one forward pass: allocated once, grown to the largest step."""

from __future__ import annotations

from colibri_engine.kernels import Rows

_MIN_CAPACITY = 16


class StepBuffers:
    """Named row buffers that share one capacity.

    Args:
        widths: Columns of each buffer by name.
    """

    def __init__(self, widths: dict[str, int]) -> None:
        self._widths = widths
        self._capacity = 0
        self._rows: dict[str, Rows] = {}

    def ensure(self, rows: int) -> None:
        """Make room for `rows` rows in every buffer; contents are lost when it grows."""
        if rows <= self._capacity:
            return
        self._capacity = max(rows, 2 * self._capacity, _MIN_CAPACITY)
        self._rows.clear()
        for name, width in self._widths.items():
            self._rows[name] = Rows(self._capacity, width)

    def __getitem__(self, name: str) -> Rows:
        """Return a buffer; `ensure` comes first."""
        return self._rows[name]
