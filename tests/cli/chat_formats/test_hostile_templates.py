"""Chat templates come with a download: none gets at Python, takes for ever or fills the memory."""

from __future__ import annotations

import tracemalloc

import pytest

from colibri_cli.chat_formats import template_bounds
from colibri_cli.chat_formats.sandbox import compile_template, run_template
from colibri_cli.errors import ChatFormatError

MESSAGES = [{"role": "user", "content": "hello"}]

# Known ways out of jinja2's sandbox, past and present, and the names they need.
ESCAPES = {
    "class": "{{ ''.__class__ }}",
    "subclasses": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "item instead of attribute": "{{ ''['__class__']['__base__'] }}",
    "attr filter": "{{ ''|attr('__class__')|attr('__base__') }}",
    "attr filter with a joined name": "{{ ''|attr(['__cla', 'ss__']|join) }}",
    "attr filter from a variable": "{% set a = '__class__' %}{{ messages|attr(a) }}",
    "map attribute": "{{ ['']|map(attribute='__class__')|list }}",
    "map attr": "{{ ['']|map('attr', '__class__')|list }}",
    "selectattr": "{{ ['']|selectattr('__class__.__base__')|list }}",
    "groupby": "{{ messages|groupby('__class__')|list }}",
    "sum attribute": "{{ ['']|sum(attribute='__class__', start='') }}",
    "format": "{{ '{0.__class__.__mro__}'.format('') }}",
    "format with an item": "{{ '{0[__class__]}'.format('') }}",
    "format_map": "{{ '{a.__class__}'.format_map({'a': ''}) }}",
    "format through map": "{{ ['{0.__class__}']|map('format', '')|list }}",
    "format as a value": "{% set f = '{0.__class__}'.format %}{{ f('') }}",
    "format by the attr filter": "{{ ('{0.__class__}'|attr('format'))('') }}",
    "globals of a function": "{{ raise_exception.__globals__ }}",
    "globals of a global": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "globals of joiner": "{{ joiner.__init__.__globals__ }}",
    "globals of namespace": "{{ namespace.__init__.__globals__ }}",
    "code of a macro": "{% macro m() %}{% endmacro %}{{ m._func.__code__ }}",
    "frame of a generator": "{{ (messages|map('upper')).gi_frame.f_builtins }}",
    "closure": "{{ strftime_now.__closure__ }}",
    "the context itself": "{{ self._TemplateReference__context }}",
    "the environment": "{{ self.__init__.__globals__ }}",
    "the loop": "{% for m in messages %}{{ loop.__class__ }}{% endfor %}",
    "undefined": "{{ nothing.__class__.__base__ }}",
    "dict class": "{{ dict.__base__.__subclasses__() }}",
    "import": "{% import 'os' as os %}",
    "include": "{% include '/etc/passwd' %}",
    "extends": "{% extends '/etc/passwd' %}",
    "builtins": "{{ __builtins__.open('/etc/passwd') }}",
    "import of a name": "{{ __import__('os') }}",
    "changing a message": "{% set _ = messages[0].update({'role': 'system'}) %}",
    "emptying the messages": "{% set _ = messages.clear() %}",
}


def run(source: str) -> str:
    return run_template(compile_template(source), {"messages": MESSAGES})


@pytest.mark.parametrize("source", ESCAPES.values(), ids=ESCAPES.keys())
def test_no_way_out_of_the_sandbox(source: str) -> None:
    try:
        text = run(source)
    except ChatFormatError:
        text = ""
    # An attribute that may not be had is undefined, which is written as nothing.
    for leak in ("class '", "built-in", "function", "root:", "frozenset", "object", "0x"):
        assert leak not in text, text
    assert MESSAGES == [{"role": "user", "content": "hello"}]


BOMBS = {
    "loops in loops": (
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    ),
    "silent loop in a filter": (
        "{% for a in range(99999) %}{% if range(99999)|sum == 1 %}x{% endif %}{% endfor %}"
    ),
    "recursive loop": "{% for a in [[1]] recursive %}{{ loop([a, a]) }}{% endfor %}",
    "macros that call twice": (
        "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}"
    ),
    "adding texts": "{% set n = namespace(x='x'*9) %}{% for i in range(99) %}"
    "{% set n.x = n.x + n.x %}{% endfor %}",
    "joining texts": "{% set n = namespace(x='x'*9) %}{% for i in range(99) %}"
    "{% set n.x = n.x ~ n.x %}{% endfor %}",
    "blocks of text": "{% set n = namespace(x='x'*9) %}{% for i in range(99) %}"
    "{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}{% endfor %}",
    "macros of text": "{% macro d(x) %}{{ x }}{{ x }}{% endmacro %}{% set n = namespace(x='x'*9) %}"
    "{% for i in range(99) %}{% set n.x = d(n.x) %}{% endfor %}",
    "adding lists": "{% set n = namespace(x=[1]) %}{% for i in range(99) %}"
    "{% set n.x = n.x + n.x %}{% endfor %}",
    "squares": "{% set n = namespace(x=999) %}{% for i in range(99) %}"
    "{% set n.x = n.x * n.x %}{% endfor %}",
    "lists in lists, written": "{% set n = namespace(x=[1]) %}{% for i in range(60) %}"
    "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
    "lists in lists, as JSON": "{% set n = namespace(x=[1]) %}{% for i in range(60) %}"
    "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x|tojson }}",
    "lists in lists, joined": "{% set n = namespace(x=[1]) %}{% for i in range(60) %}"
    "{% set n.x = [n.x, n.x] %}{% endfor %}{% set y = n.x ~ '' %}",
    "product": "{{ 'a' * 10000000000 }}",
    "power": "{{ 9 ** 999999999 }}",
    "percent": "{{ '%9999999999d' % 1 }}",
    "width by method": "{{ '{:9999999999}'.format(1) }}",
    "width by argument": "{{ '{:{}}'.format(1, 9999999999) }}",
    "width by filter": "{{ '%9999999999d'|format(1) }}",
    "centre": "{{ 'a'|center(9999999999) }}",
    "ljust": "{{ 'a'.ljust(9999999999) }}",
    "zfill": "{{ 'a'.zfill(9999999999) }}",
    "tabs": "{{ ('\t' * 99999).expandtabs(999999) }}",
    "indent": "{{ ('\n' * 99999)|indent(999999) }}",
    "replace": "{% set x = 'a' * 999999 %}{{ x|replace('a', x) }}",
    "replace by method": "{% set x = 'a' * 999999 %}{{ x.replace('a', x) }}",
    "join": "{% set x = 'a' * 999999 %}{{ range(99999)|join(x) }}",
    "join by method": "{% set x = 'a' * 999999 %}{{ x.join(['b'] * 99999) }}",
    "translate": "{% set x = 'a' * 999999 %}{{ x.translate({97: x}) }}",
    "batch": "{{ [1]|batch(9999999999, 0)|list }}",
    "lipsum": "{{ lipsum(n=999999) }}",
}


@pytest.mark.parametrize("source", BOMBS.values(), ids=BOMBS.keys())
def test_a_template_that_would_take_for_ever_or_everything_is_stopped(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_bounds, "MAX_STEPS", 5_000)
    monkeypatch.setattr(template_bounds, "MAX_CPU_S", 0.2)
    with pytest.raises(ChatFormatError):
        run(source)


LARGE = {
    "separators": "{{ range(9999)|list|tojson(separators=('x' * 99999, ':')) }}",
    "line ends of wordwrap": "{{ ('a ' * 9999)|wordwrap(1, wrapstring='y' * 99999) }}",
    "attributes of links": "{{ ('http://a.bc ' * 9999)|urlize(target='x' * 99999) }}",
    "join by the filter": "{% set x = 'a' * 99999 %}{{ range(99999)|list|join(x) }}",
    "a list of made texts": "{{ range(99999)|map('string')|map('center', 99999)|list|length }}",
    "one text many times": "{% set x = 'a' * 999999 %}{{ ([x] * 99999)|join }}",
    "one text many times, as JSON": "{% set x = 'a' * 999999 %}{{ ([x] * 99999)|tojson }}",
    "one text many times, written": "{% set x = 'a' * 999999 %}{{ [x] * 99999 }}",
    "a list that is added to": "{% set n = namespace(l=[]) %}{% set x = 'a' * 999999 %}"
    "{% for i in range(999) %}{% set n.l = n.l + [x ~ i] %}{% endfor %}",
}


@pytest.mark.parametrize("source", LARGE.values(), ids=LARGE.keys())
def test_sizes_are_refused_before_the_memory_is_taken(source: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ChatFormatError, match=r"too long a (text|list)"):
            run(source)
        assert tracemalloc.get_traced_memory()[1] < 400_000_000
    finally:
        tracemalloc.stop()


def test_a_filter_that_contradicts_itself_is_an_error_of_the_template() -> None:
    with pytest.raises(ChatFormatError, match="failed"):
        run("{{ 'a'|truncate(5, end='x' * 99) }}")


def test_what_templates_really_do_stays_allowed() -> None:
    source = (
        "{% set ns = namespace(text='') %}{% for m in messages %}"
        "{% set ns.text = ns.text ~ m.role ~ ': ' + m['content']|trim %}{% endfor %}"
        "{% set block %}<{{ ns.text }}>{% endset %}"
        "{{ block }}{{ {'a': [1, 'ä']}|tojson }}{{ '%s-%d'|format('x', 3) }}"
        "{{ 'a-b'.split('-')[1] }}"
        "{{ [3, 1]|sort|join(',') }}{% generation %}{{ loop is defined }}{% endgeneration %}"
        "{{ 7 % 2 }}{{ 'ab'.replace('a', 'c') }}{{ '{}!'.format('y') }}{{ '-' * 3 }}"
    )
    expected = '<user: hello>{"a": [1, "ä"]}x-3b1,3False1cby!---'
    assert run(source) == expected


def test_each_run_has_all_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_bounds, "MAX_STEPS", 100)
    template = compile_template("{% for i in range(60) %}x{% endfor %}")
    assert [run_template(template, {}) for _ in range(3)] == ["x" * 60] * 3
