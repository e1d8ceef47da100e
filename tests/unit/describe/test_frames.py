"""Stack frames in words."""

from __future__ import annotations

import pytest

from mpwatch.describe.frames import frame_words, is_library, own_frames, place_words, short_path
from mpwatch.model.samples import Frame

USER = Frame("decode", "/home/ada/data.py", 31)
THREAD = Frame("_bootstrap", "/usr/lib/python3.11/threading.py", 1002)
CHILD = Frame("_bootstrap", "/usr/lib/python3.11/multiprocessing/process.py", 314)
LAUNCH = Frame("_launch", "/usr/lib/python3.11/multiprocessing/popen_fork.py", 71)


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/opt/x/lib/python3.11/site-packages/torch/a.py", "torch/a.py"),
        ("/usr/lib/python3.12/threading.py", "threading.py"),
        ("<frozen runpy>", "runpy"),
        ("/home/ada/train.py", "/home/ada/train.py"),
    ],
)
def test_library_files_are_shown_from_their_package_on(path: str, short: str) -> None:
    assert short_path(path) == short


def test_frames_below_the_start_of_a_child_belong_to_its_parent() -> None:
    assert own_frames((USER, CHILD, LAUNCH)) == (USER, CHILD)


def test_the_start_of_a_thread_is_not_the_start_of_a_process() -> None:
    assert own_frames((USER, THREAD)) == (USER, THREAD)


def test_a_frame_in_words() -> None:
    assert frame_words(USER) == "data.py:31 decode"
    assert frame_words(USER._replace(line=0)) == "data.py decode"
    assert place_words("/home/ada/data.py", 0) == "/home/ada/data.py"
    assert [is_library(frame) for frame in (USER, CHILD)] == [False, True]


@pytest.mark.parametrize(
    ("file", "is_one"),
    [
        ("/home/ada/src/mpwatch/hook/points/processes.py", True),
        ("/home/ada/src/mpwatch/attach/payload/start.py", True),
        ("/home/ada/src/mpwatch/demo/hangs/join.py", False),
        ("<dynamic-code>", False),
        ("<string>", True),
        ("<frozen importlib._bootstrap>", True),
    ],
)
def test_code_of_the_program_is_no_library_and_that_of_the_hook_is_one(
    file: str, is_one: bool
) -> None:
    assert is_library(Frame("_step", file, 29)) is is_one
