"""gpt-oss: an answer is a few messages, each with a header that names its channel.

`<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…`. `analysis`
is reasoning; `final`, and `commentary` that is addressed to nobody, is the answer; `commentary to=
functions.NAME` is a call. The prompt ends behind `<|start|>assistant`, so the text begins inside a
header. The engine ends at `<|return|>` and `<|call|>`. Checkpoints bring their own template.
Source: https://cookbook.openai.com/articles/openai-harmony
"""

from __future__ import annotations

import re
from typing import Final

from colibri_cli.chat_formats.base import SplitText
from colibri_cli.chat_formats.markers import first_marker, held_length

START: Final = "<|start|>"
CHANNEL: Final = "<|channel|>"
MESSAGE: Final = "<|message|>"
END: Final = "<|end|>"
CONSTRAIN: Final = "<|constrain|>"
CALL: Final = "<|call|>"
ASSISTANT: Final = f"{START}assistant"
ANALYSIS: Final = f"{CHANNEL}analysis{MESSAGE}"
FINAL: Final = f"{CHANNEL}final{MESSAGE}"
PREAMBLE: Final = f"{CHANNEL}commentary{MESSAGE}"
# A call as the splitter leaves it in the answer, whatever order its header had.
CALL_HEAD: Final = f"{CHANNEL}commentary to=functions."
_MARKERS: Final = (START, CHANNEL, MESSAGE, END, CONSTRAIN, CALL, "<|return|>")
_ENDS: Final = {END, CALL, "<|return|>"}
_CHANNEL_NAME: Final = re.compile(r"<\|channel\|>\s*([a-z]+)")
_FUNCTION: Final = re.compile(r"\bto=functions\.([A-Za-z0-9_.\-]+)")
_LONGEST_HEADER: Final = 512  # characters; a model that writes more without a mark just talks


def is_harmony(template: str) -> bool:
    """Return whether a chat template writes messages like this."""
    return CHANNEL in template and MESSAGE in template and START in template


class HarmonySplitter:
    """The split by channels.

    Args:
        keeps_calls: A call stays in the answer behind `CALL_HEAD`, for a parser to find.
    """

    def __init__(self, *, keeps_calls: bool = False) -> None:
        self._keeps_calls = keeps_calls
        self._pending = ""
        self._header: str | None = ""  # None: inside a message
        self._is_thinking = False
        self._is_call = False
        self._has_text = False
        self._needs_gap = False

    @property
    def is_thinking(self) -> bool:
        """Whether the next text would be reasoning."""
        return self._is_thinking

    @property
    def held(self) -> str:
        """Text held back because it may become a marker, or belongs to a header."""
        return (self._header or "") + self._pending

    def feed(self, text: str) -> SplitText:
        """Take the next piece of raw text."""
        return self._drain(self._pending + text, is_last=False)

    def flush(self) -> SplitText:
        """Return what was held back; an incomplete marker is ordinary text."""
        reasoning, answer = self._drain(self._pending, is_last=True)
        if self._header and CHANNEL not in self._header:  # no header, just talk
            answer += self._header
        self._header = ""
        return SplitText(reasoning, answer)

    def _drain(self, pending: str, *, is_last: bool) -> SplitText:
        sides: tuple[list[str], list[str]] = ([], [])
        while (found := first_marker(pending, _MARKERS)) is not None:
            offset, marker = found
            self._take(pending[:offset], sides)
            self._apply(marker, sides)
            pending = pending[offset + len(marker) :]
        kept = len(pending) - (0 if is_last else held_length(pending, _MARKERS))
        self._take(pending[:kept], sides)
        self._pending = pending[kept:]
        return SplitText("".join(sides[0]), "".join(sides[1]))

    def _take(self, text: str, sides: tuple[list[str], list[str]]) -> None:
        if not text:
            return
        if self._header is not None:
            self._header += text
            if len(self._header) <= _LONGEST_HEADER or CHANNEL in self._header:
                return
            text, self._header = self._header, None
        if self._is_thinking:
            sides[0].append(text)
            return
        if self._needs_gap and not self._is_call:
            sides[1].append("\n\n")
        self._needs_gap = False
        self._has_text = self._has_text or not self._is_call
        sides[1].append(text)

    def _apply(self, marker: str, sides: tuple[list[str], list[str]]) -> None:
        if marker == START or marker in _ENDS:
            self._header = ""
            self._is_thinking = self._is_call = False
        elif self._header is not None and marker == MESSAGE:
            self._open(self._header, sides)
            self._header = None
        elif self._header is not None:
            self._header += marker

    def _open(self, header: str, sides: tuple[list[str], list[str]]) -> None:
        channel, function = _CHANNEL_NAME.search(header), _FUNCTION.search(header)
        if function is not None and self._keeps_calls:
            self._is_call = True
            sides[1].append(f"{CALL_HEAD}{function[1]}{MESSAGE}")
        elif channel is not None and channel[1] == "analysis":
            self._is_thinking = True
        self._needs_gap = self._has_text
