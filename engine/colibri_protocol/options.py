"""What one request may ask of the engine, checked field by field.

The JSON object of a SUBMITX frame. An instance is always valid: construction and `from_json` raise
`BadOption` naming the field. None means "not given": the engine uses the model's own default.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, cast

from colibri_protocol.errors import BadOption
from colibri_protocol.json_text import as_object, dump_object, load_object
from colibri_protocol.limits import MAX_ALTERNATIVES, MAX_LOGIT_BIAS, MAX_STOP_IDS

MAX_TOKEN_ID: Final = 2**31 - 1
MAX_SEED: Final = 2**64 - 1
MAX_DRAFT: Final = 64

_INT_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "max_tokens": (1, 2**31 - 1),
    "top_k": (0, MAX_TOKEN_ID),
    "seed": (0, MAX_SEED),
    "logprobs": (0, MAX_ALTERNATIVES),
    "draft": (0, MAX_DRAFT),
}
# lower bound, whether it is itself allowed, upper bound
_FLOAT_RANGES: Final[Mapping[str, tuple[float, bool, float]]] = {
    "temperature": (0.0, True, 2.0),
    "top_p": (0.0, False, 1.0),
    "min_p": (0.0, True, 1.0),
    "repetition_penalty": (0.0, False, 10.0),
    "frequency_penalty": (-2.0, True, 2.0),
    "presence_penalty": (-2.0, True, 2.0),
}
_MAX_BIAS: Final = 100.0


@dataclass(frozen=True, slots=True)
class Grammar:
    """A constraint on the reply: its kind ("json_schema", "regex", "lark", …) and its text."""

    kind: str
    text: str

    def __post_init__(self) -> None:
        """Check both fields."""
        _check_text("grammar.kind", self.kind)
        _check_text("grammar.text", self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """Options of one request; see `docs/protocol.md` for each field.

    `temperature` 0 is greedy. `top_k` 0 and `min_p` 0 are off. `stop_ids` end the reply in addition
    to the model's own end tokens, which `ignore_eos` switches off. `logprobs` is the number of
    alternatives wanted (0: only the chosen token's), None: none at all. `draft` bounds how many
    tokens may be guessed per step; 0: none, None: the engine's choice.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict[int, float])
    seed: int | None = None
    stop_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    grammar: Grammar | None = None
    draft: int | None = None

    def __post_init__(self) -> None:
        """Check every field; whole numbers given for float fields become floats."""
        for name, (low, high) in _INT_RANGES.items():
            value = getattr(self, name)
            if value is not None:
                _checked_int(name, value, low, high)
        for name in _FLOAT_RANGES:
            value = getattr(self, name)
            if value is not None or name.endswith(("frequency_penalty", "presence_penalty")):
                object.__setattr__(self, name, _checked_float(name, value))
        _check_type("ignore_eos", self.ignore_eos, bool, "true or false")
        if self.grammar is not None:
            _check_type("grammar", self.grammar, Grammar, "a grammar")
        object.__setattr__(self, "logit_bias", _checked_bias(self.logit_bias))
        object.__setattr__(self, "stop_ids", _checked_stop_ids(self.stop_ids))

    def to_json(self) -> bytes:
        """Return the compact JSON object; fields at their default are left out."""
        body: dict[str, object] = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            if entry.name == "logit_bias":
                value = {str(token): bias for token, bias in value.items()} or None
            elif entry.name == "stop_ids":
                value = list(value) or None
            elif isinstance(value, Grammar):
                value = {"kind": value.kind, "text": value.text}
            elif value == entry.default:
                value = None
            if value is not None:
                body[entry.name] = value
        return dump_object(body)

    @classmethod
    def from_json(cls, text: bytes) -> RequestOptions:
        """Parse and check a JSON object.

        Raises:
            BadOption: Naming the field; "options" when the text is no JSON object.
        """
        try:
            body = load_object(text)
        except ValueError as exc:
            raise BadOption("options", str(exc)) from exc
        known = {entry.name for entry in fields(cls)}
        for name in body:
            if name not in known:
                raise BadOption(name, "unknown option")
        values: dict[str, object] = {k: v for k, v in body.items() if v is not None}
        if "grammar" in values:
            values["grammar"] = _grammar_from(values["grammar"])
        if "logit_bias" in values:
            values["logit_bias"] = _bias_from(values["logit_bias"])
        return cls(**values)  # type: ignore[arg-type]  # __post_init__ checks every type


def _kind(value: object) -> str:
    """Name the JSON type of a value, for messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    names: dict[type, str] = {
        int: "a number",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), type(value).__name__)


def _check_type(name: str, value: object, expected: type, words: str) -> None:
    if not isinstance(value, expected):
        raise BadOption(name, f"must be {words}, not {_kind(value)}")


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise BadOption(name, f"must be a string, not {_kind(value)}")
    if not value:
        raise BadOption(name, "must not be empty")
    try:
        value.encode()
    except UnicodeEncodeError as exc:
        raise BadOption(name, "must be Unicode text without lone surrogates") from exc


def _checked_int(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadOption(name, f"must be a whole number, not {_shown(value)}")
    if not low <= value <= high:
        raise BadOption(name, f"must be in {low}..{high}, not {_shown(value)}")
    return value


def _checked_float(name: str, value: object) -> float:
    low, closed, high = _FLOAT_RANGES[name]
    number = _finite(name, value)
    if not (low <= number <= high) or (number == low and not closed):
        bounds = f"in {low:g}..{high:g}" if closed else f"above {low:g} and at most {high:g}"
        raise BadOption(name, f"must be {bounds}, not {number:g}")
    return number


def _finite(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadOption(name, f"must be a number, not {_shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise BadOption(name, "must be a finite number")
    return number


def _shown(value: object) -> str:
    """Show a number as written, anything else by its type: values may be long or secret."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        text = repr(value) if abs(value) < 1e300 else "a huge number"
        return text if len(text) <= 40 else "a huge number"
    return _kind(value)


def _checked_bias(bias: object) -> dict[int, float]:
    if not isinstance(bias, Mapping):
        raise BadOption("logit_bias", f"must be an object, not {_kind(bias)}")
    entries = cast("Mapping[object, object]", bias)
    if len(entries) > MAX_LOGIT_BIAS:
        raise BadOption("logit_bias", f"at most {MAX_LOGIT_BIAS} entries, not {len(entries)}")
    checked: dict[int, float] = {}
    for token, value in entries.items():
        token_id = _checked_int("logit_bias", token, 0, MAX_TOKEN_ID)
        number = _finite("logit_bias", value)
        if abs(number) > _MAX_BIAS:
            raise BadOption("logit_bias", f"must be in -100..100, not {number:g}")
        checked[token_id] = number
    return checked


def _checked_stop_ids(stop_ids: object) -> tuple[int, ...]:
    if not isinstance(stop_ids, list | tuple):
        raise BadOption("stop_ids", f"must be a list, not {_kind(stop_ids)}")
    tokens = cast("list[object] | tuple[object, ...]", stop_ids)
    if len(tokens) > MAX_STOP_IDS:
        raise BadOption("stop_ids", f"at most {MAX_STOP_IDS} ids, not {len(tokens)}")
    return tuple(_checked_int("stop_ids", token, 0, MAX_TOKEN_ID) for token in tokens)


def _grammar_from(value: object) -> Grammar:
    body = as_object(value)
    if body is None:
        raise BadOption("grammar", f"must be an object, not {_kind(value)}")
    for name in body:
        if name not in {"kind", "text"}:
            raise BadOption(f"grammar.{name}", "unknown option")
    return Grammar(cast("str", body.get("kind", "")), cast("str", body.get("text", "")))


def _bias_from(value: object) -> dict[int, object]:
    body = as_object(value)
    if body is None:
        raise BadOption("logit_bias", f"must be an object, not {_kind(value)}")
    bias: dict[int, object] = {}
    for token, number in body.items():
        if not (token.isascii() and token.isdigit() and len(token) <= 10):
            raise BadOption("logit_bias", "keys must be token ids in decimal")
        if int(token) in bias:
            raise BadOption("logit_bias", f"token {int(token)} is named twice")
        bias[int(token)] = number
    return bias
