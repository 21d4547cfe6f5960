"""`coli client-config`: the words of docs/clients.md, filled in for a server that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from colibri_cli.client_settings import RECIPES, Target, settings_of
from tests.fakes.command_line import ROOT, CommandLine
from tests.fakes.scripted_server import Reply, ScriptedServer, Seen

MODELS = {"data": [{"id": "glm", "context_window": 9000, "max_output_tokens": 700}]}


@pytest.fixture
def coli(tmp_path: Path) -> CommandLine:
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    return CommandLine(tmp_path, {"XDG_RUNTIME_DIR": str(run)})


@pytest.mark.parametrize("client", RECIPES)
def test_the_page_of_clients_says_the_same(client: str) -> None:
    page = (ROOT / "docs" / "clients.md").read_text().replace("$ ", "")
    targets = (
        Target("http://127.0.0.1:8000", name, context=65_536, output=8192)
        for name in ("NAME", "demo")
    )
    assert any(settings_of(client, target)[0] in page for target in targets)


@pytest.mark.parametrize("client", RECIPES)
def test_a_key_is_asked_for_and_none_is_written(client: str) -> None:
    target = Target("http://h:1", "m", has_keys=True)
    text = " ".join(settings_of(client, target))
    assert "@" not in text.replace("@ai-sdk", "")
    assert "any" not in text.split()
    assert "YOUR_KEY" in text or "COLI_API_KEY" in text


def test_json_forms_are_json() -> None:
    text, _ = settings_of("opencode", Target("http://h:1/", "m", context=9000, output=700))
    provider = json.loads(text)["provider"]["colibri"]
    assert provider["options"]["baseURL"] == "http://h:1/v1"
    assert provider["models"]["m"]["limit"] == {"context": 9000, "output": 700}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    scripted = ScriptedServer(None)
    scripted.routes["GET /v1/models"] = lambda _: Reply.of_json(MODELS)
    scripted.start()
    yield scripted
    scripted.stop()


@pytest.mark.e2e
def test_it_asks_the_server_what_it_serves(coli: CommandLine, server: ScriptedServer) -> None:
    done = coli.run("client-config", "opencode", "--url", server.url)
    target = Target(server.url, "glm", context=9000, output=700)
    assert (done.returncode, done.stdout) == (0, settings_of("opencode", target)[0])
    assert "opencode.json" in done.stderr
    body = json.loads(coli.run("client-config", "curl", "--url", server.url, "--json").stdout)
    assert (body["schema_version"], body["model"], body["needs_key"]) == (1, "glm", False)
    assert server.url in body["text"]


@pytest.mark.e2e
def test_a_server_with_keys_is_asked_with_ours(coli: CommandLine, server: ScriptedServer) -> None:
    def models(seen: Seen) -> Reply:
        keys = {name.lower(): text for name, text in seen.headers.items()}
        is_known = keys.get("authorization") == "Bearer UNIQUE"
        return Reply.of_json(MODELS) if is_known else Reply.error(401, "no")

    server.routes["GET /v1/models"] = models
    done = coli.run("client-config", "curl", "--url", server.url)
    assert (done.returncode, done.stdout) == (5, "")
    assert "COLI_API_KEY" in done.stderr
    coli.variables["COLI_API_KEY"] = "UNIQUE"
    done = coli.run("client-config", "curl", "--url", server.url)
    assert "Authorization: Bearer YOUR_KEY" in done.stdout
    assert "UNIQUE" not in done.stdout + done.stderr


@pytest.mark.e2e
def test_no_server_and_unknown_clients_are_told(coli: CommandLine) -> None:
    done = coli.run("client-config", "curl")
    assert (done.returncode, done.stdout) == (5, "")
    assert "coli serve" in done.stderr
    done = coli.run("client-config", "aidr")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean aider? there are claude," in done.stderr
