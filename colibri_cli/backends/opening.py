"""From settings to an opened native backend: which model, which program, which environment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from colibri_cli.backends.native import NativeBackend
from colibri_cli.errors import ModelNotGiven
from colibri_cli.model_store.store import locate_model
from colibri_cli.plugin_parts import engine_variables
from colibri_cli.supervisor.lifecycle import EngineSupervisor, RestartPolicy
from colibri_cli.supervisor.spawn import EngineLaunch
from colibri_cli.tuning.profile import tuned_settings
from colibri_protocol.settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from colibri_cli.supervisor.lifecycle import EngineState
    from colibri_protocol.settings import ResolvedSettings


def native_backend(
    settings: ResolvedSettings,
    *,
    model: str | None = None,
    restarts: bool = False,
    patience_s: float | None = None,
    extra: Mapping[str, object] | None = None,
    on_state: Callable[[EngineState], None] | None = None,
) -> NativeBackend:
    """Return the backend of the model the settings name; it is not started yet.

    Args:
        settings: Effective settings of the command.
        model: Model to use instead of the settings' one.
        restarts: Start a new engine when the running one dies, unless the settings forbid it.
        patience_s: Longest wait of a request for that; None: as long as it takes.
        extra: Engine settings the command itself chooses, by setting name.
        on_state: Called with every new state of the engine.

    Raises:
        ModelNotGiven: no model was named.
        ModelNotFound: the named one does not exist.
    """
    wanted = model or settings.text("model")
    if wanted is None:
        raise ModelNotGiven
    path, name = locate_model(wanted)
    engine_bin = settings.text("engine_bin")
    launch = EngineLaunch(
        model_path=path,
        engine_bin=None if engine_bin is None else Path(engine_bin).expanduser(),
        cap=settings.integer("cap") or None,
        environment={
            **engine_variables(),
            **_variables(tuned_settings(settings, path)),
            **settings.engine_environment(),
            **_variables(extra or {}),
        },
    )
    restarts = restarts and settings.switch("engine_restart") is not False
    hang_timeout_s = settings.number("hang_timeout") or None
    policy = RestartPolicy(patience_s=patience_s, hang_timeout_s=hang_timeout_s)
    if hang_timeout_s is not None:
        policy = replace(policy, heartbeat_s=min(policy.heartbeat_s, hang_timeout_s))
    if not restarts:
        policy = replace(policy, max_failures=0)
    supervisor = EngineSupervisor(launch, policy, on_state)
    return NativeBackend(supervisor, name, salvages_calls=settings.switch("tool_salvage") is True)


def _variables(values: Mapping[str, object]) -> dict[str, str]:
    return {
        variable: str(value) for name, value in values.items() for variable in SETTINGS[name].env
    }
