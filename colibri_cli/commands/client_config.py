"""`coli client-config NAME`: what points a client at a server that runs."""

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colibri_cli import completing
from colibri_cli.errors import ServerRefused, ServerUnreachable, UsageError
from colibri_cli.options import JsonOptions, OutputOptions, takes
from colibri_cli.settings import api_key, prepare
from colibri_cli.wrapping import say
from colibri_protocol.settings import nearest

if TYPE_CHECKING:
    from colibri_cli.client_settings import Target

_SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class ClientConfigOptions(JsonOptions, OutputOptions):
    """Options of `coli client-config`."""

    client: Annotated[
        str,
        typer.Argument(
            metavar="CLIENT",
            help="claude, codex, opencode, aider, continue, cline, llm, litellm, openwebui,"
            " openai, anthropic, curl.",
            autocompletion=completing.client_names,
        ),
    ]
    url: Annotated[
        str | None,
        typer.Option(
            "--url", metavar="URL", help="Of the server. Default: the one that runs here.",
            show_default=False,
        ),
    ] = None  # fmt: skip


@takes(ClientConfigOptions)
def command(options: ClientConfigOptions) -> None:
    """Print the settings that point a client at a running server."""
    prepare(options, "client-config")
    from colibri_cli.client_settings import RECIPES, settings_of
    from colibri_cli.servers import only_server

    name = options.client.lower()
    if name not in RECIPES:
        near = nearest(name, set(RECIPES))
        known = ", ".join(RECIPES)
        raise UsageError(
            f"there are no settings for {options.client!r}",
            hint=(f"did you mean {near}? " if near else "") + f"there are {known}",
        )
    target = _target(options.url or only_server())
    text, place = settings_of(name, target)
    if options.json:
        body = {
            "schema_version": _SCHEMA_VERSION, "client": name, "url": target.url,
            "model": target.model, "needs_key": target.has_keys, "text": text, "place": place,
        }  # fmt: skip
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
        return
    if not options.quiet:
        say(place)
    sys.stdout.write(text)


def _target(url: str) -> "Target":
    """Ask a server what it serves.

    Raises:
        ServerUnreachable: nobody answers there, or it serves nothing.
        ServerRefused: it wants a key that COLI_API_KEY is not.
    """
    from colibri_cli.client_settings import Target
    from colibri_cli.servers import ask

    has_keys = False
    try:
        found = ask(url, "/v1/models")
    except ServerRefused:
        has_keys = True
        found = ask(url, "/v1/models", api_key())
    models: Any = found.get("data")
    if not isinstance(models, list) or not models or not isinstance(models[0], dict):
        raise ServerUnreachable(f"the server at {url} names no model")
    first = models[0]
    return Target(
        url.rstrip("/"),
        str(first.get("id")),
        has_keys=has_keys,
        context=_whole(first.get("context_window")),
        output=_whole(first.get("max_output_tokens")),
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
