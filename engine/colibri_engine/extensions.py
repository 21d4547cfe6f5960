"""What plugins add to this process: architectures and number formats, named by the gateway.

The gateway knows plugins and their hooks; it hands over names of modules in the environment, and
nothing is imported here unless there are some.
"""

from __future__ import annotations

from colibri_engine.config import read_extensions


def extend() -> None:
    """Let this process load what plugins add.

    Raises:
        SettingsError: the names cannot be read.
        UnsupportedModel: an architecture is here already.
        UnsupportedQuantFormat: a format is here already, or its module does not offer it.
    """
    extensions = read_extensions()
    if extensions.models:
        from colibri_engine.models.registry import add_architectures

        add_architectures(extensions.models)
    if extensions.formats:
        from colibri_engine.quant.registry import add_formats

        add_formats(extensions.formats)
