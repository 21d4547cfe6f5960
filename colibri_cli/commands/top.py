"""`coli top`: a live view of a running server."""

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from colibri_cli.options import JsonOptions, OutputOptions, takes
from colibri_cli.settings import api_key, color_choice, is_dumb_terminal, prepare

if TYPE_CHECKING:
    from colibri_cli.terminal.top_view import Figures

_SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class TopOptions(JsonOptions, OutputOptions):
    """Options of `coli top`."""

    url: Annotated[
        str | None,
        typer.Option(
            "--url", metavar="URL", help="Of the server. Default: the one that runs here.",
            show_default=False,
        ),
    ] = None  # fmt: skip
    once: Annotated[bool, typer.Option("--once", help="Show it once, as text.", metavar="")] = False
    interval: Annotated[
        float,
        typer.Option(
            "--interval", metavar="S", help="Seconds between two looks.", min=0.25, max=3600
        ),
    ] = 1.5
    count: Annotated[
        int | None,
        typer.Option("--count", metavar="N", help="Looks, then end.", show_default=False, min=1),
    ] = None


@takes(TopOptions)
def command(options: TopOptions) -> None:
    """Watch a running server: requests, experts, where the time goes."""
    settings = prepare(options, "top")
    from colibri_cli.servers import only_server

    url = options.url or only_server()
    figures = _fetch(url)
    if options.json:
        body = {"schema_version": _SCHEMA_VERSION, "url": url, **figures}
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
        return
    from colibri_cli.console import stdout_console
    from colibri_cli.plugin_parts import views
    from colibri_cli.terminal.top_view import RemoteSource, TopView

    console = stdout_console()
    has_color = (
        color_choice(settings, is_off=options.no_color) is not False
        and console.is_terminal
        and not is_dumb_terminal()
    )
    source = RemoteSource(url)
    source.take(figures)
    view = TopView(source, console, has_color=has_color, views=views())
    if options.once or not console.is_terminal or is_dumb_terminal():
        console.print(view.render())
        return
    from colibri_cli.runtime import run_async

    run_async(view.run(lambda: _fetch(url), options.interval, options.count))


def _fetch(url: str) -> "Figures":
    from colibri_cli.servers import ask

    names = ("health", "experts", "profile")
    return {name: ask(url, f"/{name}", api_key()) for name in names}
