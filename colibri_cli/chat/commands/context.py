"""What goes along with messages: files, pasted text, the system text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from colibri_cli.chat.attaching_files import MAX_BYTES, read_file
from colibri_cli.chat.command import Candidate, ChatCommand
from colibri_cli.chat_log.records import Attachment
from colibri_cli.errors import UsageError
from colibri_cli.prompt_templates import load_template, template_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from colibri_cli.chat.command import Chat

_PASTED: Final = "pasted text"


async def attach_file(chat: Chat, argument: str) -> None:
    """Attach a file to the next message; without one, list those that wait."""
    if not argument:
        for file in chat.session.files:
            chat.screen.notice(_described(file))
        hint = "/drop takes them off again" if chat.session.files else "/file PATH attaches a file"
        chat.screen.notice(hint if chat.session.files else f"nothing is attached; {hint}")
        return
    _attach(chat, read_file(argument))


async def attach_pasted(chat: Chat, argument: str) -> None:
    """Attach what is typed or pasted next."""
    chat.screen.notice("paste the text; Enter attaches it to the next message")
    text = await chat.source.read()
    if text is None or not text.strip():
        chat.screen.notice("nothing attached")
        return
    if len(text.encode()) > MAX_BYTES:
        raise UsageError(f"more than the {MAX_BYTES:,} bytes that can go along")
    number = 1 + sum(file.name.startswith(_PASTED) for file in chat.session.files)
    _attach(chat, Attachment(_PASTED if number == 1 else f"{_PASTED} {number}", text))


async def drop(chat: Chat, argument: str) -> None:
    """Take files off the next message again."""
    files = chat.session.files
    dropped = [file for file in files if not argument or file.name == argument]
    if not files:
        raise UsageError("nothing is attached", hint="/file PATH attaches a file")
    if not dropped:
        raise UsageError(
            f"{argument!r} is not attached", hint="attached: " + ", ".join(f.name for f in files)
        )
    chat.session.files = [file for file in files if file not in dropped]
    chat.screen.notice("not attached any more: " + ", ".join(file.name for file in dropped))


async def system(chat: Chat, argument: str) -> None:
    """Show or set the system text; it holds from the next message on."""
    if not argument:
        chat.screen.notice(chat.session.system or "no system text")
        return
    chat.session.system = None if argument == "off" else argument
    chat.screen.notice("no system text" if argument == "off" else "system text set")


async def template(chat: Chat, argument: str) -> None:
    """Send a template of the user, filled with what stands behind its name."""
    name, _, typed = argument.partition(" ")
    if not name:
        names = ", ".join(template_names())
        chat.screen.notice(
            f"templates: {names}; /template NAME [TEXT] sends one" if names
            else "no templates yet; `coli templates set NAME` makes one"
        )  # fmt: skip
        return
    prompt, system_text = load_template(name).fill(typed.strip(), {})
    if system_text is not None:
        chat.session.system = system_text
    await chat.ask(prompt)


def _attach(chat: Chat, attachment: Attachment) -> None:
    chat.session.files.append(attachment)
    chat.screen.notice(f"goes along with the next message: {_described(attachment)}")


def _described(attachment: Attachment) -> str:
    size = len(attachment.text.encode("utf-8", "surrogatepass"))
    return f"{attachment.name} ({size:,} bytes)"


def _attached(chat: Chat, beginning: str) -> Iterable[Candidate]:
    return [Candidate(file.name) for file in chat.session.files]


def _templates(chat: Chat, beginning: str) -> Iterable[Candidate]:
    return [] if " " in beginning else [Candidate(name) for name in template_names()]


COMMANDS: Final = (
    ChatCommand("file", "attach a text file to the next message, or list those attached",
                attach_file, usage="[PATH]", is_path=True),
    ChatCommand("paste", "attach pasted text to the next message", attach_pasted),
    ChatCommand("drop", "take attached files off again", drop, usage="[NAME]",
                complete=_attached),
    ChatCommand("template", "send a template, filled with the text behind its name, or list them",
                template, usage="[NAME [TEXT]]", complete=_templates),
    ChatCommand("system", "show or set the system text; off removes it", system, usage="[TEXT]"),
)  # fmt: skip
