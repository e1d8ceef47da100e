"""After a detach everything is as it was, in all processes, also for who captured a wrapper."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from mpwatch.attach.inject import detach, inject
from mpwatch.attach.inject_tree import detach_tree, inject_tree
from mpwatch.attach.native import elf
from mpwatch.attach.outcomes import Attached, Detached
from mpwatch.collect.process.procfs import stat_of
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample
from tests import procfs
from tests.integration.attach.conftest import Running, Start
from tests.integration.attach.test_blocked_calls import is_blocked
from tests.integration.attach.test_kinds_of_targets import sample
from tests.integration.on_demand import IS_SET
from tests.procfs import eventually

pytestmark = pytest.mark.slow

VISITS = int(os.environ.get("MPWATCH_VISITS", "12" if IS_SET else "6"))
WARM_UP = 3


def ask(running: Running) -> tuple[list[str], list[str], float]:
    """The replaced attributes, the new modules, and the sum of results of captured functions."""
    running.say(b"\n")
    replaced, new, total = json.loads(running.line())
    return replaced, new, total


def settle(running: Running, is_in: bool) -> None:
    """Wait until the hook is attached to or detached from a program that mostly waits for its
    standard input."""
    assert eventually(lambda: is_blocked(running.pid))
    if is_in:
        assert inject(running.process, timeout_s=0.05).state in ("pending", "ready")
    else:
        gone = detach_tree(family(running), lambda outcome: None, timeout_s=20)
        assert {each.state for each in gone} == {"absent"}, gone


def test_originals_are_restored_by_identity_and_captured_wrappers_still_work(
    start: Start, runtime: Path
) -> None:
    running = start("attach_originals")
    assert ask(running) == ([], [], 0.0)
    settle(running, True)
    first = ask(running)
    assert eventually(lambda: inject(running.process).method == "already there")
    replaced, new, total = ask(running)
    assert {"reducer of UntypedStorage", "multiprocessing.queues.SimpleQueue.put"} <= {*replaced}
    assert len(replaced) > 10
    assert (first[2], total) == (3 + 28.0, 3 + 92.0)
    settle(running, False)
    replaced, new, total = ask(running)
    assert replaced == []
    assert total == 3 + 156.0
    # Only modules of the hook and of the standard library stay loaded.
    own = {name for name in new if name.split(".")[0] == "_mpwatch_hook"}
    assert own
    assert {name.split(".")[0].lstrip("_") for name in set(new) - own} <= STANDARD
    assert list((runtime / "mpwatch").iterdir()) == []


STANDARD = {
    "ctypes",
    "faulthandler",
    "json",
    "mmap",
    "posixsubprocess",
    "resource",
    "socket",
    "struct",
    "uuid",
    "zoneinfo",
}


def family(running: Running) -> list[ProcSample]:
    workers = procfs.children(running.pid)
    return [sample(running.pid, role="main")] + [sample(w, role="loader-worker") for w in workers]


def holdings(pid: int) -> dict[str, int]:
    mappings = elf.read_mappings(pid)
    return {
        "fds": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": len(procfs.threads(pid)),
        "files mapped": sum(bool(m.inode) and not m.path.startswith("/dev/shm/") for m in mappings),
    }


def least(looks: list[list[dict[str, int]]]) -> list[dict[str, int]]:
    """The least that each process held; on a busy machine few looks find it with nothing."""
    return [
        {name: min(look[at][name] for look in looks) for name in looks[0][at]}
        for at in range(len(looks[0]))
    ]


def test_attaching_to_a_loading_job_changes_no_fds_threads_maps_memory_or_sums(
    start: Start, runtime: Path
) -> None:
    running = start("attach_loader")
    samples = family(running)
    assert len(samples) == 3

    def attach_and_detach() -> None:
        outcomes: tuple[Attached | Detached, ...]
        outcomes = inject_tree(samples, lambda outcome: None, timeout_s=20)
        assert [o.state for o in outcomes] == ["ready"] * 3, outcomes
        outcomes = detach_tree(samples, lambda outcome: None, timeout_s=20)
        assert [o.state for o in outcomes] == ["absent"] * 3, outcomes
        running.drain()

    def looks() -> list[list[dict[str, int]]]:
        """What each process holds, in each of a few epochs: batches come and go."""
        seen = []
        for _ in range(30):
            running.newest_line()
            seen.append([holdings(each.process.pid) for each in samples])
        return seen

    before = least(looks())
    for _ in range(WARM_UP):  # the first batches import modules that stay loaded
        attach_and_detach()
    for was, warm in zip(before, least(looks()), strict=True):
        was["files mapped"] = warm["files mapped"]
    memory = [procfs.resident_kib(each.process.pid) for each in samples]
    for _ in range(VISITS):
        attach_and_detach()
    after: list[list[dict[str, int]]] = []

    def is_as_before() -> bool:
        after.extend(looks())
        pairs = zip(least(after), before, strict=True)
        return all(now[name] <= was[name] for now, was in pairs for name in was)

    assert eventually(is_as_before), (least(after), before)
    later = [procfs.resident_kib(each.process.pid) for each in samples]
    grown = [now - before for now, before in zip(later, memory, strict=True)]
    assert max(grown) < 4096, grown
    assert {line for line in running.lines if line != "ready"} == {str(256 * sum(range(64)))}
    assert list((runtime / "mpwatch").iterdir()) == []


def faults(pid: int) -> int:
    """Minor page faults of a process so far."""
    return int(procfs.fields(pid)[7])


def test_a_forked_process_still_shares_the_heap_with_its_parent(start: Start) -> None:
    running = start("attach_forked")
    child = int(running.line())
    heap_pages = procfs.resident_kib(running.pid) // 4
    before = faults(child)
    assert inject(sample(child).process, timeout_s=20).state == "ready"
    assert detach(sample(child).process, timeout_s=20).state == "absent"
    assert heap_pages > 10_000
    assert faults(child) - before < 2500


@pytest.mark.parametrize(
    ("method", "code", "kept"),
    [
        ("fork", 0, []),
        ("forkserver", 0, []),
        ("spawn", 0, []),
        ("fork", 3, [".notes", ".ring"] * 2),
        ("forkserver", 3, [".notes", ".ring"] * 2),
    ],
)
def test_children_injected_while_running_exit_like_those_started_with_the_hook(
    start: Start, runtime: Path, method: str, code: int, kept: list[str]
) -> None:
    running = start("attach_children", method, str(code))
    pids = [int(word) for word in running.line().split()]
    for pid in pids:  # one of `spawn` has just been started
        child = stat_of(pid).process
        assert eventually(lambda: inject(child, timeout_s=20).state == "ready")  # noqa: B023

    running.say(b"end\n")

    assert running.line() == f"{code} {code}"
    left = list((runtime / "mpwatch").iterdir())
    assert sorted(path.suffix for path in left) == sorted(kept)
    texts = [path.read_text() for path in left if path.suffix == ".notes"]
    notes = [json.loads(line) for text in texts for line in text.splitlines()]
    assert len(notes) >= len(kept) // 2
    assert "os._exit" not in [note.get("how") for note in notes]


def test_a_process_that_ends_while_it_is_detached_is_reported_as_ended(start: Start) -> None:
    running = start("attach_plain", "idle")
    assert eventually(lambda: inject(running.process, timeout_s=20).state == "ready")

    def end(process: ProcessId, method: str, hook: str) -> None:
        os.kill(process.pid, signal.SIGKILL)
        assert eventually(lambda: stat_of(process.pid).state == "Z")  # its parent reaps it later

    detached = detach(running.process, timeout_s=20, begun=end)

    assert (detached.state, detached.reason) == ("absent", "the process has ended")
