"""A text of the web that goes along with a prompt: fetched whole, checked like a file."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Final

from colibri_cli.chat.attaching_files import MAX_BYTES, attachment_of
from colibri_cli.errors import UsageError
from colibri_protocol.errors import reason_of

if TYPE_CHECKING:
    from colibri_cli.chat_log.records import Attachment

_PATIENCE_S: Final = 30.0  # for each step: connecting, and every piece
_CHECK: Final = "check the address"


def fetch_text(url: str) -> Attachment:
    """Fetch a text.

    Args:
        url: Of http or https; whoever calls has looked.

    Raises:
        UsageError: it cannot be fetched, is too large or no text.
    """
    try:
        with urllib.request.urlopen(url, timeout=_PATIENCE_S) as response:  # noqa: S310 - no files
            data = response.read(MAX_BYTES + 1)
            mime = response.headers.get("content-type", "")
    except urllib.error.HTTPError as error:
        error.close()
        raise UsageError(f"{url} cannot be fetched (HTTP {error.code})", hint=_CHECK) from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        inner = getattr(error, "reason", None)  # of what opened the address
        reason = reason_of(inner if isinstance(inner, Exception) else error)
        raise UsageError(f"{url} cannot be fetched ({reason})", hint=_CHECK) from error
    if len(data) > MAX_BYTES:
        raise UsageError(
            f"{url} has more than the {MAX_BYTES:,} bytes that can go along",
            hint="fetch it and attach a part of it",
        )
    return attachment_of(url, data, mime)
