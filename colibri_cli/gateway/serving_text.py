"""What `coli serve` says at the start: where it listens, and what clients need to be told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colibri_cli import __version__
from colibri_cli.client_settings import Target, settings_of

if TYPE_CHECKING:
    from colibri_cli.backends.base import ModelCard
    from colibri_cli.gateway.serving import ServerRun


def bound_text(run: ServerRun) -> str:
    """Return what is said once the addresses are taken and before the model is loaded."""
    addresses = ", ".join(str(address) for address in run.server.addresses)
    model = run.services.settings.model_id
    return f"coli {__version__} listening on {addresses}; loading {model}\n"


def ready_text(run: ServerRun, card: ModelCard) -> str:
    """Return what is said once the model is loaded."""
    settings = run.services.settings
    names = [settings.model_id, *settings.aliases]
    key = "one of the configured API keys" if settings.has_keys else "any API key"
    context = card.context_length
    slots = f"{settings.kv_slots} slot{'s' if settings.kv_slots != 1 else ''}"
    limit = settings.max_tokens
    facts = [
        slots if card.has_slots else f"{settings.kv_slots} requests at once",
        f"queue {settings.max_queue}",
        f"context {context}" if context is not None else "context unknown",
        *([f"at most {limit} tokens per answer"] if limit is not None else []),
    ]
    page = f"{run.url}/" if settings.dashboard is not None else "not built (`make web`)"
    lines = [
        f"ready: {_source(card)} as {' = '.join(names)} ({', '.join(facts)})",
        f"  URL        {run.url}",
        f"  dashboard  {page}",
        "clients need three settings:",
        f"  OpenAI API     base URL {run.url}/v1  model {settings.model_id}  key: {key}",
        f"  Anthropic API  base URL {run.url}  model {settings.model_id}  key: {key}",
        "Claude Code:",
        *(f"  {line}" for line in claude_code_lines(run)),
        "other clients: coli client-config NAME",
        "",
    ]
    return "\n".join(lines)


def _source(card: ModelCard) -> str:
    """Return what answers: a family of models, or a server."""
    server = card.details.get("server")
    return card.family if server is None else f"{card.id} of {server} at {card.details['url']}"


def claude_code_lines(run: ServerRun) -> list[str]:
    """Return the environment that points Claude Code here."""
    settings = run.services.settings
    target = Target(run.url, settings.model_id, has_keys=settings.has_keys)
    return settings_of("claude", target)[0].splitlines()
