"""Tracebacks in the files to which a job writes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpwatch.collect.process.written_errors import (
    LOGGED,
    TAIL_BYTES,
    ErrorReads,
    tracebacks,
)
from mpwatch.model.events import WrittenError, WrittenErrors
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import FdLink
from mpwatch.model.snapshot import Snapshot
from tests.builders.snapshots import fds, process, snapshot_of

BOOT = '  File "/usr/lib/python3.11/multiprocessing/process.py", line 314, in _bootstrap\n'
LOAD = '  File "/app/load.py", line 7, in load\n    raise KeyError(number)\n    ^^^^^^^^\n'
MODULE = '  File "/app/train.py", line 90, in <module>\n    main()\n'
BEGIN = "Traceback (most recent call last):\n"
PLAIN = f"{BEGIN}{BOOT}    self.run()\n{LOAD}KeyError: 3\n"
CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"
ORIGINAL = (
    f"Process loader-0:\n{BEGIN}{BOOT}    raise\n"
    "ValueError: Caught KeyError in DataLoader worker process 0.\n"
    f"Original {BEGIN}{LOAD}KeyError: 3\n"
)
REMOTE = (
    "Process Process-2:\nconcurrent.futures.process._RemoteTraceback: \n"
    f'"""\n{BEGIN}{LOAD}KeyError: 3\n"""\n{CAUSE}{BEGIN}{BOOT}    run()\npkg.errors.Failed\n'
)


def only(text: str) -> WrittenError:
    """The one traceback in a text."""
    (error,) = tracebacks(text.encode(), 0)
    return error


def test_the_line_above_a_traceback_names_the_process_that_it_has_ended() -> None:
    error = only(f"step 1\nProcess augmenter-1:\n{PLAIN}step 2\n")

    assert (error.process_name, error.thread_name, error.offset) == ("augmenter-1", "", 28)
    assert (error.raised.type, error.raised.text) == ("KeyError", "3")
    assert error.raised.frames[0] == ("load", "/app/load.py", 7, (), False)
    assert error.first is None


def test_a_thread_is_named_in_the_same_way() -> None:
    assert only(f"Exception in thread Thread-3 (add):\n{PLAIN}").thread_name == "Thread-3 (add)"


@pytest.mark.parametrize(
    ("text", "kinds", "is_from"),
    [
        (f"Process a:\n{PLAIN}{CAUSE}{BEGIN}{BOOT}OSError: no\n", ("OSError", "KeyError"), True),
        (f"Process a:\n{PLAIN}{CONTEXT}{BEGIN}{BOOT}OSError: no\n", ("OSError", "KeyError"), False),
        (ORIGINAL, ("ValueError", "KeyError"), True),
        (REMOTE, ("Failed", "KeyError"), True),
    ],
)
def test_a_chain_has_its_last_exception_and_its_first(
    text: str, kinds: tuple[str, str], is_from: bool
) -> None:
    error = only(text)

    assert error.process_name
    assert error.first is not None
    assert (error.raised.type, error.first.type) == kinds
    assert error.first.frames[0].file == "/app/load.py"
    assert error.is_from is is_from


def test_ranks_are_distinguished_by_the_start_of_each_line() -> None:
    first, second = f"{BEGIN}{MODULE}{LOAD}KeyError: 0\n", f"{BEGIN}{MODULE}{LOAD}KeyError: 1\n"
    rows = zip(first.splitlines(), second.splitlines(), strict=True)
    text = "".join(f"[rank0]: {a}\n[rank12]: {b}\n" for a, b in rows)

    found = tracebacks(text.encode(), 0)

    assert [(each.rank, each.raised.text) for each in found] == [(0, "0"), (12, "1")]
    assert only(f"[default2]: {first}".replace("\n", "\n[default2]: ")).rank == 2


def test_what_a_program_has_logged_and_handled_is_none_of_its_ends() -> None:
    assert tracebacks(f"ERROR in worker 412\n{PLAIN}".encode(), 0) == []
    ignored = f"Exception ignored in: <function Pool.__del__>\n{PLAIN}"
    assert tracebacks(ignored.encode(), 0) == []


def test_it_is_kept_for_the_process_whose_pid_stands_above_it() -> None:
    worker = ProcessId(412, 9)
    text = f"2026-11-26 11:26:51,412 INFO\nException in worker 1 (pid 412)\n{PLAIN}"

    (error,) = tracebacks(text.encode(), 0, {412: worker})

    assert error.process == worker
    assert tracebacks(f"11:26:51,412 skipped\n{PLAIN}".encode(), 0, {412: worker}) == []


def test_the_module_that_a_traceback_begins_with_is_kept() -> None:
    run = '  File "<frozen runpy>", line 88, in _run_code\n'
    assert only(f"{BEGIN}{run}{MODULE}{LOAD}KeyError: 3\n").script == "/app/train.py"


@pytest.mark.parametrize("cut", range(1, len(PLAIN.splitlines())))
def test_a_traceback_that_is_not_all_there_is_none_yet(cut: int) -> None:
    text = "Process a:\n" + "\n".join(PLAIN.splitlines()[:-cut])
    assert tracebacks(text.encode(), 0) == []
    assert tracebacks(f"Process a:\n{PLAIN}".rstrip("\n").encode(), 0) == []


def test_text_is_cleaned_and_colours_are_no_part_of_it() -> None:
    text = f"Process a\x1b]0;x\x07\u202e:\n{PLAIN}".replace(
        "KeyError: 3", "\x1b[35mKeyError: 3\x1b[0m"
    )
    error = only(text)

    assert error.process_name == "a\ufffd"
    assert error.raised.text == "3"


LINES = st.lists(
    st.one_of(
        st.sampled_from([*ORIGINAL.splitlines(), *REMOTE.splitlines(), *CONTEXT.splitlines()]),
        st.text(max_size=40),
    ),
    max_size=40,
)


@given(st.one_of(st.binary(max_size=600), LINES.map(lambda rows: "\n".join(rows).encode())))
def test_any_bytes_are_read(raw: bytes) -> None:
    for error in tracebacks(raw, 5):
        assert 5 <= error.offset < 5 + len(raw)
        assert error.raised.frames
        for text in (error.process_name, error.raised.text, error.raised.type):
            assert text.isprintable()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "train.log"


@pytest.fixture
def writer(log: Path) -> Iterator[Popen[bytes]]:
    """A process with the file as standard error."""
    with log.open("ab") as file:
        process = Popen([sys.executable, "-c", "import time; time.sleep(60)"], stderr=file)
    yield process
    process.kill()
    process.wait()


def job(writer: Popen[bytes], log: Path, born_s: float) -> Snapshot:
    link = FdLink(2, "file", str(log), None, True)
    main = process(writer.pid, "main", born_wall_s=born_s, fds=fds(1, links=(link,)))
    return snapshot_of(main)


class Reads:
    """What is read of a job, one look after the other."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.found: list[WrittenErrors] = []
        self.reads = ErrorReads(self.found.append)

    def look(self) -> tuple[WrittenError, ...]:
        """The tracebacks that are new."""
        self.found.clear()
        self.reads.start_due(self.snapshot, now=True)
        self.reads.wait(10)
        return tuple(error for read in self.found for error in read.errors)


def test_each_traceback_of_a_file_is_read_once(writer: Popen[bytes], log: Path) -> None:
    reads = Reads(job(writer, log, time.time()))
    assert reads.look() == ()

    with log.open("a") as file:
        file.write(f"Process a-1:\n{PLAIN}")
    (first,) = reads.look()
    assert reads.look() == ()
    with log.open("a") as file:
        file.write(f"Process a-2:\n{PLAIN}")
    (second,) = reads.look()

    assert (first.process_name, second.process_name) == ("a-1", "a-2")
    assert first.file == str(log)
    assert first.writers == (process(writer.pid).process,)
    assert first.is_of_job


def test_text_that_may_be_of_an_earlier_run_is_distinguished(log: Path) -> None:
    log.write_text(f"Process old-1:\n{PLAIN}")
    with log.open("ab") as file:
        process = Popen([sys.executable, "-c", "import time; time.sleep(60)"], stderr=file)
    try:
        reads = Reads(job(process, log, time.time() + 60))
        assert reads.look() == ()  # nothing was written since the job began

        os.utime(log, (time.time() + 90, time.time() + 90))
        (old,) = reads.look()
        with log.open("a") as file:
            file.write(f"Process new-1:\n{PLAIN}")
        os.utime(log, (time.time() + 91, time.time() + 91))
        (new,) = reads.look()
    finally:
        process.kill()
        process.wait()

    assert (old.process_name, old.is_of_job) == ("old-1", False)
    assert (new.process_name, new.is_of_job) == ("new-1", True)


def test_only_the_end_of_a_long_file_is_read(writer: Popen[bytes], log: Path) -> None:
    reads = Reads(job(writer, log, time.time()))
    with log.open("a") as file:
        file.write(f"Process a-1:\n{PLAIN}" + "x\n" * TAIL_BYTES + f"Process a-2:\n{PLAIN}")

    assert [each.process_name for each in reads.look()] == ["a-2"]


def test_the_file_of_a_process_that_has_ended_is_found_by_its_path(
    writer: Popen[bytes], log: Path
) -> None:
    before = job(writer, log, time.time())
    reads = Reads(before)
    reads.look()
    with log.open("a") as file:
        file.write(f"Process a-1:\n{PLAIN}")
    other = process(os.getpid(), "main", born_wall_s=time.time() - 9)
    reads.snapshot = snapshot_of(other)

    assert [each.process_name for each in reads.look()] == ["a-1"]
    log.unlink()
    log.write_text(f"Process another-file:\n{PLAIN}")
    assert reads.look() == ()


def test_a_fifo_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDWR)
    process = Popen([sys.executable, "-c", "import time; time.sleep(60)"], stderr=descriptor)
    os.close(descriptor)
    try:
        assert Reads(job(process, path, time.time())).look() == ()
    finally:
        process.kill()
        process.wait()


def test_a_program_that_logs_without_an_end_is_followed_within_limits(
    writer: Popen[bytes], log: Path
) -> None:
    reads = Reads(job(writer, log, time.time()))
    with log.open("a") as file:
        for number in range(LOGGED + 64):
            kind = f"Error{number % 2}"
            file.write(f"failed in {writer.pid}\n{PLAIN.replace('KeyError', kind)}")
    assert len(reads.look()) == LOGGED
    with log.open("a") as file:
        file.write(f"failed in {writer.pid}\n{PLAIN}Process a-1:\n{PLAIN}")

    assert [each.process_name for each in reads.look()] == ["a-1"]


def test_uncaught_exceptions_are_reported_however_many_there_were(
    writer: Popen[bytes], log: Path
) -> None:
    reads = Reads(job(writer, log, time.time()))
    for number in range(100):
        with log.open("a") as file:
            file.write(f"Process a-{number}:\n{PLAIN}")
        assert [each.process_name for each in reads.look()] == [f"a-{number}"]


def test_what_a_process_logs_again_and_again_is_read_once(writer: Popen[bytes], log: Path) -> None:
    reads = Reads(job(writer, log, time.time()))
    for told in (1, 0):
        with log.open("a") as file:
            file.write(f"failed in {writer.pid}\n{PLAIN}" * 3)
        assert len(reads.look()) == told
    with log.open("a") as file:
        other = PLAIN.replace("KeyError", "OSError")
        file.write(f"failed in {writer.pid}\n{other}failed in {writer.pid}\n{PLAIN}")

    assert [each.raised.type for each in reads.look()] == ["OSError", "KeyError"]
