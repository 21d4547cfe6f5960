"""A text of the web that goes along with a prompt: fetched whole, checked like a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import httpx

from colibri_cli.chat.attaching_files import MAX_BYTES, attachment_of
from colibri_cli.errors import UsageError
from colibri_protocol.errors import reason_of

if TYPE_CHECKING:
    from colibri_cli.chat_log.records import Attachment

_PATIENCE_S: Final = 30.0  # for each step: connecting, and every piece


def fetch_text(url: str) -> Attachment:
    """Fetch a text.

    Raises:
        UsageError: it cannot be fetched, is too large or no text.
    """
    data = bytearray()
    try:
        with httpx.stream("GET", url, timeout=_PATIENCE_S, follow_redirects=True) as response:
            if response.is_error:
                raise UsageError(
                    f"{url} cannot be fetched (HTTP {response.status_code})",
                    hint="check the address",
                )
            for piece in response.iter_bytes():
                data += piece
                if len(data) > MAX_BYTES:
                    raise UsageError(
                        f"{url} has more than the {MAX_BYTES:,} bytes that can go along",
                        hint="fetch it and attach a part of it",
                    )
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise UsageError(
            f"{url} cannot be fetched ({reason or type(error).__name__})", hint="check the address"
        ) from error
    return attachment_of(url, bytes(data), response.headers.get("content-type", ""))
