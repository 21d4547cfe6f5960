"""How large each part of the protocol may be: both decoders refuse more, both encoders too."""

from __future__ import annotations

from typing import Final


class TooLarge(ValueError):
    """Something is larger than its limit here."""


MAX_ID: Final = 2**63 - 1
MAX_SLOT: Final = 15  # slots 0..15; extended requests also know -1, "the engine chooses"
ANY_SLOT: Final = -1

MAX_LINE_BYTES: Final = 64 * 1024  # every line but the two below
MAX_MAP_LINE_BYTES: Final = 8 * 1024 * 1024  # EMAP and HITS: two hex digits per expert
MAX_DATA_BYTES: Final = 64 * 1024  # one DATA payload
MAX_PROMPT_BYTES: Final = 16 * 1024 * 1024
MAX_OPTIONS_BYTES: Final = 1024 * 1024
MAX_GRAMMAR_BYTES: Final = 1024 * 1024
MAX_TOKEN_JSON_BYTES: Final = 64 * 1024  # 21 tokens with their bytes in hex
MAX_BODY_BYTES: Final = 64 * 1024 * 1024  # MODEL and STATS
MAX_FAILURE_JSON_BYTES: Final = 64 * 1024  # FAILED, before READY

MAX_SEGMENTS: Final = 65_536
MAX_STOP_IDS: Final = 1024
MAX_LOGIT_BIAS: Final = 16_384
MAX_ALTERNATIVES: Final = 20
