"""Stop sequences on a text stream: cut at the first match, never show part of one.

Works on the raw decoded text, before reasoning is split off, so a sequence also ends an answer
inside its reasoning. In patient mode a sequence before any
visible character is deleted instead of ending the answer (models that open with a role marker).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from colibri_cli.chat_formats.markers import first_marker, held_length

if TYPE_CHECKING:
    from collections.abc import Sequence


class StopFilter:
    """Feed text, get the text that may be shown; `matched` names the sequence that ended it."""

    def __init__(self, sequences: Sequence[str], *, is_patient: bool = False) -> None:
        self._sequences = tuple(sequence for sequence in sequences if sequence)
        self._is_patient = is_patient
        self._held = ""
        self._has_text = False
        self.matched: str | None = None

    @property
    def held(self) -> str:
        """Text held back because it may become a sequence."""
        return self._held

    def feed(self, text: str) -> str:
        """Take the next piece; returns what may be shown now."""
        if self.matched is not None:
            return ""
        pending = self._held + text
        while (found := first_marker(pending, self._sequences)) is not None:
            offset, sequence = found
            before = pending[:offset]
            if self._is_patient and not self._has_text and not before.strip():
                pending = pending[offset + len(sequence) :]
                continue
            self.matched = sequence
            self._held = ""
            return before
        kept = len(pending) - held_length(pending, self._sequences)
        if self._is_patient and not self._has_text and not pending[:kept].strip():
            kept = 0  # white space goes with a marker that may follow it
        self._held = pending[kept:]
        shown = pending[:kept]
        self._has_text = self._has_text or bool(shown.strip())
        return shown

    def flush(self) -> str:
        """Return the text held back at the end of generation."""
        held, self._held = self._held, ""
        return "" if self.matched is not None else held
