"""What a user should know without asking for details, and that is no warning."""

from __future__ import annotations

import logging
from typing import Final

NOTICE: Final = 25  # between INFO and WARNING; told unless only errors are wanted
_LOGGER: Final = logging.getLogger(__name__)


def configure_notices() -> None:
    """Give the level its name and let notices through, unless only errors are wanted."""
    logging.addLevelName(NOTICE, "NOTICE")
    are_told = logging.getLogger().isEnabledFor(logging.WARNING)
    _LOGGER.setLevel(NOTICE if are_told else logging.ERROR)


def tell(message: str, *values: object) -> None:
    """Log a notice."""
    _LOGGER.log(NOTICE, message, *values)
