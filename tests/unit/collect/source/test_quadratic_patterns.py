"""Regular expressions that a search tries again from each place of a long run of characters."""

from __future__ import annotations

import ast
import os
import re
import textwrap
import time
from pathlib import Path

import pytest

from mpwatch.collect.source.ambiguous_patterns import (
    matches_in_many_ways,
    searches_in_square_time,
)
from mpwatch.collect.source.marks import marks
from mpwatch.collect.source.source_code import SourceCode
from mpwatch.collect.source.syntax import ParsedFile
from mpwatch.model.ids import ProcessId


@pytest.mark.parametrize(
    ("pattern", "flags"),
    [
        (r"[ \t\u00a0]+$", re.MULTILINE),
        (r"\s+$", 0),
        (r"\s+?$", 0),
        (r"(?m)[ ]+$", 0),
        (r" {2,}$", 0),
        (r"(\s+)$", 0),
        (r"(?:[ \t])+$", 0),
        (r"\s\s+$", 0),
        (r"  +$", 0),
        (r"x?\s+,", 0),
        (r"\s*,", 0),
        (r"^\s+|\s+$", 0),
        (r"a|\s+$", 0),
        (r"\w+@", 0),
        (r"[\da-f]+x", 0),
        (r"a+b", 0),
        (r".*x", 0),
        (r".*x", re.DOTALL),
        (r".*$", 0),
        (r"\s+  # blanks$", 0),
        # A group is repeated.
        (r"(?:\s*x)*\s*$", 0),
        (r"(?:\s*x)+y", 0),
        (r"(\w+\s)*$", 0),
        (r"(?:\w+,){2,}$", 0),
        (r"((?:\w+\.)*)(\w+)\(", 0),
        (r"(?:[^,]*,)*;", 0),
        (r"-?(?:, *\w+)*\)", 0),
    ],
)
def test_each_place_of_a_run_is_tried_where_what_follows_it_can_fail(
    pattern: str, flags: int
) -> None:
    assert searches_in_square_time(pattern, flags)
    assert not matches_in_many_ways(pattern)


@pytest.mark.parametrize(
    ("pattern", "flags"),
    [
        (r"\w+", 0),
        (r"\d+(?:\.\d+)?", 0),
        (r"\n{3,}", 0),
        (r"x*", 0),
        (r"", 0),
        # Nothing can fail after the run.
        (r"\w+\w", 0),
        (r"\w+\b", 0),
        (r"\s+|,", 0),
        (r"\s+$|\s+", 0),
        (r"[^\n]+\n?", 0),
        (r"[^\n]*(?:\n|\Z)", 0),
        (r".*$", re.MULTILINE),
        (r"\s+  # blanks$", re.VERBOSE),
        # A match begins at few places of the run only.
        (r"^\s+$", re.MULTILINE),
        (r"\b\w+x", 0),
        (r"(?<![ \t])[ \t]+$", re.MULTILINE),
        (r"https?://[^\s)>\]]+x", 0),
        (r"<[^>]+>", 0),
        (r"a\s+x", 0),
        (r"[A-Z][a-z]+x", 0),
        # Numbers are short.
        (r"\d+x", 0),
        (r"[0-9]+ m2", 0),
        # The run has an end.
        (r" {1,100}$", 0),
        # Nothing can fail after the group, or it begins at few places, is short or has an end.
        (r"(?:\w+,)+", 0),
        (r"(?:\s*x)*", 0),
        (r"^(?:\w+,)+$", 0),
        (r"(?:\b\w+,)+$", 0),
        (r"<(?:\w+,)+>", 0),
        (r"(?:\w+,){1,5}$", 0),
        (r"(?:ab)+c", 0),
        (r"(?:\d+\.)+x", 0),
        # What it takes is not known.
        (r"(\w+)\1", 0),
        (r"(", 0),
    ],
)
def test_other_patterns_are_not_marked(pattern: str, flags: int) -> None:
    assert not searches_in_square_time(pattern, flags)


def found(text: str) -> list[tuple[str, int]]:
    """What the marks of a file say of such patterns, each with its line."""
    text = textwrap.dedent(text)
    module = ParsedFile(tuple(text.splitlines()), ast.parse(text))
    return [
        (each.about, each.statement.line)
        for each in marks("/home/me/clean.py", module)
        if each.kind == "quadratic-pattern"
    ]


@pytest.mark.parametrize(
    ("use", "is_marked"),
    [
        ("BLANKS.sub('', text)", True),
        ("BLANKS.search(text)", True),
        ("any(e.split(text) for e in [BLANKS])", True),
        ("re.findall(BLANKS, text)", True),
        ("BLANKS.match(text)", False),
        ("BLANKS.fullmatch(text)", False),
        ("WORDS.findall(text)", False),
        ("LINES.sub('', text)", False),
        ("text.split(BLANKS)", False),
    ],
)
def test_a_use_by_a_variable_is_marked_where_it_searches(use: str, is_marked: bool) -> None:
    text = f"""
        import re
        BLANKS = re.compile(r"[ \\t]+$", re.M)
        WORDS = re.compile(r"\\w+")
        LINES = re.compile(r"[^\\n]+$", re.MULTILINE)

        def clean(text):
            return {use}
    """
    assert found(text) == ([("3, [ \\t]+$", 8)] if is_marked else [])


@pytest.mark.parametrize(
    ("call", "is_marked"),
    [
        ("re.sub(r'\\s+$', '', text)", True),
        ("re.split(r'\\s*,', text)", True),
        ("re.match(r'\\s+$', text)", False),
        ("re.compile(r'\\s+$')", False),
        ("re.sub(r'.*$', '', text, flags=re.M | re.I)", False),
        ("re.sub(r'\\S+@\\S+\\.', '', text)", False),  # that matches in many ways
    ],
)
def test_a_pattern_that_is_written_at_the_call(call: str, is_marked: bool) -> None:
    assert bool(found(f"import re\n\ndef clean(text):\n    return {call}\n")) is is_marked


def test_a_pattern_of_another_file_is_told_with_that(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text("import re\nBLANKS = re.compile(r'\\s+$')\n")
    path = tmp_path / "main.py"
    path.write_text("from rules import BLANKS\n\ndef clean(x):\n    return BLANKS.sub('', x)\n")

    read = SourceCode().marks(ProcessId(os.getpid(), 1), str(path), time.time() + 9.0)

    told = [each.about for each in read if each.kind == "quadratic-pattern"]
    assert told == ["rules.py:2, \\s+$"]
