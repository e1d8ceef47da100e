"""Lines of the program that make files."""

from __future__ import annotations

from mpwatch.model.events import HookNote
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame, StackSample
from mpwatch.observe.state import segments as module
from mpwatch.observe.state.segments import FileLines
from tests.builders.samples import MAIN, WORKER_0

STDLIB = "/usr/lib/python3.11"


def stack(*frames: str, process: ProcessId = MAIN) -> StackSample:
    """Frames as `FILE:FUNCTION:LINE`, innermost first."""
    parts = (frame.rsplit(":", 2) for frame in frames)
    made = tuple(Frame(function, file, int(line)) for file, function, line in parts)
    return StackSample(process, process.pid, "python", made, "py-spy", 1.0)


SAVES = (
    "/venv/site-packages/numpy/lib/format.py:write_array:700",
    "/venv/site-packages/numpy/lib/npyio.py:save:500",
    "/home/me/staging.py:stage:24",
    "/home/me/staging.py:main:31",
)


def test_the_line_is_that_from_which_the_library_was_called() -> None:
    lines = FileLines()
    lines.add_stacks([stack(*SAVES), stack(f"{STDLIB}/tempfile.py:mkstemp:300", "/a/b.py:f:2")])
    lines.add_stacks([stack(*SAVES)])

    assert [(line.place, line.times) for line in lines.lines()] == [
        ("staging.py:24 stage", 2),
        ("b.py:2 f", 1),
    ]


def test_other_stacks_make_no_file() -> None:
    lines = FileLines()
    lines.add_stacks(
        [
            stack("/home/me/a.py:save:3", *SAVES),
            stack("/venv/site-packages/numpy/lib/npyio.py:load:400", "/home/me/a.py:read:9"),
            stack(f"{STDLIB}/tempfile.py:mkstemp:300"),
            stack(),
        ]
    )

    assert lines.lines() == ()


def test_a_hook_says_what_a_line_makes() -> None:
    lines = FileLines()
    data = {"inode": 7, "device": 1, "site": "frames.py:8", "bytes": 4096}
    for _ in range(3):
        lines.add_note(HookNote(WORKER_0, 1, "call-site", data))

    (line,) = lines.lines()

    assert (line.process, line.place, line.times, line.size_bytes) == (
        WORKER_0, "frames.py:8", 3, 4096,
    )  # fmt: skip


def test_few_lines_are_kept() -> None:
    lines = FileLines()
    for n in range(3 * module.LINES_LIMIT):
        lines.add_stacks([stack(*SAVES[:2], f"/home/me/a.py:f:{n}")])

    assert len(lines.lines()) == module.LINES_LIMIT
    assert lines.lines()[-1].place == f"a.py:{3 * module.LINES_LIMIT - 1} f"
