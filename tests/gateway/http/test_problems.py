"""Every code of ours has an answer, and none tells a client what is not its business."""

from __future__ import annotations

import json

import pytest

from colibri_cli.errors import (
    ERROR_TABLE,
    CapabilityMissing,
    EngineCrashed,
    EngineHung,
    EngineNotReady,
    EngineStartError,
    QueueTimeout,
    SchedulerClosed,
)
from colibri_cli.gateway.http_types import HttpError
from colibri_cli.gateway.problems import http_error_of, render_openai_error
from colibri_protocol.errors import (
    BadOption,
    CheckpointError,
    ColibriError,
    ContextLengthExceeded,
    ExpertReadFailed,
    OutOfKvBlocks,
)

TELLTALE = "/opt/private/model.gguf"
FOR_CLIENTS = {400, 404, 429}
FOR_CLIENTS_TOO = {"overloaded", "scheduler_closed", "expert_read_failed"}


@pytest.mark.parametrize("code", ERROR_TABLE)
def test_server_faults_keep_their_details_to_themselves(code: str) -> None:
    error = http_error_of(ColibriError(f"broken: {TELLTALE}", code=code))
    assert 400 <= error.status <= 599
    if error.status not in FOR_CLIENTS and code not in FOR_CLIENTS_TOO:
        assert TELLTALE not in error.message
    json.loads(render_openai_error(error, "req_1").body)


def test_what_clients_can_act_on_is_told() -> None:
    missing = http_error_of(CapabilityMissing("this engine does not support seed"))
    assert (missing.status, missing.code) == (400, "unsupported_parameter")
    assert "seed" in missing.message
    bad = http_error_of(BadOption("temperature", "must be in 0..2, not 3"))
    assert (bad.status, bad.param) == (400, "temperature")


@pytest.mark.parametrize(("context", "shown"), [(4096, 4096), (None, 4094)])
def test_a_prompt_that_is_too_long_is_told_all_numbers(context: int | None, shown: int) -> None:
    error = http_error_of(ContextLengthExceeded(5000, 4094, context))
    assert (error.status, error.code, error.param) == (400, "context_length_exceeded", "messages")
    assert "has 5000 tokens and may have 4094" in error.message
    assert f"this model's maximum context length is {shown} tokens" in error.message


def test_overload_says_when_to_come_back() -> None:
    late = http_error_of(QueueTimeout("waited 300 s", retry_after_s=12, hint="later"))
    assert (late.status, late.code, late.headers) == (429, "queue_timeout", {"Retry-After": "12"})
    closed = http_error_of(SchedulerClosed("the server is shutting down", retry_after_s=0))
    assert (closed.status, closed.code, closed.headers["Retry-After"]) == (
        503,
        "scheduler_closed",
        "1",
    )


@pytest.mark.parametrize(
    ("ready_in_s", "header"), [(None, "1"), (0.2, "1"), (41.3, "42"), (1e9, "3600")]
)
def test_an_engine_that_is_to_come_says_when(ready_in_s: float | None, header: str) -> None:
    answer = http_error_of(EngineNotReady("restarting", ready_in_s=ready_in_s))
    assert (answer.status, answer.headers) == (503, {"Retry-After": header})
    assert f"{header} s" in answer.message


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (EngineNotReady("starting"), 503),
        (EngineStartError(f"no {TELLTALE}"), 503),
        (OutOfKvBlocks(), 503),
        (EngineCrashed("signal 9"), 503),
        (EngineHung("no answer"), 503),
        (CheckpointError("torn", path=TELLTALE), 500),
    ],
)
def test_engine_faults(error: ColibriError, status: int) -> None:
    answer = http_error_of(error)
    assert (answer.status, answer.code) == (status, "engine_error")
    assert ("Retry-After" in answer.headers) == (status == 503)
    assert TELLTALE not in answer.message


def test_a_file_that_cannot_be_read_is_named() -> None:
    error = ExpertReadFailed("out-00000.safetensors: Input/output error", hint="check the disk")
    answer = http_error_of(error)
    assert (answer.status, answer.code) == (500, "engine_error")
    assert answer.message == "out-00000.safetensors: Input/output error (check the disk)"


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "invalid_request_error"),
        (404, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "server_error"),
        (503, "server_error"),
    ],
)
def test_the_word_for_each_status(status: int, word: str) -> None:
    response = render_openai_error(HttpError(status, "é", param="p", code="c"), "req_1")
    assert json.loads(response.body) == {
        "error": {"message": "é", "type": word, "param": "p", "code": "c"}
    }
