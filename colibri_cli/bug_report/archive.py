"""The archive itself: masked parts in one zip file that only its owner reads."""

from __future__ import annotations

import io
import json
import os
import zipfile
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from colibri_cli.bug_report.contents import Part
    from colibri_cli.bug_report.masking import Masker

_OWNER_ONLY: Final = 0o600
_MAX_LINE: Final = 4000


@dataclass(frozen=True, slots=True)
class Packed:
    """A part as it goes in.

    Args:
        name: Its name in the archive.
        about: What it is, or why it is absent.
        text: All of it; None: it is absent.
    """

    name: str
    about: str
    text: str | None


def new_name() -> str:
    """Return the usual name of an archive, by the time of day here."""
    return f"coli-report-{datetime.now().astimezone():%Y%m%d-%H%M%S}.zip"


def pack(parts: Sequence[Part], masker: Masker) -> list[Packed]:
    """Mask all parts; what is shown of them is masked too."""
    return [_packed(part, masker) for part in parts]


def _packed(part: Part, masker: Masker) -> Packed:
    if part.content is None:
        return Packed(part.name, masker.text(f"absent: {part.reason}"), None)
    if isinstance(part.content, str):  # cut only when nothing in it is secret any more
        lines = masker.text(part.content).split("\n")
        text = "\n".join(line[:_MAX_LINE] for line in lines)
    else:
        text = json.dumps(masker.document(part.content), ensure_ascii=False, indent=1) + "\n"
    return Packed(part.name, f"{part.what} ({len(text.encode('utf-8', 'replace'))} bytes)", text)


def write_archive(path: Path, packed: Sequence[Packed]) -> None:
    """Write a new archive.

    Raises:
        OSError: it is there already, or cannot be written; no part of it stays.
    """
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED) as archive:
        for part in packed:
            if part.text is not None:
                archive.writestr(part.name, part.text.encode("utf-8", "replace"))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, _OWNER_ONLY)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(body.getvalue())
    except OSError:
        path.unlink(missing_ok=True)
        raise
