"""What each round makes and nothing closes, in findings about what rises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.memory.steady_growth import check
from mpwatch.model.findings import Finding
from mpwatch.model.history import Point, ProcessMetric
from mpwatch.model.samples import FdLink, ThreadSample
from mpwatch.model.source_code import Mark, Statement
from tests.builders.snapshots import (
    MAIN,
    MIB,
    fds,
    history,
    line,
    main,
    only,
    process,
    snapshot_of,
    thread,
)

LOOP = "main.py:9-30 main"
INSIDE, BEHIND = "main.py:main:12", "main.py:main:41"


def makes(about: str, text: str = "feed = Feed(path)") -> Mark:
    return Mark("never-closed", "/home/me/work.py", "work", f"{about}; {LOOP}", Statement(7, text))


def rising(
    metric: ProcessMetric, end: float, per_s: float
) -> Mapping[tuple[int, ProcessMetric], Sequence[Point]]:
    return {(MAIN, metric): line(end, per_s, 60)}


THREADS = makes("threads, Feed, close, feed.py:8, none")


def threads_grow(
    mark: Mark, stack: str = INSIDE, run: Sequence[str] = ("feed.py:_run:12",)
) -> Finding:
    many = [thread(MAIN, stack)]
    many += [thread(MAIN + n, *run) for n in range(1, 70)]
    started = tuple(ThreadSample(MAIN + n, "python", "S", 0, start_ticks=n) for n in range(70))
    sample = replace(main().sample, threads=started, thread_count=70)
    own = replace(main(threads=many), sample=sample)
    return only(check, snapshot_of(own, marks=(mark,)), history(rising("threads", 70, 1)))


def test_threads_of_objects_that_nothing_closes() -> None:
    finding = threads_grow(THREADS)

    assert finding.cause == (
        "`feed = Feed(path)` at work.py:7 work makes a Feed in each round of the loop at main.py:9 "
        "main, and each starts a thread (at feed.py:8) that runs a method of the object until it "
        "is told to end: work() neither calls close() of it nor gives it to anything that does."
    )
    assert finding.advice.startswith("Call close() in a `finally` clause")
    assert "`feed = Feed(path)` at work.py:7 work is reached in each round" in finding.evidence[2]


def test_threads_whose_stacks_are_not_known_are_most_likely_those() -> None:
    assert threads_grow(THREADS, run=()).cause.startswith("Most likely `feed = Feed(path)`")


@pytest.mark.parametrize(
    ("stack", "run"), [(BEHIND, ("feed.py:_run:12",)), (INSIDE, ("other.py:poll:3",))]
)
def test_threads_of_another_loop_or_file_are_not_those(stack: str, run: Sequence[str]) -> None:
    assert threads_grow(THREADS, stack, run).cause.startswith("It starts threads that do not end")


@pytest.mark.parametrize(
    ("about", "words", "advice"),
    [
        (
            "threads, Feed, close, feed.py:8, if path.exists(): in line 9",
            "close() is called only under `if path.exists():` in line 9.",
            "Call close() on each way out of work()",
        ),
        (
            "threads, Feed, close, feed.py:8, over",
            "work() gives the attribute a new one, and neither it nor what calls it in the same "
            "round calls close() of the former one.",
            "Call close() of the former one each time, before work.py:7 work makes the next.",
        ),
        (
            "threads, Feed, close, feed.py:8, over if self.viewer: in line 5",
            "close() is called only under `if self.viewer:` in line 5.",
            "Call close() of the former one each time",
        ),
        (
            "threads, Skill, feed.close, feed.py:8, none",
            "none of the files that were read calls feed.close().",
            "Call feed.close() in a `finally` clause",
        ),
    ],
)
def test_how_it_is_left(about: str, words: str, advice: str) -> None:
    finding = threads_grow(makes(about))

    assert words in finding.cause
    assert finding.advice.startswith(advice)


WRITERS = makes(
    "writers, torch.utils.tensorboard.SummaryWriter, close, , none", "writer = SummaryWriter(path)"
)


def test_writers_of_events_by_their_threads_and_files() -> None:
    run = ("/usr/lib/python3/site-packages/tensorboard/summary/writer/event_file_writer.py:run:9",)
    links = [FdLink(n, "file", f"/runs/{n}/events.out.tfevents.1.a", None, True) for n in range(97)]
    own = main(threads=[thread(MAIN, INSIDE)], fds=fds(97, 1024, links, file=97))

    by_threads = threads_grow(WRITERS, run=run)
    by_files = only(check, snapshot_of(own, marks=(WRITERS,)), history(rising("fds", 97, 1)))

    for finding in (by_threads, by_files):
        assert finding.cause.startswith("`writer = SummaryWriter(path)` at work.py:7 work makes")
        assert "keeps its file open until close() is called" in finding.cause
    assert threads_grow(WRITERS).cause.startswith("It starts threads that do not end")


def test_descriptors_that_objects_keep_as_numbers() -> None:
    mark = makes("pipe, Waker, , waker.py:5, none", "Waker(path)")
    links = [FdLink(n, "pipe", f"pipe:[{n}]", n, True) for n in range(97)]
    files = [FdLink(n, "file", f"/data/{n}", None, True) for n in range(97)]
    own = main(threads=[thread(MAIN, INSIDE)], fds=fds(97, 1024, links, pipe=97))
    other = main(threads=[thread(MAIN, INSIDE)], fds=fds(97, 1024, files, file=97))

    finding = only(check, snapshot_of(own, marks=(mark,)), history(rising("fds", 97, 1)))
    apart = only(check, snapshot_of(other, marks=(mark,)), history(rising("fds", 97, 1)))

    assert finding.summary.startswith(
        "main (100) has ever more open pipe ends, most likely of each Waker that is made at "
        "work.py:7 work: "
    )
    assert "no method of Waker closes it" in finding.cause
    assert "os.close()" in finding.advice
    assert "Waker" not in apart.cause


def test_children_that_objects_leave_running() -> None:
    mark = makes("processes, Engine, quit, engine.py:6, none", "engine = Engine(path)")
    helpers = [process(200 + n, "other", label="engine") for n in range(30)]
    own = main(threads=[thread(MAIN, INSIDE)])

    past = history(rising("children", 30, 0.5))
    finding = only(check, snapshot_of(own, *helpers, marks=(mark,)), past)

    assert "each starts a process (at engine.py:6)" in finding.cause
    assert finding.advice.startswith("Call quit()")


FIGURES = makes(
    "figures, matplotlib.pyplot.figure, matplotlib.pyplot.close, , none", "fig = plt.figure()"
)


@pytest.mark.parametrize(("stack", "is_told"), [(INSIDE, True), (BEHIND, False)])
def test_figures_that_pyplot_keeps(stack: str, is_told: bool) -> None:
    own = main(threads=[thread(MAIN, stack)])
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    finding = only(check, snapshot_of(own, marks=(FIGURES,)), past)

    assert is_told is finding.cause.startswith(
        "Most likely figures stay: `fig = plt.figure()` at work.py:7 work makes one in each round "
        "of the loop at main.py:9 main, and matplotlib.pyplot keeps each figure"
    )
    assert is_told is finding.advice.startswith("Call matplotlib.pyplot.close(fig)")


def test_clients_of_a_library_that_nothing_disconnects() -> None:
    mark = makes("memory, Sim, close, sim.py:6, none", "sim = Sim()")
    own = main(threads=[thread(MAIN, INSIDE)])
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    finding = only(check, snapshot_of(own, marks=(mark,)), past)

    assert "Most likely what Sim takes stays: `sim = Sim()` at work.py:7 work" in finding.cause
