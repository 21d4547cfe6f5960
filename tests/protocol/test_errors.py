"""The error tree: codes are stable, details carry what the message says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from colibri_protocol import errors
from colibri_protocol.errors import ColibriError, ContextLengthExceeded

EXAMPLES: dict[str, ColibriError] = {
    "colibri_error": ColibriError("m"),
    "protocol_error": errors.ProtocolError("m"),
    "local_protocol_error": errors.LocalProtocolError("m"),
    "message_too_large": errors.MessageTooLarge("m"),
    "remote_protocol_error": errors.RemoteProtocolError("m"),
    "engine_error": errors.EngineError("m"),
    "unsupported_model": errors.UnsupportedModel("m"),
    "unsupported_quant_format": errors.UnsupportedQuantFormat("m"),
    "checkpoint_error": errors.CheckpointError("m", path=Path("/m"), tensor="t"),
    "context_length_exceeded": ContextLengthExceeded(5, 4),
    "out_of_memory": errors.OutOfKvBlocks(),
    "expert_read_failed": errors.ExpertReadFailed("m"),
    "kernel_unavailable": errors.KernelUnavailable("amx", ["avx2", "scalar"]),
    "bad_option": errors.BadOption("top_p", "must be below 1"),
    "settings_error": errors.SettingsError("m", setting="ctx", source="--ctx"),
}


def tree(root: type[ColibriError] = ColibriError) -> list[type[ColibriError]]:
    found = [root]
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            found += tree(child)
    return found


def test_each_class_has_its_own_stable_code() -> None:
    assert {code: type(error) for code, error in EXAMPLES.items()} == {
        cls.default_code: cls for cls in tree()
    }
    assert all(re.fullmatch(r"[a-z_]+", code) for code in EXAMPLES)


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_error_is_one_line_and_its_details_are_plain(code: str) -> None:
    error = EXAMPLES[code]
    assert error.code == code
    assert str(error) == error.message
    assert "\n" not in error.message
    assert all(isinstance(value, str | int | None) for value in error.details().values())


def test_an_error_may_carry_a_code_and_a_hint_of_its_own() -> None:
    error = errors.EngineError("slot 3 is busy", code="slot_busy", hint="wait")
    assert (error.code, error.hint) == ("slot_busy", "wait")


def test_details_hold_what_a_program_needs() -> None:
    assert EXAMPLES["checkpoint_error"].details() == {"path": "/m", "tensor": "t"}
    assert EXAMPLES["kernel_unavailable"].details() == {"isa": "amx", "available": "avx2,scalar"}
    assert "avx2, scalar" in EXAMPLES["kernel_unavailable"].message
    assert EXAMPLES["bad_option"].details() == {"name": "top_p", "why": "must be below 1"}


@pytest.mark.parametrize(
    ("detail", "used", "limit"),
    [
        ("8321 4094", 8321, 4094),
        ("8321", 8321, None),
        ("", None, None),
        ("prompt_tokens=8321 requested=100 capacity=4094", 8321, 4094),
        ("requested=8421 capacity=4094", 8421, 4094),
        ("capacity=4094", None, 4094),
        ("prompt too long", None, None),
        ("prompt_tokens=x capacity=-1", None, None),
    ],
)
def test_both_forms_of_an_exceeded_context_are_read(
    detail: str, used: int | None, limit: int | None
) -> None:
    error = ContextLengthExceeded.from_detail(detail)
    assert (error.prompt_tokens, error.limit) == (used, limit)
    assert "None" not in error.message


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError(2, "No such file or directory", "/a"), "/a: No such file or directory"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (OSError("odd"), "odd"),
        (ValueError("7 is no digit"), "7 is no digit"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_a_reason_is_told_in_words(error: Exception, words: str) -> None:
    assert errors.reason_of(error) == words
