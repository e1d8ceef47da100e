"""Which rank is named by the flight recorders of several ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mpwatch.collect.job.flight_recorder import read_dumps, record_of
from mpwatch.diagnose.analysis.distributed.flight_recorder import (
    MISMATCH,
    STUCK,
    RecordedRanks,
    findings_of,
)
from mpwatch.model.collectives import RankRecord
from mpwatch.model.findings import Finding, Severity

DATA = Path(__file__).parents[2] / "data" / "flight-recorder"
CALLED_S = 1_800_000_000.0
WRITTEN_S = CALLED_S + 600.0


def call(number: int, operation: str = "all_reduce", group: str = "0", **more: Any) -> Any:
    """A collective of NCCL; unfinished unless it is told otherwise."""
    return {
        "pg_id": more.pop("local_id", int(group) % 10),
        "process_group": (group, "default_pg" if group == "0" else f"group of {group}"),
        "collective_seq_id": number,
        "p2p_seq_id": number,
        "profiling_name": f"nccl:{operation}",
        "time_created_ns": int(CALLED_S * 1e9),
        "input_sizes": [[8]],
        "input_dtypes": ["Float"],
        "state": "scheduled",
        "retired": False,
        "is_p2p": " " in operation,
        **more,
    }


def done(number: int, operation: str = "all_reduce", group: str = "0") -> Any:
    return call(number, operation, group, state="completed", retired=True)


def ranks_of(
    *entries: list[Any],
    groups: dict[str, list[int]] | None = None,
    status: dict[int, dict[str, int]] | None = None,
    written_s: dict[int, float] | None = None,
) -> list[RankRecord]:
    """The records of ranks 0, 1, ...; `groups` has the members of those that are no default."""
    members = {"0": list(range(len(entries))), **(groups or {})}
    config = {name: {"name": name, "desc": "", "ranks": str(r)} for name, r in members.items()}
    return [
        record_of(
            {
                "entries": each,
                "pg_config": {n: c for n, c in config.items() if rank in members[n]},
                "pg_status": {
                    key: {"last_enqueued_collective": number}
                    for key, number in (status or {}).get(rank, {}).items()
                },
            },
            rank,
            f"trace_{rank}",
            (written_s or {}).get(rank, WRITTEN_S),
        )
        for rank, each in enumerate(entries)
    ]


def only(records: list[RankRecord]) -> Finding:
    (finding,) = findings_of(records)
    return finding


def fixture(name: str) -> list[RankRecord]:
    records, problems = read_dumps([str(DATA / name)])
    assert problems == []
    return records


def test_a_rank_that_has_not_called_the_collective_of_the_others_is_named() -> None:
    finding = only(fixture("absent"))

    assert finding.rule == STUCK
    assert finding.summary == "2 ranks wait in all_reduce for rank 2"
    first, second = finding.evidence
    assert first.startswith(
        "ranks 0-1: collective 4 of group 0 (default_pg): all_reduce of Float [[8]], unfinished,"
        " called at dump.py:18 stuck"
    )
    assert second == (
        "rank 2, newest of that group: collective 3 of group 0 (default_pg): all_reduce of Float"
        " [[4, 3]], finished, called at dump.py:12 rank_main"
    )
    assert "rank 2 has not. In what was recorded it waits for no other rank" in finding.cause


def test_different_operations_as_the_same_call_are_reported() -> None:
    finding = only(fixture("operation"))

    assert finding.rule == MISMATCH
    assert finding.summary == (
        "the ranks differ in collective 4 of group 0 (default_pg): ranks 0-1 in all_reduce,"
        " rank 2 in broadcast"
    )
    assert "the same number of calls before (3)" in finding.cause


def test_ranks_in_different_groups_that_wait_for_each_other_are_a_cycle() -> None:
    finding = only(fixture("group"))

    assert finding.rule == MISMATCH
    assert finding.summary == "ranks 0-1 wait for each other in different collectives"
    assert (
        "rank 0 waits in all_reduce (collective 2 of group 1 (tensor_parallel)) for rank 1"
        in finding.evidence
    )


def test_different_shapes_are_reported_for_operations_that_need_the_same() -> None:
    other = call(3, input_sizes=[[7]])

    finding = only(ranks_of([call(3)], [call(3)], [other]))

    assert finding.rule == MISMATCH
    assert "ranks 0-1 in all_reduce of Float [[8]], rank 2 in all_reduce of Float [[7]]" in (
        finding.summary
    )
    assert "different shape or type" in finding.cause


def test_different_shapes_are_normal_where_each_rank_sends_another_part() -> None:
    entries = [call(3, "all_to_all")], [call(3, "all_to_all", input_sizes=[[7]])]

    assert [finding.rule for finding in findings_of(ranks_of(*entries))] == [STUCK]


def test_only_the_end_of_a_chain_over_groups_is_named() -> None:
    # 3 waits for 2 in group 23; 2 and 0 for 1 in the default group, which is elsewhere.
    records = ranks_of(
        [call(5)],
        [done(4)],
        [call(5), done(7, group="23")],
        [call(5), call(8, group="23")],
        groups={"23": [2, 3]},
    )

    finding = only(records)

    assert RecordedRanks(records).culprits == (1,)
    assert finding.summary == "3 ranks wait in all_reduce for rank 1"


def test_ranks_that_wait_only_through_others_are_reported_as_such() -> None:
    # The files have nothing but unfinished collectives, as with TORCH_INCLUDE_ONLY_ACTIVE.
    records = ranks_of(
        [call(3, group="12")],
        [call(9, group="34")],
        [],
        groups={"12": [0, 1], "34": [1, 2]},
        status={1: {"2": 2, "4": 9}, 2: {"4": 8}},
    )

    finding = only(records)

    assert finding.summary == "1 rank waits in all_reduce for rank 2"
    assert "rank 2 has called 8 collectives of that group" in finding.evidence
    assert "rank 0 wait as well" not in " ".join(finding.evidence)
    assert "rank 0 waits as well, for it or for ranks that wait for it" in finding.evidence


def test_a_rank_that_does_not_finish_what_the_others_have_finished_is_named() -> None:
    records = ranks_of([call(5), call(6)], [done(5), call(6)], [done(5), call(6)])

    finding = only(records)

    assert finding.summary == "rank 0 does not finish all_reduce, which ranks 1-2 finished"
    assert finding.severity is Severity.CRITICAL
    assert "ranks 1-2 wait for rank 0, directly or through others" in finding.evidence
    assert "Its own device or process has stopped" in finding.cause


def test_a_broadcast_that_its_source_has_finished_blames_no_rank() -> None:
    records = ranks_of([done(5, "broadcast")], [call(5, "broadcast")])

    assert RecordedRanks(records).culprits == ()
    assert findings_of(records) == []


@pytest.mark.parametrize("operation", ["send 0->1", "recv 0<-1"])
def test_a_rank_that_has_not_called_the_other_side_of_a_transfer_is_named(operation: str) -> None:
    finding = only(ranks_of([call(7, operation)], [done(2)]))

    assert finding.summary == f"1 rank waits in {operation[:4]} for rank 1"


def test_matching_transfers_blame_no_rank_and_those_in_a_cycle_all() -> None:
    assert findings_of(ranks_of([call(7, "send 0->1")], [call(7, "recv 1<-0")])) == []

    finding = only(ranks_of([call(7, "recv 0<-1")], [call(7, "recv 1<-0")]))
    assert finding.summary == "ranks 0-1 wait for each other in different collectives"


def test_a_file_written_before_the_newest_call_does_not_blame_its_rank() -> None:
    records = ranks_of([call(5)], [call(5)], [done(3)], written_s={2: CALLED_S - 30})

    assert RecordedRanks(records).early == (2,)
    assert RecordedRanks(records).culprits == ()


def test_ranks_without_a_file_are_reported_where_all_others_have_made_the_call() -> None:
    records = ranks_of([call(5)], [call(5)], groups={"0": [0, 1, 2, 3]})

    finding = only(records)

    assert finding.summary == "2 ranks in all_reduce, and no file of ranks 2-3"
    assert "Possible: a rank without a file has ended" in finding.cause
    assert finding.severity is Severity.WARNING


def test_all_ranks_in_one_call_are_reported_without_a_culprit() -> None:
    finding = only(ranks_of([call(5)], [call(5)]))

    assert finding.summary == "all 2 ranks of a group are in all_reduce: not finished"
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize(
    ("waited_s", "severity"),
    [(600, Severity.CRITICAL), (30, Severity.WARNING), (2, Severity.INFO)],
)
def test_the_severity_follows_how_long_the_ranks_had_waited(
    waited_s: float, severity: Severity
) -> None:
    times = dict.fromkeys(range(2), CALLED_S + waited_s)

    assert only(ranks_of([call(5)], [done(4)], written_s=times)).severity is severity


def test_a_file_that_was_copied_without_its_time_tells_no_time() -> None:
    times = dict.fromkeys(range(2), CALLED_S + 30 * 86400)

    finding = only(ranks_of([call(5)], [done(4)], written_s=times))

    assert finding.severity is Severity.WARNING
    assert "before its file was written" not in " ".join(finding.evidence)


def test_a_job_whose_collectives_have_all_finished_has_no_finding() -> None:
    assert findings_of(ranks_of([done(5)], [done(5)])) == []
    assert findings_of(ranks_of([done(5)], [done(4)])) == []  # between two calls
    assert findings_of([]) == []


def test_a_rank_of_a_thousand_is_named() -> None:
    entries = [[done(4), call(5)] for _ in range(1000)]
    entries[513] = [done(4)]

    finding = only(ranks_of(*entries))

    assert finding.summary == "999 ranks wait in all_reduce for rank 513"
    assert len(finding.evidence) == 2
