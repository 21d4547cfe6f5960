"""Markdown documents as one HTML page, for reading elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Sequence


def as_html(documents: Sequence[str]) -> str:
    """Return Markdown documents as one HTML page; markup in them is text."""
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    parts = [f"<article>\n{reader.render(document)}</article>" for document in documents]
    head = '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>coli logs</title>'
    return "\n".join([head, *parts, "</html>"]) + "\n"
