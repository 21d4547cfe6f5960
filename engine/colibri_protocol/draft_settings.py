"""Rows of the settings table about drafts: tokens guessed ahead; see `settings_table`."""

from __future__ import annotations

from typing import Final

from colibri_protocol.options import MAX_DRAFT
from colibri_protocol.setting import Kind, Scope, Setting

DRAFT_ROWS: Final = (
    Setting(
        name="draft",
        kind=Kind.CHOICE,
        scope=Scope.BOTH,
        env=("COLI_DRAFT",),
        default="auto",
        choices=("off", "auto", "grammar", "ngram", "mtp"),
        help="Guess tokens ahead and verify several per step: from every source where it pays, or"
        " from one of them. Never changes a reply.",
    ),
    Setting(
        name="draft_tokens",
        kind=Kind.INTEGER,
        scope=Scope.BOTH,
        env=("COLI_DRAFT_TOKENS", "DRAFT"),
        default=-1,
        default_text="-1, as many as pay",
        low=-1,
        high=MAX_DRAFT,
        help="Tokens guessed per step, whether it pays or not; 0 is none.",
    ),
    Setting(
        name="mtp",
        kind=Kind.SWITCH,
        scope=Scope.BOTH,
        env=("COLI_MTP", "MTP"),
        default=True,
        help="Draft with the layer some checkpoints have for it (MTP); 0 saves its memory.",
    ),
    Setting(
        name="grammar_draft",
        kind=Kind.INTEGER,
        scope=Scope.BOTH,
        env=("COLI_GRAMMAR_DRAFT", "GRAMMAR_DRAFT"),
        default=24,
        low=0,
        high=48,
        help="Most tokens guessed per step where a grammar leaves no choice.",
    ),
    Setting(
        name="draft_grammar",
        kind=Kind.PATH,
        scope=Scope.BOTH,
        env=("COLI_DRAFT_GRAMMAR", "GRAMMAR", "SCHEMA"),
        default_text="none",
        help="File with a JSON schema or GBNF that replies are expected to follow: it helps to"
        " guess and constrains nothing.",
    ),
    Setting(
        name="mtp_guard_pct",
        kind=Kind.INTEGER,
        scope=Scope.BOTH,
        env=("COLI_MTP_GUARD_PCT",),
        default=0,
        default_text="0, measured cost decides alone",
        low=0,
        high=100,
        help="Let the draft layer rest for 256 steps when fewer percent of its guesses come true.",
    ),
    Setting(
        name="mtp_guard_window",
        kind=Kind.INTEGER,
        scope=Scope.BOTH,
        env=("COLI_MTP_GUARD_WINDOW",),
        default=24,
        low=1,
        high=10_000,
        help="Drafts of the layer over which that is looked at.",
    ),
)
