from __future__ import annotations

import pytest

from mpwatch.diagnose.rules.results import iterable_duplicates
from mpwatch.model.snapshot import LogEntry, Snapshot
from tests.builders.snapshots import MAIN, found, log, main, only, pid, process, snapshot_of


def first(number: int, *, loader: int = 7, **parts: list[object]) -> LogEntry:
    return log(
        "first-samples", number, loader=loader, worker_id=number, dataset="Lines", parts=parts
    )


def job(*entries: LogEntry) -> Snapshot:
    return snapshot_of(main(), process(200), process(201), process(202), log=entries)


def test_workers_that_begin_with_the_same_samples_are_named() -> None:
    alike = job(first(200, id=["aa", 16, 16], x=["01", 64, 64]), first(201, id=["aa", 16, 16]))

    finding = only(iterable_duplicates.check, alike)

    assert finding.summary == "2 workers of main (100) deliver the same samples of Lines"
    assert "in part id" in finding.evidence[0]


def test_tokens_that_repeat_tell_samples_apart_if_all_of_the_batch_is_the_same() -> None:
    alike = job(first(200, ids=["aa", 128, 20]), first(201, ids=["aa", 128, 20]))

    finding = only(iterable_duplicates.check, alike)

    assert finding.evidence[0].endswith("are the same as a whole")


def test_a_warning_of_torch_is_enough() -> None:
    words = "Length of IterableDataset Lines was reported to be 6, but 7 samples have been fetched"

    finding = only(
        iterable_duplicates.check, snapshot_of(main(), log=(log("warning", MAIN, words),))
    )

    assert finding.process == pid(MAIN)


@pytest.mark.parametrize(
    "entries",
    [
        (first(200, id=["aa", 16, 16]),),
        (first(200, id=["aa", 16, 16]), first(201, id=["bb", 16, 16])),
        (first(200, label=["aa", 16, 10]), first(201, label=["aa", 16, 10])),
        (
            first(200, y=["aa", 64, 20], x=["b", 64, 64]),
            first(201, y=["aa", 64, 20], x=["c", 64, 64]),
        ),
        (first(200, y=["aa", 64, 10], x=["b"]), first(201, y=["aa", 64, 10], x=["b"])),
        (first(200, id=["aa", 4, 4]), first(201, id=["aa", 4, 4])),
        (first(200, id=["aa", 16, 16]), first(201, loader=8, id=["aa", 16, 16])),
        (log("first-samples", 200, parts="x", loader=7), log("first-samples", 999, loader=7)),
    ],
    ids=[
        "one worker",
        "shares of their own",
        "labels come again",
        "many labels come again",
        "few labels come again",
        "too few to tell",
        "two loaders over one dataset",
        "not as expected",
    ],
)
def test_batches_that_do_not_prove_duplicates_are_quiet(entries: tuple[LogEntry, ...]) -> None:
    assert found(iterable_duplicates.check, job(*entries)) == []
