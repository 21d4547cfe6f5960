"""From settings to how one request generates: only what somebody set is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from colibri_cli.backends.base import Generation, ModelCard
from colibri_cli.errors import UsageError
from colibri_protocol.messages import RequestOptions
from colibri_protocol.settings import OriginKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_protocol.settings import ResolvedSettings

RUN_MAX_TOKENS: Final = 1024
CHAT_MAX_TOKENS: Final = 16_384
MAX_STOPS: Final = 4

_NUMBERS: Final = (
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
)
_WHOLE_NUMBERS: Final = ("top_k", "seed")


def generation_of(
    settings: ResolvedSettings, *, max_tokens: int, stops: Sequence[str] = ()
) -> Generation:
    """Return how to generate, as the settings ask for.

    Args:
        settings: Effective settings of the command.
        max_tokens: Limit when no setting names one.
        stops: Texts that end the answer.

    Raises:
        UsageError: there are too many stop texts, or one is empty.
    """
    if len(stops) > MAX_STOPS:
        raise UsageError(f"at most {MAX_STOPS} --stop texts are possible, not {len(stops)}")
    if not all(stops):
        raise UsageError("a --stop text must not be empty")
    values: dict[str, Any] = {"max_tokens": settings.integer("max_tokens") or max_tokens}
    values.update({n: settings.number(n) for n in _NUMBERS if settings.is_given(n)})
    values.update({n: settings.integer(n) for n in _WHOLE_NUMBERS if settings.is_given(n)})
    return Generation(RequestOptions(**values), tuple(stops))


def thinking_of(settings: ResolvedSettings, card: ModelCard) -> bool | None:
    """Return whether reasoning is asked for (True), forbidden (False) or left to the model.

    Raises:
        UsageError: `--think` for a model that cannot reason; a variable or a file may ask for it
            in general, and is then not meant for such a model.
    """
    if not settings.is_given("think"):
        return None
    wanted = settings.switch("think")
    if wanted and not card.can_think:
        if settings["think"].origin.kind is OriginKind.FLAG:
            raise UsageError(
                f"{card.id} has no switch for reasoning, so --think cannot be used with it",
                hint="leave out --think",
            )
        return None
    return wanted
