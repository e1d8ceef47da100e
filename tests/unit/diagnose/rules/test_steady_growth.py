"""Findings about a value that rises steadily, and values that other rules explain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.throughput.account import advanced
from mpwatch.diagnose.analysis.throughput.shares import imported_until_s
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.consequences import with_causes
from mpwatch.diagnose.engine import Engine
from mpwatch.diagnose.rules.memory.steady_growth import check
from mpwatch.model.account import NO_CORE, Account, Activity, Callers
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import Point, ProcessMetric
from mpwatch.model.host import FilesKey, NewFiles
from mpwatch.model.ids import ProcessId, Role
from mpwatch.model.progress import BUCKET_S
from mpwatch.model.samples import (
    FdLink,
    Frame,
    FrameValues,
    GpuSample,
    NameValue,
    ThreadSample,
    ValuesRead,
    WaitedOn,
)
from mpwatch.model.snapshot import FileLine, GpuUse, Process, Snapshot, Thread, WorkerLoad
from mpwatch.model.source_code import AddedTo, Mark, MarkKind, SourceLine, Statement
from tests.builders.accounts import (
    COMPUTES,
    IS_AHEAD,
    SLEEPS,
    WAITS_IN_QUEUE,
    answers_from,
    with_shares,
)
from tests.builders.snapshots import (
    MAIN,
    MIB,
    NO_HISTORY,
    NOW_S,
    WALL_S,
    cgroup,
    exited,
    fds,
    found,
    history,
    line,
    main,
    maps,
    only,
    pid,
    pipe,
    process,
    segment,
    snapshot_of,
    socket,
    space,
    thread,
    ticked,
)

GIB = 1 << 30


def file(fd: int, path: str) -> FdLink:
    return FdLink(fd, "file", path, None, True)


def rising(
    metric: ProcessMetric, end: float, per_s: float, *numbers: int
) -> dict[tuple[int, ProcessMetric], Sequence[Point]]:
    return {(number, metric): line(end, per_s, 60) for number in numbers or (MAIN,)}


def test_memory_that_rises_is_reported_with_its_rate_and_the_time_left() -> None:
    seen = snapshot_of(
        main(threads=[thread(100, "torch/nn.py:forward", "train.py:step:31", "train.py:main:57")]),
        memory_total_bytes=64 * GIB,
        memory_available_bytes=10 * GIB,
    )

    finding = only(check, seen, history(rising("anon_bytes", 900 * MIB, 5 * MIB)))

    assert finding.severity is Severity.INFO
    assert finding.process == pid(MAIN)
    assert finding.summary == "main (100) has ever more private memory: +5.0M/s for 60 s"
    assert finding.eta_s == pytest.approx(10 * GIB / (5 * MIB))
    assert "300M more private memory in the last 60 s" in finding.evidence[0]
    assert "train.py:31 step, called from train.py:57 main" in finding.evidence[1]
    assert "10.0G of 64.0G left, used up in 34 min" in finding.evidence[-1]
    assert "autograd" not in finding.cause
    assert "torch.no_grad()" not in finding.advice


@pytest.mark.parametrize(
    ("waits", "aged_s", "is_reported"),
    [(0.7, 70.0, False), (0.7, 600.0, True), (0.2, 70.0, True)],
    ids=["its first rounds last minutes", "long past its start", "it has a core"],
)
def test_a_start_lasts_longer_where_a_process_waits_for_a_core(
    waits: float, aged_s: float, is_reported: bool
) -> None:
    job = snapshot_of(main(born_wall_s=WALL_S - aged_s))
    job = with_shares(job, p100={NO_CORE: waits, COMPUTES: 1 - waits})

    grown = found(check, job, history(rising("anon_bytes", 900 * MIB, 5 * MIB)))

    assert bool(grown) is is_reported


def test_autograd_is_a_possible_reason_only_where_torch_is_loaded() -> None:
    seen = snapshot_of(main(torch_loaded=True))

    finding = only(check, seen, history(rising("anon_bytes", 900 * MIB, 5 * MIB)))

    assert "autograd" in finding.cause
    assert "evaluate under torch.no_grad()" in finding.advice
    assert finding.evidence[-1] == "no limit is known"


def test_memory_rises_where_a_process_computes_and_not_where_it_sleeps() -> None:
    timer = WaitedOn("timer", "clock_nanosleep")
    sleeps = thread(100, "train.py:next:15", "train.py:step:41", waits=timer)
    shares = {
        Activity("sleeping", place="train.py:15 next"): 0.8,
        Activity("computing", "native code", place="train.py:46 spread"): 0.2,
    }
    job = with_shares(snapshot_of(main(threads=[sleeps])), p100=shares)

    finding = only(check, job, history(rising("anon_bytes", 900 * MIB, 5 * MIB)))

    assert "100% of its computing whose line is known: train.py:46 spread" in finding.evidence
    assert not any("train.py:15" in each for each in finding.evidence)


def test_what_a_rank_keeps_over_rounds_of_its_loop_is_first_of_all_its_graphs() -> None:
    loop = Statement(39, "for step in range(self.steps):")
    line = SourceLine("/home/me/train.py", 41, "epoch", Statement(41, "x = f()"), within=(loop,))
    own = [thread(200, "torch/nn.py:forward", "train.py:epoch:41")]
    rank = process(200, "rank", torch_loaded=True, threads=own)
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB, 200))

    trains = only(check, snapshot_of(main(), rank, source=(line,)), past)
    other = only(check, snapshot_of(main(), replace(rank, role="spawned", label="job")), past)
    timer = WaitedOn("timer", "clock_nanosleep")
    sleeps = replace(rank, threads=(replace(own[0], waits_on=timer),))
    asleep = only(check, snapshot_of(main(), sleeps, source=(line,)), past)

    loop_words = "over the rounds of `for step in range(self.steps):` at train.py:39 epoch"
    assert f"{loop_words}. In training" in trains.cause
    assert trains.cause.index("autograd graph") < trains.cause.index("list or dict")
    assert other.cause.startswith("It keeps what it allocates: a list or dict")
    assert loop_words in asleep.cause
    assert not any("train.py:41" in each for each in asleep.evidence)


def test_a_worker_of_a_loader_keeps_no_graphs() -> None:
    worker = process(200, torch_loaded=True)
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB, 200))

    finding = only(check, snapshot_of(main(), worker), past)

    assert "autograd" not in finding.cause
    assert "no_grad" not in finding.advice


@pytest.mark.parametrize(
    ("lookup", "told"),
    [
        ("if key in self.items: return self.items[key]", True),
        ("if key in self.bad: return None", False),
        ("if not key: return self.items", False),
    ],
)
def test_memory_that_is_allocated_after_a_look_up_fills_a_cache(lookup: str, told: bool) -> None:
    line = SourceLine(
        "/home/me/train.py",
        18,
        "get",
        Statement(18, "item = build(key)"),
        after=(Statement(15, lookup),),
    )
    loads = main(threads=[thread(MAIN, "numpy/core.py:load", "train.py:get:18")])

    finding = only(
        check,
        snapshot_of(loads, source=(line,)),
        history(rising("anon_bytes", 900 * MIB, 5 * MIB)),
    )

    assert ("It fills a cache: train.py:18 get" in finding.cause) is told
    assert finding.is_doubtful


def test_a_pickler_that_writes_all_messages_is_named_with_its_line() -> None:
    dumps = Statement(16, "self.out.dump(message)")
    mark = Mark("reuses-pickler", "/home/me/train.py", "send", "self.out, 12", dumps)
    sends = main(threads=[thread(MAIN, "train.py:mine:51")], torch_loaded=True)
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    finding = only(check, snapshot_of(sends, marks=(mark,)), past)
    elsewhere = mark._replace(file="/home/me/other.py")
    away = only(check, snapshot_of(sends, marks=(elsewhere,)), past)
    several = (elsewhere, mark._replace(file="/home/me/more.py"))

    assert finding.cause.startswith(
        "Most likely the memo of self.out keeps it: `self.out.dump(message)` at train.py:16 send "
        "uses the one of line 12 for all messages"
    )
    assert "pickle.dumps()" in finding.advice
    assert not finding.is_doubtful
    assert away.cause.startswith("Possible: the memo of self.out keeps it")
    assert away.is_doubtful
    assert "memo" not in only(check, snapshot_of(sends, marks=several), past).cause


def test_a_part_of_a_tensor_that_is_kept_is_named_with_its_line() -> None:
    keeps = Mark(
        "view",
        "/home/me/train.py",
        "offer",
        "features[worst]",
        Statement(30, "self.entries.append(features[worst])"),
    )
    mines = main(threads=[thread(MAIN, "train.py:mine:51")], torch_loaded=True)
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    finding = only(check, snapshot_of(mines, marks=(keeps,)), past)
    elsewhere = keeps._replace(file="/home/me/other.py")
    other = only(check, snapshot_of(mines, marks=(elsewhere,)), past)

    assert "append(features[worst])` at train.py:30 offer keeps features[worst]" in finding.cause
    assert "features[worst].clone()" in finding.advice
    assert not finding.is_doubtful
    assert "view" not in other.cause
    assert other.is_doubtful


@pytest.mark.parametrize(
    ("kind", "about", "text", "words", "advice"),
    [
        (
            "futures",
            "futures",
            "for each in as_completed(futures):",
            "futures refers to all of them, at `for each in as_completed(futures):`",
            "Take each future out of futures",
        ),
        (
            "cycle",
            "rows",
            "return cycle(rows)",
            "itertools.cycle keeps a copy of every element of rows",
            "Use a loop that begins anew: while True: yield from rows",
        ),
        (
            "kept",
            "self.results['vertices']",
            "self.results['vertices'].append(pred.numpy())",
            "Most likely it keeps in self.results what `self.results['vertices']",
            "Empty self.results at the end of each round",
        ),
    ],
)
def test_the_container_that_keeps_what_a_process_makes_is_named(
    kind: MarkKind, about: str, text: str, words: str, advice: str
) -> None:
    keeps = Mark(kind, "/home/me/train.py", "mine", about, Statement(33, text))
    mines = main(threads=[thread(MAIN, "train.py:mine:51")])
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    finding = only(check, snapshot_of(mines, marks=(keeps,)), past)

    assert words in finding.cause
    assert finding.advice.startswith(advice)


def test_a_slice_that_was_made_before_it_is_kept_is_named_with_its_line() -> None:
    keeps = Statement(31, "features.append(self.extract_batch(batch).numpy())")
    mark = Mark("view", "/home/me/train.py", "extract", "line 23: act[:, 0, :]", keeps)
    mines = main(threads=[thread(MAIN, "train.py:extract:30")], torch_loaded=True)
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    finding = only(check, snapshot_of(mines, marks=(mark,)), past)

    assert finding.cause.startswith(
        "`features.append(self.extract_batch(batch).numpy())` at train.py:31 extract keeps "
        "act[:, 0, :], made in line 23. If act is a tensor or array, that is a view"
    )
    assert "act[:, 0, :].clone()" in finding.advice


def test_a_slice_of_another_file_that_a_method_keeps_is_named_with_both_lines() -> None:
    file = "/home/me/train.py"
    passed = Mark(
        "view-passed",
        file,
        "build",
        "add, 2, audio.py:39: signal[a:b]",
        Statement(31, "index.add(key, vector, part)"),
    )
    kept = Mark(
        "argument-kept",
        "/home/me/index.py",
        "add",
        "2, self.parts",
        Statement(34, "self.parts.append(part)"),
    )
    mines = main(threads=[thread(MAIN, "train.py:build:30")], torch_loaded=True)
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    finding = only(check, snapshot_of(mines, marks=(passed, kept)), past)

    assert finding.cause.startswith(
        "`self.parts.append(part)` at index.py:34 add keeps signal[a:b], made in audio.py:39. If "
        "signal is a tensor or array, that is a view"
    )


@pytest.mark.parametrize(("stack", "is_told"), [("pre_forward", True), ("generate", False)])
def test_hooks_that_a_running_function_registers_are_named(stack: str, is_told: bool) -> None:
    hook = Mark(
        "registers-hook",
        "/home/me/train.py",
        "pre_forward",
        "",
        Statement(94, "handles.append(layer.register_forward_hook(f))"),
    )
    mines = main(threads=[thread(MAIN, f"train.py:{stack}:89")], torch_loaded=True)
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    finding = only(check, snapshot_of(mines, marks=(hook,)), past)

    assert finding.cause.startswith("Most likely hooks accumulate:") is is_told


REGISTERS = Mark(
    "registers",
    "/home/me/link.py",
    "__init__",
    "atexit.unregister(); train.py:48-55 mine",
    Statement(25, "atexit.register(self.close)"),
)


@pytest.mark.parametrize(
    ("stack", "is_told"),
    [("train.py:mine:51", True), ("train.py:mine:60", False), ("train.py:rest:51", False)],
)
def test_what_each_round_of_the_present_loop_registers_is_named(stack: str, is_told: bool) -> None:
    mines = main(threads=[thread(MAIN, stack)])
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    finding = only(check, snapshot_of(mines, marks=(REGISTERS,)), past)

    assert is_told is finding.cause.startswith(
        "Most likely what `atexit.register(self.close)` at link.py:25 __init__ registers stays: "
        "that is reached in each round of the loop at train.py:48 mine, and atexit keeps each "
        "function until the process ends"
    )
    assert is_told is finding.advice.startswith("Call atexit.unregister() with the same function")


UNRUN = Mark(
    "unrun-loop",
    "/home/me/preview.py",
    "submit",
    "self.loop, 30, run_in_executor; train.py:48-55 mine",
    Statement(37, "fut = self.loop.run_in_executor(self.pool, render, step)"),
)
_RUNS_LOOP = Mark("runs-loop", "/home/me/main.py", "main", "", Statement(3, "asyncio.run(f())"))


@pytest.mark.parametrize(
    ("threads", "marks", "is_told"),
    [
        ([thread(MAIN, "train.py:mine:51")], (UNRUN,), True),
        ([thread(MAIN, "train.py:mine:60")], (UNRUN,), False),
        ([thread(MAIN, "train.py:mine:51")], (UNRUN, _RUNS_LOOP), False),
        (
            [
                thread(MAIN, "train.py:mine:51"),
                thread(101, "/usr/lib/python3.11/asyncio/base_events.py:run_forever:607"),
            ],
            (UNRUN,),
            False,
        ),
    ],
)
def test_results_that_wait_in_an_event_loop_that_nothing_runs_are_named(
    threads: list[Thread], marks: tuple[Mark, ...], is_told: bool
) -> None:
    finding = only(check, snapshot_of(main(threads=threads), marks=marks), GROWS)

    assert is_told is finding.cause.startswith(
        "Most likely what waits in self.loop keeps it: `fut = self.loop.run_in_executor(self.pool, "
        "render, step)` at preview.py:37 submit is reached in each round of the loop at train.py:48"
    )
    assert is_told is ("every result stays there" in finding.cause)
    assert is_told is finding.advice.startswith("Submit to the executor itself")
    assert is_told is ("gc.collect(), or workers that are replaced, do not" in finding.advice)


@pytest.mark.parametrize(
    ("method", "words", "advice"),
    [
        ("create_task", "none ever begins", "Run it to its end (asyncio.run())"),
        ("call_soon_threadsafe", "none is ever called", "Call the function itself"),
    ],
)
def test_what_an_event_loop_that_nothing_runs_keeps_depends_on_what_is_put_into_it(
    method: str, words: str, advice: str
) -> None:
    puts = UNRUN._replace(about=f"loop, 30, {method}; train.py:48-55 mine")
    mines = main(threads=[thread(MAIN, "train.py:mine:51")])

    finding = only(check, snapshot_of(mines, marks=(puts,)), GROWS)

    assert words in finding.cause
    assert finding.advice.startswith(advice)
    assert "threading.Thread(target=loop.run_forever" in finding.advice


def test_hooks_of_torch_that_each_round_registers_are_named_with_what_removes_them() -> None:
    hooks = REGISTERS._replace(
        about="remove() of its handle; train.py:48-55 mine",
        statement=Statement(9, "layer.register_forward_hook(self.keep)"),
    )
    mines = main(threads=[thread(MAIN, "train.py:mine:51")])

    finding = only(check, snapshot_of(mines, marks=(hooks,)), GROWS)

    assert "a module or tensor of torch keeps each hook until remove()" in finding.cause
    assert "one that is overwritten can never be removed" in finding.advice


@pytest.mark.parametrize(
    ("frames", "is_told"),
    [(("/usr/lib/python3.11/asyncio/runners.py:run:118",), True), ((), False)],
)
def test_a_timer_that_a_coroutine_sets_is_named_in_a_process_with_an_event_loop(
    frames: tuple[str, ...], is_told: bool
) -> None:
    timer = REGISTERS._replace(
        about="cancel() of its handle; train.py:48-55 async serve",
        statement=Statement(78, "loop.call_later(self.limit, self.expire, ctx)"),
    )
    serves = main(threads=[thread(MAIN, *frames, "train.py:main:91")])
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    finding = only(check, snapshot_of(serves, marks=(timer,)), past)

    assert is_told is ("nothing cancels that timer" in finding.cause)


def test_the_line_that_only_ever_adds_to_a_list_is_named() -> None:
    adds = Mark(
        "kept", "/home/me/train.py", "add", "self.losses", Statement(33, "self.losses.append(loss)")
    )
    mines = main(threads=[thread(MAIN, "train.py:mine:51")], torch_loaded=True)
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    finding = only(check, snapshot_of(mines, marks=(adds,)), past)
    other = only(check, snapshot_of(mines, marks=(adds._replace(file="/o.py"),)), past)

    line = "`self.losses.append(loss)` at train.py:33 add"
    assert f"a list or dict that is only ever added to (as {line})" in finding.cause
    assert f"nothing in its file removes what {line} adds" in finding.evidence
    assert "train.py:33" not in other.cause
    assert finding.is_doubtful  # it may be small


HELD = Mark(
    "kept-to-end",
    "/home/me/parallel.py",
    "reduce",
    "self.copies, clear() and __exit__()",
    Statement(31, "self.copies[id(value)] = shared"),
)


def test_a_container_that_only_the_end_of_its_object_empties_is_named_with_that_end() -> None:
    works = main(threads=[thread(MAIN, "train.py:mine:51")])
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))
    opens, loop = Statement(26, "with Parallel() as p:"), Statement(27, "for n in items:")
    line = SourceLine("/home/me/train.py", 51, "mine", Statement(51, "p(n)"), (opens, loop))

    finding = only(check, snapshot_of(works, marks=(HELD,), source=(line,)), past)
    several = only(
        check, snapshot_of(works, marks=(HELD, HELD._replace(about="self.x, f()"))), past
    )

    assert finding.cause.startswith(
        "Most likely `self.copies[id(value)] = shared` at parallel.py:31 reduce stores in "
        "self.copies what it is given or has made, and that is emptied only in clear() and "
        "__exit__(), which `with Parallel() as p:` of line 26 comes to only after its loop."
    )
    assert "Take the entry out of self.copies" in finding.advice
    assert "self.copies" not in several.cause


def test_no_graphs_are_told_of_where_the_source_has_no_backward_pass() -> None:
    mines = main(threads=[thread(MAIN, "train.py:mine:51")], torch_loaded=True)
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))
    off = Mark("no-grad", "/home/me/train.py", "mine", "", Statement(47, "with torch.no_grad():"))
    back = Mark("backward", "/home/me/fit.py", "fit", "", Statement(9, "loss.backward()"))

    assert "autograd" not in only(check, snapshot_of(mines, marks=(off,)), past).cause
    assert "autograd" in only(check, snapshot_of(mines, marks=(off, back)), past).cause
    assert "autograd" in only(check, snapshot_of(mines), past).cause


CARRIES = Mark(
    "graph-carried",
    "/home/me/train.py",
    "score",
    "self.state",
    Statement(33, "pred, self.state = self.model(chunk, self.state)"),
)
PASSES = Mark(
    "graph-passed",
    "/home/me/train.py",
    "mine",
    "update, 0, 25",
    Statement(27, "self.auroc.update(logits, y)"),
)
PASSES_BACK = Mark("backward", PASSES.file, "mine", "", Statement(29, "backward()"))
KEEPS = Mark(
    "argument-kept",
    "/home/me/metrics.py",
    "update",
    "0, self.preds",
    Statement(19, "self.preds.append(preds)"),
)


def test_a_state_that_is_carried_with_its_graph_is_the_cause_of_a_growth() -> None:
    mines = main(threads=[thread(MAIN, "train.py:mine:51")], torch_loaded=True)
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    finding = only(check, snapshot_of(mines, marks=(CARRIES,)), past)

    assert finding.cause.startswith(
        "Most likely `pred, self.state = self.model(chunk, self.state)` at train.py:33 score keeps "
        "autograd graphs: self.state of one call goes into the next one together with its graph"
    )
    assert "unbounded cache" not in finding.cause
    assert "detach self.state" in finding.advice
    assert not finding.is_doubtful


def test_what_a_metric_keeps_of_a_model_is_named_with_the_line_that_computes_it() -> None:
    mines = main(threads=[thread(MAIN, "train.py:mine:51")], torch_loaded=True)
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    finding = only(check, snapshot_of(mines, marks=(PASSES, KEEPS)), past)

    assert finding.cause.startswith(
        "Most likely `self.preds.append(preds)` at metrics.py:19 update keeps autograd graphs: "
        "what a model has computed at train.py:25 mine, and `self.auroc.update(logits, y)` at "
        "train.py:27 mine passes to it, is kept without detach() in self.preds"
    )


@pytest.mark.parametrize(
    "marks",
    [
        pytest.param(
            (CARRIES, Mark("no-grad", "/home/me/train.py", "mine", "", Statement(9, "no_grad()"))),
            id="its caller switches autograd off",
        ),
        pytest.param(
            (
                CARRIES,
                Mark("no-grad", "/o.py", "main", "", Statement(9, "torch.set_grad_enabled(False)")),
            ),
            id="autograd is off for all that follows",
        ),
        pytest.param((CARRIES._replace(about="state"),), id="of a function that may have ended"),
        pytest.param((CARRIES._replace(file="/o.py"),), id="another process"),
        pytest.param((PASSES,), id="a method that is not known to keep it"),
        pytest.param(
            (PASSES._replace(kind="graph-kept", about="self.rows, 25"), PASSES_BACK),
            id="a backward pass frees it",
        ),
        pytest.param(
            (PASSES, KEEPS, PASSES_BACK._replace(file="/home/me/train.py", function="<module>")),
            id="one of its caller frees it",
        ),
        pytest.param(
            (CARRIES, CARRIES._replace(function="other")), id="two functions that may not run"
        ),
        pytest.param((PASSES, KEEPS._replace(about="1, self.target")), id="another argument"),
        pytest.param((PASSES, KEEPS, KEEPS._replace(file="/o.py")), id="two methods of that name"),
        pytest.param(
            (
                PASSES._replace(kind="graph-kept", about="self.rows, 25, reset()"),
                PASSES._replace(kind="kept", about="self.all", statement=Statement(9, "")),
            ),
            id="it is emptied and another one is not",
        ),
    ],
)
def test_no_graph_is_named_where_the_source_does_not_decide(marks: tuple[Mark, ...]) -> None:
    own = thread(MAIN, "train.py:mine:51", "train.py:<module>:60")
    mines = main(threads=[own], torch_loaded=True)
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    assert "keeps autograd graphs" not in only(check, snapshot_of(mines, marks=marks), past).cause


def test_outputs_of_training_steps_that_are_kept_are_named() -> None:
    fit = "/home/me/train.py"
    keeps = Mark("outputs-kept", fit, "fit", "outputs, 23, 22", Statement(27, "outputs.append(o)"))
    passes_back = Mark("backward", fit, "fit", "", Statement(25, "loss.backward()"))
    trains = main(threads=[thread(MAIN, "train.py:fit:25")], torch_loaded=True)
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    finding = only(check, snapshot_of(trains, marks=(keeps, passes_back)), past)

    assert finding.cause.startswith(
        "Most likely `outputs.append(o)` at train.py:27 fit keeps the whole result of each step in "
        "outputs until the loop of line 22 ends"
    )


def test_a_sum_of_losses_with_their_graphs_is_named() -> None:
    train = "/home/me/train.py"
    sums = Mark(
        "graph-summed", train, "fit", "self.total, loss", Statement(27, "self.total += loss")
    )
    passes_back = Mark("backward", train, "fit", "", Statement(25, "loss.backward()"))
    trains = main(threads=[thread(MAIN, "train.py:fit:25")], torch_loaded=True)
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    finding = only(check, snapshot_of(trains, marks=(sums, passes_back)), past)

    assert finding.cause.startswith(
        "Most likely `self.total += loss` at train.py:27 fit keeps autograd graphs: loss is a "
    )
    assert finding.advice.startswith("Add a number: self.total += loss.item()")


def test_statistics_that_a_forward_pass_computes_from_themselves_are_named() -> None:
    mean, var = (
        Mark("graph-running", "/app/layers.py", "forward", name, Statement(line, f"{name} = ..."))
        for name, line in (("self.running_mean", 24), ("self.running_var", 25))
    )
    trains = main(threads=[thread(MAIN, "train.py:fit:25")], torch_loaded=True)
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    finding = only(check, snapshot_of(trains, marks=(mean, var)), past)

    assert "at layers.py:24 forward keeps autograd graphs" in finding.cause
    assert finding.advice.startswith("Update self.running_mean under torch.no_grad()")


def test_no_graph_is_named_in_a_loader_worker() -> None:
    seen = snapshot_of(
        main(),
        process(200, threads=[thread(200, "train.py:mine:51")], torch_loaded=True),
        marks=(CARRIES,),
    )

    finding = only(check, seen, history(rising("anon_bytes", 900 * MIB, 5 * MIB, 200)))

    assert "keeps autograd graphs" not in finding.cause


def test_a_cache_without_a_bound_is_named_with_its_line() -> None:
    fills = Mark("cache", "/o.py", "call", "self.cache", Statement(16, "self.cache[k] = make(k)"))
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    finding = only(check, snapshot_of(main(), marks=(fills,)), past)

    assert "`self.cache[k] = make(k)` at o.py:16 call" in finding.cause
    assert finding.is_doubtful


def test_a_limit_of_memory_within_minutes_is_a_warning() -> None:
    seen = snapshot_of(
        main(),
        memory_total_bytes=64 * GIB,
        memory_available_bytes=40 * GIB,
        cgroup=cgroup(memory_bytes=3 * GIB, memory_limit_bytes=4 * GIB),
    )

    finding = only(check, seen, history(rising("anon_bytes", 2 * GIB, 5 * MIB)))

    assert finding.severity is Severity.WARNING
    assert finding.summary.endswith("the control group's memory is used up in 3 min")


def test_what_a_young_process_reads_at_its_start_is_no_warning() -> None:
    seen = snapshot_of(
        main(born_wall_s=WALL_S - 65),
        memory_total_bytes=64 * GIB,
        memory_available_bytes=GIB,
    )

    finding = only(check, seen, history(rising("anon_bytes", 2 * GIB, 5 * MIB)))

    assert finding.severity is Severity.INFO


FEEDER = thread(160, name="QueueFeederThre")


@pytest.mark.parametrize(
    ("process_of", "doing", "read_bytes", "is_warned"),
    [
        pytest.param(main(threads=[thread(MAIN), FEEDER]), SLEEPS, 0, True, id="fills a queue"),
        pytest.param(main(threads=[thread(MAIN)]), WAITS_IN_QUEUE, 0, True, id="takes items"),
        pytest.param(main(threads=[thread(MAIN)]), SLEEPS, 0, False, id="alone"),
        pytest.param(
            main(threads=[thread(MAIN), FEEDER]), SLEEPS, 200 * MIB, False, id="reads its data"
        ),
    ],
)
def test_what_a_young_process_gains_while_it_exchanges_items_is_a_warning(
    process_of: Process, doing: Activity, read_bytes: int, is_warned: bool
) -> None:
    young = replace(process_of, sample=replace(process_of.sample, born_wall_s=WALL_S - 65))
    seen = snapshot_of(young, memory_total_bytes=64 * GIB, memory_available_bytes=GIB)
    numbers = rising("anon_bytes", 2 * GIB, 5 * MIB)
    numbers[MAIN, "read_bytes"] = (Point(NOW_S - 60, 0.0), Point(NOW_S - 1, float(read_bytes)))

    finding = only(check, with_shares(seen, p100={doing: 0.1, COMPUTES: 0.9}), history(numbers))

    assert (finding.severity is Severity.WARNING) is is_warned
    assert ("is used up in 3 min" in finding.summary) is is_warned


def test_workers_with_the_same_growth_are_one_finding() -> None:
    seen = snapshot_of(main(), *(process(n) for n in (200, 201, 202)))

    finding = only(check, seen, history(rising("anon_bytes", 900 * MIB, 2 * MIB, 200, 201, 202)))

    assert (
        "loader-worker 200 (200), loader-worker 201 (201) and loader-worker 202" in finding.summary
    )
    assert "have ever more private memory: +6.0M/s together" in finding.summary


def test_pipes_that_stay_open_are_recognised_by_the_newest_descriptors() -> None:
    old = [file(n, f"/lib/{n}.so") for n in range(3, 20)]
    new = [pipe(20 + n, 1000 + n // 2, is_writable=bool(n % 2)) for n in range(180)]
    seen = snapshot_of(main(fds=fds(197, 1024, [*old, *new], pipe=180, file=17)))

    finding = only(check, seen, history(rising("fds", 197, 3)))

    assert finding.summary.startswith("main (100) has ever more open pipe ends: +3.0/s for 60 s")
    assert finding.evidence[1] == "its 180 newest descriptors: 180 pipe ends"
    assert finding.evidence[2] == "both ends of 90 pipes are open in this process"
    assert "the descriptor limit of main: 827 of 1024 left" in finding.evidence[-1]
    assert finding.severity is Severity.WARNING
    assert "pipes" in finding.cause


def test_pipes_to_another_process_are_reported_with_that_process() -> None:
    kept = [pipe(20 + n, 1000 + n, is_writable=False) for n in range(60)]
    others = [pipe(30 + n, 1000 + n, is_writable=True) for n in range(60)]
    seen = snapshot_of(
        main(fds=fds(80, None, kept, pipe=60)),
        process(200, fds=fds(90, None, others, pipe=60)),
    )

    finding = only(check, seen, history(rising("fds", 80, 1)))

    assert "the other ends are held by loader-worker 200 (200)" in finding.evidence


def test_a_file_that_is_opened_repeatedly_is_reported_with_its_path() -> None:
    links = [file(n, "/data/train.h5") for n in range(3, 100)]
    finding = only(
        check,
        snapshot_of(main(fds=fds(97, 1024, links, file=97))),
        history(rising("fds", 97, 1)),
    )

    assert "60 of them are /data/train.h5" in finding.evidence
    assert "open files" in finding.summary


def temporary(name: str, count: int = 97) -> list[FdLink]:
    return [file(n, f"/tmp/{name.format(n)} (deleted)") for n in range(3, count)]


def opens(about: str, text: str, line: int = 21, function: str = "save_page") -> Mark:
    return Mark("unclosed", "/home/me/data.py", function, about, Statement(line, text))


MKSTEMP = opens(
    "file ocr_*.npy; each call of save_page()",
    'handle, path = tempfile.mkstemp(prefix="ocr_", suffix=".npy")',
)


def growing_files_of(links: Sequence[FdLink], *marks: Mark, stack: str = "main.py:f:5") -> Finding:
    own = main(threads=[thread(MAIN, stack)], fds=fds(97, 1024, links, file=97))
    return only(check, snapshot_of(own, marks=marks), history(rising("fds", 97, 1)))


def test_the_statement_that_opens_what_stays_open_is_told_by_the_names_of_the_newest() -> None:
    finding = growing_files_of(temporary("ocr_{}x.npy"), MKSTEMP)

    assert finding.summary.startswith(
        "main (100) has ever more open files, opened at data.py:21 save_page and never closed: "
    )
    assert "60 of them match the name that it gives: ocr_*.npy" in finding.evidence
    assert "at data.py:21 save_page opens one in each call of save_page()" in finding.cause
    assert "Most likely" not in finding.cause
    assert "os.fdopen" in finding.advice


def test_a_statement_that_gives_other_names_is_not_told() -> None:
    for name in ("frame_{}.npy", "ocr_{}.wav"):
        finding = growing_files_of(temporary(name), MKSTEMP)

        assert finding.cause == "It opens files and does not close them."
    sockets = [socket(n, n, None, "tcp 127.0.0.1:4000 > 10.0.0.7:80") for n in range(3, 97)]
    assert "data.py" not in growing_files_of(sockets, MKSTEMP).summary


def test_a_descriptor_whose_name_the_source_does_not_show_is_told_in_its_own_loop_only() -> None:
    text = "fd = os.open(path, os.O_RDONLY)"
    loop = opens("file *; data.py:9-30 read_all", text)
    called = opens("file *; each call of lock()", text, 40, "lock")
    links, stack = temporary("a{}"), "data.py:save_page:22"

    finding = growing_files_of(links, loop, called, stack=stack)

    assert finding.cause.startswith(
        f"Most likely `{text}` at data.py:21 save_page opens one in each round of the loop at "
        "data.py:9-30 read_all, and save_page() neither closes"
    )
    assert "data.py" not in growing_files_of(links, called, stack=stack).summary
    assert "data.py" not in growing_files_of(links, loop).summary
    other = opens("file *; data.py:9-30 read_all", text, 25)
    assert "data.py:2" not in growing_files_of(links, loop, other, stack=stack).summary


def test_connections_are_reported_with_their_address_and_a_rare_kind_is_not_explained() -> None:
    links = [socket(n, n, None, "tcp 127.0.0.1:4000 > 10.0.0.7:8080") for n in range(3, 62)]
    seen = snapshot_of(main(fds=fds(60, 1024, [*links, pipe(62, 5, False)], socket=59, pipe=1)))

    finding = only(check, seen, history(rising("fds", 60, 0.9)))

    assert "53 of them are connected to 10.0.0.7:8080" in finding.evidence
    assert not any("other ends" in line for line in finding.evidence)
    assert "+54 a minute" in finding.summary


def threads_of_a_poller(count: int) -> list[ThreadSample]:
    return [ThreadSample(100 + n, "python", "S", 0, start_ticks=n) for n in range(count)]


def test_threads_that_do_not_end_are_reported_with_their_line() -> None:
    many = [thread(100, "train.py:main")]
    many += [thread(100 + n, "threading.py:wait", "train.py:watch:9") for n in range(1, 70)]
    grown = replace(main(threads=many), sample=replace(main(threads=many).sample))
    sample = replace(grown.sample, threads=tuple(threads_of_a_poller(70)), thread_count=70)
    past = history(rising("threads", 70, 1) | rising("maps", 2140, 5))

    finding = only(check, snapshot_of(replace(grown, sample=sample)), past)

    assert finding.summary == "main (100) has ever more threads: +1.0/s for 60 s"
    assert "60 of its 60 newest threads are at train.py:9 watch" in finding.evidence
    assert "together with it: memory mappings +5.0/s" in finding.evidence


@pytest.mark.parametrize("is_marked", [True, False])
def test_process_groups_that_stay_are_told_by_their_threads(is_marked: bool) -> None:
    many = [thread(100, "train.py:main")]
    many += [thread(100 + n, name="pt_gloo_runloop") for n in range(1, 70)]
    sample = replace(
        main().sample, threads=tuple(threads_of_a_poller(70)), thread_count=70, fds=fds(200)
    )
    makes = Statement(24, "self.group = dist.new_group(members)")
    mark = Mark("makes-group", "/home/me/groups.py", "__init__", "new_group", makes)
    past = history(rising("threads", 70, 1) | rising("fds", 200, 3) | rising("maps", 2140, 5))
    job = snapshot_of(
        replace(main(threads=many), sample=sample), marks=(mark,) if is_marked else ()
    )

    finding = only(check, job, past)

    assert finding.summary == "main (100) has ever more threads: +1.0/s for 60 s"
    assert "together with it: open descriptors +3.0/s" in " ".join(finding.evidence)
    assert "process groups of torch.distributed" in finding.cause
    assert ("new_group(members)` at groups.py:24 __init__" in finding.cause) is is_marked
    assert "destroy_process_group(group)" in finding.advice


def test_children_that_stay_are_reported_with_their_label() -> None:
    helpers = [process(200 + n, "other", label="ffprobe") for n in range(30)]
    past = history(rising("children", 30, 0.5) | rising("fds", 70, 1))

    finding = only(check, snapshot_of(main(fds=fds(70)), *helpers), past)

    assert "30 of its 30 newest children: ffprobe" in finding.evidence
    assert "together with it: open descriptors +1.0/s" in finding.evidence
    assert "zombies" not in finding.cause


def left_behind(
    groups: int, each: int = 4, every_s: float = 9.0, role: Role = "spawned", label: str = "loop"
) -> list[Process]:
    """Children that were started some at a time, the last ones two seconds ago."""
    now = round(100 * NOW_S)
    made = []
    for group in range(groups):
        ago_s = 2.0 + every_s * (groups - 1 - group)
        for n in range(each):
            number = 200 + 10 * group + n
            one = process(number, role, label=label, born_wall_s=WALL_S - ago_s)
            identity = ProcessId(number, now - round(100 * ago_s))
            made.append(
                replace(one, process=identity, sample=replace(one.sample, process=identity))
            )
    return made


def children_series(*counts: float) -> Any:
    points = [Point(NOW_S - 35 + 35 * n / len(counts), each) for n, each in enumerate(counts)]
    return history({(MAIN, "children"): points})


def test_children_left_behind_time_after_time_are_reported_at_a_slow_pace() -> None:
    job = snapshot_of(main(), *left_behind(6))

    finding = only(check, job, children_series(12, 16, 20, 24))

    assert finding.summary.startswith("main (100) has ever more child processes: +31 a minute")
    assert "24 of its 24 newest children: loop" in finding.evidence
    assert finding.severity is Severity.INFO


@pytest.mark.parametrize(
    ("children", "counts"),
    [
        (left_behind(6), (24, 24, 24)),  # as many as before: they are replaced
        (left_behind(6), (20, 24, 20, 24)),
        (left_behind(6, role="pool-worker"), (12, 18, 24)),
        (left_behind(6, every_s=1.0), (4, 12, 24)),  # the start of many
        (left_behind(3), (4, 8, 12)),
    ],
)
def test_children_that_are_replaced_or_started_together_are_no_growth(
    children: list[Process], counts: tuple[int, ...]
) -> None:
    assert found(check, snapshot_of(main(), *children), children_series(*counts)) == []


def test_a_small_growth_of_memory_counts_where_it_is_even() -> None:
    even = rising("anon_bytes", 200 * MIB, MIB / 4)
    bumps = [
        Point(p.at_s, p.value + (3 * MIB if 20 < NOW_S - p.at_s < 34 else 0))
        for p in line(200 * MIB, MIB / 4, 60)
    ]

    assert "private memory: +256K/s" in only(check, snapshot_of(main()), history(even)).summary
    young = snapshot_of(main(born_wall_s=WALL_S - 61))
    assert found(check, young, history(even)) == []
    assert found(check, snapshot_of(main()), history({(MAIN, "anon_bytes"): bumps})) == []


def test_a_queue_between_threads_is_a_possible_reason_where_there_are_threads() -> None:
    two = main(threads=[thread(MAIN, "train.py:main:9"), thread(101, "data.py:run:6", name="load")])
    past = history(rising("anon_bytes", 4 * GIB, 5 * MIB))

    finding = only(check, snapshot_of(two), past)

    assert "its thread load is at data.py:6 run" in finding.evidence
    assert "queue.Queue without maxsize" in finding.cause
    assert "queue.Queue" not in only(check, snapshot_of(main()), past).cause


@pytest.mark.parametrize(
    ("epolls", "address", "words"),
    [
        (6, "unix", "event loops"),
        (0, "unix", "connected pairs"),
        (0, "tcp 10.0.0.1:4 > 10.0.0.2:80", "opens connections"),
    ],
)
def test_sockets_are_reported_by_what_makes_them(epolls: int, address: str, words: str) -> None:
    links = [socket(n, 900 + n, None, address) for n in range(3, 15)]
    links += [FdLink(15 + n, "epoll", "anon_inode:[eventpoll]", None, None) for n in range(epolls)]
    grown = main(fds=fds(len(links), links=links))

    finding = only(check, snapshot_of(grown), history(rising("fds", 60, 0.3 * (12 + epolls) / 18)))

    assert words in finding.cause


def test_files_that_are_mapped_as_fast_as_they_are_opened_are_reported_as_mappings() -> None:
    links = [file(n, f"/data/shard_{n}.bin") for n in range(3, 63)]
    grown = main(fds=fds(60, links=links))
    opens = rising("fds", 60, 1)

    mapped = only(check, snapshot_of(grown), history(opens | rising("maps", 900, 6)))
    opened = only(check, snapshot_of(grown), history(opens))

    assert "It maps files" in mapped.cause
    assert "It opens files" in opened.cause


def test_children_that_are_not_joined_are_reported_as_zombies() -> None:
    exited = [process(200 + n, "other", label="ffprobe", state="Z") for n in range(30)]

    finding = only(check, snapshot_of(main(), *exited), history(rising("children", 30, 0.5)))

    assert "30 of them have exited and are not joined (zombies)" in finding.evidence
    assert "zombies" in finding.cause


def test_a_queue_whose_items_take_no_memory_here_has_no_limit() -> None:
    counted = {"gauges": {"queues": [{"key": 1, "maxsize": None, "depth": 9000}]}}
    seen = snapshot_of(main(more=counted), memory_total_bytes=GIB, memory_available_bytes=GIB)

    finding = only(check, seen, history(rising("queue_backlog", 9000, 100)))

    assert finding.evidence[-1] == "no limit is known"
    assert finding.is_doubtful


def feeder(inode: int) -> Process:
    wait = WaitedOn("pipe-write", "write", (f"pipe:[{inode}]",), (5,))
    return main(
        threads=[
            thread(100, "train.py:produce:12"),
            thread(101, "connection.py:_send", "queues.py:_feed", waits=wait),
        ],
        fds=fds(9, 1024, [pipe(5, inode, True)]),
    )


def test_memory_behind_a_full_pipe_is_a_producer_that_outruns_its_consumer() -> None:
    reader = process(
        200,
        "spawned",
        threads=[thread(200, "train.py:consume:40")],
        fds=fds(9, 1024, [pipe(4, 77, False)]),
    )

    finding = only(
        check,
        snapshot_of(feeder(77), reader),
        history(rising("anon_bytes", 900 * MIB, 5 * MIB)),
    )

    assert finding.summary.startswith(
        "main (100) fills a queue faster than spawned 200 (200) reads it: +5.0M/s for 60 s"
    )
    assert "waits for room in pipe:[77], read by spawned 200 (200)" in finding.evidence[1]
    assert finding.evidence[2] == "spawned 200 (200) is at train.py:40 consume"
    assert "faster than they are taken out" in finding.cause
    assert "maxsize" in finding.advice


def test_the_readers_of_a_full_pipe_are_those_that_were_seen_to_read_it() -> None:
    reads = WaitedOn("pipe-read", "read", ("pipe:[77]",), (4,))
    elsewhere = WaitedOn("pipe-read", "read", ("pipe:[78]",), (6,))
    ends = fds(9, 1024, [pipe(4, 77, False)])
    fills = replace(feeder(77), process=pid(201), parent=pid(MAIN), role="spawned", label="read")
    users = [
        process(
            n, "spawned", label=f"process {n}", fds=ends,
            threads=[thread(n, "run.py:process:22", waits=reads if n == 202 else None)],
        )
        for n in (202, 203)
    ]  # fmt: skip
    collects = main(fds=ends, threads=[thread(MAIN, "run.py:main:36", waits=elsewhere)])
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB, 201))

    seen = only(check, snapshot_of(collects, fills, *users), past)
    unseen = only(check, snapshot_of(collects, fills, users[1]), past)

    assert "faster than process 202 (202) reads it" in seen.summary
    assert "faster than process 203 (203) reads it" in unseen.summary


def test_a_process_that_waits_for_room_in_its_queue_is_not_told_to_give_it_a_bound() -> None:
    """Its memory grows for another reason, such as a cache that is still filling."""
    job = with_shares(snapshot_of(feeder(77)), p100={IS_AHEAD: 0.2, SLEEPS: 0.8})

    finding = only(check, job, history(rising("anon_bytes", 4 * GIB, 5 * MIB)))

    assert "has ever more private memory" in finding.summary
    assert "maxsize" not in finding.advice


def test_a_feeder_that_mostly_waits_for_room_is_known_also_between_two_items() -> None:
    reader = process(200, "spawned", fds=fds(9, 1024, [pipe(4, 77, False)]))
    account = Account()
    for second in range(31):
        blocked = feeder(77)
        at_s = NOW_S - 30 + second
        taken = [replace(each, name="QueueFeederThre") for each in blocked.threads]
        job = snapshot_of(replace(blocked, threads=tuple(taken)), reader, at_s=at_s)
        index = Index(job, NO_HISTORY)
        account = advanced(account, index, wait_graph(index))
    now = main(threads=[thread(100, "train.py:produce:12")], fds=fds(9, 1024, [pipe(5, 77, True)]))

    finding = only(
        check,
        replace(snapshot_of(now, reader), account=account),
        history(rising("anon_bytes", 900 * MIB, 5 * MIB)),
    )

    assert finding.subject == "queue"
    assert finding.summary.startswith(
        "main (100) fills a queue faster than spawned 200 (200) reads"
    )


def producer(number: int, *, writes: bool) -> Process:
    """One of several that put items into one queue, of which one writes at a time."""
    wait = WaitedOn("pipe-write", "write", ("pipe:[77]",), (5,)) if writes else None
    feeds = thread(number + 50, "connection.py:_send", "queues.py:_feed", waits=wait)
    return process(
        number,
        "spawned",
        threads=[thread(number, "train.py:act:12"), feeds],
        fds=fds(9, 1024, [pipe(4, 77, False), pipe(5, 77, True)]),
        more={"gauges": {"queues": [{"key": 1, "maxsize": None, "depth": 9000}]}},
    )


def test_producers_of_one_queue_are_one_finding_and_do_not_read_it() -> None:
    reader = main(
        threads=[thread(MAIN, "train.py:learn:40")], fds=fds(9, 1024, [pipe(4, 77, False)])
    )
    few = producer(202, writes=False)
    past = history(
        rising("anon_bytes", 900 * MIB, 5 * MIB, 200, 201)
        | rising("queue_backlog", 9000, 100, MAIN, 202)
    )

    finding = only(
        check,
        snapshot_of(reader, producer(200, writes=False), producer(201, writes=True), few),
        past,
    )

    assert finding.subject == "queue"
    assert finding.summary.startswith(
        "spawned 200 (200) and spawned 201 (201) fill a queue faster than main (100) reads it"
    )
    assert finding.evidence[1] == (
        "a queue feeder thread waits for room in pipe:[77], read by main (100)"
    )
    assert finding.others == (pid(201),)


def test_memory_that_rises_with_threads_is_reported_with_them_also_for_a_sibling() -> None:
    ranks = [process(n, "rank", thread_count=40, threads=[thread(n)]) for n in (200, 201)]
    past = history(
        rising("threads", 40, 0.5, 200) | rising("anon_bytes", 900 * MIB, 5 * MIB, 200, 201)
    )

    finding = only(
        check, snapshot_of(main(), *ranks, memory_total_bytes=GIB, memory_available_bytes=GIB), past
    )

    assert finding.summary.startswith("rank 200 (200) has ever more threads: +30 a minute for 60 s")
    assert "together with it: private memory +5.0M/s" in finding.evidence
    assert "used up in 3 min at this rate" in finding.evidence[-1]


def with_kept_threads(*after_s: float) -> Process:
    """A process, 60 s old, with threads at one line, each started so many seconds after it."""
    kept = [thread(100 + n, "queue.py:put", "train.py:fetch:9") for n in range(1, len(after_s) + 1)]
    job = main(threads=[thread(MAIN, "train.py:step:31"), *kept], born_wall_s=WALL_S - 60)
    samples = [ThreadSample(MAIN, "python", "S", 0, start_ticks=5100)]
    samples += [
        ThreadSample(each.tid, "python", "S", 0, start_ticks=5100 + round(100 * after))
        for each, after in zip(kept, after_s, strict=True)
    ]
    return replace(job, sample=replace(job.sample, threads=tuple(samples)))


def test_threads_started_one_after_the_other_that_stay_explain_memory_at_once() -> None:
    job = snapshot_of(with_kept_threads(20, 26, 33, 39, 45, 52, 58))

    finding = only(check, job, history(rising("anon_bytes", 900 * MIB, 5 * MIB)))

    assert finding.summary.startswith("main (100) has ever more threads")
    assert "7 of its 7 newest threads are at train.py:9 fetch" in finding.evidence
    assert "7 of them wait there in Queue.put for room in a full queue" in finding.evidence
    assert "leaves them waiting for room" in finding.cause
    assert "together with it: private memory +5.0M/s" in finding.evidence


@pytest.mark.parametrize(
    "after_s",
    [(20, 26, 33), (2, 2, 2, 2, 2, 2, 2), (5, 8, 11, 14, 17, 20, 23)],
    ids=["few", "a pool", "no more are started"],
)
def test_threads_that_do_not_accumulate_are_not_the_cause(after_s: tuple[float, ...]) -> None:
    job = snapshot_of(with_kept_threads(*after_s))

    finding = only(check, job, history(rising("anon_bytes", 900 * MIB, 5 * MIB)))

    assert finding.subject == "memory"


@pytest.mark.parametrize(
    ("limit_s", "is_polling", "subject"),
    [(50.0, False, "memory"), (1.0, True, "threads"), (None, False, "threads")],
    ids=["one limit since their start", "a short one again and again", "without a limit"],
)
def test_threads_that_end_by_one_time_limit_do_not_accumulate(
    limit_s: float | None, is_polling: bool, subject: str
) -> None:
    after_s = (20, 26, 33, 39, 45, 52, 58)
    job = with_kept_threads(*after_s)
    threads = [job.threads[0]]
    for each, after in zip(job.threads[1:], after_s, strict=True):
        left_s = limit_s if limit_s is None or is_polling else limit_s - (60 - after)
        wait = WaitedOn("futex", "futex", ("futex 0x7f10",), timeout_s=left_s)
        threads.append(replace(each, waits_on=wait))

    finding = only(
        check,
        snapshot_of(replace(job, threads=tuple(threads))),
        history(rising("anon_bytes", 900 * MIB, 5 * MIB) | rising("threads", 40, 0.5)),
    )

    assert finding.subject == subject


@pytest.mark.parametrize(
    ("load", "told"),
    [
        (WorkerLoad(0, fetched=3, fetch_p50_s=18.0), 0),
        (WorkerLoad(0, fetched=1, task_since_s=40.0), 0),
        (WorkerLoad(0, fetched=90, fetch_p50_s=0.7, task_since_s=0.1), 1),
    ],
)
def test_samples_collected_for_one_batch_are_no_growth(load: WorkerLoad, told: int) -> None:
    job = snapshot_of(main(), process(200, more={"loader": load}))

    assert len(found(check, job, history(rising("anon_bytes", 900 * MIB, 5 * MIB, 200)))) == told


def test_a_manager_that_grows_is_reported_as_the_holder_of_shared_objects() -> None:
    server = process(200, "spawned", label="manager", torch_loaded=True)

    finding = only(
        check, snapshot_of(main(), server), history(rising("anon_bytes", 900 * MIB, 5 * MIB, 200))
    )

    assert "server process of a multiprocessing Manager" in finding.cause
    assert "autograd" not in finding.cause


MANAGED = Mark(
    "managed-queue",
    "/home/me/train.py",
    "__init__",
    "self.metric_queue",
    Statement(20, "self.metric_queue = self.manager.Queue()"),
)
PUTS_METRIC = Mark(
    "put", "/home/me/data.py", "collect", "queue", Statement(59, "queue.put(metric)")
)
TAKES_METRIC = Mark(
    "takes", "/home/me/data.py", "handle", "queue", Statement(42, "m = queue.get()")
)
AT_A_SOCKET = Activity("waiting", "data on socket 9", "socket", place="data.py:20 connect")


def filling(
    *marks: Mark, taker: Mapping[Activity, float] | None = None, puts: str = "collect"
) -> Snapshot:
    """Two processes that put into the queue of a Manager, and one that takes items out."""
    wait = WaitedOn("socket-read", "recvfrom", ("socket:[9]",), timeout_s=4.8)
    handles = thread(203, "data.py:connect:20", "data.py:handle:46", waits=wait)
    seen = snapshot_of(
        main(),
        process(200, "spawned", label="manager", threads=[thread(200, "managers.py:serve")]),
        *(
            process(n, "spawned", label=f"load {n}", threads=[thread(n, f"data.py:{puts}:61")])
            for n in (201, 202)
        ),
        process(203, "spawned", label="handler", threads=[handles]),
        marks=marks or (MANAGED, PUTS_METRIC, TAKES_METRIC),
    )
    return with_shares(seen, p203=taker or {AT_A_SOCKET: 0.9, SLEEPS: 0.1})


def test_a_queue_of_a_manager_that_is_emptied_too_slowly_is_named_with_all_sides() -> None:
    past = history(rising("anon_bytes", 900 * MIB, 6 * MIB, 200))

    finding = only(check, filling(), past)

    assert finding.process == pid(200)
    assert finding.summary.startswith(
        "load 201 (201) and load 202 (202) fill a queue in manager (200) faster than handler (203) "
        "takes items out: +6.0M/s"
    )
    assert "`self.metric_queue = self.manager.Queue()` at train.py:20 __init__" in finding.cause
    assert "or waits at data.py:20 connect, each time for up to 4.8 s" in finding.cause
    assert "handler (203) takes items: `m = queue.get()` at data.py:42 handle" in finding.evidence
    assert "self.manager.Queue(maxsize=...)" in finding.advice
    assert not finding.is_doubtful


WAITS_FOR_ITEMS = answers_from(200, "data.py:42 handle")
OTHER_QUEUE = MANAGED._replace(statement=Statement(22, "self.done = self.manager.Queue()"))


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(filling(taker={WAITS_FOR_ITEMS: 0.9, SLEEPS: 0.1}), id="waits for items"),
        pytest.param(filling(taker={AT_A_SOCKET: 0.3, WAITS_FOR_ITEMS: 0.7}), id="keeps up"),
        pytest.param(
            filling(MANAGED, OTHER_QUEUE, PUTS_METRIC, TAKES_METRIC), id="one of two queues"
        ),
        pytest.param(filling(PUTS_METRIC, TAKES_METRIC), id="not of the Manager, or bounded"),
        pytest.param(
            filling(MANAGED, PUTS_METRIC._replace(about="done"), TAKES_METRIC), id="another queue"
        ),
        pytest.param(filling(puts="read"), id="nobody puts"),
    ],
)
def test_a_queue_of_a_manager_that_is_emptied_or_bounded_is_not_the_reason(seen: Snapshot) -> None:
    past = history(rising("anon_bytes", 900 * MIB, 6 * MIB, 200))

    finding = only(check, seen, past)

    assert finding.summary.startswith("manager (200) has ever more private memory")
    assert "maxsize" not in finding.cause


def test_the_lines_that_add_to_a_manager_are_shown_by_their_share_of_the_time() -> None:
    """One line may have several kinds of waits; what is read there often is no growth."""
    proxy = ("multiprocessing/connection.py:_recv", "multiprocessing/managers.py:_callmethod")

    def at(number: int, method: str, place: str) -> Process:
        own = thread(number, *proxy, f"<string>:{method}", place)
        return process(number, "spawned", threads=[own])

    adds, again = (
        answers_from(200, "train.py:16 add"),
        Activity("waiting", "data on socket 78", "socket", (pid(200),), "train.py:16 add"),
    )
    job = with_shares(
        snapshot_of(
            main(),
            process(200, "spawned", label="manager"),
            at(301, "__getitem__", "train.py:sample:26"),
            at(302, "append", "train.py:add:16"),
            at(303, "__len__", "train.py:poll:40"),
        ),
        p301={answers_from(200, "train.py:26 sample"): 0.4, SLEEPS: 0.6},
        p302={adds: 0.1, again: 0.1, SLEEPS: 0.8},
        p303={answers_from(200, "train.py:40 poll"): 0.05, SLEEPS: 0.95},
    )

    finding = only(check, job, history(rising("anon_bytes", 900 * MIB, 5 * MIB, 200)))

    assert finding.evidence[1:3] == (
        "spawned 302 (302) asks it at train.py:16 add, calling append of a proxy",
        "spawned 301 (301) asks it at train.py:26 sample, calling __getitem__ of a proxy",
    )
    assert not any("train.py:40" in each for each in finding.evidence)


def importing(until_s: float, seconds: int = 60) -> Account:
    """A worker that imports modules until a time, and runs its own code afterwards."""
    found = Account()
    for second in range(seconds + 1):
        at_s = NOW_S - seconds + second
        calls = [f"data.py:decode:{9 + second % 2}", "train.py:<module>:3"]
        if at_s < until_s:
            calls.insert(1, "<frozen importlib._bootstrap>:_find_and_load")
        own = thread(200, *calls, state="R", stack_age_s=0.1, cpu_percent=90.0)
        worker = ticked(process(200, threads=[own]), {200: 90 * second})
        index = Index(snapshot_of(main(), worker, at_s=at_s), NO_HISTORY)
        found = advanced(found, index, wait_graph(index))
    return found


def test_imports_are_known_after_the_last_minute_as_well() -> None:
    job = snapshot_of(main(), process(200))
    for ago_s in (100.0, 30.0):
        seen = replace(job, account=importing(NOW_S - ago_s, seconds=150))
        until_s = imported_until_s(Index(seen, NO_HISTORY), process(200))
        assert until_s == pytest.approx(NOW_S - ago_s, abs=BUCKET_S)

    never = replace(job, account=importing(NOW_S - 200, seconds=150))
    assert imported_until_s(Index(never, NO_HISTORY), process(200)) is None


@pytest.mark.parametrize(("imports_s", "told"), [(60, 0), (40, 0), (10, 1)])
def test_memory_that_rises_while_a_process_imports_modules_is_its_start(
    imports_s: int, told: int
) -> None:
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB, 200))
    job = replace(snapshot_of(main(), process(200)), account=importing(NOW_S - 60 + imports_s))

    assert len(found(check, job, past)) == told


def test_a_queue_without_a_bound_is_reported_once_with_its_memory() -> None:
    past = history(
        rising("queue_backlog", 9000, 100, MAIN, 200) | rising("anon_bytes", 900 * MIB, 5 * MIB)
    )

    counted = {"gauges": {"queues": [{"key": 1, "maxsize": None, "depth": 9000}]}}
    seen = snapshot_of(main(more=counted), process(200, "spawned", more=counted))

    finding = only(check, seen, past)

    assert finding.summary.startswith("main (100) fills a queue faster than it is read: +5.0M/s")
    assert "together with it: items in its queues +100/s" in finding.evidence
    assert finding.subject == "queue"


def piling(
    key: FilesKey, total: int = 150, size_bytes: int = 150 * MIB, **of: Any
) -> tuple[NewFiles, Mapping[FilesKey, Sequence[Point]]]:
    """Files of which there are two more each second, for a minute."""
    suffix = key.group.rpartition("*")[2]
    files = NewFiles(
        total, size_bytes, f"{key.folder}/{key.group.replace('*', '00149')}", key,
        **{"pattern": f"{key.group.partition('*')[0]}*{suffix}", **of},
    )  # fmt: skip
    return files, {key: line(total, 2, 60)}


BLOCKS = FilesKey("/dev/shm", "psm_*")
STAGED = FilesKey("/dev/shm/stage_ab", "shard-*.npy")
CLIPS = FilesKey("/home/me/run/tmp", "tmp*.gif")
PARTS = FilesKey("/home/me/run/out", "part-*.bin")


def test_shared_memory_blocks_that_are_never_unlinked_are_reported() -> None:
    shm = space(400 * MIB, 200 * MIB)
    files, counts = piling(BLOCKS, kind="psm", file_system=shm, is_memory=True, is_shared=True)
    past = history({(300, "read_bytes"): line(90_000, 75, 60)}, files=counts)
    tracker = process(300, "resource-tracker")

    finding = only(check, snapshot_of(main(), tracker, shm=shm, new_files=(files,)), past)

    assert finding.evidence[0].startswith("150 of these files (150M) were made since the job began")
    assert "/dev/shm/psm_00149" in finding.evidence[0]
    assert "resource tracker" in finding.evidence[1]
    assert finding.evidence[2].endswith("processes of this job: 0 of them")
    assert finding.eta_s == pytest.approx(100)
    assert finding.severity is Severity.WARNING
    assert finding.process == pid(MAIN)
    assert found(check, snapshot_of(main(), shm=shm, new_files=(files,)), past) == []
    idle = history({(300, "read_bytes"): line(90_000, 0, 60)}, files=counts)
    assert found(check, snapshot_of(main(), tracker, shm=shm, new_files=(files,)), idle) == []


def test_both_users_of_blocks_are_named_where_each_has_its_own_resource_tracker() -> None:
    files, counts = piling(BLOCKS, kind="psm", is_memory=True, is_shared=True)
    read = rising("read_bytes", 9000, 75, 300, 301)
    camera = process(200, "spawned", label="camera")
    trackers = (
        process(300, "resource-tracker", parent=MAIN),
        process(301, "resource-tracker", parent=200),
    )

    finding = only(
        check,
        snapshot_of(main(), camera, *trackers, new_files=(files,)),
        history(read, files=counts),
    )

    assert finding.summary.startswith(
        "main (100) and camera (200) use and do not remove shared-memory files, /dev/shm/psm_*: "
        "+2.0/s, +2.0M/s for 60 s"
    )
    assert finding.others == (pid(200),)


def test_blocks_with_a_name_of_the_program_are_known_by_the_tracker_and_the_pids_in_it() -> None:
    key = FilesKey("/dev/shm", "cam*")
    named, counts = piling(key, is_memory=True, is_shared=True, numbers=(201, 9, 200))
    cameras = [process(n, "spawned", label=f"camera {n - 200}") for n in (200, 201)]
    tracker = process(300, "resource-tracker")
    past = history({(300, "read_bytes"): line(90_000, 75, 60)}, files=counts)

    finding = only(check, snapshot_of(main(), *cameras, tracker, new_files=(named,)), past)

    assert finding.summary.startswith(
        "camera 1 (201) and camera 0 (200) make and do not remove shared-memory files, "
        "/dev/shm/cam*: +2.0/s"
    )
    assert "hold the pids of camera 1 (201) and camera 0 (200)" in finding.evidence[1]
    assert "Call unlink() once for each block" in finding.advice
    # Without the tracker they are files; without a pid the tracker shows that they are of this job.
    untracked = only(check, snapshot_of(main(), *cameras, new_files=(named,)), past)
    assert untracked.subject == "files in memory"
    unnamed = named._replace(numbers=())
    finding = only(check, snapshot_of(main(), *cameras, tracker, new_files=(unnamed,)), past)
    assert finding.subject == "shared-memory files"
    assert "resource tracker" in finding.evidence[1]
    assert found(check, snapshot_of(main(), *cameras, new_files=(unnamed,)), past) == []


def test_files_in_memory_that_a_process_had_open_are_reported_with_both_limits() -> None:
    shm = space(40 * GIB, 8 * GIB)
    files, counts = piling(
        STAGED, file_system=shm, is_memory=True, is_shared=True, makers=((200, 3), (999, 1))
    )
    stager = process(200, "spawned", label="stager")
    seen = snapshot_of(
        main(), stager, new_files=(files,), memory_available_bytes=2 * GIB,
        memory_total_bytes=64 * GIB,
    )  # fmt: skip

    finding = only(check, seen, history(files=counts))

    assert finding.process == pid(200)
    assert finding.summary == (
        "stager (200) makes and does not remove files in memory, /dev/shm/stage_ab/shard-*.npy: "
        "+2.0/s, +2.0M/s for 60 s"
    )
    assert finding.evidence[1] == "stager (200) had one of them open in 3 readings"
    assert "the machine's memory: 2.0G left" in finding.evidence[3]
    assert finding.eta_s == pytest.approx(2 * GIB / (2 * MIB))


@pytest.mark.parametrize(
    ("written_per_s", "pattern", "is_reported"),
    [
        (2 * MIB, "shard-*.npy", True),
        (1.7 * MIB, "shard-*.npy", False),
        (2.4 * MIB, "shard-*.npy", False),
        (0, "shard-200-*.npy", True),
        (0, "shard-200*.npy", False),
        (0, "shard-0200-*.npy", False),
    ],
)
def test_files_of_other_jobs_of_the_user_are_not_reported(
    written_per_s: float, pattern: str, is_reported: bool
) -> None:
    files, counts = piling(STAGED, is_memory=True, is_shared=True, pattern=pattern)
    past = history({(200, "written_bytes"): line(900 * MIB, written_per_s, 60)}, files=counts)

    findings = found(check, snapshot_of(main(), process(200), new_files=(files,)), past)

    assert [each.process for each in findings] == ([pid(200)] if is_reported else [])
    if written_per_s and findings:
        assert "has written 120M in that time" in findings[0].evidence[1]
        assert "likely" in findings[0].evidence[1]


@pytest.mark.parametrize(
    ("key", "free_bytes", "kind"),
    [
        (CLIPS, 900 * GIB, "temporary files"),
        (CLIPS._replace(group="clip-*.gif"), 900 * GIB, "temporary files"),
        (FilesKey("/home/me/run", "tmp*"), 900 * GIB, "temporary files"),
        (PARTS, 900 * GIB, None),
        (PARTS, 40 * GIB, "files"),
    ],
)
def test_what_is_written_for_good_is_reported_only_if_the_disk_is_full_within_a_day(
    key: FilesKey, free_bytes: int, kind: str | None
) -> None:
    disk = space(1000 * GIB, free_bytes)
    files, counts = piling(key, file_system=disk, makers=((MAIN, 1),))

    findings = found(check, snapshot_of(main(), new_files=(files,)), history(files=counts))

    assert [each.subject for each in findings] == ([kind] if kind else [])
    assert all(each.severity is Severity.INFO for each in findings)
    # They may be what the program is to write.
    assert all(each.is_doubtful for each in findings)


def test_files_in_a_tmpdir_of_the_jobs_own_are_reported_without_a_maker() -> None:
    files, counts = piling(FilesKey("/scratch/run7", "tmp*"), size_bytes=0)
    past = history(files=counts)

    finding = only(
        check, snapshot_of(main(environment={"TMPDIR": "/scratch/"}), new_files=(files,)), past
    )

    assert finding.summary == (
        "temporary files /scratch/run7/tmp* pile up and are not removed: +2.0/s for 60 s"
    )
    assert "other jobs of the user" in finding.evidence[1]
    for elsewhere in ({"TMPDIR": "/scratch/run"}, {}):
        job = snapshot_of(main(environment=elsewhere), new_files=(files,))
        assert found(check, job, past) == []


def test_a_folder_that_is_kept_short_and_one_that_fills_up_are_quiet() -> None:
    files, _ = piling(STAGED, is_memory=True, makers=((MAIN, 5),))
    sawtooth = [Point(NOW_S - 60 + n, 20 + 3 * (n % 15)) for n in range(61)]
    full = [Point(NOW_S - 60 + n, min(100, 5 * n)) for n in range(61)]
    few = line(11, 0.15, 60)

    for points in (sawtooth, full, few):
        past = history(files={STAGED: points})
        assert found(check, snapshot_of(main(), new_files=(files,)), past) == []


def test_the_line_that_makes_files_is_reported_where_a_stack_or_a_hook_showed_it() -> None:
    staged, of_staged = piling(STAGED, is_memory=True, makers=((200, 3),))
    blocks, of_blocks = piling(BLOCKS, kind="psm", is_memory=True, makers=((MAIN, 1), (200, 1)))
    lines = (
        FileLine(pid(MAIN), "train.py:9 save", 4, None),
        FileLine(pid(200), "staging.py:24 stage", 2, None),
        FileLine(pid(200), "frames.py:7", 2, 77 * MIB),
        FileLine(pid(200), "frames.py:8", 2, MIB),
    )

    def seen(files: NewFiles, *shown: FileLine) -> Snapshot:
        return snapshot_of(main(), process(200), new_files=(files,), file_lines=shown)

    shards = only(check, seen(staged, *lines), history(files=of_staged))
    frames = only(check, seen(blocks, *lines[2:]), history(files=of_blocks))
    neither = only(check, seen(staged), history(files=of_staged))

    assert shards.evidence[2] == (
        "2 stacks of loader-worker 200 (200) taken while it made a file: staging.py:24 stage"
    )
    assert frames.process == pid(200)
    assert frames.evidence[1] == (
        "loader-worker 200 (200) makes them at frames.py:8, as its hook has seen"
    )
    assert "mapped or open" in neither.evidence[2]


def test_of_several_files_of_one_kind_those_with_most_bytes_are_reported() -> None:
    small, of_small = piling(STAGED, size_bytes=MIB, is_memory=True, makers=((MAIN, 1),))
    other = STAGED._replace(group="big-*.npy")
    large, of_large = piling(other, is_memory=True, makers=((MAIN, 1),))

    finding = only(
        check,
        snapshot_of(main(), new_files=(small, large)),
        history(files={**of_small, **of_large}),
    )

    assert "big-*.npy" in finding.summary


def test_shared_memory_that_is_kept_is_reported_with_makers_holders_and_line() -> None:
    kept = [
        segment(
            n,
            200,
            size_bytes=MIB,
            mappers=(pid(MAIN),),
            age_s=100.0 - n / 2,
            call_site="data.py:12" if n % 2 else None,
        )
        for n in range(200)
    ]
    past = history(host={"segment_bytes": line(200 * MIB, 2 * MIB, 60)})
    seen = snapshot_of(main(), process(200), segments=tuple(kept), shm=space(8 * GIB, 2 * GIB))

    finding = only(check, seen, past)

    assert finding.process == pid(MAIN)
    assert finding.summary == (
        "shared memory of this job grows steadily: +2.0M/s for 60 s, most of it made by "
        "loader-worker 200 (200)"
    )
    assert finding.evidence[1:4] == (
        "the 120 newest segments are made by loader-worker 200 (200) (120)",
        "the 120 newest segments are mapped or open in main (100) (120)",
        "60 of them were allocated at data.py:12",
    )
    assert finding.evidence[4] == "/dev/shm: 2.0G of 8.0G left, used up in 17 min at this rate"


def test_descriptors_on_shared_tensors_and_their_memory_are_one_finding() -> None:
    links = [FdLink(n, "torch", f"/dev/shm/torch_7_{n}", n, None) for n in range(3, 303)]
    past = history(rising("fds", 303, 2), host={"segment_bytes": line(300 * MIB, 2 * MIB, 60)})

    finding = only(check, snapshot_of(main(fds=fds(303, 65_536, links, torch=300))), past)

    assert finding.subject == "descriptors"


def test_workers_that_a_new_main_starts_one_by_one_are_quiet() -> None:
    helpers = [process(200 + n, "other", label="env") for n in range(30)]
    past = history(rising("children", 30, 0.5))

    assert found(check, snapshot_of(main(born_wall_s=WALL_S - 50), *helpers), past) == []


def test_a_small_or_short_rise_is_quiet() -> None:
    seen = snapshot_of(main(fds=fds(900)))

    assert found(check, seen, history({(MAIN, "fds"): line(900, 1, 20)})) == []
    assert found(check, seen, history({(MAIN, "fds"): line(900, 0.3, 60)})) == []
    assert found(check, seen, history(rising("anon_bytes", 40 * GIB, 5 * MIB))) == []


# --- together with other rules -----------------------------------------------------------------


def finding(rule: str, number: int | None = MAIN, subject: str = "") -> Finding:
    process = None if number is None else pid(number)
    return Finding(rule, Severity.WARNING, rule, ("seen",), "c", "a", process, subject=subject)


@pytest.mark.parametrize(
    ("rule", "number", "subject", "is_named"),
    [
        ("persistent-workers-leak", MAIN, "memory", True),
        ("persistent-workers-leak", MAIN, "descriptors", False),
        ("fd-exhaustion-receiver", 200, "descriptors", True),
        ("fd-exhaustion-receiver", MAIN, "descriptors", False),
        ("max-map-count", 200, "mappings", True),
        ("zombie-processes", 200, "child processes", True),
    ],
)
def test_a_more_specific_rule_reports_the_same_growth(
    rule: str, number: int, subject: str, is_named: bool
) -> None:
    growth = finding("steady-growth", 200, subject)

    chosen = with_causes([finding(rule, number), growth])

    assert chosen.get(growth) == (rule if is_named else None)


def test_a_growth_that_another_rule_names_is_not_shown_twice() -> None:
    past = history(rising("fds", 900, 2) | rising("torch_fds", 850, 2))
    links = [FdLink(n, "torch", f"/dev/shm/torch_7_{n}", n, None) for n in range(50, 900)]
    seen = snapshot_of(main(fds=fds(900, 1024, links, torch=850), maps=maps(2000, torch=850)))

    shown = Engine().diagnosed(seen, past).findings

    assert [each.rule for each in shown] == ["fd-exhaustion-receiver"]


def test_the_growth_is_the_cause_of_the_limit_that_it_leads_to() -> None:
    oom, pids = finding("worker-oom-killed", None), finding("pids-limit", None)
    growth = finding("steady-growth", 200, "memory")

    chosen = with_causes([oom, pids, growth])

    assert chosen == {oom: "steady-growth"}


def test_a_server_that_keeps_accepted_connections_is_distinguished_from_a_client() -> None:
    """Of a connection that its client has closed, no process holds the other end."""

    def finding(listens: str) -> Finding:
        links = [socket(3, 90, None, f"tcp listens on 127.0.0.1:{listens}")]
        links += [
            socket(n, n, None, f"tcp 127.0.0.1:4000 > 127.0.0.1:{50000 + n}") for n in range(4, 63)
        ]
        seen = snapshot_of(
            main(threads=[thread(MAIN, "train.py:serve:50")], fds=fds(60, 1024, links, socket=60))
        )
        return only(check, seen, history(rising("fds", 60, 1.0)))

    server, client = finding("4000"), finding("5000")

    assert "It accepts connections and does not close them" in server.cause
    assert "recv() returns b''" in server.advice
    text = " ".join(server.evidence)
    assert "connections accepted at 127.0.0.1:4000" in text
    assert "of them have closed their end" in text
    assert "train.py:50 serve" in text
    assert client.cause == "It opens connections and does not close them."


def test_log_files_of_many_folders_are_reported_as_handlers_that_stay() -> None:
    def finding(name: str) -> Finding:
        links = [file(n, f"/runs/trial_{n}/{name}") for n in range(3, 63)]
        return only(
            check, snapshot_of(main(fds=fds(60, links=links))), history(rising("fds", 60, 1))
        )

    logs, data = finding("train.log"), finding("catalog.bin")

    assert "ever more open log files" in logs.summary
    assert "removeHandler" in logs.advice
    assert "60 of them are files called train.log" in " ".join(logs.evidence)
    assert data.cause == "It opens files and does not close them."


@pytest.mark.parametrize(
    ("made", "kind", "is_told"),
    [
        (" for DatagramHandler", "socket", True),
        (" for FileHandler", "socket", False),  # it opens files
        (" for FileHandler", "file", True),
        ("", "socket", False),  # of an unknown class
    ],
)
def test_handlers_that_are_added_in_each_round_are_named_as_what_opens(
    made: str, kind: str, is_told: bool
) -> None:
    adds = Mark(
        "registers",
        "/app/logs.py",
        "get_logger",
        f"removeHandler(){made}; main.py:20-29 render",
        Statement(18, "logger.addHandler(handler)"),
    )
    one = socket if kind == "socket" else lambda n, *_: file(n, f"/runs/{n}.txt")
    links = [one(n, 900 + n, None, "udp 127.0.0.1:1 > 127.0.0.1:2") for n in range(3, 63)]

    def grown(at: str) -> Finding:
        own = main(threads=[thread(MAIN, "frames.py:draw:5", at)], fds=fds(60, links=links))
        seen = replace(snapshot_of(own), marks=(adds,))
        return only(check, seen, history(rising("fds", 60, 1)))

    told, elsewhere = grown("main.py:render:25"), grown("main.py:render:40")

    assert ("logs.py:18 get_logger and never removed" in told.summary) == is_told
    assert ("written once by every handler that was added so far" in told.cause) == is_told
    assert ("if not logger.handlers" in told.advice) == is_told
    assert "logs.py:18" not in elsewhere.summary


def with_pool(main_works: float, idle: float, at_lock: float = 0.0) -> Snapshot:
    """Main, which has a Pool with one worker."""
    own = main(
        threads=[
            thread(MAIN, "train.py:write:23", "train.py:main:43"),
            thread(101, "multiprocessing/pool.py:_handle_results"),
        ]
    )
    worker = process(
        300,
        "pool-worker",
        threads=[thread(300, "data.py:draw:9", "multiprocessing/pool.py:worker")],
    )
    writes = Activity("computing", "Python code", place="train.py:23 write")
    return with_shares(
        snapshot_of(own, worker),
        p100={writes: main_works, Activity("waiting", "results of a pool"): 1 - main_works},
        p300={
            Activity("idle", "something to do"): idle,
            Activity("waiting", "semaphore 1b:77", "lock"): at_lock,
            COMPUTES: 1 - idle - at_lock,
        },
    )


def test_results_that_a_pool_makes_faster_than_main_uses_them_are_named() -> None:
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    finding = only(check, with_pool(main_works=0.95, idle=0.1), past)

    assert "Results of its Pool pile up in it" in finding.cause
    assert "works all the time at train.py:23 write" in finding.cause
    assert "threading.Semaphore(n)" in finding.advice
    for keeps_up in (
        with_pool(main_works=0.95, idle=0.6),
        with_pool(main_works=0.4, idle=0.1),
        with_pool(main_works=0.95, idle=0.1, at_lock=0.6),  # that of its tasks
    ):
        assert "It keeps what it allocates" in only(check, keeps_up, past).cause


def receives(read_per_s: float, *consumer: str) -> list[Finding]:
    """Main sleeps, one of its threads receives from processes, and another works, if any."""
    gets = ("multiprocessing/queues.py:get", "data.py:run:56")
    threads = [thread(MAIN, "train.py:main:9"), thread(101, *gets, name="receiver")]
    threads += [thread(102, *consumer, name="learner")] if consumer else []
    series = rising("anon_bytes", 4 * GIB, 5 * MIB)
    past = history({**series, (MAIN, "read_bytes"): line(0.0, read_per_s, 60)})
    return found(check, snapshot_of(main(threads=threads)), past)


def test_items_that_a_thread_receives_faster_than_another_uses_them_are_kept_between() -> None:
    [finding] = receives(6 * MIB, "data.py:train:44")

    assert finding.summary.startswith(
        "main (100) keeps what its thread receiver receives at data.py:56 run: +5.0M/s"
    )
    assert "faster than its thread learner, which is at data.py:44 train," in finding.cause
    assert "a queue.Queue without maxsize or a list" in finding.cause
    assert "Bound what its thread receiver fills at data.py:56 run" in finding.advice
    assert "holds back those that send" in finding.advice


def hands_on(waits: float, *queues: str) -> Finding:
    """A thread puts what it receives into a queue that main empties, slowly or not."""
    gets = ("multiprocessing/queues.py:get", "data.py:run:56")
    own = [thread(MAIN, "store.py:record:22", "data.py:collect:70")]
    own.append(thread(101, *gets, name="receiver"))
    marked = [
        Mark(
            "takes",
            "/home/me/data.py",
            "run",
            "self.upstream",
            Statement(56, "m = self.upstream.get()"),
        ),
        Mark(
            "put", "/home/me/data.py", "run", "self.results", Statement(57, "self.results.put(m)")
        ),
        Mark(
            "takes",
            "/home/me/data.py",
            "collect",
            "c.results",
            Statement(69, "x = c.results.get()"),
        ),
        *(
            Mark(
                "unbounded", "/home/me/data.py", "__init__", each, Statement(9, f"{each} = Queue()")
            )
            for each in queues
        ),
    ]
    asleep = Activity("sleeping", place="store.py:22 record")
    idle = Activity("waiting", "an item of a queue", "queue", (), "data.py:69 collect")
    job = with_shares(snapshot_of(main(threads=own)), p100={asleep: 1 - waits, idle: waits})
    series = rising("anon_bytes", 4 * GIB, 5 * MIB)
    past = history({**series, (MAIN, "read_bytes"): line(0.0, 6 * MIB, 60)})
    return only(check, replace(job, marks=tuple(marked)), past)


def test_a_queue_without_a_bound_that_main_empties_too_slowly_is_named() -> None:
    finding = hands_on(0.05, "self.results", "upstream")

    assert finding.summary.startswith(
        "main (100) takes items out of a queue more slowly than its thread receiver fills it at "
        "data.py:56 run: +5.0M/s"
    )
    assert "that queue has no bound: `self.results = Queue()` at data.py:9" in finding.evidence[3]
    assert "mostly at store.py:22 record. That queue has no maxsize" in finding.cause
    assert "nothing holds back those that send" in finding.cause
    assert "Bound both queues, self.results and upstream, with maxsize" in finding.advice
    assert "between the processes" not in hands_on(0.05, "self.results").cause
    assert not hands_on(0.05, "self.results").is_doubtful


@pytest.mark.parametrize(("waits", "queue"), [(0.6, "self.results"), (0.05, "other")])
def test_a_queue_that_is_emptied_or_bounded_is_not_named(waits: float, queue: str) -> None:
    assert "about as much as it receives is kept" in hands_on(waits, queue).cause


@pytest.mark.parametrize(
    ("read_per_s", "consumer", "says"),
    [
        (6 * MIB, ("queue.py:get", "data.py:train:40"), "about as much as it receives is kept"),
        (MIB / 4, ("data.py:train:44",), "It keeps what it allocates"),
        (90 * MIB, ("data.py:train:44",), "It keeps what it allocates"),
    ],
    ids=["the consumer waits for items", "it reads little", "it reads much more"],
)
def test_memory_that_is_not_what_waits_between_two_threads_is_not_called_that(
    read_per_s: float, consumer: tuple[str, ...], says: str
) -> None:
    [finding] = receives(read_per_s, *consumer)

    assert says in finding.cause
    assert "faster than its thread learner" not in finding.cause
    is_kept = "all of it has been written once" in finding.cause  # a fixed size, still filling
    assert is_kept is says.startswith("about as much")


def executor(*stack: str) -> Snapshot:
    """Main whose ProcessPoolExecutor has a full queue to its worker."""
    owner = feeder(77)
    manager = thread(102, "concurrent/futures/process.py:run", "threading.py:_bootstrap")
    owner = replace(owner, threads=(thread(MAIN, *stack), owner.threads[1], manager))
    worker = process(200, "pool-worker", fds=fds(9, 1024, [pipe(4, 77, False)]))
    return snapshot_of(owner, worker)


def test_the_queue_of_an_executor_has_a_bound_and_what_waits_for_it_has_none() -> None:
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    submits = only(check, executor("train.py:main:46"), past)
    maps = only(
        check,
        executor("data.py:frames:26", "concurrent/futures/_base.py:map", "train.py:main:46"),
        past,
    )

    assert submits.summary.startswith("main (100) submits tasks faster than pool-worker 200 (200)")
    assert "maxsize" not in submits.advice + maps.advice
    assert "gathers all items of Executor.map at train.py:46 main" in maps.summary


def test_memory_rises_in_the_loop_that_goes_on_and_not_in_one_of_a_function_called_anew() -> None:
    outer, inner = Statement(36, "for batch in loader:"), Statement(63, "for j in range(9):")
    source = (
        SourceLine("/home/me/train.py", 38, "fit", Statement(38, "step()"), within=(outer,)),
        SourceLine("/home/me/data.py", 67, "emit", Statement(67, "x = f()"), within=(inner,)),
    )
    stack = thread(MAIN, "data.py:emit:67", "train.py:fit:38")
    job = with_shares(snapshot_of(main(threads=[stack]), source=source), p100={COMPUTES: 1.0})
    account = job.account.processes[pid(MAIN)]
    [own] = account.uncounted
    frames = (Frame("fit", "/home/me/train.py", 0),)
    callers = (Callers(NOW_S - 30, NOW_S - 1, frames, 8, 0),)
    account = replace(account, uncounted=(own._replace(callers=callers),))
    known = replace(job, account=replace(job.account, processes={pid(MAIN): account}))
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    assert "`for batch in loader:` at train.py:36 fit" in only(check, known, past).cause
    assert "`for j in range(9):` at data.py:63 emit" in only(check, job, past).cause


def test_a_map_is_known_by_what_all_stacks_have_in_common_if_the_last_one_is_missing() -> None:
    frames = (
        Frame("main", "/home/me/train.py", 46),
        Frame("map", "/usr/lib/python3/concurrent/futures/_base.py", 600),
        Frame("frames", "/home/me/data.py", 0),
    )
    job = with_shares(snapshot_of(main(threads=[thread(MAIN)])), p100={COMPUTES: 1.0})
    account = job.account.processes[pid(MAIN)]
    [own] = account.uncounted
    callers = (Callers(NOW_S - 30, NOW_S - 1, frames, 8, 0),)
    account = replace(account, uncounted=(own._replace(callers=callers),))
    known = {**job.account.processes, pid(MAIN): account}
    job = replace(job, account=replace(job.account, processes=known))

    finding = only(check, job, history(rising("anon_bytes", 900 * MIB, 5 * MIB)))

    assert "gathers all items of Executor.map at train.py:46 main" in finding.summary
    assert "made at" not in finding.cause


@pytest.mark.parametrize(
    ("library", "name"),
    [
        ("concurrent/futures/_base.py:map", "Executor.map"),
        ("multiprocessing/pool.py:_map_async", "Pool.map"),
    ],
)
def test_a_map_that_takes_all_items_before_it_returns_is_named(library: str, name: str) -> None:
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    def finding(*stack: str) -> Finding:
        return only(check, snapshot_of(main(threads=[thread(MAIN, *stack)])), past)

    inside = finding("data.py:frames:26", library, "train.py:main:46")
    uses = finding("train.py:write:50", "train.py:main:46")

    assert f"gathers all items of {name} at train.py:46 main" in inside.summary
    assert "(made at data.py:26 frames)" in inside.cause
    assert "It keeps what it allocates" in uses.cause


def backlog(
    *,
    place: str = "train.py:12 run",
    text: str = "q.put(item)",
    full: float = 0.95,
    waits: float = 0.0,
    gained: float = 2 * MIB,
) -> list[Finding]:
    """What is found of a producer whose queue's pipe is full for some of the time."""
    writes = WaitedOn("pipe-write", "write", ("pipe:[77]",), (5,))
    own = thread(MAIN, "train.py:run:12", waits=WaitedOn("timer", "clock_nanosleep"))
    feeder = thread(160, "queues.py:_feed", name="QueueFeederThre", waits=writes)
    producer = main(threads=[own, feeder], fds=fds(9, links=[pipe(5, 77, True)]))
    reader = process(
        200,
        "spawned",
        threads=[thread(200, "use.py:take:9")],
        fds=fds(9, links=[pipe(4, 77, False)]),
    )
    job = with_shares(
        snapshot_of(producer, reader),
        p100={Activity("sleeping", place=place): 1 - waits, WAITS_IN_QUEUE: waits},
    )
    account = job.account.processes[pid(MAIN)]
    room_in = Activity("waiting", "room in a full pipe (pipe 77)", "pipe")
    other = with_shares(snapshot_of(producer), p100={room_in: full, SLEEPS: 1 - full}).account
    second = (
        other.processes[pid(MAIN)].uncounted[0]._replace(tid=160)
    )  # of which the kernel says "python"
    account = replace(account, uncounted=(*account.uncounted, second), ticks=(0, 0))
    puts = Mark("put", "/home/me/train.py", "run", "q", Statement(13, text))
    at = SourceLine(
        "/home/me/train.py",
        12,
        "run",
        Statement(12, "time.sleep(0.01)"),
        within=(Statement(11, "while True:"),),
    )
    seen = replace(
        job,
        account=replace(job.account, processes={**job.account.processes, pid(MAIN): account}),
        source=(at,),
        marks=(puts,),
    )
    return found(check, seen, history(rising("anon_bytes", 100 * MIB, gained / 60)))


def test_small_items_that_pile_up_before_a_full_pipe_are_found_by_little_memory() -> None:
    (finding,) = backlog()

    assert finding.summary.startswith(
        "main (100) fills a queue faster than spawned 200 (200) reads"
    )
    assert finding.severity is Severity.INFO
    assert any("`q.put(item)` at train.py:13 run" in each for each in finding.evidence)


def test_memory_that_grows_by_little_is_no_backlog_without_puts_into_a_full_pipe() -> None:
    assert backlog(full=0.5) == []
    assert backlog(waits=0.5) == []
    assert backlog(text="q.put(None)") == []
    assert backlog(place="train.py:99 other") != []
    assert backlog(gained=0.2 * MIB) == []


TASKS = AddedTo(
    "self.tasks", "/home/me/data.py", "add", Statement(48, "self.tasks[key] = task"), False
)


def measured(*values: NameValue, added: AddedTo = TASKS, **more: Any) -> Snapshot:
    """A process that grows, with values of one name that were read every five seconds."""
    source = SourceLine("/home/me/train.py", 31, "step", Statement(31, "step()"), added=(added,))
    reads = [
        ValuesRead(
            pid(MAIN),
            NOW_S - 5.0 * (len(values) - 1 - number),
            "hook",
            (FrameValues(MAIN, "/home/me/train.py", "step", 31, (value,)),),
        )
        for number, value in enumerate(values)
    ]
    stack = [thread(100, "train.py:step:31", "train.py:main:57")]
    return snapshot_of(main(threads=stack), source=(source,), values=tuple(reads), **more)


def tasks(length: int, has_graph: bool | None = None) -> NameValue:
    return NameValue("self.tasks", "dict", length=length, has_graph=has_graph)


GROWS = history(rising("anon_bytes", 900 * MIB, 5 * MIB))


def test_a_container_that_was_measured_to_grow_is_named_with_its_rate() -> None:
    finding = only(check, measured(tasks(4700), tasks(4850), tasks(5000)), GROWS)

    words = "`self.tasks` (dict, data.py:48 add) has 5,000 entries, 30 a second more"
    assert words in finding.evidence
    assert finding.cause == (
        f"{words}: `self.tasks[key] = task` at data.py:48 add adds to it, and nothing there "
        "removes any. The memory that is gained is 171K for each of these entries."
    )
    assert finding.advice.startswith("Remove each entry from self.tasks once it was used")
    assert not finding.is_doubtful


def test_a_container_that_does_not_grow_is_not_named_any_more() -> None:
    kept = Mark("kept", "/home/me/data.py", "add", "self.tasks", TASKS.statement)
    stack = [thread(100, "data.py:add:48", "train.py:step:31")]

    guessed = only(check, replace(measured(marks=(kept,)), processes=(main(threads=stack),)), GROWS)
    job = measured(tasks(12), tasks(12), tasks(12), marks=(kept,))
    known = only(check, replace(job, processes=(main(threads=stack),)), GROWS)

    assert any("self.tasks" in each for each in guessed.evidence)
    assert not any("self.tasks" in each for each in (*known.evidence, known.cause, known.advice))


def test_an_attribute_that_carries_its_graph_is_named_with_detach() -> None:
    state = AddedTo(
        "self.state", "/home/me/data.py", "score", Statement(33, "self.state = f(self.state)"),
        False, True,
    )  # fmt: skip
    carried = NameValue("self.state", "Tensor", has_graph=True)

    finding = only(check, measured(carried, carried, carried, added=state), GROWS)

    assert finding.cause.startswith("`self.state` (Tensor, data.py:33 score) carries an autograd")
    assert "self.state.detach()" in finding.advice


def test_tensors_that_are_kept_with_their_graph_are_named_with_it() -> None:
    reads = [tasks(length, True)._replace(type="list") for length in (100, 150, 200)]

    finding = only(check, measured(*reads, added=TASKS._replace(is_emptied=True)), GROWS)

    assert "the last of them a tensor with its autograd graph" in finding.cause
    assert "what its class removes from self.tasks is less than that" in finding.cause
    assert "Add .detach() or .item() of it at data.py:48" in finding.advice


def test_an_entry_that_only_its_owner_takes_out_stays_where_the_owner_has_left() -> None:
    taken = Statement(61, "return self.tasks.pop(key)")
    added = TASKS._replace(is_emptied=True, removed_in="fetch", removed_by=taken)

    finding = only(check, measured(tasks(100), tasks(150), tasks(200), added=added), GROWS)

    assert (
        "only `return self.tasks.pop(key)` at data.py:61 fetch removes one. An entry for "
        "which that is not reached stays" in finding.cause
    )
    assert finding.advice.startswith("Remove the entry also where its owner gives up")


def test_a_container_that_fills_up_to_a_bound_is_told_as_that() -> None:
    over = Statement(60, "while len(self.tasks) > self.limit:")
    bounded = Mark("bounded", TASKS.file, "add", "self.tasks", over)
    taken = Statement(61, "self.tasks.pop(self.order.popleft())")
    added = TASKS._replace(is_emptied=True, removed_in="add", removed_by=taken)
    job = measured(tasks(100), tasks(150), tasks(200), added=added, marks=(bounded,))

    finding = only(check, job, GROWS)

    assert "It has a bound: `while len(self.tasks) > self.limit:` at data.py:60" in finding.cause
    assert "nobody asks for it" not in finding.cause
    assert finding.advice.startswith("Nothing, if as many entries as the bound of self.tasks")


CAUGHT = Mark(
    "keeps-exception",
    "/home/me/data.py",
    "add",
    "self.tasks; train.py:30-33 step",
    Statement(48, "self.tasks.append(Failure(key, error))"),
)


def test_exceptions_that_a_container_keeps_are_told_with_their_frames() -> None:
    fails = TASKS._replace(statement=CAUGHT.statement)
    values = (tasks(100), tasks(150), tasks(200))

    known = only(check, measured(*values, added=fails, marks=(CAUGHT,)), GROWS)
    unknown = only(check, measured(marks=(CAUGHT,)), GROWS)
    elsewhere = CAUGHT._replace(about="self.tasks; train.py:80-90 other")
    other = only(check, measured(marks=(elsewhere,)), GROWS)

    words = "xceptions are kept: `self.tasks.append(Failure(key, error))` at data.py:48 add adds to"
    assert known.cause.startswith(f"E{words}")
    assert "`self.tasks` (dict, data.py:48 add) has 200 entries, 10 a second more" in known.evidence
    assert unknown.cause.startswith(f"Most likely e{words}")
    for each in (known, unknown):
        assert "An exception keeps its traceback" in each.cause
        assert each.advice.startswith("Keep the text in place of the exception at data.py:48: str(")
    assert "exception" not in other.cause


def test_an_exception_that_is_raised_again_is_told_in_place_of_new_entries() -> None:
    again = Mark(
        "raises-kept",
        "/home/me/data.py",
        "ask",
        "self.known[], 38; train.py:30-33 step",
        Statement(31, "raise known"),
    )
    elsewhere = again._replace(about="self.known[], 38; train.py:80-90 other")

    found = only(check, measured(marks=(again, CAUGHT)), GROWS)
    other = only(check, measured(marks=(elsewhere,)), GROWS)

    assert found.cause.startswith(
        "Most likely one exception is raised again and again: it is kept in self.known "
        "(data.py:38), and `raise known` at data.py:31 ask raises the same object in each round"
    )
    assert "adds to self.tasks" not in found.cause
    assert "Doing that only at data.py:38, where it is kept, does not help" in found.advice
    assert "exception" not in other.cause


def test_a_measured_container_of_exceptions_is_told_so_where_no_loop_shows() -> None:
    fails = TASKS._replace(statement=CAUGHT.statement)
    values = (tasks(100), tasks(150), tasks(200))
    elsewhere = CAUGHT._replace(about="self.tasks; train.py:80-90 other")

    finding = only(check, measured(*values, added=fails, marks=(elsewhere,)), GROWS)

    assert "What it adds is the exception that was caught there" in finding.cause
    assert finding.advice.startswith("Keep the text in place of the exception at data.py:48: str(")


ON_GPU: dict[str, Any] = {
    "more": {"gpus": (GpuUse(1, 2 * GIB), GpuUse(0, MIB))},
    "torch_loaded": True,
}
GPUS = tuple(GpuSample(n, "H100", f"GPU-{n}", 60 * GIB, 80 * GIB) for n in range(2))
TAKES = Mark("takes", "/home/me/train.py", "main", "rows", Statement(45, "row = rows.get()"))
PUTS = Mark("put", "/home/me/data.py", "act", "rows", Statement(61, "rows.put(x)"))
STORES = Mark(
    "stored", "/home/me/book.py", "record", "self.rows", Statement(18, "self.rows[n] = frames")
)
BOUNDED = Mark("bounded", "/home/me/c.py", "<module>", "self.rows", Statement(9, "while ...:"))


def steps(*values: int, every_s: float = 8.0) -> Sequence[Point]:
    """Memory of a GPU in MiB that is read each second, and that rises every few seconds."""
    count = round(len(values) * every_s)
    return [Point(NOW_S - count + n + 1, values[int(n / every_s)] * MIB) for n in range(count)]


def gpu_past(*values: int, every_s: float = 8.0, of: Sequence[int] = (MAIN,)) -> Any:
    return history({(number, "gpu_bytes"): steps(*values, every_s=every_s) for number in of})


LEAK = (14, 520, 900, 960, 980, 1020, 1040, 1080, 1120)
"""A context and a model, and then blocks of the allocator."""


def test_memory_of_a_gpu_that_rises_in_steps_is_reported_with_what_is_left_of_it() -> None:
    job = snapshot_of(main(**ON_GPU), gpus=GPUS)

    finding = only(check, job, gpu_past(*LEAK))

    assert finding.summary.startswith("main (100) has ever more memory on GPU 1: +4.")
    assert finding.severity is Severity.INFO
    assert finding.subject == "GPU memory"
    assert finding.is_doubtful
    assert "220M more memory on GPU 1" in finding.evidence[0]
    assert "GPU 1's memory: 20.0G of 80.0G left, used up in 82 min" in finding.evidence[-1]
    assert "_record_memory_history" in finding.advice


def test_memory_of_a_gpu_that_is_used_up_soon_is_urgent() -> None:
    full = (replace(GPUS[1], memory_used_bytes=79 * GIB + 900 * MIB),)

    finding = only(check, snapshot_of(main(**ON_GPU), gpus=full), gpu_past(*LEAK))

    assert finding.severity is Severity.CRITICAL
    assert "; GPU 1's memory is used up in 30 s" in finding.summary


@pytest.mark.parametrize(
    "values",
    [
        pytest.param((14, 520, 900, 960, 980, 980, 980, 980, 980), id="a start, and no growth"),
        pytest.param((14, 520, 900, 920, 1000, 1030, 1040, 1044, 1046), id="a cache that fills"),
        pytest.param((900, 900, 900, 960, 1000, 960, 1000, 960, 1000), id="up and down"),
        pytest.param((900, 902, 904, 906, 908, 910, 912, 914, 916), id="little"),
        pytest.param((900, 900, 900, 1000, 1000, 1000, 1100, 1100, 1100), id="two steps"),
    ],
)
def test_memory_of_a_gpu_that_does_not_rise_steadily_is_not_reported(values: Any) -> None:
    assert found(check, snapshot_of(main(**ON_GPU), gpus=GPUS), gpu_past(*values)) == []


@pytest.mark.parametrize(
    "stack",
    [
        "torch/_inductor/compile_fx.py:compile",
        "torch/_dynamo/convert_frame.py:compile",
        "triton/compiler/compiler.py:make_ttgir",
        "torch/nn/modules/module.py:load_state_dict",
        "safetensors/torch.py:load_file",
    ],
)
def test_memory_that_rises_while_a_model_is_compiled_or_loaded_is_not_reported(stack: str) -> None:
    busy = main(threads=[thread(MAIN, stack, "train.py:main:66")], **ON_GPU)

    assert found(check, snapshot_of(busy, gpus=GPUS), gpu_past(*LEAK)) == []


def test_private_memory_that_rises_while_a_model_is_compiled_is_not_reported() -> None:
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))
    compiler = process(300, "other", label="ptxas 300")
    inside = "torch/_inductor/graph.py:run"

    assert found(check, snapshot_of(main(), compiler), past) == []
    assert found(check, snapshot_of(main(threads=[thread(MAIN, inside)])), past) == []
    assert len(found(check, snapshot_of(main(), replace(compiler, label="find 300")), past)) == 1


def test_a_container_with_a_bound_may_be_what_fills_the_memory_of_a_gpu() -> None:
    own = [thread(MAIN, "train.py:mine:51")]
    trains = main(threads=own, **ON_GPU)
    fills = snapshot_of(trains, gpus=GPUS, marks=(BOUNDED,))
    graphs = snapshot_of(trains, gpus=GPUS, marks=(BOUNDED, PASSES, KEEPS))

    assert found(check, fills, gpu_past(*LEAK)) == []
    assert only(check, graphs, gpu_past(*LEAK)).cause.startswith("Most likely `self.preds.append")


def test_a_value_that_is_passed_on_where_another_one_is_trained_keeps_its_graph() -> None:
    trains = main(threads=[thread(MAIN, "train.py:mine:51")], **ON_GPU)
    job = snapshot_of(trains, gpus=GPUS, marks=(PASSES, KEEPS, PASSES_BACK))

    finding = only(check, job, gpu_past(*LEAK))

    assert finding.cause.startswith("Most likely `self.preds.append(preds)` at metrics.py:19")
    assert finding.summary.startswith("main (100) has ever more memory on GPU 1")
    assert not finding.is_doubtful


def lending_job(*marks: Mark, unreleased: int | None = None) -> Snapshot:
    """Two actors that send CUDA tensors to the main process."""
    lent = {"sent": 90, "synchronised": 0, "unreleased": unreleased, "bytes": 90 * MIB}
    actors = [
        process(
            number,
            "spawned",
            label=f"actor {number}",
            threads=[thread(number, "data.py:act:59")],
            more={
                **ON_GPU["more"],
                "gauges": {"cuda_lent": lent} if unreleased is not None else {},
            },
            torch_loaded=True,
        )
        for number in (920, 936)
    ]
    learner = main(threads=[thread(MAIN, "train.py:main:45")], **ON_GPU)
    segments = [
        part
        for actor in actors
        for part in (
            segment(
                actor.pid,
                actor.pid,
                kind="torch-named",
                size_bytes=80064,
                mappers=(actor.process,),
            ),
            segment(
                10 * actor.pid,
                path=f"/dev/shm/cuda.shm.0.{actor.pid:x}.1",
                kind="other",
                mappers=(learner.process, actor.process),
            ),
        )
    ]
    return snapshot_of(learner, *actors, segments=segments, gpus=GPUS, marks=marks)


def test_the_receiver_that_keeps_cuda_tensors_of_others_is_named() -> None:
    past = gpu_past(*LEAK, of=(920, 936))

    finding = only(check, lending_job(TAKES, PUTS, STORES), past)

    senders = "actor 920 (920) and actor 936 (936)"
    assert finding.summary.startswith(f"{senders} have ever more memory on GPU 1: +")
    assert finding.process == pid(920)
    assert finding.cause.startswith(
        f"Most likely {senders} send CUDA tensors to main (100), which keeps them, most likely by "
        "`self.rows[n] = frames` at book.py:18 record. The memory of a CUDA tensor that is sent "
        "belongs to its sender"
    )
    assert f"main (100) has CUDA memory of {senders} open" in finding.evidence
    assert "drop what was received" in finding.advice
    assert finding.severity is Severity.INFO
    assert not finding.is_doubtful


def test_hooks_count_what_a_receiver_keeps() -> None:
    past = gpu_past(*LEAK, of=(920, 936))
    kept = replace(
        past,
        processes={
            **past.processes,
            **{(pid(n), "cuda_unreleased"): line(70, 1, 60) for n in (920, 936)},
        },
    )

    keeps = only(check, lending_job(unreleased=70), kept)
    shares_once = only(check, lending_job(PUTS, unreleased=70), past)

    assert keeps.summary.startswith(
        "main (100) keeps CUDA tensors of actor 920 (920) and actor 936 (936), which have ever "
        "more memory on GPU 1"
    )
    assert (
        "has sent 90 CUDA tensors, of which its receivers have not released 70"
        in (keeps.evidence[1])
    )
    assert keeps.subject == "sent GPU memory"
    limbo = replace(keeps, rule="cuda-ipc-limbo", subject="")
    assert with_causes((keeps, limbo)) == {limbo: "steady-growth"}
    own = replace(keeps, subject="GPU memory")
    assert with_causes((own, limbo)) == {}
    assert keeps.cause.startswith("actor 920 (920) and actor 936 (936) send CUDA tensors to main")
    assert "send CUDA tensors" not in shares_once.cause


def test_a_process_that_has_only_lent_cuda_memory_may_keep_its_own() -> None:
    finding = only(check, lending_job(TAKES), gpu_past(*LEAK, of=(920, 936)))

    assert "send CUDA tensors" not in finding.cause
    assert finding.is_doubtful


@pytest.mark.parametrize(("file", "is_told"), [("train", True), ("archive", False)])
def test_what_a_coroutine_writes_and_never_drains_is_named(file: str, is_told: bool) -> None:
    text = "writer.write(frame)"
    writes = Mark(
        "undrained-write", f"/home/me/{file}.py", "forward", "writer", Statement(32, text)
    )
    relay = main(threads=[thread(MAIN, "asyncio/runners.py:run", "train.py:main:50")])
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    finding = only(check, snapshot_of(relay, marks=(writes,)), past)

    assert finding.cause.startswith("Most likely what was not sent yet:") is is_told
    assert ("await writer.drain()" in finding.advice) is is_told


NAMED = Mark(
    "named-logger",
    "/app/logs.py",
    "get_logger",
    "logger",
    Statement(11, 'logger = logging.getLogger(f"job.{name}")'),
)
ADDED = Mark(
    "registers",
    "/app/logs.py",
    "get_logger",
    "removeHandler(); main.py:20-29 render",
    Statement(18, "logger.addHandler(handler)"),
)


def with_added_handlers(*found: Mark) -> Finding:
    own = main(threads=[thread(MAIN, "frames.py:draw:5", "main.py:render:25")])
    return only(
        check, replace(snapshot_of(own), marks=found), history(rising("anon_bytes", 4e9, 5e6))
    )


def test_handlers_of_loggers_with_a_name_of_their_own_are_kept_by_the_registry_of_logging() -> None:
    found = with_added_handlers(ADDED, NAMED)

    assert found.cause == (
        "Most likely the handler stays that `logger.addHandler(handler)` at logs.py:18 get_logger "
        "adds in each round of the loop at main.py:20 render, with all that it refers to (the "
        'text of the records, a buffer, a file): `logger = logging.getLogger(f"job.{name}")` at '
        "logs.py:11 get_logger makes a logger for each name that is put together there, and "
        "logging keeps every logger by its name until the process ends "
        "(Logger.manager.loggerDict), with its handlers. close() of a handler does not take it out "
        "of its logger. If a name comes again, its logger gets one more handler, and writes each "
        "record once for every one."
    )
    assert "make no logger for each item" in found.advice
    assert "slower" not in found.cause
    assert "where logging is set up" not in found.advice


@pytest.mark.parametrize(
    "other",
    [
        NAMED._replace(file="/app/other.py"),
        NAMED._replace(about="audit"),
    ],
)
def test_a_handler_of_another_logger_is_written_to_more_and_more(other: Mark) -> None:
    found = with_added_handlers(ADDED, other)

    assert "so that logging becomes slower as well" in found.cause
    assert "loggerDict" not in found.cause


def test_files_of_handlers_of_named_loggers_are_not_told_to_be_written_to_by_all() -> None:
    adds = ADDED._replace(about="removeHandler() for FileHandler; main.py:20-29 render")
    links = [file(n, f"/runs/{n}.txt") for n in range(3, 63)]
    own = main(
        threads=[thread(MAIN, "frames.py:draw:5", "main.py:render:25")], fds=fds(60, links=links)
    )
    seen = replace(snapshot_of(own), marks=(adds, NAMED))
    found = only(check, seen, history(rising("fds", 60, 1)))

    assert "logs.py:18 get_logger and never removed" in found.summary
    assert "So the handler stays that" in found.cause
    assert "every handler that was added so far" not in found.cause
    assert "one by one" not in found.advice


def with_mapped(
    mapped: Sequence[Point], per_s: float = 5e6, beside: int = 0, python: bool = True
) -> Finding:
    """A growth of memory of a process whose virtual size was read as well."""
    threads = [thread(MAIN + n, "train.py:add:31") for n in range(1 + beside)]
    own = main(threads=threads, is_python=python)
    past = history({**rising("anon_bytes", 1e9, per_s), (MAIN, "virtual_bytes"): mapped})
    return only(check, snapshot_of(own, memory_total_bytes=64 * GIB), past)


def test_memory_that_was_mapped_before_and_is_filled_is_no_leak() -> None:
    filled = with_mapped([Point(NOW_S - 90, 9e9)])

    assert filled.summary == ("main (100) fills memory that it had mapped before: +4.8M/s for 60 s")
    assert "its virtual size has stayed at 8.4G meanwhile" in " ".join(filled.evidence)
    assert "That ends when the buffer is full" in filled.cause
    assert "only ever added to" not in filled.cause
    assert filled.eta_s is None
    assert "used up" not in " ".join(filled.evidence)
    assert (filled.severity, filled.is_doubtful) == (Severity.INFO, True)


@pytest.mark.parametrize(
    ("mapped", "per_s"),
    [
        (line(9e9, 5e6, 90), 5e6),  # as much is mapped meanwhile
        (line(9e9, 1e6, 90), 5e6),
        ([Point(NOW_S - 90, 8.7e9), Point(NOW_S - 30, 9e9)], 5e6),
        ([Point(NOW_S - 30, 9e9)], 5e6),  # not known before
        ([], 5e6),
        ([Point(NOW_S - 90, 9e9)], 1e6),  # an arena of malloc may be filled
    ],
)
def test_memory_that_is_mapped_while_it_grows_is_kept(
    mapped: Sequence[Point], per_s: float
) -> None:
    assert "mapped before" not in with_mapped(mapped, per_s).summary


def test_arenas_of_threads_may_be_what_is_filled() -> None:
    """Malloc maps 64 MiB for each at once: also what is kept is then written to it."""
    flat = [Point(NOW_S - 90, 9e9)]

    assert "mapped before" in with_mapped(flat, beside=2).summary
    assert "mapped before" not in with_mapped(flat, beside=4).summary
    assert "mapped before" not in with_mapped(flat, python=False).summary


def test_what_the_source_shows_to_keep_memory_is_told_before_what_was_mapped() -> None:
    own = main(threads=[thread(MAIN, "frames.py:draw:5", "main.py:render:25")], is_python=True)
    past = history({**rising("anon_bytes", 1e9, 5e6), (MAIN, "virtual_bytes"): [Point(0.0, 9e9)]})
    found = only(check, replace(snapshot_of(own), marks=(ADDED, NAMED)), past)

    assert "loggerDict" in found.cause
    assert "mapped before" not in found.summary


PROFILER = Statement(18, "self.session = profile(activities=[ProfilerActivity.CPU])")


def profiled(block: str, *headers: str, torch_loaded: bool = True, file: str = "times") -> Finding:
    """Memory of a process at line 70 of train.py, in these statements from line 63 on."""
    within = tuple(Statement(63 + number, text) for number, text in enumerate(headers))
    at = SourceLine(
        "/home/me/train.py", 70, "train", Statement(70, "loss.backward()"), within=within
    )
    own = main(threads=[thread(MAIN, "train.py:train:70")], torch_loaded=torch_loaded)
    makes = Mark(
        "records-all", f"/home/me/{file}.py", "__init__", f"profile, 22, {block}", PROFILER
    )
    job = snapshot_of(own, marks=(makes,), source=(at,))
    return only(check, job, history(rising("anon_bytes", 900 * MIB, 5 * MIB)))


OPEN_TIMES = "with OpTimes(enabled=rank == 0) as times:"
STEPS = "for step in range(steps):"


@pytest.mark.parametrize(
    ("block", "headers", "file"),
    [
        ("with OpTimes", (OPEN_TIMES, STEPS, "with times.mark(step):"), "times"),
        ("22-90", (STEPS,), "train"),
        ("", (STEPS,), "times"),
    ],
)
def test_a_profiler_of_all_rounds_is_named_as_what_keeps_memory(
    block: str, headers: Sequence[str], file: str
) -> None:
    finding = profiled(block, *headers, file=file)

    assert finding.cause.startswith("Most likely the records of a profiler: `self.session = ")
    assert (
        f"{file}.py:18 __init__ calls profile without schedule=, started in line 22"
        in finding.cause
    )
    assert "every operator of every step until it is stopped" in finding.cause
    assert "schedule=torch.profiler.schedule(" in finding.advice
    assert "autograd graph" not in finding.cause


@pytest.mark.parametrize(
    ("block", "headers", "file", "torch_loaded"),
    [
        ("with OpTimes", (STEPS, OPEN_TIMES), "times", True),
        ("with OpTimes", ("with Other() as times:", STEPS), "times", True),
        ("22-60", (STEPS,), "train", True),
        ("22-90", (STEPS,), "times", True),
        ("", (STEPS,), "times", False),
    ],
)
def test_a_profiler_that_a_process_is_not_in_keeps_no_memory_of_it(
    block: str, headers: Sequence[str], file: str, torch_loaded: bool
) -> None:
    finding = profiled(block, *headers, file=file, torch_loaded=torch_loaded)

    assert "profiler" not in finding.cause


@pytest.mark.parametrize("gpus", [(), (GpuUse(0, 1 << 30),)])
def test_the_history_of_gpu_memory_grows_only_where_a_gpu_is_used(gpus: tuple[GpuUse, ...]) -> None:
    records = Mark(
        "records-all",
        "/home/me/train.py",
        "main",
        "torch.cuda.memory._record_memory_history, 9, ",
        Statement(9, "torch.cuda.memory._record_memory_history()"),
    )
    job = snapshot_of(replace(main(torch_loaded=True), gpus=gpus), marks=(records,))

    finding = only(check, job, history(rising("anon_bytes", 900 * MIB, 5 * MIB)))

    assert ("each allocation and release of GPU memory" in finding.cause) is bool(gpus)
    assert ("max_entries=" in finding.advice) is bool(gpus)


def test_the_line_that_the_keys_of_a_cache_come_from_is_told() -> None:
    stores = Statement(33, "child = self.children[values] = self.kind()")
    cache = Mark("cache", "/home/me/train.py", "labels", "self.children", stores)
    takes = Statement(9, "path = request.path")
    key = Mark("cache-key", "/home/me/web.py", "handle", "train.py:33, labels", takes)
    serves = main(threads=[thread(MAIN, "train.py:serve:51")])
    past = history(rising("anon_bytes", 900 * MIB, 5 * MIB))

    finding = only(check, snapshot_of(serves, marks=(cache, key)), past)

    assert finding.cause.endswith(
        "As far as names tell, its keys come from `path = request.path` at web.py:9 handle."
    )
    assert finding.advice.startswith("Look at what the keys from web.py:9 handle can be")


def makes_file(about: str, line: int = 21) -> Mark:
    text = Statement(line, "path = stage_path(n)")
    return Mark("makes-file", "/home/me/stage.py", "stage", about, text)


@pytest.mark.parametrize(
    ("marks", "begin"),
    [
        (
            (makes_file("part-*.bin; none"), makes_file("clip_*.gif; none", 40)),
            "`path = stage_path(n)` at stage.py:21 stage makes them: its name is "
            "part-*.bin, as theirs are, and nothing in stage.py removes a file.",
        ),
        (
            (makes_file("part-*.bin; if n > 3: in line 30"),),
            "`path = stage_path(n)` at stage.py:21 stage makes them: its name is "
            "part-*.bin, as theirs are, and removes it only under `if n > 3:` in line 30.",
        ),
        ((makes_file("part-*.bin; none"), makes_file("part-*.bin; none", 40)), "The job writes"),
        ((makes_file("*.bin; none"),), "The job writes"),
        ((makes_file("part-*.npy; none"),), "The job writes"),
    ],
)
def test_the_one_statement_whose_name_fits_makes_the_files(
    marks: tuple[Mark, ...], begin: str
) -> None:
    files, counts = piling(PARTS, makers=((MAIN, 3),), file_system=space(GIB, GIB // 2))

    finding = only(
        check, snapshot_of(main(), new_files=(files,), marks=marks), history(files=counts)
    )

    assert finding.cause.startswith(begin)


def test_files_named_after_processes_that_have_ended() -> None:
    ended = [process(n, "spawned", label=f"worker {n}", ended=exited(n)) for n in (201, 202)]
    key = FilesKey("/home/me/run/tmp", "gauge_*.db")
    files, counts = piling(key, numbers=(201, 202), file_system=space(GIB, GIB // 2))

    finding = only(check, snapshot_of(main(), *ended, new_files=(files,)), history(files=counts))

    assert "hold the pids of 2 processes of this job that have ended" in finding.evidence[1]


@pytest.mark.parametrize(
    ("about", "is_told"), [("clips_*; none", True), ("tmp*; none", False), ("part-*; none", False)]
)
def test_folders_that_nothing_has_open_are_known_by_the_name_that_a_statement_gives(
    about: str, is_told: bool
) -> None:
    key = FilesKey("/tmp", "clips_*")
    files, counts = piling(key, size_bytes=0, is_shared=True, file_system=space(GIB, GIB // 2))

    findings = found(
        check,
        snapshot_of(main(), new_files=(files,), marks=(makes_file(about),)),
        history(files=counts),
    )

    assert [each.subject for each in findings] == ["temporary files"] * is_told
    assert all("gives, clips_*; another run" in each.evidence[1] for each in findings)


REPLACES = Mark(
    "replaces-parameter",
    "/home/me/model.py",
    "swap",
    "index, 26; train.py:48-55 mine",
    Statement(28, 'group["params"][0] = parameter'),
)


@pytest.mark.parametrize(
    ("stack", "is_told"), [("train.py:mine:51", True), ("train.py:mine:60", False)]
)
def test_the_state_of_replaced_parameters_that_an_optimizer_keeps_is_named(
    stack: str, is_told: bool
) -> None:
    finding = only(
        check, snapshot_of(main(threads=[thread(MAIN, stack)]), marks=(REPLACES,)), GROWS
    )

    assert is_told is finding.cause.startswith(
        "Most likely an optimizer keeps the state of parameters that were replaced: "
        '`group["params"][0] = parameter` at model.py:28 swap gives it another parameter, in each '
        "round of the loop at train.py:48 mine, and model.py:26 swap asks for the entry of the old "
        "one by index."
    )
    assert is_told is ("optimizer.state.pop(old, {})" in finding.advice)


WARNS = Mark(
    "warns-anew", "/home/me/data.py", "clip", "", Statement(34, 'warnings.warn(f"{name}: {box}")')
)
FILTER = Mark(
    "warning-filter",
    "/home/me/main.py",
    "main",
    "",
    Statement(3, "warnings.simplefilter('always')"),
)


@pytest.mark.parametrize(
    ("share", "marks", "is_told"),
    [(0.2, (WARNS,), True), (0.01, (WARNS,), False), (0.2, (WARNS, FILTER), False)],
)
def test_ever_new_texts_of_warnings_are_named_where_the_process_is_often(
    share: float, marks: tuple[Mark, ...], is_told: bool
) -> None:
    warns = Activity("computing", "Python code", place="data.py:34 clip")
    other = Activity("computing", "Python code", place="data.py:60 draw")
    seen = snapshot_of(main(threads=[thread(MAIN, "data.py:draw:60")]), marks=marks)
    finding = only(check, with_shares(seen, p100={warns: share, other: 1 - share}), GROWS)

    assert is_told is finding.cause.startswith(
        'Most likely the texts of warnings are kept: `warnings.warn(f"{name}: {box}")` at '
        "data.py:34 clip puts values of each call into the text."
    )
    assert is_told is ("captureWarnings(), smaller log files" in finding.advice)
