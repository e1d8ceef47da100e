"""Questions to standard input, results that the end of a Pool loses."""

from __future__ import annotations

import ast
import textwrap

import pytest

from mpwatch.collect.source.marks import marks
from mpwatch.collect.source.syntax import ParsedFile


def found(text: str, kind: str) -> list[tuple[int, str]]:
    """The line and what it is about of the marks of one kind in a file."""
    text = textwrap.dedent(text)
    module = ParsedFile(tuple(text.splitlines()), ast.parse(text))
    return [
        (each.statement.line, each.about)
        for each in marks("/home/me/train.py", module)
        if each.kind == kind
    ]


def asks(*lines: str) -> list[tuple[int, str]]:
    """The questions of a function of these lines."""
    return found("def confirm(path):\n" + "".join(f"    {each}\n" for each in lines), "prompts")


READS = "answer = sys.stdin.readline()"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (('answer = input("Overwrite? [y/N] ")',), [(2, "")]),
        (('while input("more? ") == "y":', "    step()"), [(2, "")]),
        (
            ('sys.stderr.write(f"{path} exists. Overwrite? ")', "sys.stderr.flush()", READS),
            [(4, 'sys.stderr.write(f"{path} exists. Overwrite? ") in line 2')],
        ),
        (('print("sure?", end=" ", flush=True)', READS), [(3, "print(")]),
        (('print("sure?", end=" ")', "answer = input()"), [(3, "print(")]),
    ],
)
def test_half_a_line_before_the_read_of_a_line_is_a_question(
    lines: tuple[str, ...], found: list[tuple[int, str]]
) -> None:
    (read,) = asks(*lines)

    assert read[0] == found[0][0]
    assert read[1].startswith(found[0][1])


@pytest.mark.parametrize(
    "lines",
    [
        ("line = input()",),
        ('print("ready")', READS),
        ('sys.stdout.write("ready\\n")', READS),
        ("sys.stdout.write(reply)", READS),
        ('print("a", end=" ")', 'print("b")', READS),
        ('out.write("name: ")', READS),
        ('print("name: ", end="", file=out)', READS),
        ('sys.stdout.write("name: ")', "line = reader.readline()"),
        (READS, 'sys.stdout.write("ok ")'),
    ],
)
def test_whole_lines_and_other_files_are_no_question(lines: tuple[str, ...]) -> None:
    assert asks(*lines) == []


def pool(*lines: str, after: str = "return found") -> list[tuple[int, str]]:
    """The results that are left to the end of the block of a Pool with these lines."""
    body = "".join(f"        {each}\n" for each in lines)
    return found(
        f"def compute(items):\n    with mp.Pool(3) as pool:\n{body}    {after}\n", "pool-left"
    )


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        (("found = pool.imap(work, items)",), (3, "imap, 2")),
        (("return pool.imap_unordered(work, items)",), (3, "imap_unordered, 2")),
        (("found = pool.map_async(work, items)",), (3, "map_async, 2")),
        (("found = pool.imap(work, items)", "return found"), (3, "imap, 2")),
    ],
)
def test_results_that_are_used_after_the_block_of_their_pool_are_read(
    lines: tuple[str, ...], left: tuple[int, str]
) -> None:
    assert pool(*lines) == [left]


@pytest.mark.parametrize(
    "lines",
    [
        ("found = list(pool.imap(work, items))",),
        ("found = pool.map(work, items)",),
        ("for each in pool.imap(work, items):", "    found.append(each)"),
        ("found = pool.map_async(work, items)", "found.wait()"),
        ("found = pool.map_async(work, items)", "pool.close()", "pool.join()"),
        ("yield from pool.imap(work, items)",),
        ("found = executor.imap(work, items)",),
    ],
)
def test_results_that_are_waited_for_in_the_block_are_not_left(lines: tuple[str, ...]) -> None:
    assert pool(*lines) == []
