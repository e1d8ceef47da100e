from __future__ import annotations

import types
from pathlib import Path

import pytest

from mpwatch.hook.checks.cuda_lent import COUNTER, HEADER_BYTES, Lent
from mpwatch.hook.safe.unpatched import System

NAME = b"/torch_4242_77_0"


def counters(folder: Path, *values: int) -> None:
    """Write a file of counters as torch lays it out."""
    body = b"".join(map(COUNTER.pack, values))
    (folder / NAME.decode().lstrip("/")).write_bytes(bytes(HEADER_BYTES) + body)


def sent(number: int, size: int = 1024, *, event: bool = True) -> tuple[object, ...]:
    """What `_share_cuda_` returns."""
    return 0, b"handle", size, 0, NAME, number, b"event", event


@pytest.fixture
def lent(tmp_path: Path) -> Lent:
    return Lent(System(), str(tmp_path))


def test_before_the_first_send_there_is_no_gauge(lent: Lent) -> None:
    assert lent.show() is None


def test_tensors_not_released_by_receivers_are_counted(lent: Lent, tmp_path: Path) -> None:
    counters(tmp_path, 1, 0, 1)
    for number in range(3):
        lent.send(sent(number))

    shown = lent.show()

    assert shown is not None
    assert (shown["sent"], shown["unreleased"], shown["bytes"]) == (3, 2, 2048)
    assert shown["oldest_ns"] > 0


def test_released_tensors_are_not_read_again(lent: Lent, tmp_path: Path) -> None:
    counters(tmp_path, 0)
    lent.send(sent(0))
    lent.show()
    counters(tmp_path, 1)

    shown = lent.show()

    assert shown is not None
    assert shown["unreleased"] == 0


def test_a_removed_file_counts_no_tensor(lent: Lent) -> None:
    lent.send(sent(0))

    shown = lent.show()

    assert shown is not None
    assert (shown["sent"], shown["unreleased"], shown["oldest_ns"]) == (1, 0, None)


def test_sends_that_waited_for_the_stream_are_counted(lent: Lent) -> None:
    lent.send(sent(0, event=False))
    lent.send(sent(1))

    shown = lent.show()

    assert shown is not None
    assert shown["synchronised"] == 1


def test_a_second_thread_that_reads_the_gauge_sees_the_same_tensors(
    lent: Lent, tmp_path: Path
) -> None:
    counters(tmp_path, 1, 0)
    lent.send(sent(0))
    lent.send(sent(1))
    seen = []

    class Interrupted(System):
        """Lets the other thread read the gauge whenever a counter is read."""

        def __init__(self) -> None:
            super().__init__()
            self.os, pread = types.SimpleNamespace(**vars(self.os)), self.os.pread

            def pread_late(*arguments: int) -> bytes:
                self.os.pread = pread
                seen.append(lent.show())
                self.os.pread = pread_late
                return bytes(pread(*arguments))

            self.os.pread = pread_late

    lent._system = Interrupted()
    seen.append(lent.show())

    assert [each["unreleased"] for each in seen if each] == [1] * 3
