"""A kernel that lets only a tracer write to the code of another process (Linux 6.12 and later)."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from typing import Any

import pytest

from mpwatch.attach import methods
from mpwatch.attach.inject import detach, inject
from mpwatch.attach.native import native_call, pending_call
from mpwatch.attach.native.code_cave import TargetMemory
from mpwatch.attach.native.ptrace import WORD_BYTES, Tracee
from tests.integration.attach.conftest import Start

pytestmark = pytest.mark.slow


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The addresses at which code could not be written.

    The kernel refuses such a store with EIO (`mem_rw` in fs/proc/base.c); others it does not.
    """
    found: list[int] = []
    write = TargetMemory.write

    def without_force(self: TargetMemory, address: int, content: bytes) -> None:
        if content == native_call.native_code().content:
            found.append(address)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        write(self, address, content)

    monkeypatch.setattr(TargetMemory, "write", without_force)
    return found


@pytest.mark.parametrize("kind", ["idle", "busy"])
def test_the_tracer_writes_the_code_once_and_the_hook_comes_in(
    start: Start, refused: list[int], kind: str
) -> None:
    running = start("attach_plain", kind)

    assert inject(running.process, timeout_s=60).state == "ready"
    assert len(refused) == 1
    assert detach(running.process).state == "absent"
    assert inject(running.process, timeout_s=60).state == "ready"
    assert len(refused) == 1
    assert running.is_running
    memory = TargetMemory(running.pid)
    try:
        code = native_call.native_code().content
        assert memory.read(refused[0], len(code)) == code
    finally:
        memory.close()


def test_a_call_whose_code_is_not_in_place_is_refused_and_leaves_the_target_alone(
    start: Start, refused: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = pending_call.prepare
    monkeypatch.setattr(methods, "PASSES_WITHIN_S", 0.0)

    def without_code(*arguments: Any) -> pending_call.CallPlan:
        return replace(prepare(*arguments), code=b"")

    monkeypatch.setattr(pending_call, "prepare", without_code)
    running = start("attach_plain", "idle")

    attached = inject(running.process, timeout_s=60)

    assert refused
    assert attached.reason == "the code of the call was not written to its memory"
    assert running.is_running


def test_what_follows_the_code_in_its_last_word_stays_as_it_is(
    start: Start, refused: list[int]
) -> None:
    running = start("attach_plain", "idle")
    assert len(native_call.native_code().content) % WORD_BYTES  # else nothing follows
    before = os.open(f"/proc/{running.pid}/mem", os.O_RDONLY)
    try:
        assert inject(running.process, timeout_s=60).state == "ready"
        end = refused[0] + len(native_call.native_code().content)
        found = os.pread(before, WORD_BYTES, end)
    finally:
        os.close(before)
    assert found == b"\0" * WORD_BYTES


def test_a_tracer_writes_to_pages_that_their_process_may_only_read(start: Start) -> None:
    running = start("attach_plain", "idle")
    with open(f"/proc/{running.pid}/maps", encoding="utf-8") as maps:
        end = next(int(line.split()[0].split("-")[1], 16) for line in maps if " r-xp " in line)
    with Tracee(running.pid) as tracee:
        tracee.interrupt(5.0)
        tracee.write_words(end - 2 * WORD_BYTES, b"code of mpwatch.")
    memory = TargetMemory(running.pid)
    try:
        assert memory.read(end - 2 * WORD_BYTES, 2 * WORD_BYTES) == b"code of mpwatch."
    finally:
        memory.close()
    assert running.is_running
