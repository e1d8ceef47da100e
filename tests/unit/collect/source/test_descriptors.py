"""Descriptors that a function opens and never closes."""

from __future__ import annotations

import ast
import textwrap

import pytest

from mpwatch.collect.source.growth.kept_references import unclosed
from mpwatch.collect.source.syntax import ParsedFile


def found(text: str) -> list[tuple[str, str, int]]:
    """Function, what it opens, and the line."""
    text = textwrap.dedent(text)
    module = ParsedFile(tuple(text.splitlines()), ast.parse(text))
    every = (each.mark for each in unclosed("/home/me/engine.py", module))
    return [(each.function, each.about, each.statement.line) for each in every]


def saving(*lines: str) -> list[tuple[str, str, int]]:
    body = "".join(f"    {each}\n" for each in lines)
    return found(f"def save(page, folder, n):\n{body}")


MAKES = 'handle, path = tempfile.mkstemp(prefix="ocr_", suffix=".npy")'


@pytest.mark.parametrize(
    ("lines", "about"),
    [
        ((MAKES, "np.save(path, page)", "return path"), "file ocr_*.npy"),
        (("_, path = mkstemp()", "return path"), "file tmp*"),
        (("path = tempfile.mkstemp('.wav')[1]", "return path"), "file tmp*.wav"),
        (("made = tempfile.mkstemp(suffix=n)", "return made[1]"), "file tmp*"),
        ((MAKES, "os.write(handle, page)", "return path"), "file ocr_*.npy"),
        (("fd = os.open(f'{folder}/part_{n}.bin', os.O_RDONLY)", "return os.read(fd, 9)"), None),
        (("fd = os.open(os.path.join(folder, 'a.lock'), 0)", "fcntl.flock(fd, 2)"), "file a.lock"),
        (("fd = os.open(page, 0)", "return mmap.mmap(fd, 0)"), "file *"),
        (("fd = os.dup(page.fileno())", "os.fsync(fd)"), "any *"),
        (("r, w = os.pipe()", "os.write(w, b'x')", "os.close(r)"), "pipe *"),
        (("fd = os.memfd_create('frames')", "os.ftruncate(fd, n)"), "shm memfd:frames"),
        (("os.dup(n)",), "any *"),
        ((MAKES, "with open(handle, 'wb', closefd=False) as out:", "    out.write(page)"), None),
    ],
)
def test_a_number_that_nothing_closes(lines: tuple[str, ...], about: str | None) -> None:
    ((function, opened, line),) = saving(*lines)

    assert (function, line) == ("save", 2)
    assert about is None or opened == about


@pytest.mark.parametrize(
    "lines",
    [
        (MAKES, "os.close(handle)", "return path"),
        (MAKES, "with os.fdopen(handle, 'wb') as out:", "    np.save(out, page)"),
        (MAKES, "with open(handle, 'wb') as out:", "    np.save(out, page)"),
        (MAKES, "return handle, path"),
        (MAKES, "self.handles.append(handle)"),
        (MAKES, "self.handle = handle"),
        (MAKES, "close_later(handle)"),
        (MAKES, "subprocess.run(command, stdout=handle)"),
        (MAKES, "def close():", "    os.close(handle)", "atexit.register(close)"),
        ("self.handle, self.path = tempfile.mkstemp()",),
        ("made = tempfile.mkstemp()", "os.close(made[0])"),
        ("made = tempfile.mkstemp()", "return made"),
        ("return tempfile.mkstemp()",),
        ("fd = os.open(path, os.O_RDONLY)", "try:", "    work()", "finally:", "    os.close(fd)"),
        ("r, w = os.pipe()", "os.close(r)", "os.close(w)"),
        ("r, w = os.pipe()", "return r, w"),
        ("with open(page) as f:", "    return f.read()"),
        ("f = open(page)", "return f.read()"),
        ("sock = socket.socket()", "sock.connect(page)"),
        ("path = tempfile.mkdtemp()", "return path"),
        ("image = Image.open(page)", "return image.size"),
        ("global handle", "handle, path = tempfile.mkstemp()"),
    ],
)
def test_what_is_closed_or_given_away_or_closes_itself(lines: tuple[str, ...]) -> None:
    assert saving(*lines) == []


def test_an_object_that_is_made_again_and_again_is_named_by_its_class() -> None:
    text = "class Page:\n    def __init__(self):\n        _, self.path = tempfile.mkstemp()\n"
    module = ParsedFile(tuple(text.splitlines()), ast.parse(text))

    (each,) = unclosed("/home/me/engine.py", module)

    assert each.by == ("Page",)
    assert each.is_called


def test_a_file_that_is_imported_once_opens_once() -> None:
    once = "_, LOG = tempfile.mkstemp()\n"
    module = ParsedFile(tuple(once.splitlines()), ast.parse(once))

    (each,) = unclosed("/home/me/engine.py", module)

    assert (each.by, each.loop, each.is_called) == ((), None, False)
