"""The page of a server that stands in front of another: it chats, and shows what that one tells."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.dashboard.reading import answers, send
from tests.e2e.test_serve import serving
from tests.fakes.command_line import CommandLine
from tests.fakes.scripted_upstream import ScriptedUpstream, running

pytestmark = [pytest.mark.e2e, pytest.mark.alone, pytest.mark.usefixtures("bundle")]


@pytest.fixture
def coli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.mark.parametrize("owner", ["vllm", "llamacpp", "sglang"])
def test_it_chats_and_shows_the_server_behind(page: Page, coli: CommandLine, owner: str) -> None:
    with (
        running(ScriptedUpstream(owner, pace_s=0.01)) as upstream,
        serving(coli, "--upstream", upstream.url) as server,
    ):
        server.wait_for("ready")
        page.goto(server.url)
        runtime = page.get_by_role("complementary", name="Runtime")
        expect(runtime).to_contain_text("Server behind")
        send(page, "tokens 40")
        expect(answers(page)).to_contain_text("word " * 40)
        (body,) = [body for body in upstream.bodies if "messages" in body]
        assert body["messages"] == [{"role": "user", "content": "tokens 40"}]
        assert not {"cache_slot", "max_tokens", "max_completion_tokens"} & set(body)
        expect(answers(page)).not_to_contain_text("GB")
        send(page, "tokens 30000")
        expect(answers(page).last).to_contain_text("word word")
        page.get_by_role("button", name="Stop").click()
        expect(answers(page).last).to_contain_text("Stopped.")
        page.goto(f"{server.url}/brain")
        expect(page.get_by_role("main")).to_contain_text("the server behind this one")
        page.goto(f"{server.url}/atlas")
        expect(page.get_by_role("main")).to_contain_text("the server behind this one")


def test_a_server_behind_that_goes_is_told_and_the_chat_goes_on_when_it_is_back(
    page: Page, coli: CommandLine
) -> None:
    upstream = ScriptedUpstream(pace_s=0.02)
    with ExitStack() as stack:
        with running(upstream):
            server = stack.enter_context(serving(coli, "--upstream", upstream.url))
            server.wait_for("ready")
            page.goto(server.url)
            send(page, "tokens 30000")
            expect(answers(page)).to_contain_text("word word")
        retry = page.get_by_role("button", name="Regenerate")
        expect(retry).to_be_visible()
        expect(answers(page)).to_contain_text("word word")
        with running(upstream):
            send(page, "hello again")
            expect(answers(page).last).to_contain_text("hello again")
