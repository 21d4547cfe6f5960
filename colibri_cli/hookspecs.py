"""The hooks: where plugins can add something. A plugin implements those it needs.

A hook gets its arguments by name, so a later version may add some. Bundled plugins use the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from collections.abc import Mapping

    import typer

    from colibri_cli.plugin_types import (
        RegisterBenchTask,
        RegisterChatCommand,
        RegisterCheck,
        RegisterConverter,
        RegisterEngineModule,
        RegisterModelSource,
        RegisterRoute,
        RegisterSetting,
        RegisterSink,
        RegisterTemplateLoader,
        RegisterTool,
        RegisterView,
    )

PROJECT = "colibri"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def register_commands(app: typer.Typer) -> None:
    """Add commands or groups of commands to an empty application."""


@hookspec
def register_settings(register: RegisterSetting) -> None:
    """Declare keys of the table `[plugins.NAME]` in the configuration file."""


@hookspec
def configure(values: Mapping[str, str | float | bool]) -> None:
    """Take the values of the declared keys; called once, before anything is used."""


@hookspec
def register_doctor_checks(register: RegisterCheck) -> None:
    """Add checks to `coli doctor`."""


@hookspec
def register_chat_commands(register: RegisterChatCommand) -> None:
    """Add commands to `coli chat`."""


@hookspec
def register_tools(register: RegisterTool) -> None:
    """Add functions that the model may call in `coli chat`."""


@hookspec
def register_routes(register: RegisterRoute) -> None:
    """Add HTTP routes to `coli serve`."""


@hookspec
def register_telemetry_sinks(register: RegisterSink) -> None:
    """Take the figures of a running `coli serve`."""


@hookspec
def register_bench_tasks(register: RegisterBenchTask) -> None:
    """Add tasks to `coli bench quality`."""


@hookspec
def register_model_sources(register: RegisterModelSource) -> None:
    """Add places that `coli pull SCHEME:WHAT` fetches models from."""


@hookspec
def register_converters(register: RegisterConverter) -> None:
    """Add kinds of checkpoints that `coli convert SCHEME:WHAT` can read."""


@hookspec
def register_template_loaders(register: RegisterTemplateLoader) -> None:
    """Add places that `-t SCHEME:NAME` finds prompt templates in."""


@hookspec
def register_views(register: RegisterView) -> None:
    """Add parts to the picture of `coli top`."""


@hookspec
def register_model_architectures(register: RegisterEngineModule) -> None:
    """Add architectures that the engine can run."""


@hookspec
def register_quant_formats(register: RegisterEngineModule) -> None:
    """Add number formats that the engine can read."""
