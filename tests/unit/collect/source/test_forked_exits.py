"""Ways out of a forked process, and what removes temporary folders then."""

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
    return sorted(
        (each.statement.line, each.about)
        for each in marks("/home/me/train.py", module)
        if each.kind == kind
    )


def exits(*lines: str) -> list[tuple[int, str]]:
    """The exits of forked processes in a function of these lines, of which the first is line 2."""
    return found("def run():\n" + "".join(f"    {each}\n" for each in lines), "forked-exit")


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (("if os.fork() == 0:", "    work()", "    sys.exit(0)"), 4),
        (("pid = os.fork()", "if not pid:", "    raise SystemExit"), 4),
        (("if os.fork() == 0:", "    db.execute(sql)", "    sys.exit(0)"), 4),
        (("pid = os.fork()", "if pid:", "    return", "work()", "exit()"), 6),
        (("pid = os.fork()", "if pid > 0:", "    return", "if os.fork():", "    sys.exit(0)"), 6),
        (
            ("pid = os.fork()", "if pid < 0:", "    stop()", "elif pid == 0:", "    sys.exit(1)"),
            6,
        ),
    ],
)
def test_an_exit_of_a_forked_process_by_an_exception_is_found(
    lines: tuple[str, ...], line: int
) -> None:
    assert exits(*lines) == [(line, "2")]


@pytest.mark.parametrize(
    "lines",
    [
        ("if os.fork() == 0:", "    work()", "    os._exit(0)", "sys.exit(0)"),
        ("if os.fork():", "    sys.exit(0)", "work()"),  # the first process leaves
        ("pid = os.fork()", "if pid == 0:", "    os._exit(0)", "os.wait()", "sys.exit(0)"),
        (
            "if os.fork() == 0:",
            "    try:",
            "        sys.exit(0)",
            "    finally:",
            "        os._exit(0)",
        ),
        (
            "if os.fork() == 0:",
            "    try:",
            "        sys.exit(0)",
            "    except:",
            "        os._exit(0)",
        ),
        ("if ready == 0:", "    sys.exit(0)"),
        ("if os.fork() == 0:", "    os.execv(path, args)"),
        ("if os.fork() == 0:", "    os.execvp(path, args)", "    sys.exit(127)"),
        (
            "if os.fork() == 0:",
            "    try:",
            "        os.execvp(path, args)",
            "    except OSError:",
            "        sys.exit(127)",
        ),
        # a daemon, of which the last process is the program
        ("if os.fork():", "    sys.exit(0)", "os.setsid()", "if os.fork():", "    sys.exit(0)"),
    ],
)
def test_an_exit_of_the_first_process_or_at_once_is_none(lines: tuple[str, ...]) -> None:
    assert exits(*lines) == []


SCRATCH = """
    import atexit, os, shutil, tempfile
    class Scratch:
        def __init__(self):
            self.path = tempfile.mkdtemp(prefix="parts-")
            atexit.register(self.remove)
        def remove(self):
            shutil.rmtree(self.path)
"""


def test_what_removes_a_temporary_folder_as_the_interpreter_ends_is_found() -> None:
    about = "exit; parts-????????; shutil.rmtree(self.path) in line 8"
    assert found(SCRATCH, "removes-folder") == [(6, about)]


def test_a_handler_that_compares_the_process_is_none() -> None:
    guarded = SCRATCH.replace("            shutil", "            os.getpid() == 1 and shutil")
    assert found(guarded, "removes-folder") == []


@pytest.mark.parametrize(
    ("lines", "about"),
    [
        (("folder = mkdtemp()", "atexit.register(shutil.rmtree, folder)"), "exit; tmp????????; "),
        (("self.folder = TemporaryDirectory('.d', f'a{n}-')",), "exit; a*-????????.d; "),
        (("with TemporaryDirectory() as folder:", "    work()"), "block; tmp????????; "),
        (
            ("f = mkdtemp()", "try:", "    work()", "finally:", "    shutil.rmtree(f)"),
            "block; tmp????????; ",
        ),
    ],
)
def test_other_ways_to_remove_a_temporary_folder(lines: tuple[str, ...], about: str) -> None:
    body = "".join(f"    {each}\n" for each in lines)
    text = f"import tempfile\ndef run(self, n):\n{body}"

    assert [each for _, each in found(text, "removes-folder")] == [about]


@pytest.mark.parametrize(
    "lines",
    [
        ("atexit.register(shutil.rmtree, folder)",),  # the file makes no such folder
        ("folder = mkdtemp(prefix=name)", "atexit.register(shutil.rmtree, folder)"),
        ("folder = mkdtemp()", "shutil.rmtree(folder)"),
    ],
)
def test_a_folder_of_an_unknown_name_is_not_told(lines: tuple[str, ...]) -> None:
    body = "".join(f"    {each}\n" for each in lines)
    assert found(f"import tempfile\ndef run(name):\n{body}", "removes-folder") == []
