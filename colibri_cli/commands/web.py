"""`coli web`: `coli serve`, and the dashboard opened in a browser when the model is ready."""

import threading
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

import typer

from colibri_cli.launch import ServeOptions, serve
from colibri_cli.options import takes
from colibri_cli.settings import has_display
from colibri_cli.web_bundle import ready_bundle
from colibri_cli.wrapping import teller


@dataclass(frozen=True, kw_only=True)
class WebOptions(ServeOptions):
    """Options of `coli web`."""

    no_browser: Annotated[
        bool,
        typer.Option(
            "--no-browser",
            help="Open no browser; say where to point one.",
            metavar="",
            rich_help_panel="Dashboard",
        ),
    ] = False


@takes(WebOptions)
def command(options: WebOptions) -> None:
    """Serve a model and open the dashboard in a browser."""
    tell = teller(is_quiet=options.quiet)

    def on_ready(url: str) -> None:
        if options.no_browser or not has_display():
            tell(pointing_text(url))
            return
        # A browser may keep its starter waiting until it is closed.
        threading.Thread(target=_open, args=(url, tell), daemon=True).start()

    serve(options, "web", dashboard=lambda: ready_bundle(tell), on_ready=on_ready)


def _open(url: str, tell: Callable[[str], None]) -> None:
    try:
        is_open = webbrowser.open(url)
    except webbrowser.Error:
        is_open = False
    if not is_open:
        tell(pointing_text(url))


def pointing_text(url: str) -> str:
    """Return where to point a browser, on this machine or another."""
    lines = [f"open {url}/ in a browser"]
    address = urlsplit(url)
    if address.hostname in {"127.0.0.1", "::1", "localhost"} and address.port is not None:
        port = address.port
        lines.append(
            f"from another machine: ssh -L {port}:{address.hostname}:{port} THIS-MACHINE,"
            f" then http://127.0.0.1:{port}/"
        )
    return "\n".join(lines)
