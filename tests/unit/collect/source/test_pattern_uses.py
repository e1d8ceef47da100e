"""Which ambiguous regular expressions a variable can be at the line that uses it."""

from __future__ import annotations

import ast
import os
import textwrap
import time
from pathlib import Path

import pytest

from mpwatch.collect.source.marks import marks
from mpwatch.collect.source.source_code import SourceCode
from mpwatch.collect.source.syntax import ParsedFile
from mpwatch.model.ids import ProcessId

OWN = ProcessId(os.getpid(), 1)

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


CLASSES = """
    class Base:
        def run(self, text):
            for p in self.patterns: text = p.sub("", text)
    class Plain:
        patterns = [CLEAN]
        def run(self, text):
            for p in self.patterns: text = p.sub("", text)
            return Mail.mail.sub("", text)
    class Mail(Base):
        mail = MAIL
        patterns = [mail]
    class Nothing:
        def mail(self, text):
            self.patterns[0].sub("", text)
            self.MAIL.sub("", text)
    def late(self, text):
        self.patterns[0].sub("", text)
        mail.sub("", text)
"""


def test_an_attribute_is_that_of_its_class_and_of_those_of_its_family() -> None:
    assert used(CLASSES) == [("run", MAIL_AT, 4), ("run", MAIL_AT, 9)]


def test_a_list_that_is_made_of_itself_ends() -> None:
    text = "def f(t):\n    rows = list(rows)\n    for p in rows: p.sub('', t)\n"
    assert used(text) == []
    text = "def f(t):\n    rows = {}\n    rows = rows.copy()\n    rows.get(t).sub('', t)\n"
    assert used(text) == []


def test_a_pattern_that_is_compiled_of_itself_ends() -> None:
    assert used("def f(p, text):\n    p = re.compile(p)\n    return p.match(text)\n") == []
    given = "def f(p, text):\n    p = re.compile(p)\n    return p.match(text)\nf(TEXTS[1], x)\n"
    assert used(given) == [("f", TEXTS_AT, 3)]


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("from rules import TAGS", "for p in TAGS: text = p.sub('', text)"),
        ("from rules import TAGS as ALL", "for p in ALL: text = p.sub('', text)"),
        ("import rules", "for p in rules.TAGS: text = p.sub('', text)"),
        ("import rules as r", "for p in r.TAGS: text = p.sub('', text)"),
        ("from .rules import TAGS", "for p in TAGS: text = p.sub('', text)"),
        ("from . import rules", "for p in rules.TAGS: text = p.sub('', text)"),
        ("from all_rules import ALL", "for p in ALL: text = p.sub('', text)"),
    ],
)
def test_a_pattern_of_another_file_is_followed_there(tmp_path: Path, head: str, body: str) -> None:
    (tmp_path / "rules.py").write_text(
        "import re\nTAG = re.compile(r'<(?:\\s*\\w+)*>')\nTAGS = [TAG]\n"
    )
    (tmp_path / "all_rules.py").write_text("from rules import TAGS\nALL = [*TAGS]\n")
    (tmp_path / "use.py").write_text(f"{head}\ndef f(text):\n    {body}\n")

    found = SourceCode().marks(OWN, str(tmp_path / "use.py"), time.time())

    told = [(each.about, each.file) for each in found if each.kind == "uses-wide-pattern"]
    assert told == [("rules.py:2, <(?:\\s*\\w+)*>", str(tmp_path / "use.py"))]


def test_files_that_import_a_pattern_from_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from b import TAG\ndef f(text):\n    TAG.sub('', text)\n")
    (tmp_path / "b.py").write_text("from a import TAG\n")

    found = SourceCode().marks(OWN, str(tmp_path / "a.py"), time.time())

    assert [each for each in found if each.kind == "uses-wide-pattern"] == []


def test_a_name_that_leads_back_to_itself_and_a_very_long_list_end() -> None:
    assert used("def f(t):\n    p = q\n    q = p\n    p.sub('', t)\n") == []
    many = ", ".join(["CLEAN"] * 5000)
    assert used(f"MANY = [{many}]\ndef f(t):\n    for p in MANY: p.sub('', t)\n") == []
