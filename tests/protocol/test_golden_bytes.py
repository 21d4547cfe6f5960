"""Each message has one form on the wire, written down in full."""

from __future__ import annotations

import typing

import pytest

from colibri_protocol import messages as m
from colibri_protocol.frames import EngineLineDecoder, GatewayLineDecoder, encode
from tests.protocol.golden import ENGINE, GATEWAY, HANDSHAKE, START_FAILURE


def name_of(value: object) -> str:
    return "" if isinstance(value, bytes) else type(value).__name__


@pytest.mark.parametrize(("message", "data"), GATEWAY, ids=name_of)
def test_a_gateway_message_has_these_bytes(message: m.GatewayMessage, data: bytes) -> None:
    assert encode(message) == data
    assert GatewayLineDecoder().feed(data) == [message]


@pytest.mark.parametrize(("message", "data"), ENGINE, ids=name_of)
def test_an_engine_message_has_these_bytes(message: m.EngineMessage, data: bytes) -> None:
    assert encode(message) == data
    assert EngineLineDecoder(handshake=False).feed(data) == [message]


def test_the_handshake_has_these_bytes() -> None:
    decoder = EngineLineDecoder()
    for message, data in HANDSHAKE:
        assert encode(message) == data
        assert decoder.feed(data) == [message]
    assert decoder.is_open


def test_a_failed_start_has_these_bytes() -> None:
    message, data = START_FAILURE
    assert encode(message) == data
    assert EngineLineDecoder().feed(b"loading\n" + data) == [message]


def test_every_message_is_written_down() -> None:
    written = {type(message) for message, _ in [*GATEWAY, *ENGINE, *HANDSHAKE, START_FAILURE]}
    declared = {*typing.get_args(m.GatewayMessage), *typing.get_args(m.EngineMessage)}
    assert written == declared


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"DONE 7 STAT 2 3.50 44.0 1.20\n", m.Finished(7, 2, 3.5, 44.0, 1.2)),
        (b"DONE 7 STAT 2 3.5 44 1.2 9\n", m.Finished(7, 2, 3.5, 44.0, 1.2, 9)),
        (b"DONE 7 STAT 2 3.5 44 1.2 9 0 4\n", m.Finished(7, 2, 3.5, 44.0, 1.2, 9, False, 4)),
        (b"DONE 7 STAT 2 1 1 1 9 0 4 new 5 6\n", m.Finished(7, 2, 1.0, 1.0, 1.0, 9, False, 4)),
        (b"DONE 7 STAT 0 -nan inf 1\r\n", m.Finished(7, 0, 0.0, 0.0, 1.0)),
        (b"ERROR 7\n", m.RequestFailed(7, "")),
        (b"ERROR 0 BAD_REQUEST\n", m.RequestFailed(0, "BAD_REQUEST")),
        (b"ERROR 7 no more room\n", m.RequestFailed(7, "", "no more room")),
        (b"ERROR 7 I am lost\n", m.RequestFailed(7, "", "I am lost")),
        (b"ERROR 7 DISK_FULL on \xff\n", m.RequestFailed(7, "DISK_FULL", "on \ufffd")),
        (b"ACCEPT 7 42 10\n", m.Accepted(7, 42, 10)),
        (b"HWINFO 8 1 2 0 0\n", m.HardwareInfo(8, 1.0, 2.0, 0, 0.0, "", "")),
        (b"HWINFO 8 1 2 0 0 A  B | C|D \n", m.HardwareInfo(8, 1.0, 2.0, 0, 0.0, "A  B", "C|D")),
        (b"EMAP 1 2 AaBb\n", m.ExpertMap(1, 2, b"\xaa\xbb")),
        (b"STAT 1 2 3 4 5\n", m.EngineStat(4.0, 1, 2.0, 3.0)),
    ],
    ids=lambda value: value.decode(errors="replace") if isinstance(value, bytes) else "",
)
def test_other_engines_write_it_otherwise(data: bytes, message: m.EngineMessage) -> None:
    assert EngineLineDecoder(handshake=False).feed(data) == [message]
