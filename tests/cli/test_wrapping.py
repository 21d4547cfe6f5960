"""Where lines for people are broken."""

from __future__ import annotations

from colibri_cli.wrapping import hung

FIGURES = "37 → 7 tokens · 101.50 tok/s · hit 44 % · RSS 0.23 GB"


def test_figures_stay_whole_where_each_of_them_fits() -> None:
    assert hung(FIGURES, 40) == ["37 → 7 tokens · 101.50 tok/s ·", "hit 44 % · RSS 0.23 GB"]
    assert hung(FIGURES, 16) == [
        "37 → 7 tokens ·", "101.50 tok/s ·", "hit 44 % ·", "RSS 0.23 GB"
    ]  # fmt: skip
    assert hung(FIGURES, 100) == [FIGURES]


def test_figures_longer_than_the_line_are_broken_between_words() -> None:
    assert hung("a long sentence of words · short", 12) == [
        "a long",
        "sentence of",
        "words ·",
        "short",
    ]
