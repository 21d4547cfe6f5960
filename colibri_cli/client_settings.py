"""What clients are told to use a server of ours: one text for each, and where it goes.

`coli client-config` prints them, `coli serve` those of Claude Code; a test holds `docs/clients.md`
to the same words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_CLAUDE: Final = """\
export ANTHROPIC_BASE_URL=@URL@
export ANTHROPIC_AUTH_TOKEN=@KEY@
export ANTHROPIC_MODEL=@MODEL@
export ANTHROPIC_DEFAULT_HAIKU_MODEL=@MODEL@
export ANTHROPIC_SMALL_FAST_MODEL=@MODEL@
"""
_CODEX: Final = """\
model = "@MODEL@"
model_provider = "colibri"

[model_providers.colibri]
name = "colibri"
base_url = "@URL@/v1"
wire_api = "responses"
"""
_OPENCODE: Final = """\
{
  "$schema": "https://opencode.ai/config.json",
  "model": "colibri/@MODEL@",
  "small_model": "colibri/@MODEL@",
  "provider": {
    "colibri": {
      "npm": "@ai-sdk/openai-compatible",
      "name": "colibri",
      "options": { "baseURL": "@URL@/v1", "apiKey": "@KEY@" },
      "models": { "@MODEL@": { "name": "@MODEL@", "limit": { "context": @CONTEXT@, "output": @OUTPUT@ } } }
    }
  }
}
"""  # noqa: E501 - as it is written in the file
_AIDER: Final = """\
export OPENAI_API_BASE=@URL@/v1
export OPENAI_API_KEY=@KEY@
aider --model openai/@MODEL@
"""
_CONTINUE: Final = """\
name: colibri
version: 0.0.1
schema: v1
models:
  - name: @MODEL@
    provider: openai
    model: @MODEL@
    apiBase: @URL@/v1
    apiKey: @KEY@
    capabilities: [tool_use]
"""
_CLINE: Final = """\
cline auth openai --apikey @KEY@ --modelid @MODEL@ --baseurl @URL@/v1
"""
_LLM: Final = """\
- model_id: colibri
  model_name: @MODEL@
  api_base: @URL@/v1
  api_key_name: colibri
  supports_schema: true
  supports_tools: true
"""
_LITELLM: Final = """\
import litellm

question = [{"role": "user", "content": "Hello"}]
base = "@URL@"
litellm.completion("openai/@MODEL@", question, api_base=f"{base}/v1", api_key="@KEY@")
litellm.completion("anthropic/@MODEL@", question, api_base=base, api_key="@KEY@", max_tokens=200)
"""
_OPENWEBUI: Final = """\
OPENAI_API_BASE_URL=@URL@/v1 OPENAI_API_KEY=@KEY@ ENABLE_OLLAMA_API=False \\
    open-webui serve --port 8080
"""
_OPENAI: Final = """\
from openai import OpenAI

client = OpenAI(base_url="@URL@/v1", api_key="@KEY@")
answer = client.chat.completions.create(
    model="@MODEL@", messages=[{"role": "user", "content": "Hello"}]
)
print(answer.choices[0].message.content)
"""
_ANTHROPIC: Final = """\
from anthropic import Anthropic

client = Anthropic(base_url="@URL@", auth_token="@KEY@")
answer = client.messages.create(
    model="@MODEL@", max_tokens=200, messages=[{"role": "user", "content": "Hello"}]
)
print(answer.content[0].text)
"""
_CURL: Final = """\
curl @URL@/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"model": "@MODEL@", "messages": [{"role": "user", "content": "Hello"}]}'
"""
_NO_CONTEXT: Final = 4096  # where the server tells none: what an engine has unless asked
_NO_OUTPUT: Final = 1024


@dataclass(frozen=True, slots=True)
class Recipe:
    """What one client is told.

    Args:
        text: With marks for what depends on the server.
        place: What to do with it.
        with_key: Added where the server has keys, if a key has no place in the text.
    """

    text: str
    place: str
    with_key: str = ""


RECIPES: Final = {
    "claude": Recipe(_CLAUDE, "for the shell, then: claude"),
    "codex": Recipe(_CODEX, "for ~/.codex/config.toml", 'env_key = "COLI_API_KEY"\n'),
    "opencode": Recipe(_OPENCODE, "for ~/.config/opencode/opencode.json"),
    "aider": Recipe(_AIDER, "for the shell"),
    "continue": Recipe(_CONTINUE, "for ~/.continue/config.yaml"),
    "cline": Recipe(_CLINE, "once, for the shell"),
    "llm": Recipe(
        _LLM,
        "for extra-openai-models.yaml in the folder of `llm logs path`;"
        " then: llm keys set colibri --value @KEY@",
    ),
    "litellm": Recipe(_LITELLM, "for a Python program"),
    "openwebui": Recipe(_OPENWEBUI, "for the shell"),
    "openai": Recipe(_OPENAI, "for a Python program; pip install openai"),
    "anthropic": Recipe(_ANTHROPIC, "for a Python program; pip install anthropic"),
    "curl": Recipe(_CURL, "for the shell"),
}


@dataclass(frozen=True, slots=True)
class Target:
    """The server a client is pointed at.

    Args:
        url: Its address, without a path.
        model: Served name.
        has_keys: It wants one of its keys, else any text will do.
        context: Tokens of prompt and answer; None if unknown.
        output: Most tokens of an answer; None if it sets no limit.
    """

    url: str
    model: str
    has_keys: bool = False
    context: int | None = None
    output: int | None = None


def settings_of(client: str, target: Target) -> tuple[str, str]:
    """Return what a client of `RECIPES` is told, and where that goes. No key is written into it."""
    recipe = RECIPES[client]
    values = {
        "@URL@": target.url.rstrip("/"),
        "@MODEL@": target.model,
        "@KEY@": "YOUR_KEY" if target.has_keys else "any",
        "@CONTEXT@": str(target.context or _NO_CONTEXT),
        "@OUTPUT@": str(target.output or min(_NO_OUTPUT, target.context or _NO_OUTPUT)),
    }
    texts = [recipe.text + (recipe.with_key if target.has_keys else ""), recipe.place]
    if client == "curl" and target.has_keys:
        texts[0] = texts[0].replace(" \\\n", ' -H "Authorization: Bearer YOUR_KEY" \\\n')
    for mark, value in values.items():
        texts = [text.replace(mark, value) for text in texts]
    return texts[0], texts[1]
