"""Counted: what is read or derived again of a job in which nothing changed."""

from __future__ import annotations

import os
from typing import Any

import pytest

from mpwatch.collect.job import roles
from mpwatch.collect.job.process_tree import ProcessTree
from mpwatch.collect.job.reader import ReadRequest, TreeCollector
from mpwatch.collect.process import memory, procfs
from mpwatch.collect.process.identify import REREAD_S
from mpwatch.collect.process.memory import parse_mappings
from mpwatch.model.ids import ProcessId
from tests.builders.clock import Clock
from tests.unit.collect.conftest import FakeProc

CHEAP = ReadRequest(links_count=0, maps_count=0, memory_count=0)


def test_static_facts_that_are_read_again_unchanged_change_nothing(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    for pid in range(10, 30):
        proc.process(pid, parent=10 if pid > 10 else 1)
    tree = TreeCollector(ProcessId(10, 10), proc=str(proc), clock=clock, wall=lambda: 5e9)
    assigned: list[object] = []
    really = roles.assign

    def note(facts: Any, *rest: Any) -> Any:
        assigned.append(facts)
        return really(facts, *rest)

    monkeypatch.setattr("mpwatch.collect.job.reader.roles.assign", note)
    opened: list[str] = []
    really_open = os.open

    def note_open(path: Any, *arguments: Any, **more: Any) -> int:
        opened.append(str(path))
        return really_open(path, *arguments, **more)

    monkeypatch.setattr(os, "open", note_open)
    tree.collect(CHEAP)
    opened.clear()
    for _ in range(int(3 * REREAD_S)):
        clock.now_s += 1.0
        tree.collect(CHEAP)

    assert len([path for path in opened if path.endswith("15/limits")]) == 2
    assert len(assigned) == 1


def test_the_environment_is_read_once_of_each_program_that_a_process_executes(
    proc: FakeProc,
) -> None:
    clock = Clock()
    proc.process(10, environ="RANK=1\0")
    proc.write("10/stat", proc.stat(10, 1, start=10, environment_at=4096))
    tree = TreeCollector(ProcessId(10, 10), proc=str(proc), clock=clock, wall=lambda: 5e9)

    def rank() -> str | None:
        clock.now_s += REREAD_S + 1
        reading = tree.collect(CHEAP)
        assert reading is not None
        return reading.processes[0].environment.get("RANK")

    assert rank() == "1"
    # setproctitle(3) writes over that memory.
    proc.write("10/environ", "title\0")
    assert rank() == "1"
    proc.write("10/stat", proc.stat(10, 1, state="D", start=10, environment_at=8192))
    assert rank() == "1"

    proc.write("10/environ", "RANK=2\0")
    proc.write("10/stat", proc.stat(10, 1, start=10, environment_at=8192))
    assert rank() == "2"


def test_an_environment_that_could_not_be_read_is_tried_again(proc: FakeProc) -> None:
    clock = Clock()
    proc.process(10)
    proc.write("10/stat", proc.stat(10, 1, state="D", start=10, environment_at=4096))
    tree = TreeCollector(ProcessId(10, 10), proc=str(proc), clock=clock, wall=lambda: 5e9)
    tree.collect(CHEAP)
    proc.write("10/stat", proc.stat(10, 1, start=10, environment_at=4096))
    proc.write("10/environ", "RANK=3\0")
    clock.now_s += REREAD_S + 1

    reading = tree.collect(CHEAP)

    assert reading is not None
    assert reading.processes[0].environment == {"RANK": "3"}


def test_a_limit_that_was_changed_from_outside_is_noticed(proc: FakeProc) -> None:
    clock = Clock()
    proc.process(10)
    tree = TreeCollector(ProcessId(10, 10), proc=str(proc), clock=clock, wall=lambda: 5e9)

    def limit() -> int | None:
        clock.now_s += REREAD_S + 1
        reading = tree.collect(CHEAP)
        assert reading is not None
        fds = reading.processes[0].fds
        return fds.soft_limit if fds is not None else None

    before = limit()
    proc.write("10/limits", "Max open files            77                   4096      files\n")

    assert before != 77
    assert limit() == 77


def test_new_processes_outside_the_job_are_read_once_each(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc.process(10)
    for pid in range(11, 75):
        proc.process(pid, parent=10)
    tree = ProcessTree(ProcessId(10, 10), str(proc))
    tree.update()
    for pid in range(200, 210):
        proc.process(pid, parent=1)
    tree.started()
    for pid in range(210, 220):
        proc.process(pid, parent=1)
    opened: list[str] = []
    really = os.open

    def note(path: Any, *arguments: Any, **more: Any) -> int:
        opened.append(str(path))
        return really(path, *arguments, **more)

    monkeypatch.setattr(os, "open", note)

    assert tree.started() == []
    assert len(opened) == 11  # `loadavg`, and one `stat` for each process outside the job


def test_lines_that_forked_workers_share_are_parsed_once() -> None:
    memory.parse_span.cache_clear()
    lines = b"".join(
        b"7f%010x-7f%010x rw-s 00000000 00:1a %d   /dev/shm/sem.mp-%d (deleted)\n"
        % (n * 4096, (n + 1) * 4096, n, n)
        for n in range(1, 101)
    )
    heap = b"55d000000000-55d000021000 rw-p 00000000 00:00 0                          [heap]\n"
    own = b"7fff00000000-7fff00001000 rw-s 00000000 00:1a %d   /dev/shm/torch_1_%d\n"

    found = [parse_mappings(heap + lines + own % (1000 + n, n)) for n in range(64)]

    assert memory.parse_span.cache_info().misses == 100 + 64
    assert {len(each.files) for each in found} == {101}
    assert found[0].spans[0] is found[63].spans[0]
    assert [each.torch_count for each in found] == [1] * 64
    assert memory.parse_span.cache_info().maxsize is not None


@pytest.mark.parametrize("inode", [5, 12345678901234])
def test_libraries_are_found_wherever_the_kernel_begins_their_paths(inode: int) -> None:
    line = b"7f0000000000-7f0000001000 r-xp 00000000 08:01 %d" % inode
    wide = line.ljust(73) + b"/usr/lib/libgomp.so.1\n"
    narrow = b"b7000000-b7001000 r-xp 00000000 08:01 77".ljust(49) + b"/lib/libtbb.so.12\n"

    assert parse_mappings(wide + narrow).libraries == ("libgomp.so.1", "libtbb.so.12")


def test_of_a_process_outside_the_job_only_the_parent_is_parsed() -> None:
    line = b"77 (a) name (b) S 4211 77 1 0 -1 4194560 1 0 0 0 3 4 0 0 20 0 1 0 900 1 2\n"

    assert procfs.parent_in(line) == 4211
    assert [procfs.parent_in(odd) for odd in (b"", b"77 (x", b"77 (x) S", b"x) S y z")] == [0] * 4
