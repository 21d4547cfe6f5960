"""The access log names who asked for what and how it ended, and nothing of the content."""

from __future__ import annotations

import json
import logging

import pytest

from colibri_cli.gateway.access_log import LOGGER_NAME, AccessRecord, log_access
from tests.gateway.http.running_server import KEY, KEYS, RunningServer, get, post


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER_NAME]


def test_one_line_per_request(caplog: pytest.LogCaptureFixture) -> None:
    with RunningServer(keys=KEYS) as server, server.connect() as client:
        client.ask(post("/v1/chat/completions?token=hush", b"secret words", f"x-api-key: {KEY}"))
        client.ask(get("/v1/models"))
        client.ask(b"nonsense\r\n\r\n")
        server.script.wait_for_records(3)
        records = server.script.records
    assert [(r.method, r.path, r.status, r.key_name) for r in records] == [
        ("POST", "/v1/chat/completions", 200, "mine"),
        ("GET", "/v1/models", 401, None),
        ("-", "-", 400, None),
    ]
    written = lines(caplog)
    assert written[0].startswith('127.0.0.1 - "POST /v1/chat/completions" 200 ')
    assert written[0].endswith(f"key=mine {records[0].request_id}")
    assert len(written) == 3
    assert "hush" not in caplog.text
    assert "secret" not in caplog.text
    assert records[0].sent_bytes > 100
    assert dict(server.server.answers) == {200: 1, 401: 1, 400: 1}


def record(path: str) -> AccessRecord:
    return AccessRecord("req_1", "192.0.2.1", "GET", path, 200, 10, 0.25, is_cut=True)


def test_a_path_cannot_forge_lines_or_fields(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log_access(record('/a" 200\r\nfaked\x1b[31m' + "x" * 500))
    (line,) = lines(caplog)
    assert "\n" not in line
    assert "\x1b" not in line
    assert line.count('"') == 2
    assert len(line) < 300


def test_lines_in_json(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log_access(record("/é"), as_json=True)
    fields = json.loads(lines(caplog)[0])
    assert (fields["path"], fields["status"], fields["is_cut"]) == ("/é", 200, True)
