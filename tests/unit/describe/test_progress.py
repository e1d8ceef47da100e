from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from mpwatch.describe.progress import (
    NONE_YET,
    UNKNOWN,
    moment_of,
    pace_words,
    progress_of,
    progress_sentence,
    rate_words,
    resampled,
)
from mpwatch.model.progress import pace
from mpwatch.model.samples import Ended
from mpwatch.model.snapshot import Hook
from mpwatch.observe.sources.replay import replay_course
from tests.builders.progress import BEGIN_S, OTHER, source
from tests.builders.snapshots import MAIN, NOW_S, main, pid, snapshot_of

DATA = Path(__file__).parents[2] / "data"
HOOKED = main(hook=Hook("ready"))


@pytest.mark.parametrize(
    ("per_s", "words"),
    [
        (None, "-"),
        (0.0, "0/s"),
        (1234.6, "1235/s"),
        (12.4, "12/s"),
        (3.04, "3.0/s"),
        (0.1, "0.1/s"),
        (0.04, "2.4/min"),
        (0.0004, "1.4/h"),
    ],
)
def test_a_rate_has_the_unit_in_which_it_can_be_read(per_s: float | None, words: str) -> None:
    assert rate_words(per_s) == words


@pytest.mark.parametrize(
    ("rates", "at_s", "words"),
    [
        ((12.0, 200), 200, "12/s now, 12/s over 3 min"),
        ((12.0, 100, 3.0, 60), 160, "3.0/s for 60 s, 12/s before that, 8.6/s over 3 min"),
        ((12.0, 100), 141, "0/s for 41 s, 12/s before that"),
        ((1.0, 1), 0.5, "1 so far"),
        ((1.0, 1), 60, "0/s for 60 s"),
    ],
)
def test_rates_in_words(rates: tuple[float, ...], at_s: float, words: str) -> None:
    assert pace_words(pace([source(*rates)], BEGIN_S + at_s)) == words


def test_a_sentence_names_two_kinds_and_whose_they_are() -> None:
    begin_s = NOW_S - 100
    found = (
        source(4.0, 100, begin_s=begin_s, process=OTHER)._replace(kind="tensors"),
        source(4.0, 100, begin_s=begin_s, process=pid(MAIN)),
        source(2.0, 100, begin_s=begin_s, process=OTHER)._replace(kind="gets"),
    )
    job = replace(snapshot_of(HOOKED), progress=found)

    assert progress_sentence(job, {OTHER: "worker 7"}) == (
        "Progress: batches 4.0/s now, 4.0/s over 100 s;"
        " queue gets of worker 7 2.0/s now, 2.0/s over 100 s."
    )


def test_without_a_hook_progress_is_unknown_and_not_zero() -> None:
    assert progress_sentence(snapshot_of(main()), {}) == UNKNOWN
    assert progress_sentence(snapshot_of(HOOKED), {}) == NONE_YET


def test_a_job_that_has_ended_shows_the_rates_up_to_its_end() -> None:
    ended = replace(HOOKED, ended=Ended(pid(MAIN), NOW_S - 60))
    made = source(4.0, 100, begin_s=NOW_S - 160, process=pid(MAIN))
    job = replace(snapshot_of(ended), progress=(made,))

    assert moment_of(job) == NOW_S - 60
    assert pace_words(progress_of(job)[0]) == "4.0/s now, 4.0/s over 100 s"


def test_a_recording_of_an_earlier_version_shows_its_progress() -> None:
    snapshot, _ = replay_course(str(DATA / "recording-schema-1-numbered-notes.mpw"))

    batches, tensors = progress_of(snapshot)

    assert (batches.kind, tensors.kind) == ("batches", "tensors")
    assert (batches.processes, tensors.total) == ((snapshot.root,), 2 * batches.total)


def test_values_are_resampled_from_the_newest_on() -> None:
    assert resampled([1, 2, 4, 6, 8], 3) == [1, 3, 7]
    assert resampled([1, 2], 5) == [1, 2]
    assert resampled([1, 2], 0) == resampled([], 4) == []
