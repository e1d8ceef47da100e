"""Whose the tracebacks are that a job has written to files."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.model.events import HookHello, HookNote, Raised, WrittenError, WrittenErrors
from mpwatch.model.ids import ProcessId, Role
from mpwatch.model.samples import Ended, Frame
from mpwatch.model.snapshot import LogEntry, Snapshot
from mpwatch.observe.state.fold import Fold
from mpwatch.observe.state.written_errors import WrittenErrorTable
from tests.builders.samples import MAIN, WORKER_0, WORKER_1, job_process, tree

START_S = 1000.0


def raised(kind: str = "KeyError", line: int = 7) -> Raised:
    return Raised(kind, "3", (Frame("load", "/app/load.py", line),))


def written(
    name: str = "", kind: str = "KeyError", line: int = 7, **fields: object
) -> WrittenError:
    known = {"process_name": name, "writers": (MAIN,), "is_of_job": True, **fields}
    return replace(WrittenError("/app/train.log", 0, raised(kind, line)), **known)


def fold_of(*ended: Ended, role: Role = "spawned", rank: int | None = None) -> Fold:
    """A job with a main process and two children, of which some have ended."""
    fold = Fold()
    children = [
        replace(
            job_process(each, START_S),
            is_python=True,
            role=role,
            rank=None if rank is None else rank + place,
        )
        for place, each in enumerate((WORKER_0, WORKER_1))
    ]
    main = replace(job_process(MAIN, START_S), is_python=True)
    fold.apply(tree(START_S, main, *children))
    for each in ended:
        fold.apply(each)
    return fold


def failed(process: ProcessId, at_s: float = START_S, code: int = 1) -> Ended:
    return Ended(process, at_s, exit_code=code)


def told(snapshot: Snapshot) -> list[LogEntry]:
    return [each for each in snapshot.log if each.kind in ("exception", "thread-died")]


def after(fold: Fold, *errors: WrittenError, at_s: float = START_S + 2) -> list[LogEntry]:
    """What is logged of tracebacks."""
    fold.apply(WrittenErrors(at_s, errors))
    return told(fold.snapshot())


def test_the_only_traceback_is_that_of_the_only_process_that_has_failed() -> None:
    (entry,) = after(fold_of(failed(WORKER_0)), written("indexer-7"))

    assert entry.process == WORKER_0
    assert entry.words == "most likely its traceback in train.log, as indexer-7: KeyError: 3"
    assert entry.details["frames"] == [["load", "/app/load.py", 7]]
    assert entry.details["is_certain"] is False


def test_it_waits_for_the_end_of_the_process() -> None:
    fold = fold_of()
    assert after(fold, written("indexer-7")) == []
    assert [each.process_name for each in fold.snapshot().written] == ["indexer-7"]

    fold.apply(failed(WORKER_1, START_S + 2.2))
    fold.apply(tree(START_S + 3, job_process(MAIN, START_S + 3)))

    assert [each.process for each in told(fold.snapshot())] == [WORKER_1]
    assert fold.snapshot().written == ()


def test_processes_that_fail_alike_may_end_seconds_after_their_tracebacks() -> None:
    fold = fold_of(failed(WORKER_0, START_S + 2.1), failed(WORKER_1, START_S + 5))

    assert len(after(fold, written("pool-0"), written("pool-1"))) == 2
    other = fold_of(failed(WORKER_0, START_S + 2.1), failed(WORKER_1, START_S + 5))
    assert after(other, written("pool-0"), written("pool-1", line=9)) == []


@pytest.mark.parametrize(
    ("ended", "errors"),
    [
        ((failed(WORKER_0), failed(WORKER_1)), (written("a"),)),  # of which of the two?
        ((failed(WORKER_0), failed(WORKER_1)), (written("a"), written("b", line=9))),
        ((failed(WORKER_0),), (written("a"), written("b", line=9))),  # of which the other one?
        ((failed(WORKER_0, code=0),), (written("a"),)),
        ((Ended(WORKER_0, START_S, signal=9),), (written("a"),)),
        ((failed(WORKER_0),), (written("a", is_of_job=False),)),
        ((failed(WORKER_0, START_S + 9),), (written("a"),)),  # ended later
        ((failed(WORKER_0),), (written(script="/app/train.py"),)),
    ],
)
def test_nothing_is_reported_where_another_process_is_as_likely(
    ended: tuple[Ended, ...], errors: tuple[WrittenError, ...]
) -> None:
    assert after(fold_of(*ended), *errors) == []


def test_several_are_distinguished_by_the_numbers_in_their_names() -> None:
    fold = fold_of(failed(WORKER_1), failed(WORKER_0))

    entries = after(fold, written("a-11", line=11), written("a-2", line=2))

    assert {each.process: each.details["frames"] for each in entries} == {
        WORKER_0: [["load", "/app/load.py", 2]],
        WORKER_1: [["load", "/app/load.py", 11]],
    }


def test_processes_that_all_fail_alike_need_not_be_distinguished() -> None:
    fold = fold_of(failed(WORKER_0), failed(WORKER_1))

    assert len(after(fold, *(written(f"Process-{each}") for each in range(9)))) == 2
    again = ProcessId(900, 900)
    fold.apply(tree(START_S + 3, replace(job_process(again, START_S + 3), role="spawned")))
    fold.apply(failed(again, START_S + 4))
    fold.apply(tree(START_S + 5))
    assert [each.process for each in told(fold.snapshot())][-1] == again


def test_a_rank_is_certain_by_its_number() -> None:
    fold = fold_of(failed(WORKER_1), role="rank", rank=0)

    (entry,) = after(fold, written(rank=1), written(rank=0))

    assert (entry.process, entry.details["is_certain"]) == (WORKER_1, True)
    assert entry.words.startswith("its traceback in train.log")


def test_the_file_of_one_process_alone_is_its_own() -> None:
    fold = fold_of(failed(WORKER_0), role="other")
    (entry,) = after(fold, written(script="/app/run.py", writers=(WORKER_0,)))
    assert (entry.process, entry.details["is_certain"]) == (WORKER_0, True)


def test_the_last_exception_that_a_process_has_logged_is_most_likely_the_one() -> None:
    fold = fold_of()
    assert after(fold, written(process=WORKER_0), written(kind="OSError", process=WORKER_0)) == []
    assert fold.snapshot().written == ()  # it may have been handled

    fold.apply(failed(WORKER_0, START_S + 3))
    fold.apply(tree(START_S + 4))

    (entry,) = told(fold.snapshot())
    assert (entry.process, entry.details["type"]) == (WORKER_0, "OSError")


def test_the_thread_of_the_only_process_that_writes_is_certain() -> None:
    error = written(thread_name="Thread-1 (run)")
    several = replace(error, writers=(MAIN, WORKER_0))

    assert after(fold_of(), several) == []
    (entry,) = after(fold_of(), error)
    assert (entry.kind, entry.process) == ("thread-died", MAIN)
    assert "Thread-1 (run)" in entry.words


def test_a_thread_of_a_pool_is_in_the_process_that_has_started_others() -> None:
    frame = Frame("_handle_results", "/lib/multiprocessing/pool.py", 579)
    error = written(thread_name="Thread-3", raised=Raised("KeyError", "3", (frame,)))
    (entry,) = after(fold_of(), replace(error, writers=(MAIN, WORKER_0, WORKER_1)))
    assert entry.process == MAIN


def test_what_a_hook_has_told_is_not_reported_again() -> None:
    fold = fold_of(failed(WORKER_0))
    birth = {"birth": {"name": "indexer-7"}}
    fold.apply(HookHello(WORKER_0, START_S, 1, "3.11.7", None, WORKER_0.pid, "fork", {}, birth))
    fold.apply(HookNote(WORKER_0, int(START_S * 1e9), "exception", {"type": "KeyError"}))

    assert len(after(fold, written("indexer-7"))) == 1
    assert fold.snapshot().written == ()


def test_what_has_ended_a_script_is_left_also_below_what_another_process_has_logged() -> None:
    raised = Raised("FileNotFoundError", "No such file or directory: '/psm_1'", ())
    logged = WrittenError("/log", 9, raised, process=ProcessId(100, 1))
    table = WrittenErrorTable()

    table.add(WrittenErrors(1.0, (logged, replace(logged, offset=90, script="/me/run.py"))))

    assert [each.script for each in table.left] == ["/me/run.py"]
