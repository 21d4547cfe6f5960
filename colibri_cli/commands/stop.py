"""`coli stop`: end a running server and its engine."""

import json
import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from colibri_cli import completing
from colibri_cli.errors import ServerRefused
from colibri_cli.options import JsonOptions, OutputOptions, takes
from colibri_cli.settings import prepare
from colibri_cli.wrapping import say

_SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class StopOptions(JsonOptions, OutputOptions):
    """Options of `coli stop`."""

    port: Annotated[
        int,
        typer.Option(
            "--port",
            metavar="N",
            help="Port of the server.",
            min=1,
            max=65535,
            autocompletion=completing.server_ports,
        ),
    ] = 8000
    all: Annotated[bool, typer.Option("--all", help="End all servers of yours.", metavar="")] = (
        False
    )
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be ended.", metavar="")
    ] = False
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", metavar="S", help="Seconds until it is killed.", min=0, max=86_400
        ),
    ] = 2.0


@takes(StopOptions)
def command(options: StopOptions) -> None:
    """End a running server and its engine."""
    prepare(options, "stop")
    from colibri_cli.servers import end, engine_pids, running_servers

    running = running_servers()
    chosen = [s for s in running if options.all or s.port == options.port]
    rows = []
    for server in chosen:
        engines = sorted(engine_pids(server.port)) if server.port is not None else []
        try:
            how = "would end" if options.dry_run else end(server, options.timeout)
        except PermissionError as error:
            raise ServerRefused(
                f"the server {server.pid} at {server.url} belongs to another user", status=403
            ) from error
        rows.append({"pid": server.pid, "url": server.url, "model": server.model,
                     "engines": engines, "outcome": how})  # fmt: skip
    if options.json:
        body = {"schema_version": _SCHEMA_VERSION, "servers": rows}
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
        return
    for row in rows:
        sys.stdout.write(f"{row['outcome']}: server {row['pid']} ({row['model']}, {row['url']})\n")
        for pid in engines_of(row):
            sys.stdout.write(f"{row['outcome']}: engine {pid}\n")
    if not rows and not options.quiet:
        where = "" if options.all else f" on port {options.port}"
        say(f"nothing runs{where}")
        for other in running:
            how = f": `coli stop --port {other.port}`" if other.port is not None else ""
            say(f"  {other.model} runs at {other.url}{how}")


def engines_of(row: dict[str, object]) -> list[int]:
    """Return the engine processes of a row."""
    engines = row["engines"]
    assert isinstance(engines, list)
    return engines
