"""The line editor of a chat on a terminal, made with prompt_toolkit.

Pasted lines stay one message exactly as they are, Enter sends, Alt+Enter and Ctrl-J begin a new
line, history is kept in a file only the user can read. The editor stands in a box and disappears
when the line is sent; what was sent is shown by the screen.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from typing import TYPE_CHECKING, Final

from prompt_toolkit.application import get_app, get_app_session
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_completions
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, merge_key_bindings
from prompt_toolkit.key_binding.bindings.auto_suggest import load_auto_suggest_bindings
from prompt_toolkit.key_binding.bindings.open_in_editor import load_open_in_editor_bindings
from prompt_toolkit.layout import (
    BufferControl,
    CompletionsMenu,
    ConditionalContainer,
    Dimension,
    Float,
    FloatContainer,
    FormattedTextControl,
    HSplit,
    Layout,
    VerticalAlign,
    VSplit,
    Window,
)
from prompt_toolkit.layout.processors import AppendAutoSuggestion
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from colibri_cli.chat.completion import completion_of, is_completed
from colibri_cli.chat.reflow import ReflowingApplication
from colibri_cli.chat.slash import is_open_block
from colibri_cli.whole_files import make_own

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyPressEvent
    from prompt_toolkit.output import Output

    from colibri_cli.chat.command import Chat

MARKER: Final = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"
_MIN_BOX: Final = (40, 10)  # a smaller terminal has no room for a box
_MAX_BOX: Final = 100
_MENU_ROWS: Final = 8
_STYLE: Final = Style.from_dict(
    {
        "frame.border": "fg:ansibrightblack",
        "foot": "fg:ansibrightblack",
        "marker": "fg:ansicyan bold",
    }
)


class TerminalInput:
    """The line editor.

    Args:
        history_file: Where lines are kept; None keeps them for this session only.
    """

    erases = is_typed = True

    def __init__(self, history_file: Path | None) -> None:
        self._chat: Chat | None = None
        self._buffer = Buffer(
            history=_history(history_file),
            auto_suggest=AutoSuggestFromHistory(),
            completer=_ChatCompleter(self),
            complete_while_typing=Condition(self._is_completing),
            multiline=True,
            tempfile_suffix=".md",
            accept_handler=_send,
        )
        bindings = [load_auto_suggest_bindings(), load_open_in_editor_bindings(), _key_bindings()]
        self._application: ReflowingApplication[str] = ReflowingApplication(
            output=_output(),
            layout=self._layout(),
            style=_STYLE,
            key_bindings=merge_key_bindings(bindings),
            erase_when_done=True,
            # Drawing again half a second after the signal would only meet the next change.
            terminal_size_polling_interval=None if hasattr(signal, "SIGWINCH") else 0.5,
        )

    @property
    def chat(self) -> Chat | None:
        """The chat whose commands are completed."""
        return self._chat

    def assist(self, chat: Chat) -> None:
        """Complete the commands of a chat, and tell how it stands."""
        self._chat = chat

    async def read(self, default: str = "") -> str | None:
        """Return what was typed or pasted; Ctrl-C clears a line that has text."""
        while True:
            self._buffer.reset(Document(default))
            try:
                return await self._application.run_async()
            except EOFError:
                return None
            except KeyboardInterrupt:
                if not self._buffer.text:
                    raise
                default = ""

    def _layout(self) -> Layout:
        search = SearchToolbar(ignore_case=True)
        control = BufferControl(
            self._buffer,
            input_processors=[AppendAutoSuggestion()],
            search_buffer_control=search.control,
            preview_search=True,
        )
        line = Window(control, get_line_prefix=_prefix, wrap_lines=True, dont_extend_height=True)
        box = VSplit([_box(line), Window()])
        foot = Window(FormattedTextControl(self._foot), height=1, dont_extend_height=True)
        rows = HSplit(
            [
                ConditionalContainer(box, Condition(_has_room), alternative_content=line),
                search,
                ConditionalContainer(foot, Condition(_has_room)),
                # The menu lies over what is below the line, so something has to be there.
                ConditionalContainer(Window(height=_MENU_ROWS), has_completions),
            ],
            align=VerticalAlign.TOP,
        )
        menu = Float(
            CompletionsMenu(max_height=_MENU_ROWS, scroll_offset=1), xcursor=True, ycursor=True
        )
        return Layout(FloatContainer(rows, [menu]), line)

    def _is_completing(self) -> bool:
        return is_completed(self._buffer.document.text_before_cursor)

    def _foot(self) -> StyleAndTextTuples:
        return [("class:foot", f"  {_standing(self._chat)}")] if self._chat is not None else []


class _ChatCompleter(Completer):
    def __init__(self, source: TerminalInput) -> None:
        self._source = source
        self._paths = PathCompleter(expanduser=True)

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        chat = self._source.chat
        found = completion_of(document.text_before_cursor, chat) if chat is not None else None
        if found is None:
            return
        if found.is_path:
            path = Document(found.replaced, len(found.replaced))
            yield from self._paths.get_completions(path, complete_event)
            return
        for candidate in found.candidates:
            yield Completion(
                candidate.text, -len(found.replaced), display_meta=candidate.meaning or None
            )


def _standing(chat: Chat) -> str:
    """Return in one line: the model, how full its context is, what goes along."""
    parts = [chat.card.id]
    last = chat.session.last
    if last is not None and (prompt := last.figures.get("prompt_tokens")):
        used = prompt + (last.figures.get("completion_tokens") or 0)
        of = f" of {chat.card.context_length:,}" if chat.card.context_length else ""
        parts.append(f"{used:,}{of} tokens")
    if chat.session.files:
        count = len(chat.session.files)
        parts.append("1 file goes along" if count == 1 else f"{count} files go along")
    return " · ".join([*parts, "/help"])


def _has_room() -> bool:
    size = shutil.get_terminal_size()
    can_draw = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
    return can_draw and size.columns >= _MIN_BOX[0] and size.lines >= _MIN_BOX[1]


def _box(body: Window) -> HSplit:
    """Return a window in a rounded box, as wide as the terminal up to a limit."""
    style = "class:frame.border"

    def rule(left: str, right: str) -> VSplit:
        corners = [Window(char=char, style=style, width=1, height=1) for char in (left, right)]
        return VSplit([corners[0], Window(char="─", style=style), corners[1]], height=1)

    sides = [Window(char="│", style=style, width=1) for _ in range(2)]
    rows = [rule("╭", "╮"), VSplit([sides[0], body, sides[1]]), rule("╰", "╯")]
    return HSplit(rows, width=Dimension(max=_MAX_BOX, preferred=_MAX_BOX))


def _prefix(line_number: int, wrap_count: int) -> StyleAndTextTuples:
    """Return the marker before the first row, and as much space before the others."""
    is_first = line_number == wrap_count == 0
    return [("class:marker", f"{MARKER} ")] if is_first else [("", "  ")]


def _output() -> Output:
    """Return the terminal, which is not asked where its cursor stands.

    Who knows that reserves all rows down to the last one; a terminal that gets narrower would then
    push the box out of sight to keep these empty rows. The menu brings rows of its own.
    """
    output = get_app_session().output
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False
    return output


def _send(buffer: Buffer) -> bool:
    get_app().exit(result=buffer.text)
    return True  # the text is what an interrupted `read` looks at; the next one replaces it


def _key_bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter", filter=Condition(_is_editing))
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_open_block(buffer.text):
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "enter", filter=Condition(_is_editing))
    @bindings.add("c-j", filter=Condition(_is_editing))
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @bindings.add("tab", filter=Condition(_is_editing))
    def _complete(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None:
            buffer.complete_next()
        elif is_completed(buffer.document.text_before_cursor):
            buffer.start_completion(insert_common_part=True)
        else:
            buffer.insert_text("\t")

    @bindings.add("c-c")
    @bindings.add("<sigint>")
    def _interrupt(event: KeyPressEvent) -> None:
        event.app.exit(exception=KeyboardInterrupt)

    @bindings.add("c-d", filter=Condition(lambda: not get_app().current_buffer.text))
    def _end(event: KeyPressEvent) -> None:
        event.app.exit(exception=EOFError)

    @bindings.add("c-z")
    def _suspend(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    return bindings


def _is_editing() -> bool:
    return not get_app().layout.is_searching


def _history(path: Path | None) -> History:
    if path is None:
        return InMemoryHistory()
    try:
        make_own(path.parent)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND, 0o600))
    except OSError:  # a read-only home must not keep anybody from chatting
        return InMemoryHistory()
    return FileHistory(str(path))
