"""The examples of docs/protocol.md are read by the codec, and its tables name what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from colibri_protocol import messages as m
from colibri_protocol.engine_lines import REQUEST_LINES, TELEMETRY_LINES
from colibri_protocol.frames import EngineLineDecoder, GatewayLineDecoder
from colibri_protocol.gateway_lines import GATEWAY_LINES
from colibri_protocol.options import RequestOptions

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
TELEMETRY_EXAMPLES = [
    example.replace("\\|", "|")
    for example in re.findall(r"^\| `[A-Z].*\| `([A-Z]+ [^`]*)` \|$", PAGE, re.MULTILINE)
]


def as_bytes(block: str) -> bytes:
    return block.replace("\\x01", "\x01").encode()


@pytest.mark.parametrize("block", BLOCKS)
def test_each_example_is_read_to_its_end(block: str) -> None:
    data = as_bytes(block)
    if block.startswith(("SUBMIT", "COUNT")):
        asked, _, answered = data.partition(b"COUNTED")
        gateway = GatewayLineDecoder()
        [message] = gateway.feed(asked)
        assert not isinstance(message, m.RequestFailed)
        gateway.feed_eof()
        data = b"COUNTED" + answered if answered else b""
    engine = EngineLineDecoder(handshake=block.startswith("\\x01"))
    assert engine.feed(data) or not data
    assert engine.num_ignored == 0
    if engine.is_open:
        engine.feed_eof()


@pytest.mark.parametrize("example", TELEMETRY_EXAMPLES)
def test_each_example_of_telemetry_is_read(example: str) -> None:
    assert len(EngineLineDecoder(handshake=False).feed(example.encode() + b"\n")) == 1


def test_every_line_word_error_and_option_is_on_the_page() -> None:
    lines = [*REQUEST_LINES, *TELEMETRY_LINES, *GATEWAY_LINES]
    names = [word.decode() for word in lines] + [code.value for code in m.ErrorCode]
    assert [name for name in names if not re.search(rf"`{name}\b", PAGE)] == []
    fields = list(RequestOptions.__dataclass_fields__)
    assert [name for name in [*fields, *m.Word] if f"`{name}`" not in PAGE] == []
    assert len(TELEMETRY_EXAMPLES) == len(TELEMETRY_LINES) - 1  # STAT has no row of its own
