"""Routes and receivers of plugins in a running server; their faults stay theirs."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.command_line import CommandLine
from tests.fakes.fake_engine import write_executable

pytestmark = pytest.mark.e2e

PLUGIN = """
from pathlib import Path
from colibri_cli.plugin_api import hookimpl

@hookimpl
def register_routes(register):
    async def greet(request):
        return {"hello": request.query.get("name"), "size": len(request.body)}
    async def fail(request):
        raise RuntimeError("a secret detail")
    register("/plugins/greet", greet)
    register("/plugins/greet", greet, method="POST")
    register("/plugins/fail", fail)

@hookimpl
def register_telemetry_sinks(register):
    def keep(figures):
        text = f"{figures['status']} {figures['scheduler']['active']}"
        (Path.home() / "figures").write_text(text)
    def fail(figures):
        raise RuntimeError("no")
    register("bad", fail, interval_s=0.5)
    register("keep", keep, interval_s=0.5)
"""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    plugins = tmp_path / "config" / "colibri" / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "greeter.py").write_text(PLUGIN)
    model = tmp_path / "tiny"
    model.mkdir()
    engine = write_executable(tmp_path)
    variables = {"COLI_MODEL": str(model), "COLI_ENGINE": str(engine), "COLI_API_KEY": "k"}
    process = CommandLine(tmp_path, variables).start("serve", "--port", "0")
    try:
        assert process.stderr is not None
        line = ""
        while "listening on" not in line:
            line = process.stderr.readline().decode()
            assert line, "the server ended"
        yield line.partition("listening on ")[2].partition(";")[0].strip()
    finally:
        process.terminate()
        process.communicate(timeout=20)


def fetch(url: str, body: bytes | None = None, key: str = "k") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {key}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_routes_answer_with_a_key_and_faults_tell_clients_nothing(url: str) -> None:
    assert fetch(f"{url}/plugins/greet?name=x") == (200, {"hello": "x", "size": 0})
    assert fetch(f"{url}/plugins/greet", b"abc") == (200, {"hello": None, "size": 3})
    assert fetch(f"{url}/plugins/greet", key="wrong")[0] == 401
    status, body = fetch(f"{url}/plugins/fail")
    assert (status, body["error"]["code"]) == (500, "plugin_failed")
    assert "secret" not in json.dumps(body)
    assert fetch(f"{url}/plugins/other")[0] == 404
    assert fetch(f"{url}/v1/models")[0] == 200


def test_receivers_get_figures_also_beside_one_that_fails(url: str, tmp_path: Path) -> None:
    file = tmp_path / "figures"
    for _ in range(200):
        if file.is_file() and file.read_text() == "ok 0":
            return
        time.sleep(0.05)
    pytest.fail("no figures came")
