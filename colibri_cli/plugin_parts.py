"""What plugins add beside commands, checks, routes and sinks: parts that are looked up by name.

A name that is taken, or does not do, costs its plugin; what a part raises later becomes one line
that names the plugin.
"""

from __future__ import annotations

import importlib.util
import re
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

from colibri_cli.errors import PluginError
from colibri_cli.plugin_loader import load_plugins
from colibri_cli.plugin_sources import has_plugins_of_others
from colibri_protocol.errors import ColibriError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from colibri_cli.plugin_types import (
        BenchTask,
        Converter,
        ModelSource,
        TemplateLoader,
        Tool,
        View,
    )

Part = TypeVar("Part")

SCHEMES: Final = ("hf",)  # of ours
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_TOOL: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what servers of the OpenAI API take
_TITLE: Final = re.compile(r"[^\x00-\x1f\x7f]{1,64}")


def bench_tasks(taken: Collection[str]) -> Mapping[str, BenchTask]:
    """Return the tasks plugins add to `coli bench quality`."""
    return _parts("register_bench_tasks", taken)


def model_sources() -> Mapping[str, ModelSource]:
    """Return where else `coli pull` can fetch from, by scheme."""
    return _parts("register_model_sources", SCHEMES)


def converters() -> Mapping[str, Converter]:
    """Return what else `coli convert` can read, by scheme."""
    return _parts("register_converters", SCHEMES)


def template_loaders() -> Mapping[str, TemplateLoader]:
    """Return where else prompt templates are, by scheme."""
    return _parts("register_template_loaders", ())


def views() -> Mapping[str, View]:
    """Return what plugins show in `coli top`, by title."""
    return _parts("register_views", (), _TITLE)


def chat_tools() -> Mapping[str, Tool]:
    """Return the functions plugins let a model call in `coli chat`, by name."""
    found: dict[str, Tool] = {}
    for state, call in load_plugins().each("register_tools"):
        new: list[Tool] = []
        if not call(register=new.append):
            continue
        names = [tool.name for tool in new]
        odd = [name for name in names if not _TOOL.fullmatch(name)]
        double = [name for name in names if names.count(name) > 1 or name in found]
        if odd:
            load_plugins().discard(state, f"{odd[0]!r} does not do as a tool's name")
        elif double:
            load_plugins().discard(state, f"there is a tool {double[0]!r} already")
        else:
            found |= {tool.name: tool for tool in new}
    return found


def engine_variables() -> dict[str, str]:
    """Return the variables that tell an engine what plugins add to it; empty without plugins."""
    if not has_plugins_of_others():  # ours add nothing, and an engine starts without them
        return {}
    variables = {
        "COLI_MODEL_MODULES": _modules("register_model_architectures"),
        "COLI_QUANT_MODULES": _modules("register_quant_formats"),
    }
    return {
        variable: ",".join(f"{name}={module}" for name, module in modules.items())
        for variable, modules in variables.items()
        if modules
    }


def _parts(
    hook: str, taken: Collection[str], names: re.Pattern[str] = _NAME
) -> dict[str, Callable[..., Any]]:
    """Return what plugins register with a hook, by name."""

    def guard(plugin: str, part: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(part)
        def guarded(*given: object) -> object:
            try:
                return part(*given)
            except ColibriError:
                raise
            except Exception as error:  # whatever a plugin raises
                raise PluginError(
                    f"the plugin {plugin} failed: {type(error).__name__}: {error}", plugin=plugin
                ) from error

        return guarded

    return _registered(hook, taken, names, guard)


def _modules(hook: str) -> dict[str, str]:
    def check(plugin: str, module: str) -> str:
        try:
            is_there = importlib.util.find_spec(module) is not None
        except (ImportError, ValueError):
            is_there = False
        if not is_there:
            raise PluginError(f"there is no module {module!r}", plugin=plugin)
        return module

    return _registered(hook, (), _NAME, check)


def _registered(
    hook: str,
    taken: Collection[str],
    names: re.Pattern[str],
    take: Callable[[str, Any], Part],
) -> dict[str, Part]:
    found: dict[str, Part] = {}
    for state, call in load_plugins().each(hook):
        new: dict[str, Part] = {}

        def register(
            name: str,
            part: object,
            *,
            plugin: str = state.source.name,
            new: dict[str, Part] = new,
            known: Collection[str] = (*taken, *found),
        ) -> None:
            if not names.fullmatch(name):
                raise PluginError(f"{name!r} does not do as a name", plugin=plugin)
            if name in known or name in new:
                raise PluginError(f"there is a {name!r} already", plugin=plugin)
            new[name] = take(plugin, part)

        if call(register=register):
            found |= new
    return found
