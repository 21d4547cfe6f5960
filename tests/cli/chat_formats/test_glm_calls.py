"""GLM calls: typed by the schema, whole or cut anywhere, closed or not; prose stays text."""

from __future__ import annotations

import pytest

from colibri_cli.chat_formats.tool_formats.base import (
    CallArguments,
    CallFinished,
    CallStarted,
    Text,
)
from colibri_cli.chat_formats.tool_formats.glm import SYNTAX, GlmSyntax
from tests.fakes.tool_calls import Answer, answer_of, parsed, tool

LS = tool("ls", ["path"], path="string")
NOW = tool("now")
WEATHER = tool("weather", ["city"], city="string", days="integer")
WRITE = tool("write", ["path", "content"], path="string", content="string")
TOOLS = (LS, NOW, WEATHER, WRITE)
ROME = "<tool_call>weather<arg_key>city</arg_key><arg_value>Rome</arg_value></tool_call>"
OSLO = ROME.replace("Rome", "Oslo")
HALF = "<tool_call>write<arg_key>path</arg_key><arg_value>a</arg_value>"


def answer(text: str, *, was_cut: bool = False, parallel: bool = True) -> Answer:
    whole = parsed(SYNTAX.parser(TOOLS, parallel=parallel), [text], was_cut=was_cut)
    assert parsed(SYNTAX.parser(TOOLS, parallel=parallel), [*text], was_cut=was_cut) == whole
    return answer_of(whole)


def test_a_closed_call_is_a_call_and_no_content() -> None:
    assert answer(ROME) == Answer("", [("weather", '{"city":"Rome"}')])


def test_several_calls_come_in_order_with_the_text_around_them() -> None:
    found = answer(f"Let me check.\n{ROME}\n{OSLO} Done.\n")
    assert found.calls == [("weather", '{"city":"Rome"}'), ("weather", '{"city":"Oslo"}')]
    assert found.content == "Let me check.\n\n Done."


def test_only_the_first_call_is_kept_without_parallel_calls() -> None:
    found = answer(f"{ROME}{OSLO}", parallel=False)
    assert found.calls == [("weather", '{"city":"Rome"}')]
    assert found.content == ""


def test_text_and_argument_are_streamed_as_they_come() -> None:
    parser = SYNTAX.parser(TOOLS)
    assert parser.feed("Checking <b") == [Text("Checking <b")]
    assert parser.feed(" <tool") == []
    assert parser.feed("_call>write<arg_key>path</arg_key>") == [CallStarted("write")]
    assert parser.feed("<arg_value>a") == [CallArguments('{"path":"'), CallArguments("a")]
    assert parser.feed('"b\n</arg') == [CallArguments('\\"b\\n')]
    assert parser.feed("x</arg_value>") == [CallArguments("</argx"), CallArguments('"')]
    rest = parser.feed("<arg_key>content</arg_key><arg_value></arg_value></tool_call>")
    assert rest[-2:] == [CallArguments("}"), CallFinished()]


def test_arguments_follow_the_declared_types() -> None:
    declared = tool("f", id="string", n="integer", on="boolean", tags="array", x="number")
    text = "<tool_call>f" + "".join(
        f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>"
        for key, value in [
            ("id", "007"), ("n", "10"), ("on", "true"), ("tags", '["a"]'), ("x", "true"),
            ("other", "7"), ("word", "seven"),
        ]
    )  # fmt: skip
    found = answer_of(parsed(SYNTAX.parser([declared]), [text + "</tool_call>"]))
    assert found.calls == [
        ("f", '{"id":"007","n":10,"on":true,"tags":["a"],"x":"true","other":7,"word":"seven"}')
    ]


@pytest.mark.parametrize("value", ["12345", "true", "null", '{"a": 1}', " padded ", "a\nb", ""])
def test_a_text_parameter_is_never_parsed(value: str) -> None:
    text = f"<tool_call>ls<arg_key>path</arg_key><arg_value>{value}</arg_value></tool_call>"
    assert answer(text).values() == [("ls", {"path": value})]


def test_a_value_may_hold_any_other_marker() -> None:
    value = "x</tool_call><tool_call>now</tool_call><arg_key>\n</arg_key> </arg_valu"
    text = f"<tool_call>ls<arg_key>path</arg_key><arg_value>{value}</arg_value></tool_call>"
    assert answer(text).values() == [("ls", {"path": value})]


def test_white_space_between_the_tags_changes_nothing() -> None:
    text = (
        "<tool_call> \nweather\n<arg_key> city </arg_key>\n  <arg_value>Rome</arg_value>\n"
        "<arg_key>days</arg_key> <arg_value> 3 </arg_value>\n</tool_call>"
    )
    assert answer(text).calls == [("weather", '{"city":"Rome","days":3}')]


def test_of_a_parameter_given_twice_the_later_wins() -> None:
    one, other = (f"<arg_key>path</arg_key><arg_value>{value}</arg_value>" for value in ("a", "b"))
    assert answer(f"<tool_call>ls{one}{other}</tool_call>").values() == [("ls", {"path": "b"})]


@pytest.mark.parametrize(
    "text", ["<tool_call>now</tool_call>", "<tool_call>now", "<tool_call>now\n</"]
)
def test_a_call_without_arguments(text: str) -> None:
    assert answer(text) == Answer("", [("now", "{}")])


@pytest.mark.parametrize("end", ["", "</tool_cal", "</t", "<", "\n", "\n</tool_call"])
def test_a_complete_call_that_is_not_closed_is_a_call(end: str) -> None:
    text = f"<tool_call>ls<arg_key>path</arg_key><arg_value>docs</arg_value>{end}"
    assert answer(text) == Answer("", [("ls", '{"path":"docs"}')])
    assert answer(f"Let me check.\n{text}").content == "Let me check."
    assert answer(ROME + text).calls == [
        ("weather", '{"city":"Rome"}'),
        ("ls", '{"path":"docs"}'),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>ls<arg_key>path</arg_key><arg_value>do",
        "<tool_call>ls<arg_key>path</arg_key><arg_value>docs</arg_valu",
        "<tool_call>ls<arg_key>path</arg_key>",
        "<tool_call>ls<arg_key>pa",
        HALF,
        HALF + "<arg_key>content</arg_key><arg_value>one two",
        "<tool_call>weather<arg_key>city</arg_key><arg_value>Rome</arg_value><arg_key>da",
    ],
)
def test_nothing_is_made_up_for_a_call_that_is_not_complete(text: str) -> None:
    assert answer(text) == Answer(text, [], [text])
    cut = answer(text, was_cut=True)  # the limit is what the client is told
    assert cut == Answer("", [], [text])


@pytest.mark.parametrize(
    ("text", "is_call"),
    [
        ("<tool_call>ls<arg_key>path</arg_key><arg_value>docs</arg_value>", False),
        ("<tool_call>ls<arg_key>path</arg_key><arg_value>docs</arg_value></tool", True),
        ("<tool_call>now", False),
        ("<tool_call>now</", True),
        (ROME, True),
    ],
)
def test_a_limit_leaves_an_open_call_incomplete(text: str, is_call: bool) -> None:
    assert bool(answer(text, was_cut=True).calls) is is_call


@pytest.mark.parametrize(
    "text",
    [
        "Write <tool_call> and then the name.",
        "Write <tool_call>",
        "<tool_call>",
        "Use <tool_call>, then `ls`, then close.",
        "<tool_call>drop_all_tables",
        "<tool_call>drop<arg_key>a</arg_key><arg_value>b</arg_value>",
        "<tool_call>ls is the name to write",
        "The tag is <tool_call>now and nothing else",
        "<tool_call>write",
        "a </tool_call> b",
        "half a marker <tool_ca",
        "trailing space \n",
    ],
)
def test_prose_about_the_marker_is_text(text: str) -> None:
    assert answer(text) == Answer(text)


def test_prose_about_the_marker_does_not_wait_for_the_end() -> None:
    parser = SYNTAX.parser(TOOLS)
    events = parsed_now(parser, "Write <tool_call> and then go on")
    assert events == "Write <tool_call> and then go on"


def parsed_now(parser: object, text: str) -> str:
    events = parser.feed(text)  # type: ignore[attr-defined]
    return "".join(event.text for event in events if isinstance(event, Text))


def test_a_call_after_prose_about_the_marker_is_found() -> None:
    found = answer(f"Between <tool_call> and the end:\n{ROME}")
    assert found.calls == [("weather", '{"city":"Rome"}')]
    assert found.content == "Between <tool_call> and the end:"


def test_an_undeclared_function_in_a_closed_box_is_passed_on() -> None:
    text = "<tool_call>drop<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>"
    assert answer(text) == Answer("", [("drop", '{"a":1}')])


@pytest.mark.parametrize(
    "box",
    [
        "<tool_call></tool_call>",
        "<tool_call> \n </tool_call>",
        "<tool_call><arg_key>a</arg_key><arg_value>b</arg_value></tool_call>",
    ],
)
def test_a_box_without_a_name_is_dropped(box: str) -> None:
    assert answer(f"a {box}b") == Answer("a b")
    assert answer(f"a {box}{ROME}").calls == [("weather", '{"city":"Rome"}')]


def test_an_open_box_ends_where_the_next_begins() -> None:
    first = ROME.removesuffix("</tool_call>")
    assert len(answer(first + OSLO).calls) == 2
    broken = answer("<tool_call>ls<arg_key>path</arg_key>" + OSLO)
    assert broken.calls == [("weather", '{"city":"Oslo"}')]
    assert broken.aborted == ["<tool_call>ls<arg_key>path</arg_key>"]
    assert broken.content == "<tool_call>ls<arg_key>path</arg_key>"
    nothing = answer("<tool_call>write" + OSLO)
    assert (nothing.content, nothing.calls) == (
        "<tool_call>write",
        [("weather", '{"city":"Oslo"}')],
    )


def test_what_stands_between_the_arguments_is_ignored() -> None:
    text = "<tool_call>ls (\n<arg_key>path</arg_key><arg_value>a</arg_value>, </tool_call>"
    assert answer(text).calls == [("ls", '{"path":"a"}')]
    assert answer("<tool_call>now ()</tool_call>").calls == [("now", "{}")]


def test_salvage_gives_stray_text_to_the_first_parameter() -> None:
    parser = GlmSyntax(salvages=True).parser(TOOLS)
    text = "<tool_call>ls(docs)</tool_call><tool_call>now(3)</tool_call>" + ROME
    assert answer_of(parsed(parser, [text])).values() == [
        ("ls", {"path": "docs"}),
        ("now", {"input": 3}),
        ("weather", {"city": "Rome"}),
    ]


def test_names_may_hold_what_declared_names_hold() -> None:
    parser = SYNTAX.parser([tool("mcp:files/read")])
    assert answer_of(parsed(parser, ["<tool_call>mcp:files/read</tool_call>"])).calls == [
        ("mcp:files/read", "{}")
    ]
