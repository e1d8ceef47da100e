"""Autopsies of dead processes."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from mpwatch.collect.process.procfs import read_stat
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.engine import Engine, Rule
from mpwatch.hook import wire
from mpwatch.model.findings import Finding
from mpwatch.model.ids import ProcessId
from mpwatch.report.autopsy import NO_EXIT, NothingLeft, autopsies, autopsy_text, ended
from mpwatch.report.table import TextStyle, cell_width
from tests import procfs
from tests.builders.hook_files import start_note, write_hook_files
from tests.builders.report_job import finding
from tests.conftest import Start

# Above the largest possible pid, so that none of them exists.
MAIN = ProcessId(5_000_001, 10)
WORKER = ProcessId(5_000_002, 20)
OTHER = ProcessId(5_000_003, 30)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made = tmp_path / "mpwatch"
    made.mkdir(mode=0o700)
    # Other folders of the user may hold any number of files of real jobs.
    monkeypatch.setattr("mpwatch.collect.hook.left_files.folders_of_user", lambda *_: (str(made),))
    return made


def leave_a_job(folder: Path) -> None:
    write_hook_files(
        folder, MAIN, [(wire.LOADER_NEXT, 900, 416)], [start_note(WORKER.pid, worker_id=3)]
    )
    write_hook_files(
        folder,
        WORKER,
        [
            (wire.LOADER_FETCH_BEGIN, 100, 416, 3),
            (wire.LOADER_FETCH, 200, 416, 3),
            (wire.LOADER_FETCH_BEGIN, 300, 417, 3),
            (wire.SHARE, 450),
        ],
    )


def test_parents_come_before_children_and_workers_have_their_number(folder: Path) -> None:
    leave_a_job(folder)

    (autopsy,) = autopsies(str(folder))

    assert [dead.files.process for dead in autopsy.dead] == [MAIN, WORKER]
    assert autopsy.dead[1].parent == MAIN
    assert [p.label for p in autopsy.snapshot.processes] == ["main", "worker 3"]


def test_an_unfinished_call_is_found(folder: Path) -> None:
    leave_a_job(folder)
    worker = autopsies(str(folder))[0].dead[1]

    assert worker.unfinished is not None
    assert worker.unfinished.aux == 417
    assert autopsies(str(folder))[0].dead[0].unfinished is None


def test_the_number_of_a_worker_is_known_from_its_own_records(folder: Path) -> None:
    write_hook_files(folder, WORKER, [(wire.LOADER_FETCH_BEGIN, 100, 1, 3)])

    assert autopsies(str(folder))[0].dead[0].worker_id == 3


@pytest.mark.parametrize(
    ("notes", "words"),
    [
        ([], f"unknown: {NO_EXIT}"),
        ([{"kind": "exit", "ms": 5, "code": 3}], "exit code 3"),
        ([{"kind": "exception", "ms": 5, "where": "main", "type": "KeyError"}], "exit code 1"),
        ([{"kind": "exception", "ms": 5, "where": "queue get"}], f"unknown: {NO_EXIT}"),
    ],
)
def test_the_exit_status_comes_from_the_notes(
    folder: Path, notes: list[dict[str, object]], words: str
) -> None:
    write_hook_files(folder, MAIN, notes=notes)

    ((dead,),) = (autopsy.dead for autopsy in autopsies(str(folder)))

    assert ended(dead).words == words


def test_by_pid_only_that_process_and_its_descendants_are_examined(folder: Path) -> None:
    leave_a_job(folder)
    write_hook_files(folder, OTHER)

    (whole,) = autopsies(str(MAIN.pid))
    (part,) = autopsies(str(WORKER.pid))

    assert [dead.files.process for dead in whole.dead] == [MAIN, WORKER]
    assert [dead.files.process for dead in part.dead] == [WORKER]
    assert len(autopsies(str(folder))) == 2


def test_of_two_processes_with_one_pid_the_later_is_examined(folder: Path) -> None:
    write_hook_files(folder, MAIN)
    write_hook_files(folder, MAIN._replace(start_ticks=99))

    assert autopsies(str(MAIN.pid))[0].dead[0].files.process.start_ticks == 99


def test_rules_apply_to_the_files_of_dead_processes(folder: Path) -> None:
    write_hook_files(folder, MAIN, [(wire.LOADER_NEXT, 9000, 416)], [start_note(WORKER.pid)])
    write_hook_files(folder, WORKER, notes=[{"kind": "exit", "ms": 5000, "code": 3}])

    (autopsy,) = autopsies(str(folder))

    rules = {finding.rule: finding.process for finding in autopsy.snapshot.findings}
    assert rules == {"worker-exited-unexpectedly": WORKER}
    assert "FINDINGS" in autopsy_text([autopsy])


def test_findings_from_just_before_the_end_are_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def while_it_lives(index: Index) -> Iterator[Finding]:
        for process in index.snapshot.living():
            yield replace(finding(), rule="only-alive", process=process.process)

    write_hook_files(folder, MAIN, [(wire.SHARE, 100)])
    monkeypatch.setattr(
        "mpwatch.report.autopsy.Engine", lambda: Engine([Rule("only-alive", while_it_lives)])
    )

    (autopsy,) = autopsies(str(folder))

    assert [one.rule for one in autopsy.snapshot.findings] == ["only-alive"]
    assert autopsy.snapshot.findings[0].resolved_s is None


def test_children_of_one_parent_without_a_file_are_one_job_and_none_is_its_main(
    folder: Path,
) -> None:
    for number, child in enumerate((WORKER, OTHER), 1):
        write_hook_files(folder, child, origin=(*MAIN, f"SpawnPoolWorker-{number}".encode()))

    (autopsy,) = autopsies(str(folder))

    assert [dead.parent for dead in autopsy.dead] == [MAIN, MAIN]
    assert {p.role for p in autopsy.snapshot.processes} == {"pool-worker"}
    text = autopsy_text([autopsy], style=TextStyle(200))
    assert text.startswith(f"JOB OF {MAIN.pid}  2 dead processes")
    assert f"{MAIN.pid}, which started them, left no file" in text
    assert f"{WORKER.pid} pool-worker of {MAIN.pid}" in text


def test_a_parent_without_a_file_can_be_examined(folder: Path) -> None:
    write_hook_files(folder, WORKER, origin=(MAIN.pid, 0, b"Process-1"))
    write_hook_files(folder, OTHER)

    (autopsy,) = autopsies(str(MAIN.pid))

    assert [dead.files.process for dead in autopsy.dead] == [WORKER]


def test_a_parent_that_was_injected_after_the_start_is_found_by_its_pid(folder: Path) -> None:
    write_hook_files(folder, MAIN)
    write_hook_files(folder, WORKER, origin=(MAIN.pid, 0, b"Process-1"))
    write_hook_files(folder, OTHER, origin=(WORKER.pid, WORKER.start_ticks, b""))

    (autopsy,) = autopsies(str(folder))

    assert [dead.files.process for dead in autopsy.dead] == [MAIN, WORKER, OTHER]
    assert [p.role for p in autopsy.snapshot.processes] == ["main", "spawned", "spawned"]
    assert "left no file" not in autopsy_text([autopsy])


def test_a_parent_outside_of_the_job_is_described(folder: Path) -> None:
    alive = read_stat("/proc", os.getpid())
    assert alive is not None
    write_hook_files(folder, WORKER, origin=(*alive.process, b"Process-1"))
    write_hook_files(folder, MAIN)
    write_hook_files(folder, OTHER, origin=(*MAIN, b"Process-1"))

    living = autopsy_text(autopsies(str(WORKER.pid)), style=TextStyle(200))
    other = autopsy_text(autopsies(str(OTHER.pid)), style=TextStyle(200))

    assert f"{os.getpid()}, which started it, still runs" in living
    assert f"{MAIN.pid}, which started it, died too: mpwatch autopsy {MAIN.pid}" in other


def test_a_running_process_is_not_examined(folder: Path) -> None:
    alive = read_stat("/proc", os.getpid())
    assert alive is not None
    write_hook_files(folder, alive.process)

    with pytest.raises(NothingLeft, match=r"\(1 still runs\)\.$"):
        autopsies(str(folder))
    with pytest.raises(NothingLeft, match="and its descendants still run"):
        autopsies(str(os.getpid()))


@pytest.mark.parametrize("by", ["another user", "others may write", "link"])
def test_files_that_another_user_can_have_put_there_are_not_examined(folder: Path, by: str) -> None:
    """In a folder by the name of one of this user, as anybody can make it in /tmp."""
    leave_a_job(folder)
    assert autopsies(str(MAIN.pid))
    if by == "another user":
        if os.getuid():
            pytest.skip("only root can give a folder away")
        os.chown(folder, 4242, 4242)
    elif by == "others may write":
        folder.chmod(0o733)
    else:
        folder.rename(folder.parent / "other")
        folder.symlink_to(folder.parent / "other")

    with pytest.raises(NothingLeft, match=f"^Process {MAIN.pid} left no hook file"):
        autopsies(str(MAIN.pid))


@pytest.mark.parametrize("subject", ["5000009", "/nowhere/at/all", ""])
def test_without_files_the_error_is_one_sentence(folder: Path, subject: str) -> None:
    with pytest.raises(NothingLeft, match=r"\.$"):
        autopsies(subject)


def test_damaged_files_are_read_as_far_as_they_go(folder: Path) -> None:
    leave_a_job(folder)
    ring = folder / f"{wire.stem(*WORKER)}.ring"
    ring.write_bytes(ring.read_bytes()[: wire.HEADER_BYTES + 200])
    notes = folder / f"{wire.stem(*MAIN)}.notes"
    notes.write_bytes(notes.read_bytes() + b"\xff{{{\n[1]\n" + b'{"kind": "exit", "co')
    (folder / f"{wire.stem(*OTHER)}.ring").symlink_to("/etc/passwd")
    (folder / "README").write_text("hello")

    text = autopsy_text(autopsies(str(folder)), style=TextStyle(200))

    assert "the file is cut: 3 of 64 slots are there" in text
    assert "3 lines make no sense" in text
    assert "root:" not in text


def test_notes_without_a_ring_are_reported(folder: Path) -> None:
    write_hook_files(folder, MAIN, notes=[{"kind": "exit", "ms": 5, "code": 3}])
    (folder / f"{wire.stem(*MAIN)}.ring").unlink()

    text = autopsy_text(autopsies(str(folder)))

    assert "exit code 3" in text


def test_the_text_shows_exit_status_unfinished_call_and_last_events(folder: Path) -> None:
    leave_a_job(folder)

    lines = autopsy_text(autopsies(str(folder)), style=TextStyle(100)).splitlines()

    worker = lines[lines.index("") + 1 :]
    assert worker[0] == ("5000002 worker 3 of 5000001  last event 2027-01-15 08:00:00.450 UTC")
    assert worker[1].startswith("  ended       no exit was recorded: a signal")
    assert "  unfinished  loader fetch begins, batch 417, 4.0K, started 150 ms earlier" in worker
    assert worker[-1].split() == ["0", "us", "earlier", "share,", "4.0K,", "took", "2", "ms"]


def test_no_line_is_wider_than_the_given_width(folder: Path) -> None:
    leave_a_job(folder)

    text = autopsy_text(autopsies(str(folder)))

    assert max(map(cell_width, text.splitlines())) <= 80


@pytest.mark.slow
@pytest.mark.usefixtures("runtime_in_memory")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_a_pool_whose_parent_has_no_hook_are_its_job(start: Start, method: str) -> None:
    program = start("pool_of_hooked_workers.py", method)
    workers = [int(pid) for pid in program.wait_for("ready").split()[1:]]
    os.kill(program.pid, signal.SIGSTOP)  # otherwise it would start new ones
    for worker in workers:
        death = os.pidfd_open(worker)
        os.kill(worker, signal.SIGKILL)
        assert select.select([death], [], [], 10)[0]
        os.close(death)
    os.kill(program.pid, signal.SIGKILL)
    program.wait()

    (autopsy,) = autopsies(str(program.pid))

    assert {dead.files.process.pid for dead in autopsy.dead} == set(workers)
    assert {p.role for p in autopsy.snapshot.processes} == {"pool-worker"}
    assert autopsy.root.pid == program.pid


@pytest.mark.slow
@pytest.mark.usefixtures("runtime_in_memory")
def test_the_last_batch_of_a_killed_worker_is_known(start: Start) -> None:
    program = start("loader.py", "1", "--hook")
    program.wait_for("ready")
    (worker,) = procfs.children(program.pid)
    os.kill(worker, signal.SIGKILL)
    program.wait()

    (autopsy,) = autopsies(str(worker))

    (dead,) = autopsy.dead
    assert dead.worker_id == 0
    assert len(dead.files.events) > 3
    assert ended(dead).problem == NO_EXIT
    main = autopsies(str(program.pid))[0].dead[0]
    assert ended(main).exit_code == 1


def test_a_tensor_from_before_the_injection_is_no_call(folder: Path) -> None:
    write_hook_files(folder, WORKER, [(wire.KNOWN, 100)])

    text = autopsy_text(autopsies(str(folder)), style=TextStyle(120))

    assert "earlier  shared before the hook was attached: a tensor's storage, 4.0K" in text
    assert "took" not in text
