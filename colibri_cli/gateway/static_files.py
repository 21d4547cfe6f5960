"""The files of a built page: which file a path means, and with which headers it is sent.

Nothing outside the root is ever read: not by `..`, not through a link, not as a sibling whose name
begins alike. Reads files, so call it on a thread.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from mimetypes import guess_type
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from colibri_cli.gateway.http_types import Response

if TYPE_CHECKING:
    from collections.abc import Mapping

INDEX: Final = "index.html"
_FALLBACK_TYPE: Final = "application/octet-stream"
# The system's own table differs from machine to machine; what pages are made of must not.
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_ENCODINGS: Final = (("br", ".br"), ("gzip", ".gz"))  # best first
# Bundlers put a digest of the content into these names: name-DIGEST.js, name.DIGEST.css
_HASHED: Final = re.compile(r"assets/.*[-.][A-Za-z0-9_-]{8,}\.[a-z0-9]+")
_FOREVER: Final = "public, max-age=31536000, immutable"
_ASK_AGAIN: Final = "no-cache"
CONTENT_POLICY: Final = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",  # math and diagrams set styles on elements
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "worker-src 'self' blob:",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
SAFE_HEADERS: Final[Mapping[str, str]] = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": CONTENT_POLICY,
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file below the root, by its path relative to it."""

    path: Path
    name: str


def find_file(root: Path, relative: str) -> StaticFile | None:
    """Return the file a decoded path below the root means.

    A path that names no file and has no dot in it belongs to the page itself, which then gets its
    own document. Everything else that is no regular file inside the root is None.
    """
    name = relative or INDEX
    found = _regular_file(root, name)
    if found is None and "." not in name:
        found = _regular_file(root, INDEX)
    return found


def send_file(file: StaticFile, headers: Mapping[str, str]) -> Response:
    """Return a file as a response to a request with these headers (names in lower case).

    Raises:
        OSError: it cannot be read.
    """
    path, encoding = _variant(file.path, headers.get("accept-encoding", ""))
    stat = path.stat()
    # the variants are different bytes, so their tags must differ too
    tag = f'"{stat.st_size:x}-{stat.st_mtime_ns:x}{"-" + encoding if encoding else ""}"'
    answer_headers = {
        **SAFE_HEADERS,
        "ETag": tag,
        "Cache-Control": _FOREVER if _HASHED.fullmatch(file.name) else _ASK_AGAIN,
        "Vary": "Accept-Encoding",
    }
    if _matches(headers.get("if-none-match", ""), tag):
        return Response(304, content_type="", headers=answer_headers)
    if encoding:
        answer_headers["Content-Encoding"] = encoding
    return Response(200, path.read_bytes(), _type_of(file.name), answer_headers)


def _regular_file(root: Path, name: str) -> StaticFile | None:
    parts = PurePosixPath(name).parts
    if "\\" in name or ":" in name or any(part.startswith((".", "/")) for part in parts):
        return None  # `..`, hidden files, absolute paths, drives
    resolved_root = root.resolve()
    try:
        path = resolved_root.joinpath(*parts).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):  # RuntimeError: a circle of links
        return None
    if not path.is_relative_to(resolved_root) or not path.is_file():
        return None
    return StaticFile(path, "/".join(parts))


def _variant(path: Path, accepted: str) -> tuple[Path, str]:
    """Return the best precompressed form that the client takes, and its encoding."""
    known = _accepted_encodings(accepted)
    for encoding, suffix in _ENCODINGS:
        packed = path.with_name(path.name + suffix)
        if encoding in known and packed.is_file() and not packed.is_symlink():
            return packed, encoding
    return path, ""


def _accepted_encodings(header: str) -> set[str]:
    names = set()
    for entry in header.lower().split(","):
        name, _, parameter = entry.partition(";")
        if not re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", parameter):
            names.add(name.strip())
    return names


def _matches(header: str, tag: str) -> bool:
    tags = [entry.strip().removeprefix("W/") for entry in header.split(",")]
    return tag in tags or tags == ["*"]


def _type_of(name: str) -> str:
    suffix = PurePosixPath(name).suffix.lower()
    return _TYPES.get(suffix) or guess_type(name, strict=False)[0] or _FALLBACK_TYPE
