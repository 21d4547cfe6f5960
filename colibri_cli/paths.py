"""Where things of the user live: models, settings, history. Directories are made on use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_APP: Final = "colibri"


def data_dir() -> Path:
    """Return the directory of pulled models and logs."""
    from platformdirs import user_data_path

    return user_data_path(_APP, appauthor=False)


def config_dir() -> Path:
    """Return the directory of `config.toml`."""
    from platformdirs import user_config_path

    return user_config_path(_APP, appauthor=False)


def plugins_dir() -> Path:
    """Return the directory of the user's own plugins, one file each."""
    return config_dir() / "plugins"


def cache_dir() -> Path:
    """Return the directory of what can be had again: measured rates."""
    from platformdirs import user_cache_path

    return user_cache_path(_APP, appauthor=False)


def templates_dir() -> Path:
    """Return the directory of the user's prompt templates."""
    return config_dir() / "templates"


def state_dir() -> Path:
    """Return the directory of histories."""
    from platformdirs import user_state_path

    return user_state_path(_APP, appauthor=False)


def run_dir() -> Path:
    """Return the directory of what exists only while something runs."""
    import warnings

    from platformdirs import user_runtime_path

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return user_runtime_path(_APP, appauthor=False)
        except Warning:  # the system has no such directory of the user's own
            return state_dir() / "run"


def models_dir() -> Path:
    """Return the directory with one subdirectory per pulled model."""
    return data_dir() / "models"


def wheels_dir() -> Path:
    """Return the directory of finished downloads that models are built from."""
    return data_dir() / "wheels"


def chat_history_file() -> Path:
    """Return the file of chat input history."""
    return state_dir() / "chat_history"


def chat_log_file() -> Path:
    """Return the file of the log of conversations."""
    return data_dir() / "logs.db"


def atlas_file(model_name: str) -> Path:
    """Return what `coli atlas` measured of a model, in the form the dashboard reads."""
    return data_dir() / "atlas" / model_name / "experts.json"
