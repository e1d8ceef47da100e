from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from mpwatch.diagnose.rules.results import checkpoint_many_writers
from mpwatch.model.findings import Severity
from mpwatch.model.samples import FdLink, FileId, MapSample
from mpwatch.model.snapshot import Process
from tests.builders.snapshots import (
    exited,
    fds,
    found,
    main,
    maps,
    only,
    pid,
    process,
    snapshot_of,
    thread,
    with_threads,
)

LAST = "/runs/7/last.pt"
SAVE = ("torch/serialization.py:_save", "torch/serialization.py:save", "train.py:keep:41")
UNMAPPED = maps(90)
MAPPED = MapSample(90, None, files=(LAST,))


HERE = FileId(mount=31, device=259, inode=771)


def writes(path: str, fd: int = 9, file: FileId | None = HERE) -> FdLink:
    return FdLink(fd, "file", path, None, True, written=file)


def last_of(**different: Any) -> FdLink:
    """The descriptor of a rank whose file of the same path differs in this."""
    return writes(LAST, file=HERE._replace(**different))


def rank(
    number: int,
    *links: FdLink,
    stack: Sequence[str] = SAVE,
    mapped: MapSample | None = UNMAPPED,
    more_open: int = 0,
    age_s: float = 0.4,
    **fields: Any,
) -> Process:
    """A rank that saves, by default to the file that all save to."""
    files = links or (writes(LAST),)
    return process(
        300 + number,
        "rank",
        label=f"rank {number}",
        threads=[thread(300 + number, *stack, state="R", stack_age_s=age_s)],
        fds=fds(len(files) + more_open, links=files, file=len(files)),
        maps=mapped,
        **fields,
    )


def test_ranks_that_save_to_one_file_are_named_with_it_and_their_lines() -> None:
    finding = only(checkpoint_many_writers.check, snapshot_of(main(), rank(0), rank(1)))

    assert finding.severity is Severity.WARNING
    assert (finding.process, finding.others) == (pid(300), (pid(301),))
    assert finding.summary == f"2 processes save to {LAST} at the same time"
    assert finding.evidence == (
        "rank 0 (300) and rank 1 (301) have it open for writing, and no other checkpoint",
        "rank 0 (300) is in torch.save at train.py:41 keep",
        "rank 1 (301) is in torch.save at train.py:41 keep",
    )


def test_a_file_that_is_renamed_at_the_end_is_named_too() -> None:
    unfinished = writes(f"{LAST}.tmp")

    finding = only(
        checkpoint_many_writers.check,
        snapshot_of(main(), rank(0, unfinished), rank(1, unfinished, writes("/runs/7/log.txt", 4))),
    )

    assert finding.subject == f"{LAST}.tmp"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(rank(0), rank(1, writes("/runs/7/rank1.pt")), id="a file of each rank"),
        pytest.param(
            rank(0), rank(1, stack=("train.py:barrier:44",)), id="inherited, or still open"
        ),
        pytest.param(
            rank(0, writes(LAST), writes("/cache/1.pt", 11)),
            rank(1, writes(LAST), writes("/cache/2.pt", 11)),
            id="inherited, and each saves to its own",
        ),
        pytest.param(
            rank(0, writes("/runs/7/train.log")),
            rank(1, writes("/runs/7/train.log")),
            id="one log, and saving into memory",
        ),
        pytest.param(
            rank(0, writes(f"{LAST}.lock")), rank(1, writes(f"{LAST}.lock")), id="a lock file"
        ),
        pytest.param(
            rank(0, FdLink(9, "file", LAST, None, False, 10)),
            rank(1, FdLink(9, "file", LAST, None, False, 10)),
            id="reading",
        ),
        pytest.param(
            rank(0, writes(f"{LAST} (deleted)")),
            rank(1, writes(f"{LAST} (deleted)")),
            id="two files that had one name",
        ),
        pytest.param(rank(0, mapped=MAPPED), rank(1, mapped=MAPPED), id="mapped by all"),
        pytest.param(rank(0, mapped=None), rank(1, mapped=None), id="mappings not read"),
        pytest.param(rank(0), rank(1, more_open=1), id="closed since the listing, maybe"),
        pytest.param(rank(0), rank(1, age_s=5.0), id="in turn: an old stack"),
        pytest.param(rank(0), rank(1, ended=exited(301)), id="in turn: exited"),
        pytest.param(
            rank(0),
            rank(1, last_of(mount=88, device=60, inode=771)),
            id="two mount namespaces: a disk of each at one path",
        ),
        pytest.param(
            rank(0), rank(1, last_of(mount=88, inode=772)), id="a folder of one disk for each"
        ),
        pytest.param(
            rank(0, last_of(device=None)),
            rank(1, last_of(mount=88, device=None)),
            id="two mounts whose devices were not read",
        ),
        pytest.param(
            rank(0, last_of(inode=None)),
            rank(1, last_of(mount=88, inode=None)),
            id="two mounts of a kernel that shows no inode",
        ),
        pytest.param(
            rank(0, writes(LAST, file=None)),
            rank(1, writes(LAST, file=None)),
            id="nothing known but the path",
        ),
    ],
)
def test_other_files_that_several_processes_have_open_are_quiet(
    one: Process, other: Process
) -> None:
    assert found(checkpoint_many_writers.check, snapshot_of(main(), one, other)) == []


def test_two_threads_of_one_process_are_one_writer() -> None:
    alone = rank(0)
    twice = with_threads(alone, (*alone.threads, thread(999, *SAVE, state="R", stack_age_s=0.4)))

    assert found(checkpoint_many_writers.check, snapshot_of(main(), twice)) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(writes(LAST), last_of(mount=88), id="one file system in two namespaces"),
        pytest.param(last_of(device=None), last_of(device=None), id="one mount, no device read"),
        pytest.param(last_of(inode=None), last_of(inode=None), id="a kernel that shows no inode"),
    ],
)
def test_what_is_known_of_a_file_says_that_it_is_the_same(one: FdLink, other: FdLink) -> None:
    job = snapshot_of(main(), rank(0, one), rank(1, other))

    assert only(checkpoint_many_writers.check, job).subject == LAST
