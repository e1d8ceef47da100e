from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.transport import max_map_count, shm_full_enospc
from mpwatch.model.findings import Severity
from mpwatch.model.ids import Role
from mpwatch.model.snapshot import Hook, Segment
from tests.builders.snapshots import (
    MAIN,
    MIB,
    NOW_S,
    exited,
    found,
    history,
    line,
    log,
    main,
    maps,
    only,
    process,
    segment,
    snapshot_of,
    space,
    uses,
)


def test_mappings_on_their_way_to_the_limit_are_named_with_the_time_left() -> None:
    job = snapshot_of(main(maps=maps(30_000, torch=29_000), segments=uses(5, creator=200)))
    past = history({(MAIN, "maps"): line(30_000, per_s=500)})

    finding = only(max_map_count.check, job, past)

    assert finding.severity is Severity.WARNING
    assert "65530 in 71 s" in finding.summary
    assert "one page" in finding.cause
    assert any("5 by pid 200" in each for each in finding.evidence)
    assert "hook" in finding.advice


def test_a_process_at_the_map_limit_is_critical() -> None:
    job = snapshot_of(main(maps=maps(65_000, torch=64_000), hook=Hook("ready")))

    finding = only(max_map_count.check, job)

    assert finding.severity is Severity.CRITICAL
    assert "hook" not in finding.advice


def test_other_mappings_do_not_count_as_torch_segments() -> None:
    finding = only(max_map_count.check, snapshot_of(main(maps=maps(60_000, torch=10))))

    assert finding.severity is Severity.WARNING
    assert "not torch's" in finding.cause


def test_the_hosts_limit_counts_where_the_sample_has_none() -> None:
    job = snapshot_of(main(maps=maps(65_000, None, torch=64_000)), max_map_count=65_530)

    assert only(max_map_count.check, job).severity is Severity.CRITICAL


def test_libraries_mapped_at_the_start_are_quiet() -> None:
    past = history({(MAIN, "maps"): line(2_000, per_s=400, seconds=5)})

    assert found(max_map_count.check, snapshot_of(main(maps=maps(2_000))), past) == []


def named_files(count: int) -> tuple[Segment, ...]:
    return tuple(segment(i, MAIN, kind="torch-named", is_linked=True) for i in range(count))


def test_files_in_dev_shm_estimate_the_mappings_between_two_counts() -> None:
    counted = replace(maps(20_000, torch=19_000), read_at_s=NOW_S - 10)
    job = snapshot_of(main(maps=counted), segments=named_files(200))
    past = history(host={"shm_used_inodes": line(39_000, per_s=2_000, seconds=14)})

    finding = only(max_map_count.check, job, past)

    assert "40000 of 65530 mappings in use" in finding.evidence[0]
    assert finding.eta_s == pytest.approx(25_530 / 2_000)


@pytest.mark.parametrize("files", [named_files(200), named_files(3)])
def test_files_that_are_few_or_constant_change_no_estimate(files: tuple[Segment, ...]) -> None:
    job = snapshot_of(main(maps=maps(20_000, torch=19_000)), segments=files)
    past = history(host={"shm_used_inodes": line(300)})

    assert found(max_map_count.check, job, past) == []


def test_unknown_mappings_are_quiet() -> None:
    assert found(max_map_count.check, snapshot_of(main())) == []
    assert found(max_map_count.check, snapshot_of(main(maps=maps(9, None)))) == []


def test_a_full_dev_shm_is_critical_and_names_the_processes_that_filled_it() -> None:
    held = [segment(i, 200, allocated_bytes=8 * MIB) for i in range(7)]
    job = snapshot_of(main(), process(200), shm=space(64 * MIB, MIB), segments=tuple(held))

    finding = only(shm_full_enospc.check, job)

    assert finding.severity is Severity.CRITICAL
    assert any("7 segments of this job hold 56.0M" in each for each in finding.evidence)
    assert any("loader-worker 200: 56.0M" in each for each in finding.evidence)
    assert "--shm-size" in finding.advice


@pytest.mark.parametrize("role", ["spawned", "loader-worker"])
def test_a_full_dev_shm_mentions_dataloader_parameters_only_with_loader_workers(role: Role) -> None:
    own = segment(1, 200, allocated_bytes=60 * MIB)
    job = snapshot_of(main(), process(200, role), shm=space(64 * MIB, MIB), segments=(own,))

    finding = only(shm_full_enospc.check, job)

    assert ("prefetch_factor" in finding.cause + finding.advice) is (role == "loader-worker")


def test_a_dev_shm_filled_by_other_jobs_is_reported_as_such() -> None:
    own = (segment(1, None, allocated_bytes=MIB),)
    finding = only(shm_full_enospc.check, snapshot_of(main(), shm=space(64 * MIB, 0), segments=own))

    assert "is full" in finding.summary
    assert "not in segments of this job" in finding.cause
    assert "mpwatch clean" in finding.advice
    assert any("63.0M are not in segments of this job" in each for each in finding.evidence)
    assert any("an unknown process: 1.0M" in each for each in finding.evidence)


def test_a_filling_dev_shm_is_forecast() -> None:
    past = history(host={"shm_used_bytes": line(30 * MIB, per_s=MIB / 2)})

    finding = only(shm_full_enospc.check, snapshot_of(main(), shm=space(64 * MIB, 34 * MIB)), past)

    assert finding.eta_s is not None
    assert 67 < finding.eta_s < 69
    assert "full in 68 s at +512" in finding.summary


def test_running_out_of_files_is_named_although_bytes_are_free() -> None:
    finding = only(
        shm_full_enospc.check, snapshot_of(main(), shm=space(64 * MIB, 60 * MIB, 1000, 5))
    )

    assert finding.subject == "files"
    assert "995 of 1000 files in use" in finding.summary


def test_a_prefetch_plateau_below_nine_tenths_is_quiet() -> None:
    past = history(host={"shm_used_bytes": line(50 * MIB)})

    assert (
        found(shm_full_enospc.check, snapshot_of(main(), shm=space(64 * MIB, 14 * MIB)), past) == []
    )


def test_the_first_prefetch_is_quiet() -> None:
    past = history(host={"shm_used_bytes": line(12 * MIB, per_s=2 * MIB, seconds=5)})

    assert (
        found(shm_full_enospc.check, snapshot_of(main(), shm=space(64 * MIB, 52 * MIB)), past) == []
    )


def test_an_unreadable_or_absent_dev_shm_is_quiet() -> None:
    assert found(shm_full_enospc.check, snapshot_of(main())) == []
    assert found(shm_full_enospc.check, snapshot_of(main(), shm=space(0, 0))) == []


def test_a_job_that_has_ended_has_no_finding_about_space() -> None:
    over = main(ended=exited(MAIN, exit_code=0))

    assert found(shm_full_enospc.check, snapshot_of(over, shm=space(64 * MIB, 0))) == []


def refused(inode: int, **fields: object) -> Segment:
    taken = {"kind": "torch-named", "is_linked": True, "size_bytes": 9 * MIB, **fields}
    return segment(inode, 200, allocated_bytes=0, **taken)


def test_tensors_that_did_not_fit_are_named_though_some_space_is_left() -> None:
    job = snapshot_of(
        main(), process(200), shm=space(64 * MIB, 8 * MIB), segments=(refused(1), refused(2))
    )

    finding = only(shm_full_enospc.check, job)

    assert finding.severity is Severity.CRITICAL
    assert "no space for tensors of 9.0M: 8.0M are free" in finding.summary
    assert any("empty files in it: 2" in each for each in finding.evidence)
    assert "made by loader-worker 200 (200)" in finding.evidence


def test_empty_files_that_would_find_room_are_quiet() -> None:
    for segments in ((refused(1, size_bytes=MIB),), (refused(1, kind="torch"),)):
        job = snapshot_of(main(), shm=space(64 * MIB, 8 * MIB), segments=segments)
        assert found(shm_full_enospc.check, job) == []


def test_only_what_was_seen_of_dev_shm_is_its_cause() -> None:
    words = "unable to allocate shared memory(shm): No space left on device (28)"
    causes = {
        (kind, total): only(
            shm_full_enospc.check,
            snapshot_of(
                main(),
                log=(log(kind, MAIN, words),),
                shm=space(total * MIB, (total - 4) * MIB),
            ),
        ).cause
        for kind in ("exception", "lost-item")
        for total in (64, 4096)
    }

    assert {at: "64 MiB" in cause for at, cause in causes.items()} == {
        at: at[1] == 64 for at in causes
    }
    assert {at: "feeder" in cause for at, cause in causes.items()} == {
        at: at[0] == "lost-item" for at in causes
    }


def test_an_error_of_the_job_names_a_full_dev_shm_after_it_has_emptied() -> None:
    words = (
        "exception: loader fetch; RuntimeError; unable to allocate shared memory(shm) for file "
        "</torch_200_1_6>: No space left on device (28)"
    )
    ended = main(ended=exited(MAIN, exit_code=1))
    job = snapshot_of(
        ended,
        process(200),
        shm=space(64 * MIB, 60 * MIB),
        log=(log("exception", 200, words),),
    )

    finding = only(shm_full_enospc.check, job)

    assert finding.severity is Severity.CRITICAL
    assert finding.summary.startswith("loader-worker 200 (200) could not share a tensor")
    assert finding.evidence[-1] == "/dev/shm: 60.0M of 64.0M free when last read"
    assert (
        only(shm_full_enospc.check, snapshot_of(log=(log("exception", 9, words),))).process is None
    )


@pytest.mark.parametrize(
    ("size_mib", "made_per_s", "is_named"),
    [(20, 0.0, False), (17, 0.0, False), (20, MIB, True), (60, 0.0, True)],
    ids=["it has room", "it is full", "others are made", "it does not fit"],
)
def test_a_segment_that_is_written_for_the_first_time_fills_up_to_its_size(
    size_mib: int, made_per_s: float, is_named: bool
) -> None:
    cache = segment(1, kind="psm", size_bytes=size_mib * MIB, allocated_bytes=17 * MIB)
    job = snapshot_of(main(), shm=space(50 * MIB, 32 * MIB), segments=(cache,))
    past = history(
        host={
            "shm_used_bytes": line(18 * MIB, per_s=MIB),
            "segment_bytes": line(size_mib * MIB, per_s=made_per_s),
        }
    )

    assert bool(found(shm_full_enospc.check, job, past)) == is_named
