"""Prompt templates of the user: a prompt and a system text with places for words.

One TOML file each in the folder `templates` beside the configuration: `prompt`, `system`, and the
table `defaults`. `$name` is a place, `$input` the one for what is typed or piped in, `$$` a dollar.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from string import Template
from typing import TYPE_CHECKING, Any, Final

from colibri_cli import paths
from colibri_cli.errors import StoreError, UsageError
from colibri_cli.whole_files import write_whole
from colibri_protocol.settings import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

INPUT: Final = "input"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_KEYS: Final = frozenset({"prompt", "system", "defaults"})


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """One template.

    Args:
        name: What it is called by.
        prompt: Text with places; without any, what is typed in stands behind it.
        system: System text with places, or None.
        defaults: Words for places that nobody gave.
    """

    name: str
    prompt: str = "$input"
    system: str | None = None
    defaults: Mapping[str, str] = field(default_factory=dict)

    @property
    def places(self) -> frozenset[str]:
        """Names of all places."""
        texts = (self.prompt, self.system or "")
        return frozenset(name for text in texts for name in Template(text).get_identifiers())

    def fill(self, typed: str, given: Mapping[str, str]) -> tuple[str, str | None]:
        """Return prompt and system text.

        Args:
            typed: What was typed or piped in.
            given: Words for the other places.

        Raises:
            UsageError: a place is left empty, or a word has no place.
        """
        for name in given:
            if name not in self.places - {INPUT}:
                near = nearest(name, set(self.places - {INPUT}))
                hint = f"did you mean {near!r}?" if near else self._hint()
                raise UsageError(f"the template {self.name} has no place {name!r}", hint=hint)
        words = {**self.defaults, **given, INPUT: typed}
        missing = sorted(self.places - words.keys())
        if missing or (INPUT in self.places and not typed.strip()):
            name = missing[0] if missing else INPUT
            remedy = f"-p {name}=TEXT" if missing else "a prompt"
            raise UsageError(f"the template {self.name} needs {name!r}", hint=f"give it {remedy}")
        prompt = Template(self.prompt).substitute(words)
        if INPUT not in self.places and typed.strip():
            prompt = f"{prompt}\n\n{typed}"
        return prompt, None if self.system is None else Template(self.system).substitute(words)

    def _hint(self) -> str:
        names = sorted(self.places - {INPUT})
        return f"it has {', '.join(names)}" if names else "it has none"


def template_path(name: str) -> Path:
    """Return the file of a template.

    Raises:
        UsageError: it cannot be one's name.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name of a template", hint="use small letters, digits, - and _"
        )
    return paths.templates_dir() / f"{name}.toml"


def load_template(name: str) -> PromptTemplate:
    """Return a template by name, or by `SCHEME:NAME` from a plugin.

    Raises:
        UsageError: there is none, or its text is wrong.
        PluginError: the plugin failed.
    """
    scheme, colon, rest = name.partition(":")
    if colon:
        from colibri_cli.plugin_parts import template_loaders

        loaders = template_loaders()
        if scheme not in loaders:
            near = nearest(scheme, set(loaders))
            hint = f"did you mean {near}:{rest}?" if near else "`coli plugins list` names plugins"
            raise UsageError(f"no plugin loads templates of {scheme!r}", hint=hint)
        return _parsed(name, loaders[scheme](rest), name)
    path = template_path(name)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        near = nearest(name, set(template_names()))
        hint = f"did you mean {near!r}?" if near else "`coli templates list` names them"
        raise UsageError(f"there is no template {name!r}", hint=hint) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read") from error
    return _parsed(name, text, str(path))


def pairs(flag: str, given: Sequence[str]) -> dict[str, str]:
    """Return `NAME=TEXT` texts as a mapping.

    Raises:
        UsageError: one has no equals sign.
    """
    found = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"{flag}: {text!r} is not NAME=TEXT")
        found[name] = value
    return found


def template_names() -> list[str]:
    """Return the names of all templates."""
    files = paths.templates_dir().glob("*.toml")
    return sorted(file.stem for file in files if _NAME.fullmatch(file.stem))


def save_template(template: PromptTemplate) -> Path:
    """Write a template and return its file.

    Raises:
        UsageError: its texts cannot be filled.
        StoreError: it cannot be written.
    """
    import tomlkit

    body: dict[str, Any] = {"prompt": template.prompt}
    if template.system is not None:
        body["system"] = template.system
    if template.defaults:
        body["defaults"] = dict(template.defaults)
    text = tomlkit.dumps(body)
    path = template_path(template.name)
    _parsed(template.name, text, "the template")
    try:
        write_whole(path, text)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
    return path


def _parsed(name: str, text: str, where: str) -> PromptTemplate:
    import tomllib

    try:
        body = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # not TOML, or beyond what is read
        raise UsageError(f"{where} is not valid TOML ({error})") from error
    for key in body:
        if key not in _KEYS:
            near = nearest(key, set(_KEYS))
            hint = f"did you mean {near!r}?" if near else f"it knows {', '.join(sorted(_KEYS))}"
            raise UsageError(f"{where}: unknown key {key!r}", hint=hint)
    prompt, system = body.get("prompt", "$input"), body.get("system")
    defaults = body.get("defaults", {})
    if not isinstance(prompt, str) or not isinstance(system, str | None):
        raise UsageError(f"{where}: prompt and system must be texts")
    if not isinstance(defaults, dict) or not all(isinstance(v, str) for v in defaults.values()):
        raise UsageError(f"{where}: defaults must be a table of texts")
    for words in (prompt, system or ""):
        if not Template(words).is_valid():
            raise UsageError(
                f"{where}: a dollar that begins no name", hint="write $$ for a dollar itself"
            )
    return PromptTemplate(name, prompt, system, defaults)
