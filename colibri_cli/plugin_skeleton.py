"""The skeleton of a new plugin: a distribution with one module and a test, ready to install."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from colibri_cli.errors import StoreError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

_PROJECT: Final = """\
[build-system]
requires = ["setuptools>=61"]
build-backend = "setuptools.build_meta"

[project]
name = "coli-{name}"
version = "0.1.0"
description = "A plugin for coli"
requires-python = ">=3.11"
dependencies = ["colibri-cli"]

[project.entry-points."colibri.plugins"]
{name} = "{module}"

[tool.setuptools]
py-modules = ["{module}"]
"""

_MODULE: Final = '''\
"""A plugin for coli: a command, a chat command, a check of `coli doctor` and a route."""

import typer

from colibri_cli.plugin_api import (
    Chat,
    ChatCommand,
    CheckContext,
    CheckResult,
    CheckStatus,
    RegisterChatCommand,
    RegisterCheck,
    RegisterRoute,
    RouteRequest,
    hookimpl,
)


@hookimpl
def register_commands(app: typer.Typer) -> None:
    @app.command("{name}")
    def command(who: str = typer.Argument("you", help="Whom to greet.")) -> None:
        """Greet somebody."""
        print(f"hello {{who}}")


@hookimpl
def register_chat_commands(register: RegisterChatCommand) -> None:
    async def greet(chat: Chat, argument: str) -> None:
        chat.screen.show_message(f"hello {{argument or 'you'}}")

    register(ChatCommand("{name}", "greet somebody", greet, usage="[WHO]"))


@hookimpl
def register_doctor_checks(register: RegisterCheck) -> None:
    def check(context: CheckContext) -> CheckResult:
        return CheckResult(CheckStatus.PASS, "the plugin {name} is here")

    register("{name}.present", check)


@hookimpl
def register_routes(register: RegisterRoute) -> None:
    async def greet(request: RouteRequest) -> object:
        return {{"hello": request.query.get("who", "you")}}

    register("/plugins/{name}", greet)
'''

_TEST: Final = '''\
"""What the plugin adds, as coli sees it."""

import {module}
from colibri_cli.testing import call_route, checks_of, run_command


def test_the_command_greets() -> None:
    assert run_command({module}, "{name}", "world") == "hello world\\n"


def test_the_check_passes() -> None:
    assert checks_of({module})["{name}.present"].status == "pass"


def test_the_route_greets() -> None:
    assert call_route({module}, "/plugins/{name}", query={{"who": "me"}}) == {{"hello": "me"}}
'''


def write_skeleton(directory: Path, name: str) -> Path:
    """Write `coli-NAME` into a directory and return it.

    Raises:
        UsageError: the name does not do, or the folder exists.
        StoreError: it cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name for a plugin",
            hint="use small letters, digits and single hyphens, such as my-tool",
        )
    folder = directory / f"coli-{name}"
    module = f"coli_{name.replace('-', '_')}"
    files = {"pyproject.toml": _PROJECT, f"{module}.py": _MODULE, f"test_{module}.py": _TEST}
    try:
        folder.mkdir(parents=True)
        for file, text in files.items():
            content = text.format(name=name, module=module)
            (folder / file).write_text(content, encoding="utf-8")
    except FileExistsError as error:
        raise UsageError(f"{folder} exists already", hint="choose another name or --dir") from error
    except OSError as error:
        raise StoreError(f"cannot write {folder}: {error.strerror}") from error
    return folder
