from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.process_queries import generations
from mpwatch.diagnose.rules.starting import (
    main_not_importable,
    no_main_guard,
    spawn_startup_cost,
    spawn_unpicklable_object,
    start_method_inheritance,
)
from mpwatch.model.account import STARTING, Activity
from mpwatch.model.findings import Severity
from mpwatch.model.history import Point
from mpwatch.model.samples import Ended
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.source_code import Mark, SourceLine, Statement
from tests.builders.accounts import COMPUTES, WAITS_IN_QUEUE, with_shares
from tests.builders.snapshots import (
    MAIN,
    NOW_S,
    WALL_S,
    exited,
    found,
    history,
    log,
    main,
    only,
    pid,
    process,
    snapshot_of,
    thread,
)

IMPORT_MAIN = (
    "multiprocessing/spawn.py:_fixup_main_from_path",
    "multiprocessing/spawn.py:prepare",
    "multiprocessing/spawn.py:_main",
)


def child(*calls: str, age_s: float = 60, **fields: object) -> Process:
    born = WALL_S - age_s
    threads = [thread(300, *calls)]
    return process(300, "spawned", threads=threads, born_wall_s=born, **fields)  # type: ignore[arg-type]


def test_a_child_that_runs_the_script_again_is_named() -> None:
    again = child("data.py:load", "train.py:<module>:57", "runpy.py:run_path", *IMPORT_MAIN)

    finding = only(no_main_guard.check, snapshot_of(main(), again))

    assert "train.py:57 <module>" in finding.evidence[0]


@pytest.mark.parametrize(
    "calls",
    [
        (
            "torch/__init__.py:<module>",
            "importlib:_find_and_load",
            "train.py:<module>",
            *IMPORT_MAIN,
        ),
        ("importlib:_find_and_load", "train.py:<module>", *IMPORT_MAIN),
        ("data.py:<module>", "importlib:_find_and_load", "train.py:<module>", *IMPORT_MAIN),
        IMPORT_MAIN,
        ("train.py:work", "multiprocessing/process.py:_bootstrap"),
    ],
)
def test_a_child_that_imports_the_script_is_ordinary(calls: tuple[str, ...]) -> None:
    assert found(no_main_guard.check, snapshot_of(main(), child(*calls))) == []


@pytest.mark.parametrize(
    ("header", "is_guarded"),
    [
        ('if __name__ == "__main__":', True),
        ('if __name__ == "__main__" or not is_test():', False),
        ("if args.train:", False),
    ],
)
def test_a_program_with_the_guard_may_take_long_to_import(header: str, is_guarded: bool) -> None:
    again = child("torch/cuda/__init__.py:is_available", "train.py:<module>:16", *IMPORT_MAIN)
    parent = main(threads=[thread(100, "train.py:run:80", "train.py:<module>:99")])
    guard = (Statement(98, header),)
    line = SourceLine(
        parent.threads[0].stack[-1].file, 99, "<module>", Statement(99, "run()"), guard
    )

    findings = found(no_main_guard.check, snapshot_of(parent, again, source=(line,)))

    assert bool(findings) is not is_guarded


def test_a_young_child_is_given_time_to_import() -> None:
    again = child("data.py:load", "train.py:<module>", *IMPORT_MAIN, age_s=3)

    assert found(no_main_guard.check, snapshot_of(main(), again)) == []


def test_a_child_that_failed_in_the_script_is_named_after_its_end() -> None:
    failed = child("train.py:<module>:57", *IMPORT_MAIN, ended=exited(300, exit_code=1))
    left = child("train.py:<module>:57", *IMPORT_MAIN, ended=exited(300, exit_code=0))

    assert only(no_main_guard.check, snapshot_of(main(), failed)).process == pid(300)
    assert found(no_main_guard.check, snapshot_of(main(), left)) == []


def test_workers_spawned_by_a_spawned_process_are_information() -> None:
    owner = process(300, "spawned", start_method="spawn")
    worker = process(400, parent=300, start_method="spawn")

    assert only(start_method_inheritance.check, snapshot_of(main(), owner, worker)).process == pid(
        300
    )


@pytest.mark.parametrize(("own", "theirs"), [(None, "spawn"), ("fork", "fork"), ("spawn", "fork")])
def test_workers_started_by_another_method_are_quiet(own: str | None, theirs: str) -> None:
    owner = process(300, "spawned", start_method=own)
    worker = process(400, parent=300, start_method=theirs)

    assert found(start_method_inheritance.check, snapshot_of(main(), owner, worker)) == []


def workers_of_epochs(count: int, method: str = "spawn") -> list[Process]:
    """Two workers an epoch, an epoch every ten seconds; those of the last epoch still run."""
    made = []
    for epoch in range(count):
        for number in range(2):
            own = 1000 + 1000 * epoch + number
            age_s = 10.0 * (count - epoch)
            is_last = epoch == count - 1
            made.append(
                process(
                    own,
                    start_method=method,
                    born_wall_s=WALL_S - age_s,
                    ended=None if is_last else Ended(pid(own), NOW_S - age_s + 9, exit_code=0),
                )
            )
    return made


def test_spawned_workers_made_anew_each_epoch_are_counted() -> None:
    own = main(threads=[thread(100, "train.py:epoch:30", "train.py:fit:48")])
    finding = only(spawn_startup_cost.check, snapshot_of(own, *workers_of_epochs(4)), history())

    assert finding.evidence[-1].endswith("is at train.py:30 epoch, called from train.py:48 fit")
    assert "Make each DataLoader once" in finding.advice
    assert "8 workers in 4 sets" in finding.summary
    assert "lived 9.0 s on average" in finding.evidence[1]


def test_sets_whose_workers_were_only_seen_importing_count_where_main_waited_for_them() -> None:
    seen = workers_of_epochs(4)
    job = snapshot_of(
        main(),
        *(
            replace(each, role="spawned", label="spawned", start_method="spawn")
            for each in seen[:6]
        ),
        *seen[6:],
    )
    waits = [Point(NOW_S - 40 + i, float(i % 10 < 8)) for i in range(41)]
    computes = [Point(NOW_S - 40 + i, float(i % 10 < 3)) for i in range(41)]

    finding = only(spawn_startup_cost.check, job, history({(MAIN, "loader_wait"): waits}))

    assert "8 workers in 4 sets" in finding.summary
    assert not found(spawn_startup_cost.check, job, history({(MAIN, "loader_wait"): computes}))
    assert not found(spawn_startup_cost.check, job, history())


@pytest.mark.parametrize(
    ("starts", "batches", "severity"),
    [(0.5, 0.1, Severity.WARNING), (0.0, 0.7, Severity.WARNING), (0.2, 0.2, Severity.INFO)],
)
def test_starts_that_take_most_of_the_time_are_a_warning(
    starts: float, batches: float, severity: Severity
) -> None:
    job = snapshot_of(main(), *workers_of_epochs(4))
    waits = {
        Activity("waiting", STARTING, place="train.py:30 epoch"): starts,
        Activity("waiting", "batches", "batch"): batches,
        COMPUTES: 1 - starts - batches,
    }

    finding = only(spawn_startup_cost.check, with_shares(job, p100=waits), history())

    assert finding.severity is severity
    assert f"waits {starts:.0%} of the time until a worker has started" in finding.evidence[2]


def rounds_of_children(imports: float, count: int = 4, *, shows: bool = True) -> Snapshot:
    """Main that waits for two spawned processes a round, which import and then play."""
    jobs = [replace(each, role="spawned") for each in workers_of_epochs(count)]
    own = main(threads=[thread(MAIN, "train.py:fit:66")])
    in_imports = Activity("computing", "imports", place="train.py:5 <module>")
    seen = {in_imports: imports, COMPUTES: 1 - imports}
    line = SourceLine(
        "/home/me/train.py",
        66,
        "fit",
        Statement(66, "rows = [queue.get() for _ in jobs]"),
        within=(Statement(56, "for step in range(steps):"),),
    )
    starts = Mark("starts", line.file, "fit", "process", Statement(64, "p.start()"))
    return replace(
        with_shares(
            snapshot_of(own, *jobs),
            p100={WAITS_IN_QUEUE: 0.8, COMPUTES: 0.2},
            **{f"p{each.pid}": seen for each in jobs},
        ),
        source=(line,),
        marks=(starts,) * shows,
    )


def test_processes_that_are_started_for_each_round_and_mostly_import_are_named() -> None:
    finding = only(spawn_startup_cost.check, rounds_of_children(0.8), history())

    assert finding.severity is Severity.WARNING
    assert finding.summary == (
        "main (100) starts new processes by spawn for each round and waits for them 80% of the "
        "time; 80% of their time is their start: `p.start()` at train.py:64 fit"
    )
    assert finding.evidence[0].startswith("8 processes in 4 sets within 40 s; a set lived 9.0 s")
    assert "each round of `for step in range(steps):` of line 56" in finding.cause
    assert "Start the processes once, before that loop" in finding.advice


def test_processes_that_work_longer_than_they_start_may_be_new_in_each_round() -> None:
    assert found(spawn_startup_cost.check, rounds_of_children(0.3), history()) == []
    assert found(spawn_startup_cost.check, rounds_of_children(0.8, count=1), history()) == []


def test_processes_that_fail_in_their_start_are_not_told_to_take_long_for_it() -> None:
    job = rounds_of_children(0.8)
    failed = tuple(
        replace(each, ended=replace(each.ended, exit_code=1)) if each.ended is not None else each
        for each in job.processes
    )

    assert found(spawn_startup_cost.check, replace(job, processes=failed), history()) == []


def test_two_sets_are_enough_where_the_source_shows_that_a_loop_starts_them() -> None:
    two = rounds_of_children(0.8, count=2)
    unread = rounds_of_children(0.8, count=2, shows=False)

    assert "4 processes in 2 sets" in only(spawn_startup_cost.check, two, history()).evidence[0]
    assert found(spawn_startup_cost.check, unread, history()) == []
    assert (
        "each round of its work"
        in only(spawn_startup_cost.check, rounds_of_children(0.8, shows=False), history()).cause
    )


def test_forked_or_persistent_workers_cost_little() -> None:
    assert found(spawn_startup_cost.check, snapshot_of(main(), *workers_of_epochs(4, "fork"))) == []
    assert found(spawn_startup_cost.check, snapshot_of(main(), *workers_of_epochs(1))) == []
    assert found(spawn_startup_cost.check, snapshot_of(main(), *workers_of_epochs(2))) == []


def test_workers_of_one_set_may_start_one_after_the_other_has_imported() -> None:
    each_5_s = [process(1000 + 500 * n, worker_id=n % 2) for n in range(6)]

    assert [len(group) for group in generations(each_5_s)] == [2, 2, 2]


def test_workers_fall_into_sets_by_start() -> None:
    starts = [process(n) for n in (1000, 1001, 2000, 2150, 9000)]

    assert [len(group) for group in generations(starts)] == [2, 2, 1]
    assert generations([]) == []


def spawned(number: int, **how: int) -> Process:
    return process(number, "spawned", start_method="spawn", ended=exited(number, **how))


@pytest.mark.parametrize(
    ("cmdline", "source"),
    [
        (("python",), "standard input"),
        (("python", "-u", "-"), "standard input"),
        (("python", "-X", "dev", "-c", "import t"), "the option -c"),
        (("python", "-m", "ipykernel_launcher", "-f", "k.json"), "a notebook"),
    ],
)
def test_a_program_without_a_file_whose_children_all_fail_is_named(
    cmdline: tuple[str, ...], source: str
) -> None:
    job = snapshot_of(main(cmdline=cmdline), spawned(300, exit_code=1), spawned(301, exit_code=1))

    assert f"read from {source}" in only(main_not_importable.check, job).summary


@pytest.mark.parametrize(
    ("cmdline", "children"),
    [
        (("python", "train.py"), (spawned(300, exit_code=1), spawned(301, exit_code=1))),
        (("python", "-m", "train"), (spawned(300, exit_code=1), spawned(301, exit_code=1))),
        (("python", "-"), (spawned(300, exit_code=1),)),
        (
            ("python", "-"),
            (spawned(300, exit_code=1), spawned(301, exit_code=1), spawned(302, exit_code=0)),
        ),
    ],
    ids=["a file", "a module", "one of its own", "others came up"],
)
def test_failures_that_may_have_other_causes_are_not_attributed_to_a_missing_file(
    cmdline: tuple[str, ...], children: tuple[Process, ...]
) -> None:
    assert found(main_not_importable.check, snapshot_of(main(cmdline=cmdline), *children)) == []


def test_what_a_queue_could_not_pickle_was_no_argument_of_a_process() -> None:
    lost = log("lost-item", 200, "lost item: TypeError; cannot pickle 'generator' object")

    assert (
        found(spawn_unpicklable_object.check, snapshot_of(main(), process(200), log=(lost,))) == []
    )
