"""The files of the built page: what is served, how, and what never is."""

from __future__ import annotations

import gzip
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from colibri_cli.gateway.auth import ApiKeys
from colibri_cli.gateway.routes import dashboard
from tests.gateway.http.running_server import KEYS, RunningServer, get
from tests.gateway.routes.gateway_rig import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from colibri_cli.gateway.http_types import AnyResponse, Request, Route
    from colibri_cli.gateway.services import Services

INDEX = b"<!doctype html><title>coli</title>"
SCRIPT = b"console.log('hello hello hello')"
HASHED = "assets/index-Bx4_z9Qk.js"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A built page beside things that must stay private."""
    root = tmp_path / "dist"
    (root / "assets").mkdir(parents=True)
    (root / "index.html").write_bytes(INDEX)
    (root / HASHED).write_bytes(SCRIPT)
    (root / f"{HASHED}.gz").write_bytes(gzip.compress(SCRIPT))
    (root / f"{HASHED}.br").write_bytes(b"pretend brotli")
    (root / "experts.json").write_text("[]")
    (root / ".env").write_text("SECRET=1")
    (root / "blob").write_bytes(b"\0\1")
    private = tmp_path / "dist-private"
    private.mkdir()
    (private / "secret.txt").write_text("secret")
    (root / "link.txt").symlink_to(private / "secret.txt")
    (root / "assets" / "up").symlink_to(private)
    (root / "loop.js").symlink_to(root / "loop.js")
    return root


@contextmanager
def serving(
    root: Path | None, keys: ApiKeys | None = None, atlas: Path | None = None
) -> Iterator[RunningServer]:
    settings = replace(SETTINGS, dashboard=root, atlas=atlas)
    services = cast("Services", SimpleNamespace(settings=settings))

    def bound(route: Route) -> Route:
        async def handler(_: Services, request: Request) -> AnyResponse:
            return await route.handler(services, request)

        return replace(route, handler=handler)

    routes = tuple(map(bound, dashboard.ROUTES))
    with RunningServer(routes=routes, keys=keys or ApiKeys()) as server:
        yield server


@pytest.mark.parametrize("path", ["/", "/index.html", "/some/route", "/v1", "/health/", "/assets"])
def test_paths_of_the_page(page: Path, path: str) -> None:
    with serving(page) as server:
        answer = server.ask(get(path))
        assert (answer.status, answer.body) == (200, INDEX)
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["cache-control"] == "no-cache"
        policy = answer.headers["content-security-policy"].split("; ")
        assert "script-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_files_with_their_types(page: Path) -> None:
    with serving(page) as server:
        script = server.ask(get(f"/{HASHED}"))
        assert (script.status, script.body) == (200, SCRIPT)
        assert script.headers["content-type"] == "text/javascript; charset=utf-8"
        assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
        data = server.ask(get("/experts.json"))
        assert data.headers["content-type"] == "application/json"
        assert data.headers["cache-control"] == "no-cache"
        blob = server.ask(get("/blob"))
        assert blob.headers["content-type"] == "application/octet-stream"


def test_the_atlas_of_the_model_goes_before_that_of_the_page(page: Path, tmp_path: Path) -> None:
    atlas = tmp_path / "experts.json"
    with serving(page, atlas=atlas) as server:
        assert server.ask(get("/experts.json")).body == b"[]"
        atlas.write_text('{"categories": []}')  # measured while the server runs
        answer = server.ask(get("/experts.json"))
        assert (answer.status, answer.body) == (200, b'{"categories": []}')
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["cache-control"] == "no-cache"
    with serving(None, atlas=atlas) as server:
        assert server.ask(get("/experts.json")).body == b'{"categories": []}'
    with serving(None) as server:
        answer = server.ask(get("/experts.json"))
        assert answer.status == 404
        assert b"coli atlas sweep" in answer.body


def test_head_is_get_without_the_body(page: Path) -> None:
    with serving(page) as server, server.connect() as client:
        answer = client.ask(get("/").replace(b"GET", b"HEAD", 1), is_head=True)
        assert (answer.status, answer.body) == (200, b"")
        assert answer.headers["content-length"] == str(len(INDEX))


@pytest.mark.parametrize(
    "path",
    [
        "/missing.js",
        "/.env",
        "/%2eenv",
        "/../dist-private/secret.txt",
        "/%2e%2e/dist-private/secret.txt",
        "/..%2fdist-private%2fsecret.txt",
        "/assets/../../dist-private/secret.txt",
        "//etc/hostname.txt",
        "/%2fetc/passwd.txt",
        "/link.txt",
        "/assets/up/secret.txt",
        "/loop.js",
        "/..%5cdist-private%5csecret.txt",
        "/C:%5csecret.txt",
        "/index.html/x.js",
        "/v1/chat",
        "/v1/index.html",
        "/" + "a" * 5000 + ".js",
        "/%0a%1b[31m.js",
    ],
)
def test_paths_that_are_not_there(page: Path, path: str) -> None:
    with serving(page) as server:
        answer = server.ask(get(path))
        assert answer.status == 404
        assert answer.error["code"] == "not_found"
        assert b"secret" not in answer.body.replace(b"secret.txt", b"")
        assert b"\x1b" not in answer.body
    with serving(page, KEYS) as server:
        assert server.ask(get(path)).status == 401


@pytest.mark.parametrize("path", ["/%00", "/a%00.js", "/%ff.js"])
def test_paths_that_are_none(page: Path, path: str) -> None:
    with serving(page) as server:
        assert server.ask(get(path)).status == 400


def test_files_need_no_key(page: Path) -> None:
    with serving(page, KEYS) as server:
        assert server.ask(get("/")).status == 200
        assert server.ask(get(f"/{HASHED}")).status == 200


def test_an_unchanged_file_is_not_sent_again(page: Path) -> None:
    with serving(page) as server:
        tag = server.ask(get("/")).headers["etag"]
        for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
            answer = server.ask(get("/", f"If-None-Match: {known}"))
            assert (answer.status, answer.body) == (304, b"")
            assert answer.headers["etag"] == tag
        assert server.ask(get("/", 'If-None-Match: "x"')).status == 200
        (page / "index.html").write_bytes(INDEX + b" ")
        changed = server.ask(get("/", f"If-None-Match: {tag}"))
        assert changed.status == 200
        assert changed.headers["etag"] != tag


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip, deflate, br", "br"),
        ("gzip", "gzip"),
        ("br;q=0, gzip;q=0.5", "gzip"),
        ("br; q=0.0, gzip;q=0", None),
        ("identity", None),
        ("", None),
    ],
)
def test_packed_forms(page: Path, accepted: str, encoding: str | None) -> None:
    with serving(page) as server:
        answer = server.ask(get(f"/{HASHED}", f"Accept-Encoding: {accepted}"))
        assert answer.status == 200
        assert answer.headers.get("content-encoding") == encoding
        assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
        assert "Accept-Encoding" in answer.headers["vary"]
        plain = server.ask(get(f"/{HASHED}"))
        assert (answer.headers["etag"] == plain.headers["etag"]) is (encoding is None)
        if encoding == "gzip":
            assert gzip.decompress(answer.body) == SCRIPT
        unpacked = server.ask(get("/", f"Accept-Encoding: {accepted}"))
        assert "content-encoding" not in unpacked.headers


def test_without_a_page_it_is_said_how_to_build_one() -> None:
    with serving(None) as server:
        answer = server.ask(get("/"))
        assert answer.status == 404
        assert answer.error["code"] == "not_found"
        assert "make web" in answer.error["message"]
        shown = server.ask(get("/", "Accept: text/html,*/*"))
        assert shown.status == 404
        assert b"make web" in shown.body
        assert shown.headers["content-type"].startswith("text/html")
        assert server.ask(get("/other")).status == 404
    with serving(None, KEYS) as server:
        assert server.ask(get("/")).status == 401
