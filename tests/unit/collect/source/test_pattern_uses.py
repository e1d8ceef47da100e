"""Which ambiguous regular expressions a variable can be at the line that uses it."""

from __future__ import annotations

import ast
import textwrap

import pytest

from mpwatch.collect.source.marks import marks
from mpwatch.collect.source.syntax import ParsedFile

RULES = """
    import re
    LINES = (re.compile(r"\\s*\\n\\s*"), " ")
    TAGS = (re.compile(r"<(?:\\s*\\w+)*>"), "")
    MAIL = re.compile(r"\\S+@\\S+\\.")
    CLEAN = re.compile(r"[ \\t]{2,}")
    CLEANING = [LINES, TAGS]
    HARMLESS = [LINES, (CLEAN, " ")]
    BY_NAME = {"mail": MAIL, "clean": CLEAN}
    TEXTS = [r"\\d+", r"(?:a|b|ab)*c"]
    COMPILED = [re.compile(each) for each in TEXTS]

    class Rule(NamedTuple):
        name: str
        pattern: re.Pattern

    RULES = [Rule("clean", CLEAN), Rule("mail", pattern=MAIL)]
"""
TAGS_AT, MAIL_AT, TEXTS_AT = "4, <(?:\\s*\\w+)*>", "5, \\S+@\\S+\\.", "10, (?:a|b|ab)*c"
LINES = RULES.count("\n")


def used(text: str) -> list[tuple[str, str, int]]:
    """The uses of ambiguous patterns below the rules: function, what they are about and line."""
    text = textwrap.dedent(RULES) + textwrap.dedent(text)
    module = ParsedFile(tuple(text.splitlines()), ast.parse(text))
    return [
        (each.function, each.about, each.statement.line - LINES)
        for each in marks("/home/me/rules.py", module)
        if each.kind == "uses-wide-pattern"
    ]


@pytest.mark.parametrize(
    ("body", "about"),
    [
        ("for pattern, to in CLEANING: text = pattern.sub(to, text)", TAGS_AT),
        ("for n, (p, to) in enumerate(CLEANING): text = p.sub(to, text)", TAGS_AT),
        ("for rule in CLEANING: text = rule[0].sub(rule[1], text)", TAGS_AT),
        ("for name, p in BY_NAME.items(): p.search(text)", MAIL_AT),
        ("for p in BY_NAME.values(): p.search(text)", MAIL_AT),
        ("BY_NAME[kind].search(text)", MAIL_AT),
        ("BY_NAME.get(kind).search(text)", MAIL_AT),
        ("p = MAIL\n    p.split(text)", MAIL_AT),
        ("return any(p.match(text) for p in COMPILED)", TEXTS_AT),
        ("for p in TEXTS: re.sub(p, '', text)", TEXTS_AT),
        ("for rule in RULES: rule.pattern.findall(text)", MAIL_AT),
        ("for p in [CLEAN] + list(BY_NAME.values()): p.match(text)", MAIL_AT),
    ],
)
def test_a_variable_that_can_be_an_ambiguous_pattern(body: str, about: str) -> None:
    line = 2 + body.count("\n")

    assert used(f"def clean(text, kind):\n    {body}\n") == [("clean", about, line)]


@pytest.mark.parametrize(
    "body",
    [
        "for pattern, to in HARMLESS: text = pattern.sub(to, text)",
        "for to, pattern in CLEANING: pattern.sub(to, text)",
        "BY_NAME['clean'].search(text)",
        "for p in TEXTS: text.split(p)",
        "for p in others(): p.sub('', text)",
        "CLEAN.sub('', text)",
        "for rule in RULES: rule.name.split(text)",
        "for name in BY_NAME: name.split(text)",
        "pattern.sub('', text)",
    ],
)
def test_a_variable_that_can_be_none_of_them(body: str) -> None:
    assert used(f"def clean(text):\n    {body}\n") == []


def test_an_attribute_and_an_argument_are_followed_to_what_they_are_given() -> None:
    attribute = """
        class Cleaner:
            def __init__(self):
                self.patterns = [CLEAN]
                self.patterns.append(MAIL)
            def run(self, text):
                for p in self.patterns:
                    text = p.sub("", text)
    """
    assert used(attribute) == [("run", MAIL_AT, 8)]
    argument = """
        def apply(pattern, text):
            return pattern.sub("", text)
        def run(text):
            return apply({}, text)
    """
    assert used(argument.format("MAIL")) == [("apply", MAIL_AT, 3)]
    assert used(argument.format("CLEAN")) == []
    assert used(argument.format("text")) == []


def test_a_name_that_leads_back_to_itself_and_a_very_long_list_end() -> None:
    assert used("def f(t):\n    p = q\n    q = p\n    p.sub('', t)\n") == []
    many = ", ".join(["CLEAN"] * 5000)
    assert used(f"MANY = [{many}]\ndef f(t):\n    for p in MANY: p.sub('', t)\n") == []
