"""Which chat format and which tool syntax a model gets.

An engine that announced MODEL names its template; for one that did not, the same facts are read
from the model directory. Weight files are never opened here. A model without a template gets the
built-in renderer of its family, if there is one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.chat_formats import (
    deepseek_v4,
    glm,
    inkling,
    kimi_k3,
    olmoe,
    qwen3_moe,
)
from colibri_cli.chat_formats.jinja import JinjaChatFormat
from colibri_cli.chat_formats.sandbox import MAX_TEMPLATE_CHARACTERS
from colibri_cli.chat_formats.tool_formats import (
    deepseek_v3,
    deepseek_v31,
    dsml,
    harmony,
    hermes,
    kimi_k2,
    llama,
    mistral,
    qwen_xml,
)
from colibri_cli.chat_formats.tool_formats import glm as glm_calls
from colibri_cli.chat_formats.tool_formats import inkling as inkling_calls
from colibri_cli.chat_formats.tool_support import ToolSupport
from colibri_cli.errors import ChatFormatError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from colibri_cli.chat_formats.base import ChatFormat
    from colibri_cli.chat_formats.tool_formats.base import ToolSyntax

_TOKEN_NAMES: Final = ("bos_token", "eos_token", "pad_token", "unk_token")
_MAX_JSON_BYTES: Final = 64 * 1024 * 1024
_DEEPSEEK: Final = "deepseek_v4"
_GLM: Final = "glm_moe_dsa"
_INKLING: Final = "inkling"
_GLM_MARK: Final = "[gMASK]"

# By `model_type`, as in the file names.
_BUILT_IN: Final[Mapping[str, Callable[[], ChatFormat]]] = {
    _DEEPSEEK: deepseek_v4.DeepseekV4ChatFormat,
    _GLM: glm.GlmChatFormat,
    _INKLING: inkling.InklingChatFormat,
    "kimi_k3": kimi_k3.KimiK3ChatFormat,
    "olmoe": olmoe.OlmoeChatFormat,
    "qwen3_moe": qwen3_moe.Qwen3MoeChatFormat,
}
_BUILT_IN_SYNTAXES: Final[Mapping[str, ToolSyntax]] = {
    _DEEPSEEK: dsml.SYNTAX,
    _GLM: glm_calls.SYNTAX,
}
# The first whose marks a template holds; hermes last, because its mark is also GLM's.
_SYNTAXES: Final[tuple[ToolSyntax, ...]] = (
    glm_calls.SYNTAX,
    harmony.SYNTAX,
    inkling_calls.SYNTAX,
    dsml.SYNTAX,
    deepseek_v31.SYNTAX,
    deepseek_v3.SYNTAX,
    kimi_k2.SYNTAX,
    mistral.SYNTAX,
    llama.SYNTAX,
    qwen_xml.SYNTAX,
    hermes.SYNTAX,
)


def format_for_model(info: Mapping[str, object]) -> ChatFormat:
    """Return the format for an engine's MODEL data.

    Raises:
        ChatFormatError: the model has no chat template, and its family no built-in one.
    """
    template = _template(info)
    if template is None:
        built_in = _BUILT_IN.get(_family(info))
        if built_in is None:
            raise no_chat_template()
        return built_in()
    tokens = info.get("special_tokens")
    special = [str(text) for text in tokens] if isinstance(tokens, Mapping) else []
    variables = {name: str(info[name]) for name in _TOKEN_NAMES if isinstance(info.get(name), str)}
    return JinjaChatFormat(template, [*special, *variables.values()], variables)


def format_for_directory(model_path: Path) -> ChatFormat:
    """Return the format for a model directory, from its tokenizer files.

    Raises:
        ChatFormatError: it has no chat template, and its family no built-in one.
    """
    return format_for_model(directory_info(model_path))


def tool_support_for(info: Mapping[str, object]) -> ToolSupport:
    """Return how tools work with a model, from MODEL data or `directory_info`.

    A template that writes calls says so by its marks. Any other model gets the hermes form.
    """
    template = _template(info)
    if template is None:
        family = _family(info)
        native = _BUILT_IN_SYNTAXES.get(family)
        if native is not None:
            return ToolSupport(native, writer=None, needs_grammar=False)
        return ToolSupport(hermes.SYNTAX, hermes.offer, needs_grammar=family != _INKLING)
    if "tools" in template:
        for syntax in _SYNTAXES:
            if syntax.is_used_by(template):
                return ToolSupport(syntax, writer=None, needs_grammar=False)
    for module in (deepseek_v31, deepseek_v3):  # their templates write calls, but no tools
        if module.SYNTAX.is_used_by(template):
            return ToolSupport(module.SYNTAX, module.declare, needs_grammar=False)
    return ToolSupport(hermes.SYNTAX, hermes.offer, needs_grammar=True)


def tool_syntax_for(info: Mapping[str, object]) -> ToolSyntax:
    """Return how a model writes calls."""
    return tool_support_for(info).syntax


def stop_markers_for(info: Mapping[str, object]) -> tuple[str, ...]:
    """Return the role markers that end a turn and that an engine may not stop at by itself."""
    template = _template(info)
    is_glm = _family(info) == _GLM if template is None else _GLM_MARK in template
    return glm.STOP_MARKERS if is_glm else ()


def directory_info(model_path: Path) -> dict[str, object]:
    """Return the facts of MODEL that a model directory tells, for engines that announce none."""
    config = _read_json(model_path / "tokenizer_config.json")
    template = _read_text(model_path / "chat_template.jinja")
    if template is None:
        template = _named_template(config.get("chat_template"))
    added = config.get("added_tokens_decoder")
    entries = added.items() if isinstance(added, Mapping) else ()
    special = {
        text: int(key)
        for key, entry in entries
        if (text := _token_text(entry)) is not None and str(key).isdecimal()
    }
    tokens = {name: _token_text(config.get(name)) for name in _TOKEN_NAMES}
    return {
        "family": _directory_family(model_path),
        "chat_template": template,
        "special_tokens": special,
        **{name: text for name, text in tokens.items() if text is not None},
    }


def _template(info: Mapping[str, object]) -> str | None:
    template = info.get("chat_template")
    return template if isinstance(template, str) and template.strip() else None


def _family(info: Mapping[str, object]) -> str:
    family = str(info.get("family", "")).lower()
    return _INKLING if family.startswith(_INKLING) else family


def _directory_family(model_path: Path) -> str:
    """Return the family as engines without MODEL mean it: by parts of `model_type`, else GLM."""
    model_type = str(_read_json(model_path / "config.json").get("model_type", "")).lower()
    if "deepseek" in model_type and "v4" in model_type:
        return _DEEPSEEK
    parts = {"inkling": _INKLING, "kimi": "kimi_k3", "olmoe": "olmoe", "qwen3": "qwen3_moe"}
    return next((family for part, family in parts.items() if part in model_type), _GLM)


def no_chat_template() -> ChatFormatError:
    """Return the error for a model that cannot hold a conversation."""
    return ChatFormatError(
        "this model has no chat template, so it cannot hold a conversation",
        hint="use an instruction-tuned model, or `coli run --no-template` to continue plain text",
    )


def _named_template(value: object) -> str | None:
    """Return the template of a tokenizer config: one text, or a list of named ones."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        named = {e.get("name"): e.get("template") for e in value if isinstance(e, Mapping)}
        template = named.get("default")
        return template if isinstance(template, str) else None
    return None


def _token_text(value: object) -> str | None:
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _read_text(path: Path) -> str | None:
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(MAX_TEMPLATE_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError):
        return None


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            body = json.loads(file.read(_MAX_JSON_BYTES))
    except (OSError, ValueError):
        return {}
    return body if isinstance(body, Mapping) else {}
