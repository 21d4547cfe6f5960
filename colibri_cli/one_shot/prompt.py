"""Where the prompt of `coli run` comes from: words, standard input, a template, files."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_cli.chat_log.records import Attachment

_PATIENCE_S: Final = 3.0
_WAITING: Final = "waiting for standard input to end (`</dev/null` leaves it out)\n"
STDIN: Final = "-"
_WEB: Final = ("http://", "https://")


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is asked: the text, the files that go along, and the system text of a template."""

    text: str
    files: tuple[Attachment, ...] = ()
    system: str | None = None


def read_prompt(
    words: Sequence[str],
    *,
    template: str | None = None,
    params: Sequence[str] = (),
    files: Sequence[str] = (),
    is_input_last: bool = False,
    allows_net: bool = False,
) -> Prompt:
    """Return the prompt.

    Args:
        words: As typed; `-` alone is standard input.
        template: Name of a prompt template to fill with it.
        params: `NAME=TEXT` for other places of the template.
        files: Names of files that go along, or addresses; `-` is standard input.
        is_input_last: Standard input comes below the words.
        allows_net: Addresses may be fetched.

    Raises:
        UsageError: there is none, or something it names cannot be used.
    """
    named = tuple(_attached(name, allows_net=allows_net) for name in files if name != STDIN)
    if STDIN in files:
        attached = (*named, _piped_file(words))
        typed = " ".join(words)
        if not typed.strip() and template is None:
            raise _no_prompt()
        piped = ""
    else:
        attached = named
        typed = "" if list(words) == [STDIN] else " ".join(words)
        wants_input = list(words) == [STDIN] or not is_terminal(sys.stdin)
        piped = _read_input() if wants_input else ""
    if template is None:
        if params:
            raise UsageError("--param needs a template", hint="name one with --template")
        return Prompt(_joined(typed, piped, is_input_last=is_input_last), attached)
    from colibri_cli.prompt_templates import INPUT, load_template, pairs

    filled = load_template(template)
    given = pairs("--param", params)
    if INPUT in filled.places or words:
        typed = _joined(typed, piped, is_input_last=is_input_last)
    text, system = filled.fill(typed, given)
    return Prompt(text, attached, system)


def _attached(name: str, *, allows_net: bool) -> Attachment:
    """Return a file that goes along, read or fetched."""
    from colibri_cli.chat.attaching_files import read_file

    if not name.lower().startswith(_WEB):
        return read_file(name)
    from colibri_cli.one_shot.fetching import fetch_text

    if not allows_net:
        raise UsageError(f"{name} is not fetched", hint="--allow-net allows it")
    return fetch_text(name)


def is_terminal(stream: Any) -> bool:  # noqa: ANN401 - a stream, or None
    """Whether somebody sits at the other end of a stream."""
    return stream is not None and not stream.closed and stream.isatty()


def _joined(typed: str, piped: str, *, is_input_last: bool) -> str:
    parts = [piped.rstrip(), typed] if not is_input_last else [typed, piped]
    prompt = "\n\n".join(parts) if piped.strip() and typed else piped or typed
    if not prompt.strip():
        raise _no_prompt()
    return prompt


def _no_prompt() -> UsageError:
    return UsageError(
        "there is no prompt", hint='write one: coli run "Why is the sky blue?", or pipe it in'
    )


def _piped_file(words: Sequence[str]) -> Attachment:
    from colibri_cli.chat_log.records import Attachment

    if list(words) == [STDIN]:
        raise UsageError("standard input is either the prompt or a file", hint="leave out one `-`")
    return Attachment("standard input", _read_input())


def _read_input() -> str:
    if sys.stdin is None or sys.stdin.closed:
        return ""
    hint = threading.Timer(_PATIENCE_S, _write_hint)
    hint.daemon = True
    hint.start()
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError("standard input is not UTF-8 text") from error
    except OSError:  # no standard input at all, as under some service managers
        return ""
    finally:
        hint.cancel()


def _write_hint() -> None:
    sys.stderr.write(_WAITING)
    sys.stderr.flush()
