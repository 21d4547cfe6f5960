"""Servers for the tests of this folder, and the rule that none of them may log an error."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from tests.gateway.http.running_server import FAST, KEYS, RunningServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def no_error_is_logged(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> Iterator[None]:
    """Whatever a client does, the server logs no error, unless the test expects one."""
    caplog.set_level(logging.INFO)
    yield
    if "errors_expected" in request.fixturenames:
        return
    bad = [r.getMessage() for r in caplog.get_records("call") if r.levelno >= logging.ERROR]
    assert not bad, bad


@pytest.fixture
def server() -> Iterator[RunningServer]:
    """A server without keys and with short deadlines."""
    with RunningServer(FAST) as running:
        yield running


@pytest.fixture
def locked() -> Iterator[RunningServer]:
    """A server with two keys."""
    with RunningServer(FAST, keys=KEYS) as running:
        yield running


@pytest.fixture
def errors_expected() -> None:
    """Named by tests in which the server has reason to log an error."""
