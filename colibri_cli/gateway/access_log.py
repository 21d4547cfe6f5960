"""One line per answered request: who, what, how it ended. Never headers, queries or content."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from typing import Final

LOGGER_NAME: Final = "colibri_cli.access"
_MAX_PATH: Final = 200
logger = logging.getLogger(LOGGER_NAME)


@dataclass(frozen=True, slots=True)
class AccessRecord:
    """What is known about one request when it is over.

    Args:
        request_id: As in `x-request-id`.
        peer: Address of the client.
        method: As sent; "-" when the request line could not be read.
        path: Decoded path without the query; "-" likewise.
        status: Status of the answer; 0 when nothing could be sent.
        sent_bytes: Bytes of the answer, head included.
        duration_s: From the complete head to the end of the answer.
        key_name: Name of the key that was shown, or None.
        is_stream: The answer came in pieces.
        is_cut: The answer did not reach its end.
    """

    request_id: str
    peer: str
    method: str
    path: str
    status: int
    sent_bytes: int
    duration_s: float
    key_name: str | None = None
    is_stream: bool = False
    is_cut: bool = False


def log_access(record: AccessRecord, *, as_json: bool = False) -> None:
    """Write the line of one request at level INFO."""
    if not logger.isEnabledFor(logging.INFO):
        return
    path = "".join(c if c.isprintable() and c != '"' else "?" for c in record.path[:_MAX_PATH])
    method = record.method[:20]
    if as_json:
        fields = {**asdict(record), "path": path, "method": method}
        fields["duration_s"] = round(record.duration_s, 6)
        logger.info("%s", json.dumps(fields, ensure_ascii=False))
        return
    logger.info(
        '%s - "%s %s" %d %d bytes %.3f s%s%s %s',
        record.peer,
        method,
        path,
        record.status,
        record.sent_bytes,
        record.duration_s,
        f" key={record.key_name}" if record.key_name else "",
        " cut" if record.is_cut else "",
        record.request_id,
    )
