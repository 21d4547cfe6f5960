"""The page as `coli serve` sends it: with the scripted engine, and with the demo model."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from tests.e2e.dashboard.reading import answers, noticed, remember_notices, send, until
from tests.e2e.test_serve import RunningServer, configured, serving
from tests.fakes.command_line import CommandLine
from tests.fakes.fake_engine import write_executable

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

ENDS_OF_DEMO = ("0", "2")  # the tokens that end a reply of the demo model


@pytest.fixture
def served(tmp_path: Path) -> CommandLine:
    engine = write_executable(tmp_path)
    model = tmp_path / "tiny"
    model.mkdir()
    return CommandLine(tmp_path, {"COLI_MODEL": str(model), "COLI_ENGINE": str(engine)})


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    command = CommandLine(tmp_path_factory.mktemp("home"))
    # One thread, since the browser needs the other core to follow.
    options = ("--model", "demo", "--max-tokens", "3500", "--threads", "1")
    with serving(with_models(command), *options) as server:
        server.wait_for("ready")
        yield server


def with_models(command: CommandLine) -> CommandLine:
    """Let a command see the models that were pulled on this machine."""
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return CommandLine(command.home, {**command.variables, "XDG_DATA_HOME": data})


def engine_of(server: RunningServer) -> int:
    """Return the process that the server started."""
    children = Path(f"/proc/{server.process.pid}/task").glob("*/children")
    (pid,) = [int(word) for file in children for word in file.read_text().split()]
    return pid


def never_ending(route: Route) -> None:
    """Let a request through, for an answer that goes on until it is stopped."""
    body: dict[str, object] = json.loads(route.request.post_data or "{}")
    route.continue_(post_data={**body, "logit_bias": dict.fromkeys(ENDS_OF_DEMO, -100)})


@pytest.mark.usefixtures("bundle")
def test_the_demo_model_answers_and_its_figures_are_shown(page: Page, demo: RunningServer) -> None:
    page.goto(demo.url)
    expect(page.get_by_role("complementary", name="Runtime")).to_contain_text("ready")
    tiers = httpx.get(f"{demo.url}/health", trust_env=False).json()["tiers"]
    bar = page.get_by_role("img", name=re.compile("experts in VRAM"))
    expect(bar).to_have_attribute(
        "aria-label",
        f"{tiers['vram']:,} experts in VRAM, {tiers['ram']:,} in RAM, {tiers['disk']:,} on disk",
    )
    chats = f"{demo.url}/v1/chat/completions"
    page.route(chats, never_ending)
    send(page, "Write a short story about a bird.")
    expect(page.get_by_role("status").filter(has_text=re.compile(r"\d+ tokens?"))).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(answers(page)).to_contain_text("Stopped.")
    text = answers(page).inner_text().split()
    with demo.client() as client:
        until(lambda: client.get("/health").json()["scheduler"]["active"] == 0)
    page.unroute(chats)
    page.reload()
    expect(answers(page)).to_contain_text("Stopped.")
    assert answers(page).inner_text().split() == text
    send(page, "Say hi.")
    expect(answers(page)).to_have_count(2)
    expect(answers(page).last.locator("[data-figure=hits]")).to_be_visible()
    (turn,) = httpx.get(f"{demo.url}/profile", trust_env=False).json()["turns"][-1:]
    tokens = answers(page).last.locator("[data-figure=tokens]")
    expect(tokens).to_have_text(f"{turn['prompt_tokens']:,}→{turn['completion_tokens']:,}")
    expect(page.get_by_role("img", name=re.compile("I.O wait .* Expert matmul"))).to_be_visible()


@pytest.mark.usefixtures("bundle")
def test_what_is_sent_with_the_page_keeps_it_safe_and_fast(demo: RunningServer) -> None:
    with httpx.Client(base_url=demo.url, trust_env=False) as client:
        index = client.get("/c/any-conversation", headers={"Accept": "text/html"})
        assert index.status_code == 200
        assert index.headers["cache-control"] == "no-cache"
        assert "script-src 'self';" in index.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in index.headers["content-security-policy"]
        assert index.headers["x-content-type-options"] == "nosniff"
        assert "<script>" not in index.text
        script = re.search(r'src="(/assets/[^"]+\.js)"', index.text)
        assert script is not None
        asset = client.get(script[1], headers={"Accept-Encoding": "br"})
        assert asset.headers["content-encoding"] == "br"
        assert "immutable" in asset.headers["cache-control"]
        for missing in ("/assets/none.js", "/../pyproject.toml", "/v1/none"):
            assert client.get(missing).status_code == 404


@pytest.mark.usefixtures("bundle")
def test_an_engine_that_is_killed_is_told_and_recovers(page: Page, served: CommandLine) -> None:
    with serving(configured(served, delay_s=1)) as server:
        server.wait_for("ready")
        remember_notices(page)
        page.goto(server.url)
        expect(page.get_by_role("complementary", name="Runtime")).to_contain_text("ready")
        send(page, "[[tokens 1000]] [[slow 0.05]]")
        expect(answers(page)).to_contain_text("word3")
        os.kill(engine_of(server), signal.SIGKILL)
        until(lambda: noticed(page, "started again"))
        expect(answers(page)).to_contain_text("was cut off")
        expect(page.get_by_role("alert")).to_have_count(0)
        page.get_by_role("button", name="Regenerate").click()
        expect(answers(page)).to_contain_text("word3")
        page.get_by_role("button", name="Stop").click()


@pytest.mark.usefixtures("bundle")
def test_a_full_queue_is_told_and_waited_for(page: Page, served: CommandLine) -> None:
    with serving(served, "--max-queue", "0") as server:
        server.wait_for("ready")
        remember_notices(page)
        page.goto(server.url)
        expect(page.get_by_role("complementary", name="Runtime")).to_contain_text("ready")
        body = {
            "messages": [{"role": "user", "content": "[[tokens 1000]] [[slow 0.05]]"}],
            "stream": True,
        }
        url = f"{server.url}/v1/chat/completions"
        with httpx.stream("POST", url, json=body, trust_env=False) as other:
            assert other.status_code == 200
            send(page, "[[reply my turn]]")
            until(lambda: noticed(page, "Trying again in"))
        expect(answers(page)).to_contain_text("my turn")


@pytest.mark.usefixtures("bundle")
def test_coli_web_opens_a_browser_or_says_where_to_point_one(served: CommandLine) -> None:
    opened = served.home / "opened"
    opener = served.home / "opener"
    opener.write_text(f'#!/bin/sh\necho "$1" > "{opened}"\n')
    opener.chmod(0o755)
    for variables, arguments in (
        ({"BROWSER": f"{opener} %s"}, ()),
        ({"BROWSER": f"{opener} %s"}, ("--no-browser",)),
        ({"SSH_CONNECTION": "192.0.2.1 1 192.0.2.2 22"}, ()),
    ):
        opened.unlink(missing_ok=True)
        command = CommandLine(served.home, {**served.variables, **variables})
        process = command.start("web", "--port", "0", *arguments)
        server = RunningServer(process)
        try:
            server.wait_for("ready")
            if arguments or "BROWSER" not in variables:
                server.wait_for(r"open http://127\.0\.0\.1:\d+/ in a browser")
                server.wait_for(r"ssh -L \d+:127\.0\.0\.1:\d+")
                assert not opened.exists()
            else:
                until(lambda: opened.exists() and opened.read_text().strip() != "")
                assert opened.read_text().strip() == server.url
        finally:
            server.end()
            for pipe in (process.stdout, process.stderr):
                assert pipe is not None
                pipe.close()


@pytest.mark.usefixtures("bundle")
def test_the_page_works_where_the_browser_has_no_secure_context(
    page: Page, served: CommandLine
) -> None:
    with serving(served) as server:
        server.wait_for("ready")
        # What a plain-http address of another machine takes away.
        page.add_init_script(
            """if (location.protocol === 'http:') {
              delete Crypto.prototype.randomUUID;
              Object.defineProperty(window, 'isSecureContext', { value: false });
              Object.defineProperty(navigator, 'clipboard', { value: undefined });
              Object.defineProperty(navigator, 'locks', { value: undefined });
            }"""
        )
        page.goto(server.url)
        send(page, "[[reply hello]]")
        expect(answers(page)).to_contain_text("hello")
        page.evaluate(
            """document.execCommand = () => {
              window.copied = document.activeElement.value;
              return true;
            }"""
        )
        answers(page).get_by_role("button", name="Copy message").click()
        expect(answers(page).get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("window.copied") == "hello"
