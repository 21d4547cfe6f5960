"""What is taken out of a bug report, and what stays readable."""

from __future__ import annotations

from pathlib import Path

import pytest

from colibri_cli.bug_report.log_lines import MAX_LINES, last_lines
from colibri_cli.bug_report.masking import MASK, Masker, is_secret_name, secrets_of_file
from colibri_cli.logs import ANSWER_LOGGER, PROMPT_LOGGER

SECRET = "Zx9plantedQ7"


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {SECRET}",
        f"authorization: {SECRET}",
        f"{{'Authorization': 'Basic {SECRET}=='}}",
        f"asked with bearer {SECRET}, refused",
        f"Cookie: session={SECRET}; other={SECRET}",
        f"x-api-key: {SECRET}",
        f'"api_key": "{SECRET}"',
        f"COLI_API_KEY={SECRET}",
        f"HF_TOKEN='{SECRET}'",
        f"vllm serve m --api-key {SECRET} --port 1",
        f"vllm serve m --api-key={SECRET}",
        f"GET /v1/models?api_key={SECRET}&n=1",
        f"GET /?token={SECRET} HTTP/1.1",
        f"https://me:{SECRET}@host:8000/v1",
        f"https://{SECRET}@host/",
        f"https://me:p@{SECRET}@host/",
        f"password = {SECRET}",
        f"token sk-{SECRET}",
        f"using hf_{SECRET}",
        f"clone ghp_{SECRET}0000 now",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n{SECRET}",
    ],
)
def test_what_looks_like_a_secret_is_taken_out(text: str) -> None:
    masked = Masker(()).text(text)
    assert SECRET not in masked
    assert MASK in masked


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 256, 12.5 tokens/s",
        "experts_per_token: 27",
        "http://127.0.0.1:8000/v1/models",
        "api_key_file: /srv/keys",
        "the key of the cache is shared",
        "mail someone@example.org",
        "GET /v1/chat/completions 200",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Masker(()).text(text) == text


def test_a_known_secret_is_taken_out_in_every_form() -> None:
    masker = Masker(['a"b/c d\\é'])
    for text in ('a"b/c d\\é', 'a\\"b/c d\\\\é', 'a\\"b/c d\\\\\\u00e9', "a%22b%2Fc%20d%5C%C3%A9"):
        assert masker.text(f"<{text}>") == f"<{MASK}>", text


def test_the_longer_of_two_secrets_leaves_no_rest() -> None:
    assert Masker(["secret", "secretlonger"]).text("secretlonger") == MASK


def test_the_home_directory_is_a_tilde_and_its_neighbour_is_not() -> None:
    masker = Masker((), Path("/srv/ann"))
    assert masker.text("/srv/ann/m /srv/ann /srv/anna/m") == "~/m ~ /srv/anna/m"
    assert Masker((), Path("/")).text("/srv/m") == "/srv/m"


def test_documents_are_masked_by_name_and_by_value() -> None:
    masker = Masker([SECRET], Path("/srv/ann"))
    body = {"token": "x", "n": [1, f"a {SECRET}", {SECRET: None}], "/srv/ann": True, "api_key": 3}
    assert masker.document(body) == {
        "token": MASK, "n": [1, f"a {MASK}", {MASK: None}], "~": True, "api_key": 3
    }  # fmt: skip


def test_names_that_tell() -> None:
    for name in ("api_key", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "authorization"):
        assert is_secret_name(name), name
    for name in ("api_key_file", "max_tokens", "keyboard", "SSH_AUTH_SOCK", "experts_per_token"):
        assert not is_secret_name(name), name


def test_every_key_of_a_key_file_is_known(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# old: oldkey123\nann:annkey123,bob:bobkey123\nplain456\n", encoding="utf-8")
    found = set(secrets_of_file(file))
    assert {"oldkey123", "annkey123", "bobkey123", "plain456"} <= found
    assert not set(secrets_of_file(tmp_path / "missing"))


def line(name: str, text: str, second: int = 0) -> str:
    return f"2026-12-01 10:00:{second:02d} INFO    {name}: {text}\n"


def test_what_people_said_is_left_out_over_all_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text(
        line("colibri_cli.engine", "loaded")
        + line(PROMPT_LOGGER, "dear diary\nsecond line")
        + line(ANSWER_LOGGER, "how nice")
        + line("colibri_cli.gateway.access", "GET / 200"),
        encoding="utf-8",
    )
    found = " ".join(last_lines(file, has_content=False))
    assert "loaded" in found
    assert "GET / 200" in found
    for said in ("diary", "second line", "nice"):
        assert said not in found
        assert said in " ".join(last_lines(file, has_content=True))


def test_only_the_end_of_a_long_log_is_read_and_no_half_record(tmp_path: Path) -> None:
    file = tmp_path / "log"
    with file.open("w", encoding="utf-8") as log:
        log.write(line(PROMPT_LOGGER, "first\n" + "diary\n" * 200_000))
        for n in range(MAX_LINES + 50):
            log.write(line("colibri_cli.engine", f"number {n}"))
    found = last_lines(file, has_content=False)
    assert len(found) == MAX_LINES
    assert found[-1].endswith(f"number {MAX_LINES + 49}")
    file.write_text(line(PROMPT_LOGGER, "diary\n" * 200_000), encoding="utf-8")
    assert last_lines(file, has_content=False) == []


def test_what_is_no_file_is_an_error(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "missing", Path("/dev/zero")):
        with pytest.raises(OSError, match=r"no file|No such file"):
            last_lines(place, has_content=False)
