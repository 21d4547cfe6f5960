"""Which template a model gets: from MODEL, or from the files beside the weights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from colibri_cli.chat_formats.base import ChatMessage, Conversation
from colibri_cli.chat_formats.glm import GlmChatFormat
from colibri_cli.chat_formats.inkling import InklingChatFormat
from colibri_cli.chat_formats.registry import (
    directory_info,
    format_for_directory,
    format_for_model,
    stop_markers_for,
    tool_support_for,
    tool_syntax_for,
)
from colibri_cli.chat_formats.tool_formats import hermes
from colibri_cli.errors import ChatFormatError

if TYPE_CHECKING:
    from pathlib import Path

HI = Conversation((ChatMessage("user", "hi<x>"),))


def test_a_model_message_brings_template_and_tokens() -> None:
    info = {
        "chat_template": "{{ bos_token }}{{ messages[0].content }}<x>",
        "special_tokens": {"<x>": 5},
        "bos_token": "<b>",
    }
    prompt = format_for_model(info).render(HI)
    assert [segment.text for segment in prompt.segments] == ["<b>", "hi<x>", "<x>"]


@pytest.mark.parametrize("template", [None, "", " \n", 7])
def test_a_model_without_template_is_refused(template: object) -> None:
    with pytest.raises(ChatFormatError, match="no chat template"):
        format_for_model({"chat_template": template})


@pytest.mark.parametrize(
    "template",
    ["{{ messages[0].content }}!", [{"name": "default", "template": "{{ messages[0].content }}!"}]],
)
def test_a_directory_brings_it_in_its_tokenizer_files(tmp_path: Path, template: object) -> None:
    config = {"chat_template": template, "bos_token": {"content": "<b>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert format_for_directory(tmp_path).render(HI).text == "hi<x>!"
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}")
    assert format_for_directory(tmp_path).render(HI).text == "<b>"


def test_a_directory_without_one_gets_the_renderer_of_its_family(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("[1")
    assert format_for_directory(tmp_path).render(HI).text.startswith("[gMASK]<sop><|user|>hi<x>")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "Qwen3_MoE"}))
    assert format_for_directory(tmp_path).render(HI).text.startswith("<|im_start|>user\nhi<x>")


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("glm_moe_dsa", GlmChatFormat),
        ("inkling", InklingChatFormat),
        ("Inkling2", InklingChatFormat),
    ],
)
def test_a_family_without_template_has_a_renderer(family: str, kind: type) -> None:
    assert isinstance(format_for_model({"family": family}), kind)


def test_a_template_goes_before_the_renderer_of_the_family() -> None:
    info = {"family": "glm_moe_dsa", "chat_template": "{{ messages[0].content }}!"}
    assert format_for_model(info).render(HI).text == "hi<x>!"


@pytest.mark.parametrize(
    ("model_type", "family"),
    [
        ("inkling_mm", "inkling"), ("kimi_k3", "kimi_k3"), ("DeepSeek_V4", "deepseek_v4"),
        ("deepseek_v3", "glm_moe_dsa"), ("olmoe", "olmoe"), ("qwen3_moe", "qwen3_moe"),
        ("glm_moe_dsa", "glm_moe_dsa"), ("", "glm_moe_dsa"),
    ],
)  # fmt: skip
def test_the_family_of_a_directory(tmp_path: Path, model_type: str, family: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    assert directory_info(tmp_path)["family"] == family
    assert format_for_directory(tmp_path).render(HI).text


def test_the_facts_of_a_directory(tmp_path: Path) -> None:
    config = {
        "chat_template": "x",
        "bos_token": "<s>",
        "added_tokens_decoder": {"7": {"content": "<t>"}, "no": {"content": "<u>"}, "8": 3},
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert directory_info(tmp_path) == {
        "family": "glm_moe_dsa",
        "chat_template": "x",
        "special_tokens": {"<t>": 7},
        "bos_token": "<s>",
    }


@pytest.mark.parametrize(
    ("template", "syntax"),
    [
        ("{{ tools }}<tool_call>{{ name }}<arg_key>", "glm"),
        ('{{ tools }}<tool_call>{"name": 1, "arguments": 2}</tool_call>', "hermes"),
        ("{{ tools }}[TOOL_CALLS]", "mistral"),
        ("{{ tools }}<｜DSML｜invoke name=", "dsml"),  # noqa: RUF001
        ("{{ tools }}<tool_call><function=x><parameter=y>", "qwen_xml"),
        ('{{ tools }}<|python_tag|>"parameters": ', "llama"),
        ('{{ tools }}{"name": "x", "parameters": {}}<|eot_id|>', "llama"),
        ("{{ tools }}<|content_invoke_tool_json|>", "inkling"),
    ],
)
def test_a_template_tells_its_syntax(template: str, syntax: str) -> None:
    support = tool_support_for({"chat_template": template, "family": "any"})
    assert (support.syntax.name, support.writer, support.needs_grammar) == (syntax, None, False)


@pytest.mark.parametrize(
    ("info", "needs_grammar"),
    [
        ({"chat_template": "<|im_start|>{{ messages }}"}, True),
        ({"family": "inkling"}, False),
        ({"family": "kimi_k3"}, True),
        ({"family": "olmoe"}, True),
    ],
)
def test_any_other_model_gets_the_hermes_form(info: dict[str, object], needs_grammar: bool) -> None:
    support = tool_support_for(info)
    assert (support.writer, support.needs_grammar) == (hermes.offer, needs_grammar)
    assert tool_syntax_for(info).name == "hermes"


def test_built_in_renderers_that_write_tools() -> None:
    for family, name in (("glm_moe_dsa", "glm"), ("deepseek_v4", "dsml")):
        support = tool_support_for({"family": family})
        assert (support.syntax.name, support.writer) == (name, None)
        assert not support.needs_grammar


def test_role_markers_that_the_gateway_stops_at() -> None:
    markers = ("<|user|>", "<|observation|>")
    assert stop_markers_for({"family": "glm_moe_dsa"}) == markers
    assert stop_markers_for({"family": "glm4_moe", "chat_template": "[gMASK]<sop>"}) == markers
    assert stop_markers_for({"family": "glm4_moe", "chat_template": "<|im_start|>"}) == ()
    assert stop_markers_for({"family": "inkling"}) == ()
    assert stop_markers_for({"family": "olmoe"}) == ()
