"""A hub of models on loopback: what `huggingface_hub` asks one for, and nothing more.

Point a process at it with HF_ENDPOINT. Files are served with ranges; requests are counted.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"

_RESOLVE = re.compile(r"/(?P<repository>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<name>.+)")
_INFO = re.compile(r"/api/models/(?P<repository>[^/]+/[^/]+)(?:/revision/(?P<revision>[^/?]+))?")


class Hub:
    """The repository that is served.

    Args:
        directory: Its files.
        url: Where it is served.
    """

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.url = url
        self.fetched: Counter[str] = Counter()  # whole files
        self.fails_whole: set[str] = set()  # answered with 403 but for ranges
        self.watched: Path | None = None  # where weight files are counted at every request
        self.most_files = 0

    @property
    def environment(self) -> dict[str, str]:
        """Variables that make a process use it."""
        return {
            "HF_ENDPOINT": self.url,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DOWNLOAD_TIMEOUT": "5",
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        return

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        if found := _INFO.fullmatch(path):
            self._send(json.dumps(self._info(found["repository"])).encode(), with_body=with_body)
        elif found := _RESOLVE.fullmatch(path):
            self._file(found["name"], with_body=with_body)
        else:
            self._send(b"", status=404, with_body=with_body)

    def _info(self, repository: str) -> dict[str, object]:
        files = sorted(self.hub.directory.iterdir())
        return {
            "id": repository,
            "modelId": repository,
            "sha": COMMIT,
            "siblings": [{"rfilename": f.name, "size": f.stat().st_size} for f in files],
        }

    def _file(self, name: str, *, with_body: bool) -> None:
        path = self.hub.directory / name
        if self.hub.watched is not None:
            here = len(list(self.hub.watched.glob("*.safetensors")))
            self.hub.most_files = max(self.hub.most_files, here)
        if not path.is_file():
            self._send(b"", status=404, with_body=with_body, code="EntryNotFound")
            return
        data = path.read_bytes()
        headers = {
            "ETag": f'"{hashlib.sha256(data).hexdigest()}"',
            "X-Repo-Commit": COMMIT,
            "Accept-Ranges": "bytes",
        }
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if span is None:
            if name in self.hub.fails_whole:
                self._send(b"", status=403, with_body=with_body, code="GatedRepo")
                return
            if with_body:
                self.hub.fetched[name] += 1
            self._send(data, with_body=with_body, headers=headers)
            return
        first = int(span[1])
        last = min(int(span[2]) if span[2] else len(data) - 1, len(data) - 1)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        self._send(data[first : last + 1], status=206, with_body=with_body, headers=headers)

    def _send(
        self,
        body: bytes,
        *,
        with_body: bool,
        status: int = 200,
        headers: dict[str, str] | None = None,
        code: str | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if code is not None:
            self.send_header("X-Error-Code", code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)


@contextmanager
def serve_hub(directory: Path) -> Iterator[Hub]:
    """Serve a directory as every repository of a hub."""

    class Handler(_Handler):
        pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Handler.hub = Hub(directory, f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Handler.hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
