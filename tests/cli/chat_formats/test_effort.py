"""Levels of reasoning: what a request asks for and what a template is told."""

from __future__ import annotations

import itertools

import pytest

from colibri_cli.chat_formats.base import ChatMessage, Conversation, ThinkingStart
from colibri_cli.chat_formats.effort import LEVELS, nearest_level
from colibri_cli.chat_formats.jinja import JinjaChatFormat
from colibri_cli.chat_formats.template_traits import thinking_variables, traits_of

HI = (ChatMessage("user", "Hi"),)
GLM = (
    "[gMASK]<sop>{% set e = 'high' if reasoning_effort is defined and reasoning_effort == 'high'"
    " else 'max' %}{% if enable_thinking is not defined or enable_thinking %}<|system|>Reasoning"
    " Effort: {{ e | capitalize }}{% endif %}{% for m in messages %}<|{{ m.role }}|>"
    "{% if m.reasoning_content and clear_thinking is defined and not clear_thinking %}<think>"
    "{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% endfor %}<|assistant|><think>"
    "{% if enable_thinking is defined and not enable_thinking %}</think>{% endif %}"
)
ONE_OF_THREE = (
    "{% set e = reasoning_effort | default('xhigh') %}{% if e not in ('xhigh', 'medium', 'low') %}"
    "{{ raise_exception('unknown effort') }}{% endif %}{{ e }}"
)
CHANNELS = (
    "<|message_system|>{{ {'none': 0, 'high': 0.9, 'max': 0.99}[reasoning_effort | default('high')]"
    " }}<|content_thinking|>{{ messages[0].content }}"
)
ANY_WORD = "<|start|><|channel|><|message|>Reasoning: {{ reasoning_effort | default('medium') }}"


def render(template: str, thinking: bool | None = None, effort: str | None = None) -> str:
    conversation = Conversation(HI, thinking=thinking, effort=effort)
    return JinjaChatFormat(template, (), {}).render(conversation).text


@pytest.mark.parametrize(
    ("level", "known", "expected"),
    [
        ("minimal", ["low", "high"], "low"),
        ("medium", ["low", "high"], "high"),
        ("high", ["low", "medium", "xhigh"], "xhigh"),
        ("xhigh", ["high", "max"], "max"),
        ("max", ["low"], "low"),
        ("low", LEVELS, "low"),
    ],
)
def test_the_nearest_level(level: str, known: list[str], expected: str) -> None:
    assert nearest_level(level, known) == expected


def test_levels_stay_in_order_whatever_a_template_knows() -> None:
    for count in range(1, 4):
        for known in itertools.combinations(LEVELS[1:], count):
            places = [LEVELS.index(nearest_level(level, known)) for level in LEVELS[1:]]
            assert places == sorted(places)


@pytest.mark.parametrize(
    ("thinking", "level", "shown"),
    [
        (True, "minimal", "High"), (True, "low", "High"), (True, "medium", "High"),
        (True, "high", "High"), (True, "xhigh", "Max"), (True, "max", "Max"), (True, None, "High"),
    ],
)  # fmt: skip
def test_a_glm_template_is_always_told_the_effort(
    thinking: bool, level: str | None, shown: str
) -> None:
    assert f"Reasoning Effort: {shown}<|user|>" in render(GLM, thinking, level)


def test_a_glm_template_keeps_old_reasoning_and_can_be_switched_off() -> None:
    assert render(GLM, thinking=False, effort="max") == (
        "[gMASK]<sop><|user|>Hi<|assistant|><think></think>"
    )
    messages = (*HI, ChatMessage("assistant", "a", reasoning="r"), *HI)
    prompt = JinjaChatFormat(GLM, (), {}).render(Conversation(messages, thinking=True))
    assert "<think>r</think>a" in prompt.text
    assert prompt.thinking_start is ThinkingStart.OPEN


def test_a_template_gets_a_word_it_knows() -> None:
    assert traits_of(ONE_OF_THREE).effort_levels == ("low", "medium", "xhigh")
    asked = ("minimal", "low", "medium", "high", "xhigh", "max")
    found = [render(ONE_OF_THREE, thinking=True, effort=level) for level in asked]
    assert found == ["low", "low", "medium", "xhigh", "xhigh", "xhigh"]
    assert render(ONE_OF_THREE, thinking=True) == "xhigh"
    assert render(ONE_OF_THREE, thinking=False, effort="low") == "xhigh"


def test_a_template_with_channels() -> None:
    assert render(CHANNELS, thinking=False).startswith("<|message_system|>0<")
    assert render(CHANNELS, thinking=True).startswith("<|message_system|>0.9<")
    assert render(CHANNELS, thinking=True, effort="xhigh").startswith("<|message_system|>0.99<")
    prompt = JinjaChatFormat(CHANNELS, (), {}).render(Conversation(HI))
    assert prompt.thinking_start is ThinkingStart.CHANNELS


def test_a_template_that_prints_the_word() -> None:
    assert render(ANY_WORD, effort="xhigh") == "<|start|><|channel|><|message|>Reasoning: high"
    assert render(ANY_WORD, effort="low") == "<|start|><|channel|><|message|>Reasoning: low"
    assert render(ANY_WORD) == "<|start|><|channel|><|message|>Reasoning: medium"


def test_a_client_may_set_template_variables_itself() -> None:
    conversation = Conversation(
        HI, thinking=True, template_variables={"enable_thinking": False, "clear_thinking": True}
    )
    prompt = JinjaChatFormat("{{ enable_thinking }} {{ clear_thinking }}", (), {})
    assert prompt.render(conversation).text == "False True"


def test_a_template_without_thinking_is_told_all_the_same() -> None:
    traits = traits_of("{{ messages[0].content }}")
    assert not traits.can_think
    variables = thinking_variables(traits, Conversation(HI, thinking=True, effort="low"))
    assert variables["reasoning_effort"] == "low"
