"""The line editor: keys in, lines out; history, search, completion, and what is shown."""

from __future__ import annotations

import asyncio
import io
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output

from colibri_cli.backends.base import Generation
from colibri_cli.chat.command import built_in_commands
from colibri_cli.chat.completion import completion_of
from colibri_cli.chat.conversation import ChatSession
from colibri_cli.chat.editor import MARKER, TerminalInput
from colibri_cli.chat.loop import ChatLoop
from colibri_cli.chat.recorder import Recorder
from colibri_cli.chat_log.records import Attachment, LoggedConversation, LoggedTurn, new_id
from colibri_cli.chat_log.store import ChatLog
from tests.cli.chat.chat_rig import CARD, ListInput, NotingScreen, ScriptedBackend
from tests.fakes.screens import PyteTerminal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prompt_toolkit.input import PipeInput

UP, ALT_ENTER, CTRL_C, CTRL_D, CTRL_J, CTRL_R = "\x1b[A", "\x1b\r", "\x03", "\x04", "\n", "\x12"


@contextmanager
def keyboard(terminal: PyteTerminal | None = None) -> Iterator[PipeInput]:
    """A keyboard, and a terminal that shows what the editor draws."""
    shown = terminal or PyteTerminal()

    class Out(io.StringIO):
        encoding = "utf-8"

        def write(self, text: str) -> int:
            shown.write(text)
            return len(text)

    with create_pipe_input() as keys:
        output = Vt100_Output(Out(), lambda: Size(rows=24, columns=80), enable_cpr=False)
        with create_app_session(input=keys, output=output):
            yield keys


async def type_keys(board: PipeInput, keys: Iterable[str]) -> None:
    """Press keys with a little time between them, in which the editor reads its history."""
    for key in keys:
        await asyncio.sleep(0.05)
        board.send_text(key)


def typed(*keys: str, history: Path | None = None, default: str = "") -> list[str | None]:
    """Read until all keys are used up; each line that was sent, None for the end."""

    async def run() -> list[str | None]:
        with keyboard() as board:
            typing = asyncio.create_task(type_keys(board, keys))
            source = TerminalInput(history)
            lines: list[str | None] = []
            while not lines or lines[-1] is not None:
                lines.append(await source.read(default if not lines else ""))
            await typing
            return lines

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("keys", "lines"),
    [
        (["hello\r", CTRL_D], ["hello", None]),
        (["a", ALT_ENTER, "  b", CTRL_J, "c\r", CTRL_D], ["a\n  b\nc", None]),
        (['"""\r a\rb\r"""\r', CTRL_D], ['"""\n a\nb\n"""', None]),
        (["\x1b[200~if x:\r\n  y\r\n\tz\x1b[201~\r", CTRL_D], ["if x:\n  y\n\tz", None]),
        (["\x1b[200~/nope\nx\x1b[201~\r", CTRL_D], ["/nope\nx", None]),
        (["half", CTRL_C, "whole\r", CTRL_D], ["whole", None]),
        (["text", CTRL_D, "\x01", CTRL_D, "\r", CTRL_D], ["ext", None]),
        (["one\r", "two\r", UP, UP, "\r", CTRL_D], ["one", "two", "one", None]),
        (
            ["first\r", "second\r", CTRL_R, "fir\r", "\r", CTRL_D],
            ["first", "second", "first", None],
        ),
        (["Grüße 世界 👋\r", CTRL_D], ["Grüße 世界 👋", None]),
    ],
)
def test_keys_become_lines(keys: list[str], lines: list[str | None]) -> None:
    assert typed(*keys) == lines


def test_ctrl_c_on_an_empty_line_is_told() -> None:
    with pytest.raises(KeyboardInterrupt):
        typed(CTRL_C)


def test_text_to_begin_with_can_be_edited() -> None:
    assert typed("!\r", CTRL_D, default="hello") == ["hello!", None]


def test_history_is_kept_in_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "state" / "chat_history"
    typed("one\ntwo\r".replace("\n", CTRL_J), CTRL_D, history=path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert typed(UP, "\r", CTRL_D, history=path) == ["one\ntwo", None]


def test_a_home_that_cannot_be_written_keeps_nobody_from_chatting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert typed("a\r", CTRL_D, history=tmp_path / "file" / "history") == ["a", None]


def a_chat(source: ListInput | TerminalInput, log: Path | None = None) -> ChatLoop:
    session = ChatSession(ScriptedBackend(), Generation())
    screen = NotingScreen()
    recorder = Recorder(log, "tiny", None, screen.notice)
    return ChatLoop(session, source, screen, recorder, built_in_commands(), CARD)


def test_tab_completes_commands_and_paths_and_is_a_tab_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")

    async def run() -> list[str | None]:
        with keyboard() as board:
            source = TerminalInput(None)
            a_chat(source)
            lines = []
            for keys in ("/hist\t\r", f"/file {tmp_path}/no\t\r", "a\tb\r"):
                reading = asyncio.ensure_future(source.read())
                await type_keys(board, keys)
                lines.append(await reading)
            return lines

    assert asyncio.run(run()) == ["/history", f"/file {tmp_path}/notes.txt", "a\tb"]


def test_the_editor_stands_in_a_box_and_leaves_nothing_behind() -> None:
    async def run() -> tuple[list[str], list[str]]:
        terminal = PyteTerminal()
        with keyboard(terminal) as board:
            source = TerminalInput(None)
            chat = a_chat(source)
            chat.session.files.append(Attachment("f", "x"))
            reading = asyncio.ensure_future(source.read())
            board.send_text("hello" + ALT_ENTER + "you")
            await asyncio.sleep(0.3)
            during = terminal.lines()
            board.send_text("\r")
            await reading
            return during, terminal.lines()

    during, after = asyncio.run(run())
    assert during[0] == "╭" + "─" * 78 + "╮"
    assert during[1].startswith(f"│{MARKER} hello")
    assert during[2].startswith("│  you")
    assert during[4] == "  tiny · 1 file goes along · /help"
    assert after == []


def test_what_can_stand_behind_a_command_is_offered(tmp_path: Path) -> None:
    talk = LoggedConversation(id=new_id(), title="about whales", model="tiny")
    with ChatLog(tmp_path / "logs.db") as log:
        log.add_turn(talk, LoggedTurn(prompt="q", response="a"))

    async def run() -> dict[str, list[str] | None]:
        chat = a_chat(ListInput([]), tmp_path / "logs.db")
        texts = ["/", "/un", "/set ma", "/set temp ", "/think s", "/load ", "/help un", "/file ~",
                 "see @a", "/nope ", "/undo ", "//x", "text", ":re"]  # fmt: skip
        found: dict[str, list[str] | None] = {}
        for text in texts:
            completion = completion_of(text, chat)
            found[text] = None
            if completion is not None:
                names = [c.text for c in completion.candidates]
                found[text] = ["PATH"] if completion.is_path else names
        await chat.recorder.close()
        return found

    found = asyncio.run(run())
    assert len(found["/"] or []) > 15
    assert found["/un"] == ["undo"]
    assert found["/set ma"] == ["max-tokens"]
    assert found["/set temp "] == ["temp default"]
    assert found["/think s"] == ["show"]
    assert found["/load "] == [talk.short_id]
    assert found["/help un"] == ["undo"]
    assert found["/file ~"] == found["see @a"] == ["PATH"]
    assert not any(found[text] for text in ("/nope ", "/undo ", "//x", "text", ":re"))
