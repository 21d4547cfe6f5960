"""White space at the edges of an answer: it only counts where visible text follows.

Models write line breaks between reasoning, answer and calls. Sent as they come they would become
blocks of their own with nothing in them.
"""

from __future__ import annotations


class HeldSpace:
    """Feed the pieces of an answer, send what comes back.

    Args:
        trims: White space around calls belongs to their syntax: texts are sent without any at
            their edges. Otherwise a text is sent as it is, but begins with its first visible part.
    """

    def __init__(self, *, trims: bool) -> None:
        self._trims = trims
        self._held = ""
        self._is_open = False

    def feed(self, text: str) -> str:
        """Return what is to be sent now."""
        text = self._held + text
        self._held = ""
        if not self._is_open:
            if not text or text.isspace():
                self._held = text
                return ""
            self._is_open = True
            text = text.lstrip() if self._trims else text
        if self._trims:
            kept = text.rstrip()
            text, self._held = kept, text[len(kept) :]
        return text

    def end(self) -> str:
        """End a text: return what was held back and begin anew."""
        held, self._held = self._held, ""
        self._is_open = False
        return "" if self._trims else held
