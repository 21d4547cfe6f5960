"""Settings: how values from several sources become one.

A flag beats an environment variable, which beats the configuration file, which beats the default.
Reads nothing itself: callers pass the environment. `settings_table` has the rows;
`docs/settings.md` is generated from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from colibri_protocol.errors import SettingsError
from colibri_protocol.foreign_variables import FOREIGN_VARIABLES
from colibri_protocol.setting import Kind, Scope, Setting, SettingValue
from colibri_protocol.settings_table import INTERNAL_VARIABLES, SETTINGS

__all__ = [
    "PREFIX", "SETTINGS", "Kind", "Origin", "OriginKind", "ResolvedSettings", "ResolvedValue",
    "Scope", "Setting", "SettingValue", "nearest", "resolve", "settings_of", "unknown_variables",
]  # fmt: skip

PREFIX: Final = "COLI_"


class OriginKind(StrEnum):
    """Which source a value came from."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    CONFIG = "config"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from: "--ctx", "COLI_CTX", the file's name, "" for the default."""

    kind: OriginKind
    name: str = ""


@dataclass(frozen=True, slots=True)
class ResolvedValue:
    """A value and its origin."""

    setting: Setting
    value: SettingValue
    origin: Origin


class ResolvedSettings(Mapping[str, ResolvedValue]):
    """The effective value of each setting, by name."""

    def __init__(self, values: Mapping[str, ResolvedValue]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> ResolvedValue:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def is_given(self, name: str) -> bool:
        """Whether somebody set it."""
        return self._values[name].origin.kind is not OriginKind.DEFAULT

    def text(self, name: str) -> str | None:
        """Return a text, path or choice."""
        value = self._values[name].value
        assert value is None or isinstance(value, str), name
        return value

    def integer(self, name: str) -> int | None:
        """Return a whole number."""
        value = self._values[name].value
        assert value is None or (isinstance(value, int) and not isinstance(value, bool)), name
        return value

    def number(self, name: str) -> float | None:
        """Return a number."""
        value = self._values[name].value
        assert value is None or isinstance(value, float), name
        return value

    def switch(self, name: str) -> bool | None:
        """Return a switch; None is "automatic" where the default says so."""
        value = self._values[name].value
        assert value is None or isinstance(value, bool), name
        return value

    def engine_environment(self) -> dict[str, str]:
        """Return the variables that hand the given settings of scope `both` to an engine.

        Each goes out under all its names, so that engines which know only the older ones obey.
        """
        environment: dict[str, str] = {}
        for name, resolved in self._values.items():
            if resolved.setting.scope is Scope.BOTH and self.is_given(name):
                environment |= resolved.setting.written(resolved.value)
        return environment


def resolve(
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    config: Mapping[str, object],
    *,
    scope: Scope = Scope.CLI,
    config_name: str = "the configuration file",
    config_sources: Mapping[str, str] | None = None,
) -> ResolvedSettings:
    """Merge all sources: flag, environment, configuration file, default.

    Args:
        flags: Setting name to the value of its flag; None: not given.
        environ: The environment; an empty variable counts as unset.
        config: Setting name to the value in the configuration file.
        scope: Whose settings: CLI or ENGINE. Others are neither read nor checked.
        config_name: What messages call that file.
        config_sources: Setting name to the name of the file it came from, where that is another.

    Raises:
        SettingsError: A value cannot be used, or the file has a key that no setting has.
    """
    rows = settings_of(scope)
    for name in flags:
        assert name in rows, f"no setting {name}"
    sources = {**dict.fromkeys(config, config_name), **(config_sources or {})}
    _check_config_keys(rows, sources)
    return ResolvedSettings(
        {name: resolve_setting(name, flags, environ, config, sources) for name in rows}
    )


def settings_of(scope: Scope) -> dict[str, Setting]:
    """Return the rows that one side reads."""
    return {name: row for name, row in SETTINGS.items() if row.scope in {scope, Scope.BOTH}}


def _check_config_keys(rows: Mapping[str, Setting], sources: Mapping[str, str]) -> None:
    for key, config_name in sources.items():
        if key not in rows:
            near = nearest(key, rows)
            raise SettingsError(
                f"{config_name}: unknown setting {key!r}",
                setting=key,
                source=config_name,
                hint=f"did you mean {near!r}?" if near else "see docs/settings.md",
            )


def unknown_variables(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables with our prefix that no setting has, each with the nearest known name.

    They are worth a warning, not an error: another engine may know them.
    """
    ours = {name for row in SETTINGS.values() for name in row.env if name.startswith(PREFIX)}
    foreign = {row.name for row in FOREIGN_VARIABLES}
    unknown = sorted(
        name
        for name in environ
        if name.startswith(PREFIX) and name not in ours | INTERNAL_VARIABLES | foreign
    )
    # The prefix is left out, or it would make every name look alike.
    stems = {name.removeprefix(PREFIX) for name in ours}
    found = {name: nearest(name.removeprefix(PREFIX), stems) for name in unknown}
    return {name: stem and PREFIX + stem for name, stem in found.items()}


def nearest(name: str, known: Mapping[str, object] | set[str]) -> str | None:
    """Return the known name most like `name`, or None when none is like it."""
    import difflib  # 5 ms, needed only for a message

    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def resolve_setting(
    name: str,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    config: Mapping[str, object],
    sources: Mapping[str, str],
) -> ResolvedValue:
    """Merge all sources of one setting, as `resolve` does for all.

    Args:
        name: The setting.
        flags: Setting name to the value of its flag; None: not given.
        environ: The environment; an empty variable counts as unset.
        config: Setting name to the value in the configuration file.
        sources: Setting name to the name of that file, of all in `config`.

    Raises:
        SettingsError: The value cannot be used.
    """
    row, flag = SETTINGS[name], flags.get(name)
    if flag is not None:
        source = row.flags[0] if row.flags else row.name
        value = row.parse(flag, source) if isinstance(flag, str) else row.check(flag, source)
        return ResolvedValue(row, value, Origin(OriginKind.FLAG, source))
    for variable in row.env:
        if text := environ.get(variable, "").strip():
            value = row.parse(text, variable)
            return ResolvedValue(row, value, Origin(OriginKind.ENVIRONMENT, variable))
    if row.name in config:
        config_name = sources[row.name]
        source = f"{row.name} in {config_name}"
        value = row.check(config[row.name], source)
        return ResolvedValue(row, value, Origin(OriginKind.CONFIG, config_name))
    return ResolvedValue(row, row.default, Origin(OriginKind.DEFAULT))
