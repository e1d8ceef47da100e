"""The last lines that a job has written."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from mpwatch.collect.process.output import LINES, Output, OutputReads, last_lines
from mpwatch.collect.process.procfs import read_stat
from mpwatch.collect.process.written_errors import FILES
from mpwatch.model.samples import FdLink, FdSample
from mpwatch.model.snapshot import Snapshot
from tests.builders.snapshots import main, snapshot_of


def job_of(pid: int, *links: FdLink) -> Snapshot:
    """A job of one process with these descriptors."""
    stat = read_stat("/proc", pid)
    assert stat is not None
    root = main(pid, fds=FdSample(len(links), 1024, 1024, links=links))
    return snapshot_of(
        replace(root, process=stat.process, sample=replace(root.sample, process=stat.process))
    )


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the file `log` as standard output."""
    with (tmp_path / "log").open("w") as log:
        log.write("first\n")
        log.flush()
        process = subprocess.Popen(["sleep", "600"], stdout=log)
    yield process
    process.kill()
    process.wait()


def test_the_last_text_of_a_line_that_is_written_over_is_kept() -> None:
    assert last_lines(b"10%\r50%\r100%\r\ndone\n", is_whole=True) == (("100%", "done"), False)


def test_an_incomplete_first_line_is_left_out() -> None:
    assert last_lines(b"lf a line\nnext\nlast", is_whole=False) == (("next", "last"), True)


def test_escapes_do_not_reach_the_screen() -> None:
    assert last_lines(b"\x1b[31mred\x1b[0m \x1b]0;title\x07\tx\n", is_whole=True)[0] == (
        "red     x",
    )


def test_lines_are_bounded() -> None:
    lines, is_cut = last_lines(b"x\n" * (LINES + 1), is_whole=True)

    assert (len(lines), is_cut) == (LINES, True)


def test_a_file_is_read_through_its_writer_and_also_after_the_writer_has_ended(
    tmp_path: Path, writer: subprocess.Popen[bytes]
) -> None:
    path = tmp_path / "log"
    job = job_of(writer.pid, FdLink(1, "file", str(path), None, True))
    reported: list[tuple[Output, ...]] = []
    reads = OutputReads(reported.append)

    reads.start(job)
    reads.wait(10)
    path.rename(tmp_path / "moved")
    with (tmp_path / "moved").open("a") as log:
        log.write("last\n")
    writer.kill()
    writer.wait()
    reads.start(replace(job, processes=()))
    reads.wait(10)
    reads.close()

    (before,), (after,) = reported
    assert (before.lines, before.size_bytes) == (("first",), 6)
    assert after.lines == ("first", "last")
    assert [each.pid for each in after.writers] == [writer.pid]


def test_a_terminal_is_named_and_not_opened(writer: subprocess.Popen[bytes]) -> None:
    reported: list[tuple[Output, ...]] = []
    reads = OutputReads(reported.append)

    reads.start(job_of(writer.pid, FdLink(1, "device", "/dev/pts/9", None, None)))
    reads.wait(10)

    ((terminal,),) = reported
    assert (terminal.target, terminal.lines, terminal.problem) == ("/dev/pts/9", (), "")


def test_a_file_whose_writers_have_ended_says_so(writer: subprocess.Popen[bytes]) -> None:
    job = job_of(writer.pid, FdLink(1, "file", "/nowhere/log", None, True))
    writer.kill()
    writer.wait()
    reported: list[tuple[Output, ...]] = []
    reads = OutputReads(reported.append)

    reads.start(job)
    reads.wait(10)

    ((output,),) = reported
    assert output.problem


def started(path: Path, text: str) -> subprocess.Popen[bytes]:
    """A process that has a new file there as its standard output."""
    path.unlink(missing_ok=True)
    path.write_text(text)
    with path.open("a") as log:
        return subprocess.Popen(["sleep", "600"], stdout=log)


def test_a_new_file_at_the_same_path_is_read_in_place_of_the_old_one(tmp_path: Path) -> None:
    """A rank that was started again begins its log anew."""
    path = tmp_path / "rank0.log"
    link = FdLink(1, "file", str(path), None, True)
    reported: list[tuple[Output, ...]] = []
    reads = OutputReads(reported.append)
    for text in ("first attempt\n", "second attempt\n"):
        rank = started(path, text)
        job = job_of(rank.pid, link)
        reads.start(job)
        reads.wait(10)
        rank.kill()
        rank.wait()
    reads.close()

    assert [each[0].lines for each in reported] == [("first attempt",), ("second attempt",)]
    assert reported[-1][0].writers == (job.root,)


def test_files_of_a_new_attempt_take_the_place_of_those_of_ended_ranks(tmp_path: Path) -> None:
    reported: list[tuple[Output, ...]] = []
    reads = OutputReads(reported.append)
    before = len(os.listdir("/proc/self/fd"))
    for attempt in range(FILES + 2):
        path = tmp_path / f"attempt_{attempt}.log"
        rank = started(path, f"{attempt}\n")
        reads.start(job_of(rank.pid, FdLink(1, "file", str(path), None, True)))
        reads.wait(10)
        rank.kill()
        rank.wait()

    assert [each.lines for each in reported[-1]] == [(str(n),) for n in range(2, FILES + 2)]
    assert len(os.listdir("/proc/self/fd")) == before + FILES
    reads.close()
    assert len(os.listdir("/proc/self/fd")) == before
