"""API keys: several, named, secret."""

from __future__ import annotations

import hmac
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from colibri_cli.gateway import auth
from colibri_cli.gateway.auth import ApiKeys, load_keys
from colibri_protocol.errors import SettingsError
from tests.gateway.http.running_server import KEY, RunningServer, get, post

SHOWN = {
    "bearer": f"Authorization: Bearer {KEY}",
    "lower case": f"authorization: bearer {KEY}",
    "many spaces": f"Authorization: BEARER   {KEY} ",
    "x-api-key": f"x-api-key: {KEY}",
}
NOT_SHOWN = {
    "wrong": "Authorization: Bearer wrong",
    "longer": f"Authorization: Bearer {KEY}x",
    "shorter": f"Authorization: Bearer {KEY[:-1]}",
    "another scheme": f"Authorization: Basic {KEY}",
    "no scheme": f"Authorization: {KEY}",
    "empty": "Authorization: Bearer",
    "non-ASCII": "x-api-key: schlüssel-é",
    "name in place of key": "x-api-key: mine",
    "other case": f"x-api-key: {KEY.lower()}",
}


@pytest.mark.parametrize("how", SHOWN)
def test_a_right_key_is_known_by_its_name(locked: RunningServer, how: str) -> None:
    answer = locked.ask(post("/v1/chat/completions", b"{}", SHOWN[how]))
    assert (answer.status, answer.json["key"]) == (200, "mine")


def test_keys_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(shown: bytes, right: bytes) -> bool:
        compared.append((shown, right))
        return hmac.compare_digest(shown, right)

    keys = ApiKeys({"short": "k", "long": "k" * 1000})
    monkeypatch.setattr(auth, "hmac", SimpleNamespace(compare_digest=compare))
    assert keys.identify({"x-api-key": "k"}) == "short"
    # with all of them though the first was right, and by digests, which have one length
    assert len(compared) == 2
    assert {len(part) for pair in compared for part in pair} == {32}


@pytest.mark.parametrize("how", NOT_SHOWN)
def test_no_or_a_wrong_key_is_401(locked: RunningServer, how: str) -> None:
    answer = locked.ask(post("/v1/chat/completions", b"{}", NOT_SHOWN[how]))
    assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
    assert answer.error["type"] == "authentication_error"
    assert answer.headers["www-authenticate"] == "Bearer"


def test_either_header_suffices_and_a_repeated_one_does_not(locked: RunningServer) -> None:
    path, wrong = "/v1/models", "Authorization: Bearer placeholder"
    assert locked.ask(get(path, wrong, SHOWN["x-api-key"])).status == 200
    assert locked.ask(get(path, wrong, SHOWN["bearer"])).status == 401
    assert locked.ask(get(path, "x-api-key: k-OTHER-456")).json["key"] == "other"


def test_open_and_partial_routes_answer_everybody(locked: RunningServer) -> None:
    for path in ("/health", "/status"):
        assert locked.ask(get(path)).json["authorized"] is False
        assert locked.ask(get(path, NOT_SHOWN["wrong"])).json["authorized"] is False
        assert locked.ask(get(path, SHOWN["bearer"])).json["authorized"] is True


def test_without_keys_everybody_is_let_in(server: RunningServer) -> None:
    answer = server.ask(post("/v1/chat/completions", b"{}", NOT_SHOWN["wrong"]))
    assert (answer.status, answer.json["key"]) == (200, None)


def test_the_key_is_in_no_log_and_no_answer(
    locked: RunningServer, caplog: pytest.LogCaptureFixture, errors_expected: None
) -> None:
    caplog.set_level(logging.DEBUG)
    broken = post("/echo", b"{}", SHOWN["bearer"]).replace(b"HTTP/1.1", b"HTTP/9.9")
    requests = [
        post("/v1/messages", b"{}", SHOWN["bearer"]),
        post("/v1/messages", b"{}", f"x-api-key: {KEY}x"),
        get("/v1/models", f"X-Wrong\0: {KEY}"),
        get("/v1/models", f"Authorization: Bearer {KEY}", "Host: twice"),
        get(f"/v1/models?key={KEY}"),
        broken,
    ]
    for request in requests:
        with locked.connect() as client:
            client.send(request + b"\r\n")
            client.end_sending()
            assert KEY.encode() not in client.read_to_end()
    assert KEY not in caplog.text
    assert KEY not in repr(locked.script.records)


def test_keys_hide_themselves() -> None:
    assert KEY not in repr(ApiKeys({"mine": KEY}))
    assert KEY not in str(vars(ApiKeys({"mine": KEY})))


# ---- where keys come from -----------------------------------------------------------------------


def known(keys: ApiKeys, key: str) -> str | None:
    return keys.identify({"x-api-key": key})


def test_one_key_from_the_environment() -> None:
    keys = load_keys("secret==")
    assert known(keys, "secret==") == "default"
    assert not load_keys(None)
    assert not load_keys(" \n")


def test_several_named_keys() -> None:
    keys = load_keys("alice:one, bob:two\nthree,carol.x-1:f:o:u:r")
    assert [known(keys, k) for k in ("one", "two", "three", "f:o:u:r")] == [
        "alice",
        "bob",
        "key3",
        "carol.x-1",
    ]
    assert known(keys, "alice:one") is None


def test_keys_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# who: why\nalice:one\r\n\n  bob: two  \n")
    keys = load_keys("zero", file)
    assert keys.names == ("default", "alice", "bob")
    assert known(keys, "two") == "bob"


def test_a_mark_of_the_byte_order_is_no_part_of_a_key(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes(b"\xef\xbb\xbfalice:one\r\n")
    assert known(load_keys(None, file), "one") == "alice"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no named pipes")
def test_a_pipe_nobody_writes_to_holds_no_key(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(SettingsError, match="holds no key"):  # instead of waiting for a writer
        load_keys(None, pipe)


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="has no files of descriptors")
def test_keys_of_a_command_that_takes_its_time() -> None:
    reading, writing = os.pipe()
    with ThreadPoolExecutor(1) as pool:
        keys = pool.submit(load_keys, None, Path(f"/dev/fd/{reading}"))
        time.sleep(0.1)  # so that most often the reader waits first
        os.write(writing, b"one\n")
        os.close(writing)
        assert known(keys.result(timeout=10), "one") == "default"
    os.close(reading)


@pytest.mark.parametrize(
    "text", ["has space", "umläut", "a:same,a:other", "x:bell\x07", "tab\tinside"]
)
def test_a_key_that_cannot_be_one_is_an_error_that_keeps_it_secret(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_keys(text)
    secret = text.rpartition(":")[2]
    assert secret not in caught.value.message


@pytest.mark.parametrize("text", ["webui:", "ci:k1,webui: ", "webui :"])
def test_a_name_without_its_key_is_an_error_and_no_key(text: str) -> None:
    with pytest.raises(SettingsError, match="'webui' is empty"):
        load_keys(text)


def test_one_key_of_two_names_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="'b' has another name too") as caught:
        load_keys("a:placeholder,b:placeholder")
    assert "placeholder" not in caught.value.message
    file = tmp_path / "keys"
    file.write_text("b:placeholder\n")
    with pytest.raises(SettingsError, match="'b' has another name too"):
        load_keys("a:placeholder", file)
    assert load_keys("b:placeholder", file).names == ("b",)


@pytest.mark.parametrize("content", [None, "", "# nothing\n", "x" * 100_000])
def test_a_file_without_keys_is_an_error(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SettingsError) as caught:
        load_keys(None, file)
    assert str(file) in caught.value.message
