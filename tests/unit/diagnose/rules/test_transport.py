from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.transport import (
    file_system_strategy_leak,
    producer_exits_before_get,
    semlock_enospc,
    shm_full_sigbus,
    tmpdir_socket_path_too_long,
    unreused_buffers_copied,
)
from mpwatch.model.findings import Severity
from mpwatch.model.history import Point
from mpwatch.model.samples import MapSample
from mpwatch.model.snapshot import Flow, Hook, Process, Segment, Snapshot
from mpwatch.model.source_code import Mark, Statement
from tests.builders.snapshots import (
    IDLE_WORKER,
    MAIN,
    MIB,
    NOW_S,
    WALL_S,
    exited,
    fds,
    found,
    history,
    line,
    log,
    main,
    only,
    pid,
    process,
    segment,
    snapshot_of,
    space,
    thread,
    uses,
)


def test_a_bus_error_is_named_with_the_free_space_at_that_time() -> None:
    dead = process(200, ended=exited(200, signal=7))
    sparse = segment(
        1, 200, kind="psm", size_bytes=8 * MIB, allocated_bytes=MIB, mappers=(pid(MAIN),)
    )
    job = snapshot_of(main(), dead, shm=space(64 * MIB, 32 * MIB), segments=(sparse,))

    finding = only(shm_full_sigbus.check, job)

    assert finding.severity is Severity.CRITICAL
    assert "/dev/shm has 32.0M of 64.0M free" in finding.evidence
    assert "7.0M of segments are not yet allocated" in finding.evidence


@pytest.mark.parametrize(
    ("free", "says_full"),
    [(0, True), (4 * MIB, True), (32 * MIB, False)],
    ids=["full", "less free than unallocated", "half free"],
)
def test_a_bus_error_blames_a_full_dev_shm_only_where_it_was_read(
    free: int, says_full: bool
) -> None:
    dead = process(200, ended=exited(200, signal=7))
    sparse = segment(
        1, 200, kind="psm", size_bytes=8 * MIB, allocated_bytes=MIB, mappers=(pid(MAIN),)
    )
    job = snapshot_of(main(), dead, shm=space(64 * MIB, free), segments=(sparse,))

    finding = next(f for f in found(shm_full_sigbus.check, job) if f.process == pid(200))

    assert ("/dev/shm has no space" in finding.cause) is says_full
    assert ("not known to be full now" in finding.cause) is not says_full


def test_a_bus_error_is_named_where_nothing_else_is_known() -> None:
    dead = process(200, ended=exited(200, signal=7))

    assert len(only(shm_full_sigbus.check, snapshot_of(main(), dead)).evidence) == 1


MAPPED = MapSample(4, None, files=("/data/a/features.npy", "/data/a/train.idx"))


def truncated(
    about: str = "features.npy, 30, 27",
    maps: MapSample | None = MAPPED,
    of_dead: MapSample | None = MAPPED,
    stack: str = "data.py:embed:33",
) -> Snapshot:
    """A rank that a bus error has ended, and one that may have made its file anew."""
    mark = Mark(
        "truncates",
        "/home/me/data.py",
        "embed",
        about,
        Statement(31, 'out = open_memmap(path, mode="w+")'),
    )
    dead = process(200, "spawned", label="embed-1", maps=of_dead, ended=exited(200, signal=7))
    alive = process(
        201,
        "spawned",
        label="embed-0",
        maps=maps,
        threads=[thread(201, "threading.py:wait", stack)],
    )
    return snapshot_of(main(), dead, alive, marks=(mark,))


def test_a_mapped_file_that_another_process_makes_anew_is_named_with_the_line() -> None:
    finding = only(shm_full_sigbus.check, truncated())

    assert finding.summary == (
        "embed-1 (200) was ended by a bus error (SIGBUS): likely data.py:31 embed has truncated "
        "/data/a/features.npy, which it had mapped"
    )
    assert "embed-0 (201) has it mapped, and is at data.py:33 embed" in finding.evidence
    assert "under the condition of line 30" in finding.cause
    assert "in the loop of line 27" in finding.cause
    assert "No except clause" in finding.cause
    assert "a file of its own" in finding.advice


@pytest.mark.parametrize("of_dead", [None, MapSample(4, None, files=("/data/a/train.idx",))])
def test_the_mappings_of_its_siblings_tell_those_of_one_that_ended_before_it_was_read(
    of_dead: MapSample | None,
) -> None:
    finding = only(shm_full_sigbus.check, truncated(of_dead=of_dead))

    assert "has truncated /data/a/features.npy, which it most likely had mapped" in finding.summary


@pytest.mark.parametrize(
    "job",
    [
        truncated(of_dead=None, stack="train.py:main:3"),
        truncated("labels.npy, 30, 27"),
        truncated("features.npy, 30, 0"),
        truncated(maps=MapSample(4, None)),
        truncated(", 0, 27"),
    ],
    ids=[
        "unread, and elsewhere",
        "another file",
        "once, which may be a full disk",
        "no other maps it",
        "name unknown",
    ],
)
def test_a_truncated_file_is_not_blamed_on_less(job: Snapshot) -> None:
    assert "truncated /data" not in only(shm_full_sigbus.check, job).summary


def test_sparse_segments_larger_than_the_free_space_are_named_before_they_are_used() -> None:
    sparse = segment(
        1, 200, kind="psm", size_bytes=48 * MIB, allocated_bytes=0, mappers=(pid(MAIN),)
    )
    job = snapshot_of(main(), shm=space(64 * MIB, 32 * MIB), segments=(sparse,))

    finding = only(shm_full_sigbus.check, job)

    assert finding.severity is Severity.WARNING
    assert "48.0M of shared memory are not yet allocated and only 32.0M" in finding.summary


def test_sparse_segments_that_fit_are_quiet() -> None:
    sparse = segment(
        1, 200, kind="psm", size_bytes=16 * MIB, allocated_bytes=0, mappers=(pid(MAIN),)
    )
    job = snapshot_of(main(), shm=space(64 * MIB, 32 * MIB), segments=(sparse, segment(2)))

    assert found(shm_full_sigbus.check, job) == []
    assert found(shm_full_sigbus.check, snapshot_of(main(), segments=(sparse,))) == []


def test_an_empty_file_of_a_failed_share_is_no_sparse_segment() -> None:
    left = segment(1, 200, size_bytes=48 * MIB, allocated_bytes=0)

    assert (
        found(
            shm_full_sigbus.check,
            snapshot_of(main(), shm=space(64 * MIB, MIB), segments=(left,)),
        )
        == []
    )


MAKING = thread(
    100, "multiprocessing/synchronize.py:__init__", "multiprocessing/queues.py:__init__"
)


def test_making_a_lock_without_any_free_space_is_named() -> None:
    job = snapshot_of(main(threads=[MAKING]), shm=space(MIB, 0, 10, 3))

    assert only(semlock_enospc.check, job).evidence == ("/dev/shm has 0B and 3 files left",)


@pytest.mark.parametrize(
    ("words", "free", "reason"),
    [
        ("OSError: [Errno 28] No space left on device", 0, "is full"),
        ("OSError: [Errno 28] No space left on device", 32 * MIB, "had no space at that moment"),
        ("PermissionError: [Errno 13] Permission denied", 32 * MIB, "permission denied"),
        ("OSError: [Errno 30] Read-only file system", 32 * MIB, "mounted read-only"),
    ],
)
def test_a_lock_that_could_not_be_made_has_its_error_as_the_cause(
    words: str, free: int, reason: str
) -> None:
    place = [["__init__", "/usr/lib/python3.11/multiprocessing/synchronize.py", 1]]
    job = snapshot_of(
        main(), log=(log("exception", MAIN, words, frames=place),), shm=space(64 * MIB, free)
    )

    finding = only(semlock_enospc.check, job)

    assert reason in finding.summary
    assert ("--shm-size" in finding.advice) is ("No space" in words)


def test_making_a_lock_with_enough_free_space_is_quiet() -> None:
    assert (
        found(semlock_enospc.check, snapshot_of(main(threads=[MAKING]), shm=space(MIB, MIB))) == []
    )
    assert found(semlock_enospc.check, snapshot_of(main(threads=[MAKING]))) == []


def test_a_program_about_to_start_workers_without_free_space_is_a_warning() -> None:
    job = snapshot_of(main(threads=[thread(100, "train.py:f")]), shm=space(MIB, 0))

    assert only(semlock_enospc.check, job).severity is Severity.WARNING


def test_a_full_dev_shm_of_a_running_job_is_another_failure() -> None:
    job = snapshot_of(main(), process(200), shm=space(MIB, 0))

    assert found(semlock_enospc.check, job) == []
    assert found(semlock_enospc.check, snapshot_of(process(300, "other"), shm=space(MIB, 0))) == []


def left(inode: int = 1, **fields: Any) -> Segment:
    taken = {
        "kind": "torch-named",
        "is_linked": True,
        "creator": None,
        "age_s": 100.0,
        "allocated_bytes": MIB,
        **fields,
    }
    return segment(inode, 777, **taken)


def test_named_segments_of_exited_processes_are_named() -> None:
    segments = (left(1, allocated_bytes=4 * MIB), left(2, allocated_bytes=4 * MIB))
    job = snapshot_of(main(), segments=segments, shm=space(64 * MIB, MIB))

    finding = only(file_system_strategy_leak.check, job)

    assert finding.severity is Severity.INFO
    assert "777" in finding.evidence[0]


def test_segments_that_an_earlier_job_left_are_named() -> None:
    earlier = replace(uses(1, creator=777)[0], is_linked=True, allocated_bytes=8 * MIB)
    young = replace(uses(1, creator=778, first_inode=2)[0], changed_wall_s=WALL_S - 1)
    used = uses(1, creator=779, first_inode=3)
    ours = left(3, mappers=(pid(100),))
    job = snapshot_of(main(), segments=(ours,), left_segments=(earlier, young, *used))

    finding = only(file_system_strategy_leak.check, job)

    assert finding.summary.startswith(
        "not of this job: 1 segment of exited processes of other jobs"
    )
    assert "made by pid 777 (not of this job" in finding.evidence[0]


def test_a_few_small_segments_of_another_job_are_not_reported() -> None:
    earlier = replace(uses(1, creator=777)[0], is_linked=True, allocated_bytes=4 * MIB)

    assert (
        found(file_system_strategy_leak.check, snapshot_of(main(), left_segments=(earlier,))) == []
    )


def test_named_segments_that_fill_much_of_dev_shm_are_a_warning() -> None:
    dead = process(777, "spawned", ended=exited(777, signal=9))
    much = (left(allocated_bytes=20 * MIB),)
    job = snapshot_of(main(), dead, segments=much, shm=space(64 * MIB, MIB))

    finding = only(file_system_strategy_leak.check, job)

    assert finding.severity is Severity.WARNING
    assert "of this job that have exited hold" in finding.summary


def test_what_other_jobs_left_is_information_however_much_it_is() -> None:
    much = (left(allocated_bytes=60 * MIB),)
    job = snapshot_of(main(), segments=much, shm=space(64 * MIB, MIB))

    finding = only(file_system_strategy_leak.check, job)

    assert finding.severity is Severity.INFO
    assert finding.summary.startswith("not of this job: ")
    assert "mpwatch clean --yes removes" in finding.advice


def test_a_segment_whose_maker_was_seen_to_exit_is_left_behind() -> None:
    dead = process(777, "spawned", ended=exited(777, signal=9))
    job = snapshot_of(main(), dead, segments=(left(creator=pid(777)),))

    assert only(file_system_strategy_leak.check, job).severity is Severity.INFO


def test_named_segments_in_use_or_young_or_owned_are_quiet() -> None:
    maker = process(777, "spawned")
    for fields in (
        {"mappers": (pid(100),)},
        {"holders": (pid(100),)},
        {"age_s": 1.0},
        {"is_linked": False},
        {"kind": "torch"},
        {"allocated_bytes": 4096},
    ):
        job = snapshot_of(main(), segments=(left(**fields),))
        assert found(file_system_strategy_leak.check, job) == []
    assert (
        found(file_system_strategy_leak.check, snapshot_of(main(), maker, segments=(left(),))) == []
    )


LONG = "/scratch/" + "x" * 70


def test_a_tmpdir_too_long_for_a_socket_is_named_once_for_the_tree() -> None:
    job = snapshot_of(
        main(environment={"TMPDIR": LONG}), process(200, environment={"TMPDIR": LONG})
    )

    finding = only(tmpdir_socket_path_too_long.check, job)

    assert finding.severity is Severity.WARNING
    assert "need 111 of 107 bytes" in finding.evidence[1]


def test_a_tmpdir_that_just_fits_is_quiet() -> None:
    fits = "/" + "x" * 74
    job = snapshot_of(main(environment={"TMPDIR": fits}), process(200), process(300, "shm-manager"))

    assert found(tmpdir_socket_path_too_long.check, job) == []


def test_programs_without_torch_may_have_any_tmpdir() -> None:
    shell = process(200, "other", is_python=False, environment={"TMPDIR": LONG})
    plain = process(201, "other", torch_loaded=False, environment={"TMPDIR": LONG})

    assert found(tmpdir_socket_path_too_long.check, snapshot_of(main(), shell, plain)) == []


def test_a_sender_that_copies_much_is_information() -> None:
    flow = Flow(pid(300), pid(100), 10, 100, 100, bytes_per_s=200 * MIB)
    job = snapshot_of(main(), process(300, "spawned"), flows=(flow,))

    finding = only(unreused_buffers_copied.check, job)

    assert finding.severity is Severity.INFO
    assert "+200M/s" in finding.evidence[0]


def test_fresh_memory_shows_without_the_hook_in_page_faults() -> None:
    fresh = segment(1, 300, age_s=0.2, size_bytes=8 * MIB)
    past = history({(300, "minor_faults"): line(900_000, per_s=30_000)})
    job = snapshot_of(main(), process(300, "spawned"), segments=(fresh,))

    finding = only(unreused_buffers_copied.check, job, past)

    assert "used for the first time" in finding.evidence[0]


def test_a_sender_of_little_that_computes_much_is_quiet() -> None:
    """Computing touches new memory as well: a few gradients on their way are no reason for it."""
    little = segment(1, 300, age_s=0.2, size_bytes=MIB // 4)
    past = history({(300, "minor_faults"): line(900_000, per_s=30_000)})

    assert (
        found(
            unreused_buffers_copied.check,
            snapshot_of(main(), process(300, "spawned"), segments=(little,)),
            past,
        )
        == []
    )


def test_the_hook_measures_what_is_copied() -> None:
    fresh = segment(1, 300, age_s=0.2, size_bytes=8 * MIB)
    past = history({(300, "minor_faults"): line(900_000, per_s=30_000)})
    told = process(300, "spawned", hook=Hook("ready"))

    assert (
        found(unreused_buffers_copied.check, snapshot_of(main(), told, segments=(fresh,)), past)
        == []
    )


def test_a_sender_that_reuses_its_buffers_is_quiet() -> None:
    flow = Flow(pid(300), pid(100), 10, 100, 0, bytes_per_s=2000 * MIB)
    old = segment(1, 300, age_s=100.0)
    past = history({(300, "minor_faults"): line(900_000, per_s=30_000)})
    job = snapshot_of(main(), process(300, "spawned"), flows=(flow,), segments=(old,))

    assert found(unreused_buffers_copied.check, job, past) == []


def test_loader_workers_may_copy() -> None:
    flow = Flow(pid(200), pid(100), 10, 100, 100, bytes_per_s=200 * MIB)

    assert (
        found(unreused_buffers_copied.check, snapshot_of(main(), process(200), flows=(flow,))) == []
    )


def test_a_handle_of_an_exited_producer_is_named() -> None:
    void = log("receive-failed", MAIN, type="FileNotFoundError", address="/tmp/pymp-1/listener-2")
    sender = process(200, "spawned", ended=exited(200, exit_code=0))

    finding = only(producer_exits_before_get.check, snapshot_of(main(), sender, log=(void,)))

    assert "listener-2" in finding.evidence[-1]


def test_handles_of_workers_that_main_shut_down_are_quiet() -> None:
    void = log("receive-failed", MAIN, type="FileNotFoundError", address="/tmp/pymp-1/listener-2")
    worker = process(200, ended=exited(200, exit_code=0))
    outstanding = process(
        201, ended=exited(201, exit_code=0), more={"gauges": {"sharer": {"outstanding": 8}}}
    )

    for said in ((void,), ()):
        job = snapshot_of(main(), worker, outstanding, log=said)
        assert found(producer_exits_before_get.check, job) == []


def sender_gone(**changes: Any) -> Process:
    sent = tuple(replace(use, ranges=()) for use in uses(3, creator=300))
    fields = {"segments": sent, "ended": exited(300, exit_code=0), **changes}
    return process(300, "spawned", **fields)


def test_tensors_unfetched_at_their_senders_end_are_information() -> None:
    finding = only(producer_exits_before_get.check, snapshot_of(main(), sender_gone()))

    assert finding.severity is Severity.INFO
    assert "exited before 3 tensors it sent were received" in finding.summary


@pytest.mark.parametrize(("closed", "is_reported"), [(0, True), (2, True), (3, False)])
def test_descriptors_closed_since_they_were_listed_may_be_those_of_fetched_tensors(
    closed: int, is_reported: bool
) -> None:
    listed = replace(fds(20, torch=3), read_at_s=NOW_S - 10)
    counts = [Point(NOW_S - 10, 20.0), Point(NOW_S - 6, 20.0 - closed)]
    past = history({(300, "fds"): counts})

    job = snapshot_of(main(), sender_gone(fds=listed))

    assert bool(found(producer_exits_before_get.check, job, past)) == is_reported


@pytest.mark.parametrize(
    "job",
    [
        snapshot_of(main(), sender_gone(ended=None)),
        snapshot_of(main(), sender_gone(segments=uses(3, creator=300))),
        snapshot_of(main(), sender_gone(segments=uses(3, creator=MAIN))),
        snapshot_of(main(segments=uses(1, creator=300)), sender_gone()),
        snapshot_of(main(), sender_gone(ended=exited(300, at_s=NOW_S - 100, exit_code=0))),
        snapshot_of(main(ended=exited(MAIN, exit_code=0)), sender_gone()),
        snapshot_of(main(), replace(sender_gone(), role="loader-worker")),
        snapshot_of(main(), process(200), sender_gone()),
        snapshot_of(main(), sender_gone(threads=[thread(300, *IDLE_WORKER)])),
        snapshot_of(
            main(), process(200, "spawned", threads=[thread(200, *IDLE_WORKER)]), sender_gone()
        ),
        snapshot_of(main(), sender_gone(ended=exited(300, at_s=NOW_S - 1, exit_code=0))),
    ],
    ids=[
        "it lives",
        "it kept them itself",
        "they are not its own",
        "somebody has fetched",
        "long ago",
        "the job is over",
        "a loader's worker leaves with what it had fetched ahead",
        "it may have been one",
        "it was one of another library's loader",
        "that library's loader goes on",
        "it has only just ended",
    ],
)
def test_tensors_that_may_have_been_received_or_are_not_needed_are_quiet(job: Snapshot) -> None:
    assert found(producer_exits_before_get.check, job) == []


def test_a_full_dev_shm_after_the_workers_is_no_lock_that_cannot_be_made() -> None:
    job = snapshot_of(
        main(), process(200, "spawned", ended=exited(200, signal=7)), shm=space(MIB, 0)
    )

    assert found(semlock_enospc.check, job) == []


def test_files_without_allocated_bytes_are_no_leak_whatever_their_size() -> None:
    dead = process(777, "loader-worker", ended=exited(777, exit_code=0))
    empty = left(size_bytes=60 * MIB, allocated_bytes=0)
    job = snapshot_of(main(), dead, segments=(empty,), shm=space(64 * MIB, MIB))

    assert found(file_system_strategy_leak.check, job) == []
