"""Tools in a chat: which there are and which are offered, and how a call of the model is run.

Nothing runs without a yes of whoever types, given for one call or for a tool until the chat ends.
What a tool returns, how it failed and that it was not allowed all go back to the model as text.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.backends.base import ToolUse
from colibri_cli.chat_formats.base import ToolCall
from colibri_cli.errors import UsageError
from colibri_protocol.errors import ColibriError
from colibri_protocol.settings import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from colibri_cli.chat.command import Chat
    from colibri_cli.plugin_types import Tool

    OnInterrupt = Callable[[Callable[[], object]], contextlib.AbstractContextManager[None]]

ALL: Final = "all"
MAX_ROUNDS: Final = 16  # a model that goes on calling is ended
_MAX_RESULT: Final = 100_000  # characters that go back
_MAX_SHOWN: Final = 200
_REFUSED: Final = "The user did not allow this call."


@dataclass(frozen=True, slots=True)
class _Auto:
    """The model decides whether it calls anything."""

    mode: str = "auto"
    name: str | None = None


@dataclass(frozen=True, slots=True)
class _Declared:
    """A tool as chat formats see it."""

    name: str
    parameters: Mapping[str, Any]
    declaration: Mapping[str, Any]
    is_strict: bool = False


@dataclass(slots=True)
class ToolBox:
    """The tools of a chat.

    Args:
        find: Returns all there are by name; called when the first is looked for.
        offered: Names of those the model may call.
        allowed: Names of those that run without a question.
    """

    find: Callable[[], Mapping[str, Tool]] = dict
    offered: set[str] = field(default_factory=set)
    allowed: set[str] = field(default_factory=set)

    def offer(self, names: Iterable[str]) -> None:
        """Offer these from now on, or all.

        Raises:
            UsageError: there is none of that name.
        """
        known = self.find()
        for name in names:
            if name == ALL:
                self.offered.update(known)
            elif name in known:
                self.offered.add(name)
            else:
                near = nearest(name, known)
                others = ", ".join(sorted(known)) or "none: plugins bring them"
                hint = f"did you mean {near}?" if near else f"there are {others}"
                raise UsageError(f"there is no tool {name!r}", hint=hint)

    @property
    def use(self) -> ToolUse | None:
        """What a request says of them; None offers none."""
        if not self.offered:
            return None
        known = self.find()
        tools = [_declared(known[name]) for name in sorted(self.offered)]
        return ToolUse(tools, _Auto())


def tool_call(identity: str, name: str, text: str) -> ToolCall:
    """Return a call from the JSON text of its arguments; what is no object becomes none."""
    try:
        arguments = json.loads(text or "{}")
    except ValueError:
        arguments = {}
    return ToolCall(identity, name, arguments if isinstance(arguments, dict) else {})


async def result_of(chat: Chat, call: ToolCall, on_interrupt: OnInterrupt) -> str:
    """Ask whether a call may run, run it and return what goes back to the model.

    Args:
        chat: Whose tools, screen and user.
        call: The call.
        on_interrupt: What does something at Ctrl-C while a block runs.

    Raises:
        KeyboardInterrupt: Ctrl-C instead of an answer.
    """
    box = chat.tools
    tool = box.find().get(call.name) if call.name in box.offered else None
    if tool is None:
        return f"There is no tool {call.name}."
    chat.screen.notice(f"wants to call {_shown_call(call)}")
    if not await _is_allowed(chat, call.name):
        chat.screen.notice("not run")
        return _REFUSED
    try:
        text = _as_text(await _returned(tool, call.arguments, on_interrupt))
    except ColibriError as error:
        text = f"error: {error.message}"
    except Exception as error:  # noqa: BLE001 - whatever the function of a plugin raises
        text = f"error: {type(error).__name__}: {error}"
    chat.screen.notice(f"{call.name}: {_shortened(text)}")
    if len(text) > _MAX_RESULT:
        text = f"{text[:_MAX_RESULT]}\n[cut: {len(text):,} characters]"
    return text


async def _is_allowed(chat: Chat, name: str) -> bool:
    if name in chat.tools.allowed:
        return True
    while True:
        chat.screen.notice(f"run it? y: yes · n: no · a: always run {name} in this chat")
        line = await chat.source.read()
        answer = "n" if line is None else line.strip().lower()
        if answer in {"a", "always"}:
            chat.tools.allowed.add(name)
            return True
        if answer in {"y", "yes", "n", "no"}:
            return answer.startswith("y")


async def _returned(tool: Tool, arguments: Mapping[str, Any], on_interrupt: OnInterrupt) -> object:
    """Run a tool; Ctrl-C leaves it."""
    is_async = inspect.iscoroutinefunction(tool.run)
    body = tool.run(arguments) if is_async else _in_thread(lambda: tool.run(arguments))
    running = asyncio.ensure_future(body)
    with on_interrupt(running.cancel):
        await asyncio.wait({running})
    if running.cancelled():
        raise UsageError("the user stopped it")
    return running.result()


def _in_thread(run: Callable[[], object]) -> asyncio.Future[object]:
    """Run a plain function beside the chat; one that never ends does not keep the program."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[object] = loop.create_future()

    def tell(result: object, error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def body() -> None:
        result, failure = None, None
        try:
            result = run()
        except Exception as error:  # noqa: BLE001 - whatever the function of a plugin raises
            failure = error
        with contextlib.suppress(RuntimeError):  # the chat has ended
            loop.call_soon_threadsafe(tell, result, failure)

    threading.Thread(target=body, daemon=True, name="tool").start()
    return future


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _declared(tool: Tool) -> _Declared:
    parameters = tool.parameters or {"type": "object", "properties": {}}
    declaration = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return _Declared(tool.name, parameters, declaration)


def _shown_call(call: ToolCall) -> str:
    """Return a call as one reads it; nothing of it is left out, since it is to be allowed."""
    pairs = (
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in call.arguments.items()
    )
    return f"{call.name}({', '.join(pairs)})"


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_SHOWN else f"{line[:_MAX_SHOWN]}…"
