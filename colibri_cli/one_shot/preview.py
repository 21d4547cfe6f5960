"""What `coli run --dry-run` shows: everything that would be sent, and nothing is."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from colibri_cli.chat.conversation import Turn
from colibri_cli.chat_formats.base import Conversation
from colibri_protocol.errors import ColibriError
from colibri_protocol.messages import RequestOptions

if TYPE_CHECKING:
    from pathlib import Path

    from colibri_cli.backends.base import Generation
    from colibri_cli.one_shot.asking import Question


def preview(question: Question) -> dict[str, Any]:
    """Return the document of a question that is not asked.

    Raises:
        ModelNotGiven: no model was named.
        ModelNotFound: the named one is not there.
    """
    from colibri_cli.backends.opening import native_backend
    from colibri_cli.model_store.inspection import inspect_model

    settings, generation = question.settings, question.generation
    backend = native_backend(settings)  # which is not started
    path = backend.model_path
    body: dict[str, Any] = {
        "schema_version": 1,
        "model": {"name": backend.model_id, "path": str(path)},
        "options": _options(generation),
        "stop": list(generation.stop),
        "thinking": settings.switch("think") if settings.is_given("think") else None,
        "messages": None,
        "prompt": question.prompt.text,
        "problem": None,
    }
    if question.is_plain:
        return body
    session = question.session(backend, thinking=body["thinking"])
    session.turns.append(Turn(question.prompt.text, question.prompt.files))
    body["messages"] = [{"role": m.role, "content": m.content} for m in session.messages]
    conversation = Conversation(session.messages, thinking=session.thinking)
    found = inspect_model(path, settings)
    body["prompt"], body["problem"] = _rendered(found.stages, path, conversation)
    return body


def lines_of(body: dict[str, Any]) -> list[str]:
    """Return the document as lines for people."""
    options = ", ".join(f"{name} {value}" for name, value in body["options"].items())
    lines = [f"model    {body['model']['name']}, {body['model']['path']}", f"options  {options}"]
    if body["stop"]:
        lines.append(f"stop     {', '.join(map(repr, body['stop']))}")
    if body["problem"] is not None:
        lines.append(f"prompt   cannot be written down: {body['problem']}")
    else:
        lines += ["prompt", body["prompt"]]
    return lines


def _rendered(
    stages: dict[str, dict[str, Any]], path: Path, conversation: Conversation
) -> tuple[str | None, str | None]:
    """Return the prompt as text, or why there is none."""
    from colibri_cli.chat_formats.registry import directory_info, format_for_model

    texts = stages.get("texts")
    info = dict(texts) if texts is not None else directory_info(path)
    if "config" in stages:
        info["family"] = stages["config"]["model_type"]
    try:
        return format_for_model(info).render(conversation).text, None
    except ColibriError as error:
        return None, error.message


def _options(generation: Generation) -> dict[str, Any]:
    """Return the options that are set, by name."""
    defaults, options = RequestOptions(), generation.options
    found = {
        field.name: getattr(options, field.name)
        for field in fields(options)
        if field.name == "max_tokens"
        or getattr(options, field.name) != getattr(defaults, field.name)
    }
    if (grammar := options.grammar) is not None:
        found["grammar"] = {"kind": grammar.kind, "text": grammar.text}
    return found
