"""Host allow-list, Origin check, CORS."""

from __future__ import annotations

from typing import Any

import pytest

from colibri_cli.gateway.guards import HostGuard, OriginGuard, parse_authority
from colibri_cli.gateway.http_types import HttpError
from colibri_protocol.errors import SettingsError
from tests.gateway.http.running_server import KEYS, RunningServer, get, post

DEV = "http://localhost:5173"


def with_host(request: bytes, host: str) -> bytes:
    return request.replace(b"Host: localhost", b"Host: " + host.encode())


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:8000", "127.0.0.1:1", "[::1]", "[::1]:8000", "localhost."]
)
def test_loopback_names_are_served(server: RunningServer, host: str) -> None:
    assert server.ask(with_host(get("/health"), host)).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "[::2]", "0", "10.0.0.1"],
)
def test_another_host_is_refused_with_the_way_to_allow_it(server: RunningServer, host: str) -> None:
    answer = server.ask(with_host(get("/health"), host))
    assert (answer.status, answer.error["code"]) == (403, "forbidden")
    assert host.strip("[]") in answer.error["message"]
    assert "--allowed-host" in answer.error["message"]


@pytest.mark.parametrize(
    "host", ["a@localhost", "localhost:x", "localhost:99999", "[::1", "local host", "a/localhost"]
)
def test_what_is_no_host_is_refused(server: RunningServer, host: str) -> None:
    assert server.ask(with_host(get("/health"), host)).status == 403


def test_an_allowed_host_is_served_and_no_other() -> None:
    hosts = ("box.example", " Other.Example ", "2001:db8::1", "")
    with RunningServer(allowed_hosts=hosts) as server:
        for host in ("box.example", "BOX.example:8000", "other.example", "[2001:db8::1]:80"):
            assert server.ask(with_host(get("/health"), host)).status == 200
        assert server.ask(with_host(get("/health"), "evil.example")).status == 403


@pytest.mark.parametrize("host", ["*", "*.example", "http://box.example", "a b", "box/x"])
def test_there_are_no_wildcards_and_no_nonsense(host: str) -> None:
    with pytest.raises(SettingsError) as caught:
        HostGuard((), (host,))
    assert host in caught.value.message
    assert "\n" not in caught.value.message


def test_the_authority_of_an_absolute_target_is_checked(server: RunningServer) -> None:
    for authority in ("evil.example", "evil.example:80", "a@localhost"):
        target = f"GET http://{authority}/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert server.ask(target.encode()).status == 403
    absolute = b"GET http://localhost/health HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    assert server.ask(absolute).status == 403


def test_the_address_a_client_connected_to_is_ours() -> None:
    guard = HostGuard(("0.0.0.0",))
    guard.check("192.0.2.7:8000", local_address="192.0.2.7")
    for host in ("192.0.2.8", "box.example"):
        with pytest.raises(HttpError):
            guard.check(host, local_address="192.0.2.7")


def test_authorities() -> None:
    assert parse_authority("[0:0::1]:80") == "::1"
    assert parse_authority("Box:") == "box"
    for text in ("", ":80", "[]", "a:b:c", "a:65536", "a\\b", "a?b", "a#b", "[::1]x"):
        assert parse_authority(text) is None, text


# ---- pages --------------------------------------------------------------------------------------


def preflight(*fields: str) -> bytes:
    return get("/v1/chat/completions", *fields).replace(b"GET", b"OPTIONS")


def test_a_preflight_of_a_known_page_is_answered_without_a_key() -> None:
    with RunningServer(keys=KEYS) as server, server.connect() as client:
        answer = client.ask(preflight(f"Origin: {DEV}", "Access-Control-Request-Method: POST"))
        assert (answer.status, answer.body) == (204, b"")
        assert answer.headers["access-control-allow-origin"] == DEV
        assert answer.headers["access-control-allow-methods"] == "GET, POST, DELETE, OPTIONS"
        allowed = answer.headers["access-control-allow-headers"].lower().split(", ")
        assert {"authorization", "content-type", "x-api-key", "anthropic-version"} <= set(allowed)
        assert {"anthropic-beta", "anthropic-dangerous-direct-browser-access"} <= set(allowed)
        exposed = answer.headers["access-control-expose-headers"]
        assert exposed == "x-request-id, x-colibri-queue-wait-ms, Retry-After"
        assert answer.headers["access-control-max-age"] == "600"
        assert answer.headers["vary"] == "Origin"
        assert "x-request-id" not in answer.headers
        assert "content-length" not in answer.headers
        assert client.ask(get("/health")).status == 200


def test_headers_of_the_sdks_are_allowed_by_name(server: RunningServer) -> None:
    wanted = (
        "Access-Control-Request-Headers: authorization, x-stainless-os,X-Stainless-Lang, x-evil"
    )
    answer = server.ask(preflight(f"Origin: {DEV}", wanted))
    allowed = answer.headers["access-control-allow-headers"]
    assert "x-stainless-os, x-stainless-lang" in allowed
    assert "x-evil" not in allowed


def test_a_preflight_of_a_foreign_page_gets_no_permission(server: RunningServer) -> None:
    answer = server.ask(preflight("Origin: https://evil.example"))
    assert answer.status == 204
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_preflight_for_a_foreign_host_is_403_and_empty(server: RunningServer) -> None:
    answer = server.ask(with_host(preflight(f"Origin: {DEV}"), "evil.example"))
    assert (answer.status, answer.body) == (403, b"")


@pytest.mark.parametrize(
    ("target", "allowed"),
    [
        ("/v1/chat/completions", "OPTIONS, POST"),
        ("/v1/models/x?y", "GET, HEAD, OPTIONS"),
        ("*", "GET, HEAD, OPTIONS, POST"),
    ],
)
def test_options_tell_what_a_path_takes(server: RunningServer, target: str, allowed: str) -> None:
    answer = server.ask(f"OPTIONS {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert (answer.status, answer.headers["allow"]) == (204, allowed)


@pytest.mark.parametrize("path", ["/health", "/nothing", "/stream", "/v1/messages", "/v1/models"])
def test_every_kind_of_answer_has_the_cors_headers(locked: RunningServer, path: str) -> None:
    answer = locked.ask(get(path, f"Origin: {DEV}"))
    assert answer.headers["access-control-allow-origin"] == DEV
    assert locked.ask(get(path)).headers["vary"] == "Origin"


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:9", "x"])
def test_a_foreign_page_may_not_post(server: RunningServer, origin: str) -> None:
    with server.connect() as client:
        answer = client.ask(post("/echo", b"{}", f"Origin: {origin}", "Content-Type: text/plain"))
        assert (answer.status, answer.error["code"]) == (403, "forbidden")
        assert "--cors-origin" in answer.error["message"]
        assert client.ask(get("/echo", f"Origin: {origin}")).status == 200
    assert len(server.script.requests) == 1


def test_own_pages_and_programs_may_post(server: RunningServer) -> None:
    own = [
        f"http://127.0.0.1:{server.port}",
        f"http://localhost:{server.port}",
        "http://localhost",  # what Host says
        DEV,
        "tauri://localhost",
    ]
    for origin in own:
        assert server.ask(post("/echo", b"{}", f"Origin: {origin}")).status == 200
    assert server.ask(post("/echo", b"{}", "Content-Type: text/plain")).status == 200


def test_given_origins_replace_the_defaults() -> None:
    with RunningServer(cors_origins=("https://app.example",)) as server:
        assert server.ask(post("/echo", b"{}", "Origin: https://app.example")).status == 200
        assert server.ask(post("/echo", b"{}", f"Origin: {DEV}")).status == 403


def test_any_origin_by_a_star() -> None:
    with RunningServer(cors_origins=("*",)) as server:
        answer = server.ask(post("/echo", b"{}", "Origin: https://any.example"))
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "vary" not in answer.headers


def test_an_answers_own_vary_is_kept_beside_ours() -> None:
    headers: dict[str, Any] = OriginGuard(None).cors_headers({"origin": DEV})
    assert headers["Vary"] == "Origin"
