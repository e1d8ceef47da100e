"""Statements of source files, and what decides whether they are reached."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from mpwatch.collect.source import source_code
from mpwatch.collect.source.lines.control_flow import TAKEN
from mpwatch.collect.source.marks import marks as marks_in
from mpwatch.collect.source.source_code import (
    FILE_BYTES,
    FILES,
    MARKS_OF_KIND,
    NODES,
    SourceCode,
)
from mpwatch.collect.source.syntax import EXPRESSION_NODES
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame, StackSample, StacksTaken
from mpwatch.model.source_code import LINES_LIMIT, SourceLine, SourceRead, Statement
from mpwatch.observe.sources.on_demand import SourceReads
from tests import procfs
from tests.builders.snapshots import exited, process, snapshot_of
from tests.procfs import eventually

OWN = ProcessId(os.getpid(), 5000 + os.getpid())
TRAINER = """\
import torch.distributed as dist


class Trainer:
    def save(self):
        if self.rank != 0:
            return
        write(self.model)  # to disk
        dist.barrier()

    def fit(self):
        for epoch in range(self.epochs):
            if epoch == 3:
                continue
            with self.lock:
                self.step(
                    epoch,
                    last=False,
                )
            if self.should_stop:
                log("stop")
                break
        else:
            if self.rank == 0: report()
            else:
                idle()


def shards(files):
    while True:
        random.shuffle(files)
        for file in files:
            yield file


if __name__ == "__main__":
    Trainer().fit()
"""


@pytest.fixture
def trainer(tmp_path: Path) -> str:
    file = tmp_path / "trainer.py"
    file.write_text(TRAINER)
    return str(file)


def at(file: str, line: int, function: str) -> SourceLine | None:
    return SourceCode().line(OWN, Frame(function, file, line), time.time())


def test_a_statement_behind_a_return_is_quoted_with_its_condition(trainer: str) -> None:
    found = at(trainer, 9, "save")

    assert found is not None
    assert found.statement == (9, "dist.barrier()")
    assert found.after == ((6, "if self.rank != 0: return"),)
    assert found.within == ()


def test_a_comment_is_left_out(trainer: str) -> None:
    found = at(trainer, 8, "save")

    assert found is not None
    assert found.statement.text == "write(self.model)"


def test_a_statement_of_several_lines_is_one_with_all_that_is_around_it(trainer: str) -> None:
    found = at(trainer, 17, "fit")

    assert found is not None
    assert found.statement == (16, "self.step( epoch, last=False, )")
    assert [each.text for each in found.within] == [
        "for epoch in range(self.epochs):",
        "with self.lock:",
    ]
    assert found.after == ((13, "if epoch == 3: continue"),)
    assert found.ends == ((20, "if self.should_stop: break"),)


LOOPS = """\
def crop(self, boxes):
    while True:
        window = self.draw()
        keep = inside(boxes, window)
        if keep.any():
            return keep


def groups(paths, rank, ranks):
    while True:
        for path in paths:
            file = read(path)
            for group in range(rank, file.groups, ranks):
                yield file.get(group)


def serve(tasks):
    while True:
        task = tasks.get()
        compute(task)


def learn(ring, rows):
    while len(rows) < 4:
        actor, slot = ring.full.get()
        if slot is None:
            return
        if not ring.valid[slot]:
            log(actor)
            continue
        rows.append(ring.data[slot].clone())
        ring.free.put(slot)


def steady(ring):
    slot = ring.full.get()
    try:
        if not ring.valid[slot]:
            return
        use(slot)
    finally:
        ring.free.put(slot)


def hands_on(ring):
    while True:
        slot = ring.full.get()
        if ring.valid[slot]:
            return slot
        ring.free.put(slot)


def swallows(ring):
    for _ in range(9):
        try:
            slot = ring.free.get()
            ring.full.put(slot)
        except ValueError:
            log("lost")


def runs(jobs, results):
    while True:
        job = jobs.get()
        if job is None:
            jobs.task_done()
            break
        try:
            outcome = run(job)
        except Exception as exc:
            log(exc)
            continue
        results.put(outcome)
        jobs.task_done()


def build(path, baton):
    if baton.try_acquire():
        vocab = make(path)
        save(vocab)
        baton.release()
    else:
        baton.wait()


def careful(path, baton):
    if baton.try_acquire():
        try:
            make(path)
        finally:
            baton.release()
"""


def read_loops(tmp_path: Path, text: str, function: str) -> SourceLine:
    file = tmp_path / "loops.py"
    file.write_text(LOOPS)
    line = next(n for n, row in enumerate(LOOPS.splitlines(), 1) if row.strip() == text)
    found = at(str(file), line, function)
    assert found is not None
    return found


def test_a_loop_without_a_condition_is_read_with_what_ends_it(tmp_path: Path) -> None:
    crop = read_loops(tmp_path, "keep = inside(boxes, window)", "crop").endless
    groups = read_loops(tmp_path, "file = read(path)", "groups").endless
    serve = read_loops(tmp_path, "compute(task)", "serve").endless

    assert crop is not None
    assert groups is not None
    assert serve is not None
    assert [each.text for each in crop.ends] == ["if keep.any(): return keep"]
    assert not crop.is_left_otherwise
    assert not crop.exchanges
    assert groups.gives is not None
    assert groups.given_in is not None
    assert groups.gives.text == "yield file.get(group)"
    assert groups.given_in.text == "for group in range(rank, file.groups, ranks):"
    assert not groups.exchanges
    assert serve.exchanges


def test_a_stack_at_the_header_of_a_loop_without_a_condition_is_in_that_loop(
    tmp_path: Path,
) -> None:
    inside = read_loops(tmp_path, "keep = inside(boxes, window)", "crop")
    header = inside.endless.header.line if inside.endless is not None else 0

    read = at(str(tmp_path / "loops.py"), header, "crop")

    assert read is not None
    assert read.endless == inside.endless


def test_a_way_past_the_line_that_gives_back_what_was_taken_is_read(tmp_path: Path) -> None:
    (skip,) = read_loops(tmp_path, "log(actor)", "learn").skips
    (swallowed,) = read_loops(tmp_path, "ring.full.put(slot)", "swallows").skips

    assert skip.taken.text == "actor, slot = ring.full.get()"
    assert skip.leaves.text == "continue"
    assert skip.under is not None
    assert skip.under.text == "if not ring.valid[slot]:"
    assert skip.back.text == "ring.free.put(slot)"
    assert swallowed.leaves.text == "except ValueError:"
    assert read_loops(tmp_path, "use(slot)", "steady").skips == ()
    assert read_loops(tmp_path, "if ring.valid[slot]:", "hands_on").skips == ()


def test_a_way_past_task_done_is_read_also_behind_the_end_mark(tmp_path: Path) -> None:
    """The `task_done()` of the item that ends the loop is not that of the others."""
    (skip,) = read_loops(tmp_path, "job = jobs.get()", "runs").skips

    assert skip.leaves.text == "continue"
    assert skip.under is not None
    assert skip.under.text == "except Exception as exc:"
    assert skip.back.line == skip.leaves.line + 2


def test_what_may_raise_between_taking_and_releasing_a_lock_is_read(tmp_path: Path) -> None:
    (skip,) = read_loops(tmp_path, "baton.wait()", "build").skips

    assert skip.by_error
    assert skip.taken.text == "if baton.try_acquire():"
    assert skip.leaves.text == "vocab = make(path)"
    assert skip.back.text == "baton.release()"
    assert read_loops(tmp_path, "make(path)", "careful").skips == ()


def test_what_only_logs_or_reads_a_clock_is_not_what_raises_before_a_release(
    tmp_path: Path,
) -> None:
    path = tmp_path / "permits.py"
    path.write_text(
        "def install(self, plugin):\n"
        "    self.slots.acquire()\n"
        "    began = time.monotonic()\n"
        "    self.log.info('has a slot')\n"
        "    digest = unpack(plugin, os.path.join(self.root, plugin))\n"
        "    self.slots.release()\n"
    )
    read = at(f"{path}", 2, "install")

    assert read is not None
    (skip,) = read.skips
    assert skip.by_error
    assert skip.leaves.text.startswith("digest = unpack(")


def test_the_loop_with_a_condition_around_a_line_is_read_with_what_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "search.py"
    path.write_text(
        "def advance(pending, beam):\n"
        "    while pending and len(beam) < 4:\n"
        "        best = max(pending)\n"
        "        if is_good(best): break\n"
        "        for each in best:\n"
        "            if each: break\n"
        "            pending.append(each)\n"
        "    return beam\n"
    )
    for number in (2, 3, 7):
        read = at(f"{path}", number, "advance")
        assert read is not None
        assert read.until is not None
        assert read.endless is None
        assert read.until.header == (2, "while pending and len(beam) < 4:")
        assert read.until.ends == ((4, "if is_good(best): break"),)
    after = at(f"{path}", 8, "advance")
    assert after is not None
    assert after.until is None


def test_the_branch_of_an_if_is_named(trainer: str) -> None:
    first, other = at(trainer, 24, "fit"), at(trainer, 26, "fit")

    assert first is not None
    assert other is not None
    assert first.within[-1] == (24, "if self.rank == 0:")
    assert other.within[-1] == (24, "else of if self.rank == 0:")


def test_a_line_of_another_function_than_the_stack_says_is_of_another_file(trainer: str) -> None:
    assert at(trainer, 9, "fit") is None
    assert at(trainer, 9, "<module>") is None
    assert at(trainer, 36, "<module>") is not None
    assert at(trainer, 400, "<module>") is None


def test_a_file_that_was_changed_after_the_start_is_not_quoted(trainer: str) -> None:
    started_s = time.time() - 100

    assert SourceCode().line(OWN, Frame("save", trainer, 9), started_s) is None


@pytest.mark.parametrize(
    "content", ["def f(:", "\0", "x = " + "(" * 10_000, "\xff", "#" * FILE_BYTES]
)
def test_what_is_no_python_is_not_quoted(tmp_path: Path, content: str) -> None:
    file = tmp_path / "odd.py"
    file.write_text(content, encoding="latin-1")

    assert at(str(file), 1, "<module>") is None


@pytest.mark.parametrize(
    "file", ["relative.py", "/etc/passwd", "/dev/zero.py", "/a\0.py", "/nothing.py"]
)
def test_only_regular_python_files_are_read(file: str) -> None:
    assert at(file, 1, "<module>") is None


def test_a_pipe_named_like_a_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")

    assert at(str(tmp_path / "pipe.py"), 1, "<module>") is None


def test_who_waits_for_a_reader_of_a_pipe_named_like_a_file_waits_on(tmp_path: Path) -> None:
    """To open it would show to the program; a device would begin to act."""
    path = tmp_path / "pipe.py"
    os.mkfifo(path)
    code = f"print('ready', flush=True); open({str(path)!r}, 'w'); print('opened', flush=True)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        assert eventually(lambda: procfs.call(writer.pid) is not None)  # it opens the pipe
        assert at(str(path), 1, "<module>") is None
        assert not select.select([writer.stdout], [], [], 1.0)[0]
        writer.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may read files of others")
def test_root_does_not_quote_what_the_owner_of_the_process_may_not_read() -> None:
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as name,
        subprocess.Popen(["sleep", "60"], user=65534, group=65534, extra_groups=[]) as sleeper,
    ):
        folder, secret = Path(name), Path(name, "secret.py")
        secret.write_text("PASSWORD = 'x'\n")
        other, frame = ProcessId(sleeper.pid, 0), Frame("<module>", str(secret), 1)
        try:
            for folder_mode, mode, is_quoted in (
                (0o755, 0o600, False),
                (0o755, 0o644, True),
                (0o700, 0o644, False),
            ):
                folder.chmod(folder_mode)
                secret.chmod(mode)
                found = SourceCode().line(other, frame, time.time())
                assert (found is not None) is is_quoted
        finally:
            sleeper.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its root directory")
def test_links_of_a_container_lead_to_files_of_the_container(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside.py"
    root.mkdir()
    (root / "inside.py").write_text("x = 'inside'\n")
    outside.write_text("x = 'outside'\n")
    (root / "app.py").symlink_to("/inside.py")
    (root / "absolute.py").symlink_to(outside)
    (root / "relative.py").symlink_to("../outside.py")
    child = os.fork()
    if child == 0:
        os.chroot(root)
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    try:
        os.waitpid(child, os.WUNTRACED)
        found = {
            name: SourceCode().line(
                ProcessId(child, 0), Frame("<module>", f"/{name}.py", 1), time.time()
            )
            for name in ("app", "absolute", "relative")
        }
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    texts = {name: line and line.statement.text for name, line in found.items()}
    assert texts == {"app": "x = 'inside'", "absolute": None, "relative": None}


def test_text_is_cleaned(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("x = '\x1b]52;c;aGk=\x07\u202e'\n")

    found = at(str(file), 1, "<module>")

    assert found is not None
    assert found.statement.text == "x = '\ufffd'"


def test_the_number_of_files_is_bounded(tmp_path: Path) -> None:
    code = SourceCode()
    for number in range(FILES + 1):
        (tmp_path / f"m{number}.py").write_text("x = 1\n")
    found = [
        code.line(OWN, Frame("<module>", str(tmp_path / f"m{number}.py"), 1), time.time())
        for number in range(FILES + 1)
    ]

    assert all(found[:FILES])
    assert found[FILES] is None


@pytest.mark.parametrize(
    "content",
    [
        "def f(q):\n if q: pass\n" + " elif q: pass\n" * 900,
        "def f(q):\n x = " + "q + " * 900 + "q\n",
        "def f(q):\n x = q" + ".q" * 900 + "\n",
    ],
)
def test_a_file_that_is_nested_too_deep_is_not_used(tmp_path: Path, content: str) -> None:
    file = tmp_path / "deep.py"
    file.write_text(content)
    code = SourceCode()

    assert code.line(OWN, Frame("f", str(file), 2), time.time()) is None
    assert code.marks(OWN, str(file), time.time()) == ()
    assert code.dropped(OWN, str(file), time.time()) == ()


def test_a_long_expression_is_not_compared_with_others(tmp_path: Path) -> None:
    file = tmp_path / "long.py"
    key = "(" + ", ".join(f"part{n}" for n in range(EXPRESSION_NODES)) + ")"
    file.write_text(f"def f():\n    if {key} not in kept:\n        kept[{key}] = 1\n")

    assert SourceCode().marks(OWN, str(file), time.time()) == ()


def test_few_of_many_statements_that_take_something_are_followed(tmp_path: Path) -> None:
    file = tmp_path / "many.py"
    takes = "".join(f"    a{n} = free.get()\n" for n in range(TAKEN + 1))
    skip = f"    if late:\n        return\n    free.put(a{TAKEN})\n"
    file.write_text(f"def f():\n{takes}{skip}")
    other = tmp_path / "few.py"
    other.write_text(f"def f():\n    a{TAKEN} = free.get()\n{skip}")

    many = SourceCode().line(OWN, Frame("f", str(file), 2), time.time())
    few = SourceCode().line(OWN, Frame("f", str(other), 2), time.time())

    assert many is not None
    assert few is not None
    assert (len(many.skips), len(few.skips)) == (0, 1)


def test_warnings_about_the_programs_own_text_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = '\\d'\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        assert at(str(tmp_path / "a.py"), 1, "<module>") is not None


def test_calls_that_drop_the_result_of_a_task(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        textwrap.dedent(
            """\
            def run(pool, service):
                with ThreadPoolExecutor(1) as threads:
                    threads.submit(work)
                    kept = threads.submit(work)
                pool.apply_async(work, (1,))
                pool.apply_async(work, (1,), error_callback=print)
                pool.apply_async(work, **options)
                service.submit(work)
            """
        )
    )

    found = SourceCode().dropped(OWN, str(file), time.time())

    assert [(each.line, each.method) for each in found] == [(3, "submit"), (5, "apply_async")]
    assert found[1].statement.text == "pool.apply_async(work, (1,))"


@pytest.mark.parametrize(
    ("header", "shown"),
    [
        ("if parts[1:2]: ", "if parts[1:2]:"),
        ("if 'é:' in word: ", "if 'é:' in word:"),
        ("while (key := next(keys)): ", "while (key := next(keys)):"),
    ],
)
def test_a_header_with_its_body_on_one_line_is_cut_before_the_body(
    tmp_path: Path, header: str, shown: str
) -> None:
    file = tmp_path / "a.py"
    file.write_text(f"def f():\n    {header}wait()\n")

    found = at(str(file), 2, "f")

    assert found is not None
    assert found.within[-1] == (2, shown)
    assert found.statement.text == f"{header}wait()"


def taken(*frames: Frame) -> StacksTaken:
    return StacksTaken(
        OWN, 1.0, "py-spy", (StackSample(OWN, OWN.pid, "MainThread", frames, "py-spy", 1.0),)
    )


def test_each_line_of_the_program_is_read_once(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("def step():\n    pool.apply_async(f)\n    wait()\n")
    frame = Frame("step", str(file), 3)
    library = Frame("get", "/usr/lib/python3.11/queue.py", 1)
    job = snapshot_of(process(OWN.pid, born_wall_s=time.time()))
    found: list[SourceRead] = []
    reads = SourceReads(found.append)
    try:
        for _ in range(2):
            reads.received(taken(library, frame))
            reads.start_due(job)
            reads.wait(10)
    finally:
        reads.stop()

    assert len(found) == 1
    assert [line.statement.text for line in found[0].lines] == ["wait()"]
    assert [each.line for each in found[0].dropped] == [2]


def test_lines_are_read_however_many_were_read_before(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    numbers = range(1, LINES_LIMIT + 2)
    file.write_text("".join(f"def f{number}(): wait()\n" for number in numbers))
    job = snapshot_of(process(OWN.pid, born_wall_s=time.time()))
    found: list[SourceRead] = []
    reads = SourceReads(found.append)
    try:
        for number in numbers:
            reads.received(taken(Frame(f"f{number}", str(file), number)))
        reads.start_due(job)
        reads.wait(60)
    finally:
        reads.stop()

    lines = [line.line for read in found for line in read.lines]
    assert lines[-1] == LINES_LIMIT + 1


def test_a_line_is_read_once_the_start_of_its_process_is_known(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("def step():\n    wait()\n")
    frame = Frame("step", str(file), 2)
    gone = snapshot_of(process(OWN.pid, born_wall_s=None, ended=exited(OWN.pid)))
    starting = snapshot_of(process(OWN.pid, born_wall_s=None))
    known = snapshot_of(process(OWN.pid, born_wall_s=time.time()))
    found: list[SourceRead] = []
    reads = SourceReads(found.append)
    try:
        for job in (gone, starting, known):
            if job is not known:
                reads.received(taken(frame))
            reads.start_due(job)
            reads.wait(10)
    finally:
        reads.stop()

    assert [line.statement.text for each in found for line in each.lines] == ["wait()"]


POLLER = """\
import queue, time, signal, functools
import torch
from bank import Bank

class Poller:
    def __init__(self):
        self.delay = 0.1
        self.pause = 0.1
        self.due = 0

    def next(self):
        while True:
            try:
                return self.tasks.get_nowait()
            except queue.Empty:
                time.sleep(self.delay)
                self.delay = min(self.delay * 2, 10)

    def other(self):
        try:
            self.take()
            self.pause = 0.1
        except queue.Empty:
            time.sleep(self.pause)
            self.pause *= 2

    def paced(self):
        time.sleep(self.due - time.time())
        self.due = max(self.due + 1, time.time())

    def fetch(self, name):
        signal.alarm(5)
        if name in self.known:
            return name
        signal.alarm(0)
        return None

def local():
    delay = 0.1
    while not done():
        time.sleep(delay)
        delay *= 2
        if ready():
            break
"""
BANK = """\
import functools
import torch

def memoize(f):
    cache = {}
    def call(key):
        if key not in cache:
            cache[key] = f(key)
        return cache[key]
    return call

@memoize
def load(key):
    return key

@functools.lru_cache(maxsize=None)
def read(path):
    return open(path).read()

@functools.lru_cache
def short(path):
    return path

class Bank:
    def offer(self, features, worst, item):
        self.entries.append((1, features[worst]))
        self.names.append(item["name"])
        if item not in self.kept:
            self.kept[item] = 1
        self.kept.popitem()
"""


HISTORY = """\
from collections import deque

class History:
    def __init__(self, parts):
        self.losses, self.last, self.open, self.days = [], deque(maxlen=9), [], []
        self.parts = []
        for part in parts:
            self.parts.append(part)
        self.recent = deque(maxlen=9)

    def add(self, loss, task):
        self.losses.append(loss)
        self.values.append(loss.item())
        self.recent.append(loss)
        self.open.append(task)
        self.days.append((f"{task}", len(task)))
        found = []
        found.append(loss)

    def close(self):
        self.open = []
"""


def test_what_is_only_ever_added_to_is_marked_unless_it_is_small(tmp_path: Path) -> None:
    file = tmp_path / "history.py"
    file.write_text(HISTORY)

    found = SourceCode().marks(OWN, str(file), time.time())

    assert [(m.kind, m.about, m.statement) for m in found if m.kind != "bounded"] == [
        ("argument-kept", "0, self.losses", Statement(12, "self.losses.append(loss)")),
        ("kept", "self.losses", Statement(12, "self.losses.append(loss)")),
        ("argument-kept", "1, self.open", Statement(15, "self.open.append(task)")),
        ("kept-to-end", "self.open, close()", Statement(15, "self.open.append(task)")),
    ]


COSTS = """\
import collections, itertools, resource
from itertools import cycle
from concurrent.futures import as_completed

class Buffer:
    def __init__(self):
        self.rows = collections.deque(maxlen=9)
        self.names = []
        self.table = {}
        self.either = []
        self.either = set()
        self.sums = {"a": [], "b": []}

    def walk(self, j, name):
        first, last, part = self.rows[0], self.rows[-1], self.table[j]
        at = self.rows[j]
        if name in self.names:
            self.names.pop(0)
        if name in self.table or name in self.either:
            self.names.pop()
        self.names.insert(0, name)
        return self.names.index(name), self.names[j]

    def keep(self, x):
        self.sums["a"].append(x.numpy())
        resource.setrlimit(resource.RLIMIT_CPU, (9, 9))
        again = cycle(Rows(self))
        few = itertools.cycle([1, 2])

def run(pool, rows):
    futures = {pool.submit(work, row): row for row in rows}
    for i, future in enumerate(as_completed(futures)):
        future.result()
    others = [pool.submit(work, row) for row in rows]
    for future in as_completed(others):
        others.remove(future)
"""


def test_what_costs_more_the_more_there_is_is_marked(tmp_path: Path) -> None:
    file = tmp_path / "buffer.py"
    file.write_text(COSTS)
    cleared = tmp_path / "cleared.py"
    cleared.write_text(
        f"{COSTS}class Other:\n    def end(self):\n"
        "        for each in self.sums.values():\n            each.clear()\n"
    )

    found = SourceCode().marks(OWN, str(file), time.time())
    told = [(m.kind, m.about, m.statement.line) for m in found]

    assert [each for each in told if each[0] == "walks"] == [
        ("walks", "deque self.rows, self.rows[j]", 16),
        ("walks", "list self.names, name in self.names", 17),
        ("walks", "list self.names, self.names.pop(0)", 18),
        ("walks", "list self.names, self.names.insert(0, name)", 21),
        ("walks", "list self.names, self.names.index(name)", 22),
        ("walks", "list others, others.remove(future)", 36),
    ]
    assert ("kept", "self.sums['a']", 25) in told
    assert ("limit", "RLIMIT_CPU", 26) in told
    assert [each for each in told if each[0] == "cycle"] == [("cycle", "Rows(self)", 27)]
    assert [each for each in told if each[0] == "futures"] == [("futures", "futures", 32)]
    others = SourceCode().marks(OWN, str(cleared), time.time())
    assert [each for each in others if each.kind == "kept"] == []


SLOW = """import gc, random, torch, pandas as pd, numpy as np
from copy import deepcopy

class Buffer:
    def __init__(self):
        self.rows, self.scores = [], []
        self.scores = []

    def sample(self, frame, batch, weights):
        states, actions = zip(*random.sample(batch, 32))
        next_states, done = map(list, zip(*batch))
        images = [load(each) for each in batch]
        a = torch.as_tensor(states)
        b = torch.FloatTensor(next_states)
        c = np.array(images)
        d = torch.tensor([1, 2, 3])
        e = torch.from_numpy(np.stack(images))
        for row in frame.iterrows():
            total = sum(row)
        f = frame.apply(score, axis=1)
        g = frame.apply(score)
        h = deepcopy(self.rows)
        gc.collect()
        i = sorted(self.scores)[-1]
        j = max(images)
        k = np.random.choice(len(weights), p=weights)
        l = np.random.choice(len(weights), 4, replace=False)
        m = np.random.choice(len(weights))
        n = random.choices(batch, weights=weights)
        o = [a[i, 0].item() for i in range(9)]
        p = a[0, 0].item()
        q = torch.tensor([load(each) for each in batch])
        torch.cuda.empty_cache()
        r = rng.choice(len(weights), 4, replace=False)
        s = self.parts["obs"][:self.size].copy()
        t = np.stack(self.parts)
        u = self.parts["obs"][batch].copy()
        v = self.parts[3].copy()
        w = frame.copy()
        x = self.parts[4:8].copy()
        y = self.weights.clone()
"""


@pytest.mark.parametrize(
    ("call", "is_marked"),
    [
        ("adv.std()", True),
        ("torch.std(adv)", True),
        ("adv.std(unbiased=False)", False),
        ("torch.std(adv, correction=0)", False),
        ("np.std(adv)", False),
    ],
)
def test_deviations_that_are_not_defined_for_one_element_are_marked(
    tmp_path: Path, call: str, is_marked: bool
) -> None:
    file = tmp_path / "ppo.py"
    file.write_text(f"import torch\n\ndef learn(adv):\n    return adv / {call}\n")

    found = SourceCode().marks(OWN, str(file), time.time())

    assert [mark.statement.line for mark in found if mark.kind == "std"] == [4] * is_marked


def test_expressions_that_take_long_for_what_they_do_are_marked(tmp_path: Path) -> None:
    file = tmp_path / "buffer.py"
    file.write_text(SLOW)

    found = SourceCode().marks(OWN, str(file), time.time())

    assert sorted((m.about, m.statement.line) for m in found if m.kind == "slow") == [
        ("all-of: sorted(self.scores)", 24),
        ("choice: np.random.choice(len(weights), 4, replace=False)", 27),
        ("choice: np.random.choice(len(weights), p=weights)", 26),
        ("choice: random.choices(batch, weights=weights)", 29),
        ("collect: gc.collect()", 23),
        ("copy: np.stack(self.parts)", 36),
        ("copy: self.parts['obs'][:self.size].copy()", 35),
        ("copy: self.weights.clone()", 41),
        ("deepcopy: deepcopy(self.rows)", 22),
        ("empty-cache: torch.cuda.empty_cache()", 33),
        ("list-to-array: np.array(images)", 15),
        ("list-to-tensor: torch.FloatTensor(next_states)", 14),
        ("list-to-tensor: torch.as_tensor(states)", 13),
        ("list-to-tensor: torch.tensor([load(each) for each in batch])", 32),
        ("rows: frame.apply(score, axis=1)", 20),
        ("rows: frame.iterrows()", 18),
        ("single-values: a[i, 0].item()", 30),
    ]


@pytest.mark.parametrize(
    ("body", "is_marked"),
    [
        ("with zipfile.ZipFile(self.path) as z:\n        return z.read(key)", True),
        ("with ZipFile(str(self.path), mode='r') as z:\n        return z.read(key)", True),
        ("z = zipfile.ZipFile(ARCHIVE)\n    return z.read(key)", True),
        ("with tarfile.open(self.path) as t:\n        return t.getmember(key)", True),
        ("with h5py.File(self.path, 'r') as f:\n        return f[key][:]", True),
        ("env = lmdb.open(self.path, readonly=True)\n    return env.begin().get(key)", True),
        ("with zipfile.ZipFile(self.path, 'w') as z:\n        z.writestr(key, b'')", False),
        ("with h5py.File(self.path, self.mode) as f:\n        return f[key][:]", False),
        ("with zipfile.ZipFile(self.paths[key]) as z:\n        return z.read('a')", False),
        ("path = self.paths[key]\n    with ZipFile(path) as z:\n        z.read('a')", False),
        ("if self.z is None:\n        self.z = zipfile.ZipFile(self.path)", False),
        ("if self.z is None:\n        z = zipfile.ZipFile(self.path)", False),
        ("self.z = zipfile.ZipFile(self.path)", False),
        ("z = zipfile.ZipFile(self.path)\n    self.z = z", False),
        ("z = self.z or zipfile.ZipFile(self.path)\n    return z.read(key)", False),
        ("return h5py.File(self.path)", False),
        ("with open(self.path) as f:\n        return f.read()", False),
        ("return Image.open(self.path)", False),
        ("with find(key) as path, ZipFile(path) as z:\n        return z.read('a')", False),
        ("names = [ZipFile(path).namelist() for path in PATHS]", False),
        ("names = ZipFile(key).namelist()", False),
        ("names = ZipFile(key.path).namelist()", False),
        ("print(path := find(key))\n    names = ZipFile(path).namelist()", False),
        ("names = map(lambda path: ZipFile(path).namelist(), key)", False),
        ("for each in self.items:\n        ZipFile(each.path).namelist()", False),
        ("self.path = find(key)\n    with ZipFile(self.path) as z:\n        z.read(key)", False),
        ("with ZipFile(self.find(key)) as z:\n        return z.read(key)", False),
        ("with ZipFile(next(self.paths)) as z:\n        return z.read(key)", False),
        ("parts = [ZipFile(self.path).read(each) for each in key]", True),
        ("with ZipFile(settings.path) as z:\n        return z.read(key)", True),
    ],
)
def test_an_archive_that_is_opened_in_each_call_is_marked(
    tmp_path: Path, body: str, is_marked: bool
) -> None:
    file = tmp_path / "store.py"
    file.write_text(f"import zipfile\n\ndef get(self, key):\n    {body}\n")

    found = SourceCode().marks(OWN, str(file), time.time())

    abouts = [each.about for each in found if each.kind == "slow"]
    assert [each.startswith("archive: ") for each in abouts] == [True] * is_marked


@pytest.mark.parametrize(
    ("head", "is_marked"),
    [
        ("", False),
        ("for key in keys:", True),
        ("def main():", False),
        ("def __init__(self):", False),
        ("def read(self):", True),
    ],
)
def test_an_archive_that_is_opened_once_is_not_marked(
    tmp_path: Path, head: str, is_marked: bool
) -> None:
    file = tmp_path / "store.py"
    file.write_text(
        f"import zipfile\n{head or 'if True:'}\n    names = zipfile.ZipFile(PATH).namelist()\n"
    )

    found = SourceCode().marks(OWN, str(file), time.time())

    assert [each.statement.line for each in found if each.kind == "slow"] == [3] * is_marked


@pytest.mark.parametrize(
    ("over", "is_endless"),
    [
        ("itertools.count()", True),
        ("itertools.repeat(None)", True),
        ("itertools.repeat(None, 3)", False),
        ("epochs", True),
        ("rounds", False),
    ],
)
def test_a_loop_over_what_has_no_end_is_without_a_condition(
    tmp_path: Path, over: str, is_endless: bool
) -> None:
    file = tmp_path / "wds.py"
    file.write_text(
        "def rows(n):\n    epochs = itertools.count() if n is None else range(n)\n"
        f"    rounds = range(n)\n    for _ in {over}:\n        for row in run():\n"
        "            yield row\n"
    )

    found = at(str(file), 5, "rows")

    assert found is not None
    assert (found.endless is not None) is is_endless
    if found.endless is not None:
        assert found.endless.gives == Statement(6, "yield row")


REGISTRY = """\
class Shared:
    def __init__(self):
        self.copies, self.used, self.names = {}, [], {}

    def reduce(self, array):
        self.copies[id(array)] = made = copy(array)
        self.used.append(made)
        self.names[id(array)] = str(array)
        return made

    def clear(self):
        self.copies.clear()

    def next(self):
        self.used = []


class Parallel:
    def __exit__(self, *error):
        self.shared.clear()
        self.names = {}
"""


def test_what_only_the_end_of_an_object_empties_is_marked(tmp_path: Path) -> None:
    file = tmp_path / "parallel.py"
    file.write_text(REGISTRY)
    cleared = tmp_path / "rounds.py"
    cleared.write_text(f"{REGISTRY}    def __call__(self):\n        self.shared.clear()\n")

    found = SourceCode().marks(OWN, str(file), time.time())

    assert [(m.about, m.statement.line) for m in found if m.kind == "kept-to-end"] == [
        ("self.copies, clear() and __exit__()", 6)
    ]
    others = SourceCode().marks(OWN, str(cleared), time.time())
    assert [m for m in others if m.kind == "kept-to-end"] == []


def test_statements_that_can_be_a_reason_are_marked(tmp_path: Path) -> None:
    (tmp_path / "bank.py").write_text(BANK)
    poller = tmp_path / "poller.py"
    poller.write_text(POLLER)
    code = SourceCode()

    marks = code.marks(OWN, str(poller), time.time())

    assert [(os.path.basename(m.file), m.kind, m.about, m.statement.line) for m in marks] == [
        ("poller.py", "empties", "self.tasks", 12),
        ("poller.py", "takes", "self.tasks", 14),
        ("poller.py", "retries", "14-14", 15),
        ("poller.py", "backoff", "self.delay", 17),
        ("poller.py", "alarm", "34", 32),
        ("bank.py", "cache", "cache (for load)", 8),
        ("bank.py", "cache", "read", 16),
        ("bank.py", "view", "features[worst]", 26),
        ("bank.py", "argument-kept", "0, self.entries", 26),
        ("bank.py", "kept", "self.entries", 26),
        ("bank.py", "argument-kept", "2, self.names", 27),
        ("bank.py", "kept", "self.names", 27),
    ]
    assert code.marks(OWN, str(poller), time.time()) == ()


SINK = """\
class Sink:
    def record(self, value):
        with self._lock:
            self.rows.append(value)

    def loop(self):
        while True:
            time.sleep(1)
            self.flush()

    def flush(self):
        self._lock.acquire()
        with open(self.path) as file:
            self.write(file)


def record(value):
    with lock, sink.other:
        sink.record(value)
"""


def test_the_locks_of_a_function_and_of_those_that_it_calls_are_read(tmp_path: Path) -> None:
    path = tmp_path / "sink.py"
    path.write_text(SINK)

    def taken(number: int, function: str) -> tuple[int, list[tuple[str, str, int]]]:
        found = SourceCode().line(OWN, Frame(function, str(path), number), time.time() + 9.0)
        assert found is not None
        return found.defined, [(e.owner, e.name, e.statement.line) for e in found.locks]

    assert taken(8, "loop") == (6, [("Sink", "self._lock", 12)])
    assert taken(4, "record") == (2, [("Sink", "self._lock", 3)])
    assert taken(19, "record") == (
        17,
        [("", "lock", 18), ("", "sink.other", 18), ("Sink", "self._lock", 3)],
    )


ACQUIRED = """\
def add(self, key):
    self.guard.acquire()
    try:
        self.compact()
    finally:
        self.guard.release()
    self.compact()


def report(self):
    self.a.acquire()
    if not self.b.acquire(False):
        self.late()
    if self.ready:
        self.a.release()
        self.compact()
    self.compact()


def each(self):
    for lock in self.locks:
        lock.acquire()
        self.work()
        lock.release()
        self.rest()
"""


def test_locks_that_are_acquired_before_a_line_and_not_released_are_read(tmp_path: Path) -> None:
    path = tmp_path / "guards.py"
    path.write_text(ACQUIRED)

    def kept(number: int, function: str) -> list[tuple[int, str]]:
        found = SourceCode().line(OWN, Frame(function, str(path), number), time.time() + 9.0)
        assert found is not None
        return [(each.line, each.text) for each in found.held]

    assert kept(4, "add") == [(2, "self.guard.acquire()")]
    assert kept(7, "add") == []
    assert kept(12, "report") == [(11, "self.a.acquire()")]
    assert kept(16, "report") == [(12, "if not self.b.acquire(False):")]
    assert kept(17, "report") == [(12, "if not self.b.acquire(False):")]
    assert kept(23, "each") == [(22, "lock.acquire()")]
    assert kept(25, "each") == []


WRAPPED = """\
import torch


def inner(model):
    return model.module if hasattr(model, "module") else model


def fit(model, data):
    encoder = inner(model)
    with model.no_sync():
        model.module.embed(data)
    return inner(model).state_dict(), model.module.parameters(), model.module.eval()


class Wrapper:
    def __init__(self, module):
        self.module = module
"""


def test_lines_that_take_the_module_out_of_a_wrapped_model_are_marked(tmp_path: Path) -> None:
    path = tmp_path / "fit.py"
    path.write_text(WRAPPED)

    found = SourceCode().marks(OWN, str(path), time.time() + 9.0)

    lines = [(each.kind, each.statement.line) for each in found]
    assert lines == [
        ("unwrapped", 5),
        ("unwrapped", 9),
        ("no-sync", 10),
        ("unwrapped", 11),
        ("calls-wrapped", 11),
    ]


STAGES = """\
import torch
from stages import helper


class Decode:
    def run(self):
        self.sink.send(1)


class Fit:
    def run(self):
        while True:
            clip = self.source.recv()
            loss = torch.tensor(clip).sum()
            self.step(loss)

    def step(self, loss):
        loss.backward()

    def report(self):
        self.recv()
        helper(self.sink)


def stage_main(factory):
    factory().run()
"""


def test_a_function_that_may_send_is_distinguished_from_one_that_only_receives(
    tmp_path: Path,
) -> None:
    path = tmp_path / "stages.py"
    path.write_text(STAGES)

    def sends(number: int, function: str) -> bool:
        found = SourceCode().line(OWN, Frame(function, str(path), number), time.time() + 9.0)
        assert found is not None
        return found.may_send

    assert sends(7, "run")
    assert not sends(13, "run")
    assert sends(21, "report"), "what another file of the program does with it is not known"
    assert not sends(26, "stage_main"), "what it has called there has a frame of its own"


SUPERVISOR = """\
import os
import signal

signal.signal(signal.SIGCHLD, collect)


def collect(number, frame):
    os.waitpid(-1, os.WNOHANG)


def run(workers):
    while True:
        alive = [each for each in workers if each.is_alive()]
        if not alive:
            return
        sleep(0.5)


def ends(programs, link):
    while any(each.poll() is None for each in programs):
        sleep(0.5)
    while not link.poll():
        sleep(0.6)
    while not programs[0].is_alive():
        sleep(0.7)
    while True:
        if any(each.is_alive() for each in programs):
            break
        sleep(0.8)


def child():
    libc.prctl(PR_SET_PDEATHSIG, 9)
    libc.prctl(1, 9)
    libc.prctl(15, b"name")
"""


def test_loops_that_end_once_no_child_lives_are_read(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.py"
    path.write_text(SUPERVISOR)

    def ended_by(number: int, function: str) -> str:
        found = SourceCode().line(OWN, Frame(function, str(path), number), time.time() + 9.0)
        assert found is not None
        return found.until_exits.text if found.until_exits is not None else ""

    assert ended_by(16, "run") == "if not alive: return"
    assert ended_by(21, "ends") == "while any(each.poll() is None for each in programs):"
    assert [ended_by(number, "ends") for number in (23, 25, 29)] == ["", "", ""]
    marks = SourceCode().marks(OWN, str(path), time.time() + 9.0)
    assert [(each.kind, each.statement.line) for each in marks] == [
        ("reap", 8),
        ("death-signal", 33),
        ("death-signal", 34),
    ]


ATTEMPTS = """\
import random


def in_else(fetch):
    for attempt in range(3):
        try:
            return fetch()
        except OSError as error:
            log.warning("attempt failed: %s", error)
            sleep(1.0)
    else:
        raise RuntimeError("no answer")


def after(fetch):
    while budget():
        try:
            fetch()
        except OSError:
            continue
    raise RuntimeError("no answer")


def kept(fetch):
    for attempt in range(3):
        try:
            return fetch()
        except OSError as error:
            last = error
    raise RuntimeError("no answer") from last


def passed_on(fetch):
    for item in range(3):
        try:
            fetch(item)
        except OSError:
            raise
    raise RuntimeError("no answer")


def choose(items, share):
    chosen = [each for each in items if random.random() < share]
    for each in items:
        if random.randint(0, 1):
            chosen.append(each)
        if random.random() < share:
            each = flip(each)
    count = range(random.randint(1, 5))
    return random.sample(chosen, 3), rng.random() < 1
"""


def test_queues_without_a_bound_and_what_is_taken_out_of_queues_are_marked(tmp_path: Path) -> None:
    text = """
import queue
class Collector:
    def __init__(self):
        self.results = queue.Queue()
        self.few = queue.Queue(maxsize=9)
    def run(self, names):
        self.results.get(timeout=0.5)
        names.get("key")
"""

    found = marks_of(tmp_path / "collector.py", text)

    assert found == [("unbounded", 5, "self.results"), ("takes", 8, "self.results")]


def test_processes_and_pools_that_a_loop_starts_are_marked(tmp_path: Path) -> None:
    text = """
def fit(ctx, steps):
    watcher = ctx.Process(target=watch)
    watcher.start()
    timer.start()
    for step in steps:
        for n in range(3):
            p = ctx.Process(target=play)
            p.start()
        timer.start()
        with ctx.Pool(2) as pool:
            pool.map(play, steps)
"""

    found = [each for each in marks_of(tmp_path / "fit.py", text) if each[0] == "starts"]

    assert sorted(found) == [("starts", 9, "process"), ("starts", 11, "pool")]


def test_items_of_a_loop_that_are_passed_over_by_a_counter_are_marked(tmp_path: Path) -> None:
    text = """
def train(self, loader, left):
    for step, batch in enumerate(loader):
        if left > 0:
            left -= 1
            continue
        self.step(batch)
    for batch in loader:
        if batch is None:
            continue
    for step, batch in enumerate(loader):
        self.step(batch)
        if step % 9:
            continue
"""

    found = [each for each in marks_of(tmp_path / "fit.py", text) if each[0] == "passed-over"]

    assert found == [("passed-over", 4, "3-6")]


def marks_of(path: Path, text: str) -> list[tuple[str, int, str]]:
    path.write_text(text)
    marks = SourceCode().marks(OWN, str(path), time.time() + 9.0)
    return [(each.kind, each.statement.line, each.about) for each in marks]


def test_raises_after_attempts_whose_exceptions_are_lost_are_read(tmp_path: Path) -> None:
    marks = marks_of(tmp_path / "attempts.py", ATTEMPTS)

    assert [each for each in marks if each[0] == "gives-up"] == [
        ("gives-up", 12, "`except OSError as error:` in line 8, logged in line 9"),
        ("gives-up", 21, "`except OSError:` in line 19"),
    ]


def test_statements_that_choose_how_many_items_there_are_by_chance_are_read(
    tmp_path: Path,
) -> None:
    marks = marks_of(tmp_path / "choose.py", ATTEMPTS)
    seeds = "import random\nrandom.seed(1)\nset_seed(2)\ntorch.manual_seed(3)\nnp.random.seed(4)\n"

    assert [line for kind, line, _ in marks if kind == "draw"] == [43, 45, 49]
    assert [kind for kind, _, _ in marks].count("seed") == 0
    assert marks_of(tmp_path / "seeds.py", seeds) == [("seed", 2, ""), ("seed", 3, "")]


def test_what_a_function_releases_without_having_taken_it_is_read(tmp_path: Path) -> None:
    text = (
        "def record(slots):\n    slots.release()\n"
        "def guarded(lock):\n    lock.acquire()\n    lock.release()\n"
        "def block(self):\n    with self.lock:\n        self.lock.release()\n"
    )

    assert marks_of(tmp_path / "slots.py", text) == [("releases", 2, "slots")]


def test_calls_that_submit_tasks_are_read(tmp_path: Path) -> None:
    text = (
        "def evaluate(config, pool):\n"
        "    refs = [fold.remote(config, n) for n in range(3)]\n"
        "    done = pool.submit(fold, config)\n"
        "    return get(refs), submit(done)\n"
    )

    assert marks_of(tmp_path / "sweep.py", text) == [("submits", 2, ""), ("submits", 3, "")]


CACHED = """\
def kernel(orig, new):
    return build(orig, new)

@functools.lru_cache(maxsize=16)
def cached_kernel(orig, new):
    return kernel(orig, new)

@functools.cache
def scaled(orig):
    return kernel(orig, 2 * orig)

def fast(wav, orig, new):
    return apply(wav, cached_kernel(orig, new))

def general(wav, orig, new):
    return apply(wav, *kernel(orig, new))
"""


def test_calls_past_the_cached_variant_of_a_function_are_read(tmp_path: Path) -> None:
    marks = marks_of(tmp_path / "audio.py", CACHED)

    found = [each for each in marks if each[0] == "past-cache"]
    assert found == [("past-cache", 16, "kernel, cached_kernel")]


AWAITED = """\
def one_by_one(self, items):
    for item in items:
        future = self.pool.submit(work, item)
        log.info("sent %s", item)
        try:
            self.done.append(future.result(timeout=60))
        except ValueError:
            pass
    first = pool.submit(
        work, items[0]
    ).result()
    out = [workers.apply_async(work, (item,)).get() for item in items]
    self.task = pool.apply_async(work, (items[0],))
    return self.task.get(), self.pool.apply(work, (items[1],)), first, out


def all_at_once(pool, items, table):
    futures = [pool.submit(work, item) for item in items]
    ahead = pool.submit(work, items[0])
    more = pool.submit(work, items[1])
    for item in items:
        ahead.result()
    with pool:
        future = pool.submit(work, item)
    table.apply(work)
    settings.get("pool").result()
    return [each.result() for each in futures], future.result(), more
"""


def test_waits_for_a_task_right_after_its_start_are_read(tmp_path: Path) -> None:
    marks = marks_of(tmp_path / "sweep.py", AWAITED)

    assert sorted(each[1:] for each in marks if each[0] == "awaits-task") == [
        (6, "3, submit"),
        (9, "9, submit"),
        (12, "12, apply_async"),
        (14, "13, apply_async"),
        (14, "14, apply"),
    ]


TASKS = """\
import asyncio

async def crawl(urls, group):
    await asyncio.gather(*(fetch(url) for url in urls))
    pages = [bounded(url) for url in urls]
    await asyncio.gather(*pages)
    await asyncio.gather(beat(), report(urls))
    for url in urls:
        group.create_task(visit(url))
    more = [asyncio.create_task(self.load(url)) for url in urls]
    await asyncio.start_server(answer, port=8000)
    alone = asyncio.create_task(watch())
    await asyncio.gather(watch())
    await asyncio.gather(*more)
    return alone
"""


def test_a_line_of_a_coroutine_is_known_as_one(tmp_path: Path) -> None:
    file = tmp_path / "crawl.py"
    file.write_text(TASKS)

    found = at(str(file), 7, "crawl")

    assert found is not None
    assert found.is_async


def test_calls_that_start_several_tasks_of_a_coroutine_are_read(tmp_path: Path) -> None:
    marks = marks_of(tmp_path / "crawl.py", TASKS)

    assert sorted(each[1:] for each in marks if each[0] == "several-tasks") == [
        (4, "fetch"),
        (6, "bounded"),
        (7, "beat, report"),
        (9, "visit"),
        (10, "load"),
        (11, "answer"),
    ]


GRAPHS = """\
import torch
from torch import nn
import torch.nn.functional as F
from data import load_model


class Scorer(nn.Module):
    def __init__(self):
        self.rnn, self.rows, self.sums = nn.LSTM(1, 8), [], {}
        self.frozen = nn.Linear(8, 8).requires_grad_(False)

    def score(self, chunk):
        out, self.state = self.rnn(chunk, self.state)
        return out.mean().item()

    def anew(self, chunk):
        self.state = None
        out, self.state = self.rnn(chunk, self.state)

    def keeps(self, x):
        out = self.rnn(x)
        loss = F.mse_loss(out.sigmoid(), x)
        self.rows.append((loss.item(), float(loss), out.argmax(1), self.frozen(x)))
        self.rows.append((x, loss))
        self.total += loss

    @torch.no_grad()
    def off(self, x):
        self.rows.append(self.rnn(x))

    def train(self, x):
        loss = self.rnn(x)
        self.rows.append(loss)
        loss.backward()

    def also_off(self, x):
        with torch.inference_mode():
            self.rows.append(self.rnn(x))

    def add(self, name, out, given):
        out = out.cpu()
        self.rows.append(out)
        self.counts[name] = given


def evaluate(model, rows, metric):
    outs, whole = [], load_model(rows)
    hidden = None
    for row in rows:
        part, found = [], model(row)
        outs.append(found)
        part.append(found)
        metric.add("a", found)
        metric.add("b", float(found.sum()), found.tolist())
        found, hidden = model(row, hidden)
        state = None
        found, state = model(row, state)
    outs.append(whole)
    return torch.cat(outs)


def reset(self):
    self.rows.clear()
"""


def test_what_keeps_autograd_graphs_is_read(tmp_path: Path) -> None:
    marks = marks_of(tmp_path / "score.py", GRAPHS)

    assert [each for each in marks if "graph" in each[0] or each[0] == "argument-kept"] == [
        ("graph-carried", 13, "self.state"),
        ("argument-kept", 24, "0, self.rows"),
        ("graph-kept", 24, "self.rows, 21, reset()"),
        ("graph-kept", 25, "self.total, 21"),
        ("argument-kept", 42, "1, self.rows"),
        ("graph-kept", 51, "outs, 50"),
        ("graph-passed", 53, "add, 1, 50"),
        ("graph-carried", 55, "hidden"),
    ]


def test_no_state_is_carried_in_a_file_that_detaches(tmp_path: Path) -> None:
    detached = GRAPHS.replace("    return torch.cat(outs)", "    return torch.cat(outs).detach()")

    assert not [each for each in marks_of(tmp_path / "s.py", detached) if "carried" in each[0]]


COLLECTOR = """\
import gc

def fit(loader, slow):
    gc.disable()
    gc.set_threshold(0)
    gc.set_threshold(900, 10, 10)
    if slow:
        gc.disable()
    gc.collect()

def flat(tree):
    def walk(node):
        return [walk(each) for each in node]
    def leaf(node):
        return node
    return walk(tree)

def walk(tree):
    return [walk(each) for each in tree]

if __name__ == "__main__":
    gc.disable()
"""


def test_what_switches_the_collector_off_is_read_and_functions_in_a_cycle(tmp_path: Path) -> None:
    found = marks_of(tmp_path / "collector.py", COLLECTOR)

    assert [each for each in found if each[0] != "slow"] == [
        ("gc-off", 4, ""),
        ("gc-off", 5, ""),
        ("gc-on", 6, "set_threshold"),
        ("gc-on", 9, "collect"),
        ("self-reference", 12, "walk"),
        ("gc-off", 22, ""),
    ]


def test_tasks_of_one_item_each_are_read(tmp_path: Path) -> None:
    text = (
        "def fit(pool, rows, executor, options):\n"
        "    for each in pool.imap(work, rows):\n"
        "        pool.imap_unordered(work, rows, chunksize=99)\n"
        "    pool.imap(work, rows, 1)\n"
        "    pool.map(work, rows)\n"
        "    executor.map(work, rows, rows, chunksize=1)\n"
        "    pool.imap(work, rows, **options)\n"
    )

    assert marks_of(tmp_path / "pool.py", text) == [
        ("one-by-one", 2, "imap"),
        ("one-by-one", 4, "imap"),
        ("one-by-one", 6, "map"),
    ]


def test_lines_that_deal_items_to_workers_are_read(tmp_path: Path) -> None:
    text = (
        "def mine(info, urls):\n"
        "    few = urls[info.id :: info.num_workers]\n"
        "    every, second = islice(urls, info.id, None, num_workers), urls[::2]\n"
    )

    assert marks_of(tmp_path / "shards.py", text) == [("dealt", 2, ""), ("dealt", 3, "")]


def test_files_of_packages_are_found_by_their_imports(tmp_path: Path) -> None:
    package = tmp_path / "telemetry"
    (package / "parts").mkdir(parents=True)
    (tmp_path / "main.py").write_text("from telemetry import enable\n")
    (package / "__init__.py").write_text("from telemetry.log import enable\n")
    (package / "log.py").write_text("from .parts import late\n")
    (package / "parts" / "__init__.py").write_text("from ..other import late\n")
    (package / "other.py").write_text("known = {}\ndef late(x):\n    known[x] = [x]\n")

    found = SourceCode().marks(OWN, str(tmp_path / "main.py"), time.time() + 9.0)

    assert [(each.file, each.about) for each in found] == [(str(package / "other.py"), "known")]


def test_containers_of_a_module_that_functions_add_to_are_read(tmp_path: Path) -> None:
    text = (
        "known, limit = {}, 9\n"
        "known = {}\n"
        "rows: list = []\n"
        "last = deque(maxlen=9)\n"
        "class Handler:\n"
        "    all_of_them = []\n"
        "    def __init__(self, key):\n"
        "        self.all_of_them.append(self)\n"
        "        self.own.append(self)\n"
        "def enable(key):\n"
        "    known[key] = Handler(key)\n"
        "    known['last'] = key\n"
        "    last.append(key)\n"
        "    rows.append(1)\n"
        "def local(rows, row):\n"
        "    rows.append(row)\n"
        "    known = {}\n"
        "    known[row] = row\n"
    )

    found = [each for each in marks_of(tmp_path / "log.py", text) if each[0] == "registry"]

    assert found == [("registry", 8, "Handler.all_of_them"), ("registry", 11, "known")]
    marks = SourceCode().marks(OWN, str(tmp_path / "log.py"), time.time() + 9.0)
    texts = [each.statement.text for each in marks if each.kind == "registry"]
    assert texts == ["self.all_of_them.append(self)", "known[key] = Handler(key)"]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("    if i % self.n == self.k:\n      yield x\n", [("reads-all", 3, "self.rows")]),
        ("    if i % n != k:\n      continue\n    yield x\n", [("reads-all", 3, "self.rows")]),
        ("    block.append(x)\n    yield from block[k : k + n]\n", [("reads-all", 4, "self.rows")]),
        ("    if i % 100 == 0:\n      yield x\n", []),
        ("    block.append(x)\n    yield from block[:n]\n", []),
        ("    if i % n == k:\n      log(x)\n", []),
    ],
)
def test_generators_that_pass_on_a_part_of_what_they_read_are_read(
    tmp_path: Path, body: str, found: list[tuple[str, int, str]]
) -> None:
    text = f"def part(self, block, n, k):\n  for i, x in enumerate(self.rows):\n{body}"

    marks = marks_of(tmp_path / "part.py", text)

    assert [each for each in marks if each[0] == "reads-all"] == found


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (
            "  await self.permits.acquire()\n  reply = generate(x)\n  self.permits.release()\n",
            [("unreleased", 5, "permits, 4")],
        ),
        (
            "  for x in rows:\n    if not x:\n      continue\n    permits.release()\n",
            [("unreleased", 5, "permits, 0")],
        ),
        ("  for x in rows:\n    other.release()\n", []),
        (
            "  for x in rows:\n    permits.release()\n    if not x:\n      continue\n",
            [],
        ),
        (
            "  permits.acquire()\n  try:\n    run(x)\n  finally:\n    permits.release()\n",
            [],
        ),
        ("  permits.acquire()\n  log.info('has it')\n  permits.release()\n", []),
        (
            "  await self.acquire_permit()\n  reply = generate(x)\n  self.release_permit()\n"
            "def acquire_permit(self):\n  self.permits.acquire()\n"
            "def release_permit(self):\n  self.permits.release()\n",
            [("unreleased", 5, "permits, 4")],
        ),
        (  # a callback, with functions that only do it by names of their own
            "  try:\n    keep(x.result())\n    self.gate.after_call()\n"
            "  except ValueError as e:\n    log.warning(e)\n"
            "def after_call(self):\n  self.permits.release()\n",
            [("unreleased", 5, "permits, 0")],
        ),
        (
            "  try:\n    keep(x.result())\n    self.gate.after_call()\n"
            "  except ValueError as e:\n    self.gate.after_call()\n"
            "def after_call(self):\n  self.permits.release()\n",
            [],
        ),
        (
            "  try:\n    keep(x.result())\n    permits.release()\n"
            "  except ValueError as e:\n    raise\n",
            [],
        ),
    ],
)
def test_what_passes_over_a_release_is_read(
    tmp_path: Path, body: str, found: list[tuple[str, int, str]]
) -> None:
    text = f"def feed(permits):\n  permits.acquire()\nasync def run(self, rows, permits):\n{body}"

    marks = marks_of(tmp_path / "permits.py", text)

    assert [each for each in marks if each[0] == "unreleased"] == found


def test_a_slice_that_another_file_returns_is_read_where_it_is_kept_or_passed(
    tmp_path: Path,
) -> None:
    (tmp_path / "audio.py").write_text(
        "import numpy\ndef loudest(signal, a, b):\n    return signal[a:b]\n"
    )
    text = (
        "import numpy\n"
        "from audio import loudest\n"
        "def build(self, index, signal):\n"
        "    part = loudest(signal, 0, 9)\n"
        "    self.parts.append(part)\n"
        "    index.add_part(signal, part)\n"
        "    part = part.copy()\n"
        "    index.add_part(signal, part)\n"
    )

    found = [each for each in marks_of(tmp_path / "main.py", text) if each[0].startswith("view")]

    made = "audio.py:3: signal[a:b]"
    assert found == [("view", 5, made), ("view-passed", 6, f"add_part, 1, {made}")]


def test_handlers_that_go_on_with_the_next_round_are_read(tmp_path: Path) -> None:
    text = (
        "def serve(self):\n"
        "  while True:\n"
        "    try:\n"
        "      self.run()\n"
        "      self.note()\n"
        "    except Exception:\n"
        "      log.exception('failed')\n"
        "    try:\n"
        "      self.run()\n"
        "    except Exception:\n"
        "      raise\n"
        "  try:\n"
        "    self.run()\n"
        "  except Exception:\n"
        "    pass\n"
    )

    found = [each for each in marks_of(tmp_path / "serve.py", text) if each[0] == "swallows"]

    assert found == [("swallows", 6, "4-5")]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("  self.end_headers()\n  self.wfile.write(data)\n", 3),
        ("  self.sock.sendall(head)\n  self.sock.sendall(data)\n", 3),
        ("  self.request.sendall(head)\n  self.request.sendall(data)\n", 3),
        ("  sock.makefile('rb')\n  sock.sendall(head)\n  sock.sendall(data)\n", 4),
        ("  sock.makefile('wb')\n  sock.sendall(head)\n  sock.sendall(data)\n", 0),
        ("  sock.sendall(head)\n  for part in data:\n    sock.sendall(part)\n", 0),
        ("  for part in data:\n    sock.sendall(head)\n    sock.sendall(part)\n", 4),
        ("  self.sock.sendall(head + data)\n", 0),
        ("  try:\n    sock.send(data)\n  except OSError:\n    sock.send(data)\n", 0),
        ("  conn.send(head)\n  conn.send(data)\n", 0),
        ("  sock.sendall(head)\n  sock.sendall(data)\n  sock.setsockopt(6, TCP_NODELAY, 1)\n", 0),
        ("  self.end_headers()\n  self.wfile.write(data)\nwbufsize = -1\n", 0),
    ],
)
def test_messages_that_are_written_in_two_parts_are_read(
    tmp_path: Path, body: str, line: int
) -> None:
    found = marks_of(tmp_path / "server.py", f"def reply(self, sock, conn, head, data):\n{body}")

    assert [each[1] for each in found if each[0] == "two-writes"] == [line] * bool(line)


def test_hooks_that_a_function_registers_in_each_call_are_read(tmp_path: Path) -> None:
    text = (
        "def pre_forward(self):\n"
        "    self.handle = self.layer.register_forward_hook(self.scale)\n"
        "def __init__(self):\n"
        "    self.layer.register_forward_pre_hook(self.scale)\n"
        "def install_hooks(self):\n"
        "    self.layer.register_hook(self.scale)\n"
    )

    found = [each for each in marks_of(tmp_path / "lora.py", text) if each[0] == "registers-hook"]

    assert found == [("registers-hook", 2, "")]


CLOCK = """\
class Control:
    def elapsed(self):
        return time.monotonic() - self.begin
    def enough(self):
        return self.elapsed() + 1 < self.limit
    @property
    def over(self):
        return not (self.limit > self.elapsed())
    def announce(self):
        return str(self.elapsed())
    def few(self):
        return self.blocks < 3
"""


def test_functions_that_compare_the_time_are_read(tmp_path: Path) -> None:
    found = [each for each in marks_of(tmp_path / "control.py", CLOCK) if each[0] == "asks-clock"]

    assert found == [("asks-clock", 5, "enough"), ("asks-clock", 8, "over")]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("""\
    if dist.get_rank() == 0:
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
    dist.broadcast(step, 0)
""", (5, "optimizer, self.scheduler; if dist.get_rank() == 0: in line 2")),
        ("""\
    if self.rank != 0:
        return
    optimizer.load_state_dict(torch.load(path))
""", (4, "optimizer; if self.rank != 0: in line 2")),
        ("""\
    if is_main_process() and path:
        restore(path, model, optimizer)
""", (3, "optimizer; if is_main_process() and path: in line 2")),
        ("""\
    if not is_main_process():
        return
    optimizer.load_state_dict(torch.load(path))
""", (4, "optimizer; if not is_main_process(): in line 2")),
        ("""\
    if rank == 0:
        optimizer.load_state_dict(torch.load(path))
    broadcast_optimizer_state(optimizer, root=0)
""", None),
        ("""\
    if rank == 0:
        optimizer.load_state_dict(torch.load(path))
    else:
        optimizer.load_state_dict(received())
""", None),
        ("""\
    if rank == 0:
        model.load_state_dict(torch.load(path))
""", None),
        ("""\
    if rank == 0:
        torch.save(optimizer.state_dict(), path)
""", None),
        ("""\
    if rank == 1:
        optimizer.load_state_dict(torch.load(path))
""", None),
        ("""\
    if rank != 0:
        log(path)
    optimizer.load_state_dict(torch.load(path))
""", None),
    ],
)  # fmt: skip
def test_a_state_that_one_rank_loads_is_read(
    tmp_path: Path, body: str, told: tuple[int, str] | None
) -> None:
    text = f"def load(self, path, rank, model, optimizer):\n{body}"

    found = [
        each[1:] for each in marks_of(tmp_path / "resume.py", text) if each[0] == "loads-alone"
    ]

    assert found == ([] if told is None else [told])


PLATEAU = """\
def mean(value):
    dist.all_reduce(value)
    return value / 2
def own(loader):
    return sum(model(x).item() for x in loader)
def fit(loader):
    plateau = ReduceLROnPlateau(optimizer)
    loss = own(loader)
    {}
"""


@pytest.mark.parametrize(
    ("statements", "told"),
    [
        (("plateau.step(loss)",), "loss"),
        (("total, n = own(loader), 3", "plateau.step(total / n)"), "total / n"),
        (("loss = own(wrapped(model))", "plateau.step(float(loss))"), "float(loss)"),
        (("plateau.step(mean(loss))",), None),
        (("loss = mean(loss)", "plateau.step(loss.item())"), None),
        (("dist.all_reduce(loss)", "plateau.step(loss)"), None),
        (("loss = elsewhere(loader)", "plateau.step(loss)"), None),
        (("optimizer.step(loss)",), None),
        (("total = 0.0", "total += gather(loss)", "plateau.step(total)"), None),
        (("mine: float = mean(loss)", "plateau.step(mine)"), None),
        (("plateau.step(loader)",), None),
        (("plateau.step(self.loss)",), None),
        (("total = 0.0", "total += own(loader)", "plateau.step(total / 3)"), "total / 3"),
    ],
)
def test_a_learning_rate_that_a_rank_lowers_by_a_value_of_its_own_is_read(
    tmp_path: Path, statements: tuple[str, ...], told: str | None
) -> None:
    text = PLATEAU.format("\n    ".join(statements))

    found = [each for each in marks_of(tmp_path / "fit.py", text) if each[0] == "own-value"]

    assert found == ([] if told is None else [("own-value", 8 + len(statements), told)])


def test_a_value_that_hundreds_of_variables_lead_to_is_followed(tmp_path: Path) -> None:
    statements = [f"loss_{n + 1} = loss_{n}" for n in range(700)]
    text = PLATEAU.format("\n    ".join(("loss_0 = loss", *statements, "plateau.step(loss_700)")))

    found = [each for each in marks_of(tmp_path / "fit.py", text) if each[0] == "own-value"]

    assert found == [("own-value", 8 + len(statements) + 2, "loss_700")]


def test_sets_that_are_gone_through_where_the_order_matters_are_read(tmp_path: Path) -> None:
    text = (
        "class Syncer:\n"
        "    def __init__(self, names):\n"
        "        self.names = {name for name in names}\n"
        "        self.known = set(names)\n"
        "        self.rows = list(names)\n"
        "    def active(self):\n"
        "        return self.names & self.known\n"
        "    def push(self):\n"
        "        for name in self.names:\n"
        "            send(name)\n"
        "        made = {name: None for name in self.active()}\n"
        "        order = list(self.known.union(made))\n"
        "        total = sum(size(name) for name in self.names)\n"
        "        for name in sorted(self.names):\n"
        "            send(name)\n"
        "        for row in self.rows:\n"
        "            send(row)\n"
        "        for number in range(len(self.rows) - 1):\n"
        "            send(number)\n"
    )

    found = [each for each in marks_of(tmp_path / "sync.py", text) if each[0] == "set-order"]

    assert found == [
        ("set-order", 9, "self.names"),
        ("set-order", 11, "self.active()"),
        ("set-order", 12, "self.known.union(made)"),
    ]


def test_lines_that_kill_another_process_are_read_with_their_condition(tmp_path: Path) -> None:
    text = (
        "def watch(child, used):\n"
        "    if used > 9:\n"
        "        os.kill(child.pid, signal.SIGKILL)\n"
        "    child.kill()\n"
        "    child.send_signal(9)\n"
        "    os.kill(child.pid, signal.SIGTERM)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )

    assert marks_of(tmp_path / "watch.py", text) == [
        ("kills", 3, "; watch; if used > 9: in line 2"),
        ("kills", 4, "; watch; "),
        ("kills", 5, "; watch; "),
    ]


def test_the_line_of_a_long_condition_for_a_kill_is_kept(tmp_path: Path) -> None:
    condition = " and ".join(["used > 9"] * 30)
    text = f"def watch(child, used):\n    if {condition}:\n        child.kill()\n"

    ((_, _, about),) = marks_of(tmp_path / "watch.py", text)

    assert about.startswith("; watch; if used > 9 and ")
    assert about.endswith("\u2026 in line 2")


def test_a_function_that_kills_is_read_with_the_only_calls_that_lead_to_it(tmp_path: Path) -> None:
    text = (
        "def end(pid):\n"
        "    os.kill(pid, signal.SIGKILL)\n"
        "def check(self):\n"
        "    for entry in self.entries:\n"
        "        if entry.memory > self.limit:\n"
        "            end(entry.pid)\n"
        "def run(self):\n"
        "    while self.jobs:\n"
        "        self.check()\n"
        "        time.sleep(0.25)\n"
    )

    assert marks_of(tmp_path / "watch.py", text) == [
        ("kills", 2, "8, 4; run, check, end; if entry.memory > self.limit: in line 5"),
    ]
    twice = f"{text}def stop(self):\n    end(self.pid)\n"
    assert marks_of(tmp_path / "other.py", twice)[0] == ("kills", 2, "; end; ")


def test_of_several_calls_that_kill_those_after_a_time_are_read(tmp_path: Path) -> None:
    text = (
        "def end(pid):\n"
        "    os.kill(pid, signal.SIGKILL)\n"
        "def check(self):\n"
        "    now = time.time()\n"
        "    for entry in self.entries:\n"
        "        if now - entry.seen > self.limit:\n"
        "            end(entry.pid)\n"
        "def run(self):\n"
        "    while self.jobs:\n"
        "        self.check()\n"
        "def stop(self):\n"
        "    end(self.pid)\n"
    )

    assert [each for each in marks_of(tmp_path / "watch.py", text) if each[0] == "kills"] == [
        ("kills", 2, "; end; "),
        ("kills", 2, "9, 5; run, check, end; if now - entry.seen > self.limit: in line 6"),
    ]


SESSION = """\
def inside(self):
    while True:
        try:
            self.conn = Client(self.address)
            return
        except (ConnectionError, OSError):
            time.sleep(1.0)

def below(self):
    for _ in range(9):
        try:
            link = socket.create_connection(self.address)
            break
        except OSError:
            pass
        time.sleep(1.1)

def reads(self):
    while True:
        try:
            return self.conn.recv()
        except OSError:
            time.sleep(1.2)

def once(self):
    try:
        self.conn = Client(self.address)
    except OSError:
        time.sleep(1.3)

def works(self):
    while True:
        try:
            link = Client(self.address)
        except OSError:
            continue
        time.sleep(1.4)
"""


def test_lines_between_two_attempts_to_connect_are_read(tmp_path: Path) -> None:
    path = tmp_path / "session.py"
    path.write_text(SESSION)

    def connects(number: int, function: str) -> Statement | None:
        found = SourceCode().line(OWN, Frame(function, str(path), number), time.time() + 9.0)
        assert found is not None
        return found.connects

    assert connects(7, "inside") == Statement(4, "self.conn = Client(self.address)")
    assert connects(16, "below") == Statement(12, "link = socket.create_connection(self.address)")
    others = ((23, "reads"), (29, "once"), (37, "works"), (4, "inside"))
    assert [connects(number, function) for number, function in others] == [None] * 4


VIEWS = """\
import torch


class Extractor:
    def extract_batch(self, batch):
        act = self.model(batch)
        if self.token:
            act = act[:, 0, :]
        return act

    def extract(self, loader, work):
        features, rows, few = [], {}, []
        for batch in loader:
            features.append(self.extract_batch(batch).numpy())
            part = batch[:9]
            rows[batch.key] = part.detach()
            few.append(part.clone())
            work[:9] = part
            first = self.items[batch.key]
            few.append(first)
        few.append(helper(batch))
"""


def test_slices_that_are_kept_through_a_variable_or_a_function_are_read(tmp_path: Path) -> None:
    found = marks_of(tmp_path / "extract.py", VIEWS)

    assert [each for each in found if each[0] == "view"] == [
        ("view", 14, "line 8: act[:, 0, :]"),
        ("view", 16, "line 15: batch[:9]"),
    ]


TOKENS = """\
import torch

def tokens(self, act):
    if self.first_only:
        act = act[:, 0, :]
    else:
        act = act.flatten(1)
    return act

def flat(self, act):
    act = act[:, 0, :]
    act = act.flatten(1)
    return act

def extract(self, loader):
    rows, others = [], []
    for batch in loader:
        rows.append(self.tokens(batch).numpy())
        others.append(self.flat(batch).numpy())
"""


def test_a_slice_that_only_one_branch_of_a_condition_makes_is_read(tmp_path: Path) -> None:
    found = marks_of(tmp_path / "tokens.py", TOKENS)

    assert [each for each in found if each[0] == "view"] == [("view", 18, "line 5: act[:, 0, :]")]


PHASES = """\
def fit(trainer, model, rows):
    if trainer.is_global_zero:
        trainer.save(final)
        log.info("saved")
    if trainer.rank == 0:
        trainer.report(rows)
    else:
        trainer.report([])
    if model.done:
        trainer.stop()
    trainer.barrier("end")
    if rank > 0:
        trainer.load()

def save(self):
    dist.broadcast(self.x, 0)
    self.barrier()
    rows.gather(1, index)
"""


def test_calls_under_a_condition_on_the_rank_are_read(tmp_path: Path) -> None:
    path = tmp_path / "phases.py"

    assert [each for each in marks_of(path, PHASES) if each[0] == "collective"] == [
        ("collective", 11, "barrier"),
        ("collective", 16, "broadcast"),
        ("collective", 17, "barrier"),
    ]
    found = SourceCode().line(OWN, Frame("fit", str(path), 11), time.time() + 9.0)
    assert found is not None
    assert [(each.condition.line, each.call.line, each.name) for each in found.guarded] == [
        (2, 3, "save")
    ]


EVENTS = """\
class Runner:
    def run(self):
        while not self.is_done:
            self.collect()
            self.event.clear()
            # nothing may come in between
            log.info("waiting")
            self.event.wait()  # lost

    def first(self):
        while True:
            self.event.clear()
            self.collect()
            self.event.wait()  # safe

    def asks(self):
        self.answered.clear()
        self.requests.put(1)
        self.answered.wait()  # asked

    def other(self):
        self.started.clear()
        self.event.wait()  # another

    def again(self):
        while True:
            self.event.wait()  # after
            self.event.clear()
            self.collect()
"""


@pytest.mark.parametrize(
    ("note", "function", "cleared"),
    [
        ("lost", "run", (5, "self.event.clear()")),
        ("safe", "first", None),
        ("asked", "asks", None),
        ("another", "other", None),
        ("after", "again", None),
    ],
)
def test_an_event_that_is_cleared_right_before_its_wait_is_read(
    tmp_path: Path, note: str, function: str, cleared: tuple[int, str] | None
) -> None:
    file = tmp_path / "events.py"
    file.write_text(EVENTS)
    rows = enumerate(EVENTS.splitlines(), 1)

    found = at(str(file), next(n for n, row in rows if row.endswith(f"# {note}")), function)

    assert found is not None
    assert found.cleared == cleared


TRUNCATES = """\
import numpy as np
PATH = "/data/all.idx"

def embed(rank, rounds, folder):
    features = os.path.join(folder, "features.npy")
    for number in range(rounds):
        if rank == 0:
            out = np.lib.format.open_memmap(features, mode="w+", shape=(number, 4))
        out = np.lib.format.open_memmap(features, mode="r+")
        log = np.memmap(f"{folder}/part_{rank}.bin", np.int32, "w+", shape=(9,))
    with open(PATH, "wb") as file, open("notes.txt", "w") as notes:
        file.truncate()
    os.ftruncate(fd, 0)
    np.save(features, out)
    open(PATH, "rb")
"""


def test_what_sets_the_size_of_a_file_to_nothing_is_marked(tmp_path: Path) -> None:
    file = tmp_path / "embed.py"
    file.write_text(TRUNCATES)

    found = SourceCode().marks(OWN, str(file), time.time())

    assert [(m.statement.line, m.about) for m in found if m.kind == "truncates"] == [
        (8, "features.npy, 7, 6"),
        (10, "part_, 0, 6"),
        (11, "all.idx, 0, 0"),
        (14, "features.npy, 0, 0"),
    ]


KEEPS_STEPS = """\
import torch
from torch import nn

class Norm(nn.BatchNorm2d):
    def forward(self, x):
        mean, n = x.mean([0, 2]), x.numel()
        var = x.var([0, 2])
        self.seen = self.seen + n
        self.running_var = 0.9 * self.running_var + 0.1 * var
        self.last = var
        self.calm = 0.9 * self.calm + 0.1 * var.detach()
        with torch.no_grad():
            self.running_var = 0.9 * self.running_var + var

class Meter:
    def forward(self, x):
        self.total = self.total + x.sum()

def train(self, loader, model):
    outputs, recent = [], []
    for batch in loader:
        output = model.training_step(batch)
        output["loss"].backward()
        outputs.append(output)
        recent.append(output)
        recent = recent[-10:]
        self.seen.append(output)

def validate(self, loader, model):
    outputs = []
    for batch in loader:
        output = model.validation_step(batch)
        outputs.append(output)
"""


SUMS = """import torch

def train(model, loader, optimizer):
    for epoch in range(9):
        running = 0.0
        for batch in loader:
            loss = model(batch).mean()
            loss.backward()
            running += loss
            total += loss.item()
            window += loss
            if full:
                window = 0.0
        mean = running / 9

def weigh(model, loader, accelerator):
    for batch in loader:
        loss = model(batch)
        accelerator.backward(loss)
        loss = loss.item()
        self.total += loss

def scale(model, loader, accelerator):
    for batch in loader:
        loss = model(batch)
        accelerator.backward(loss)
        self.total += loss * len(batch)

def join(parts):
    for loss in parts:
        whole += loss
    whole.backward()
"""


def test_a_sum_of_losses_with_their_graphs_is_marked(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(SUMS)

    found = SourceCode().marks(OWN, str(file), time.time())

    assert {(m.statement.line, m.about) for m in found if m.kind == "graph-summed"} == {
        (9, "running, loss"),
        (27, "self.total, loss"),
    }


def test_what_keeps_the_graphs_of_training_steps_is_marked(tmp_path: Path) -> None:
    file = tmp_path / "norm.py"
    file.write_text(KEEPS_STEPS)

    found = SourceCode().marks(OWN, str(file), time.time())

    assert [(m.statement.line, m.about) for m in found if m.kind == "graph-running"] == [
        (9, "self.running_var")
    ]
    assert [(m.statement.line, m.about) for m in found if m.kind == "outputs-kept"] == [
        (24, "outputs, 22, 21")
    ]


@pytest.mark.parametrize(
    ("more", "lines"),
    [
        ("", [2, 3]),
        ("self.proc.stdin.flush()", []),
        ("Popen(command, stdin=PIPE, text=True, bufsize=1)", []),
        ("Popen(command, stdin=PIPE, bufsize=-1)", [2, 3]),
        ("print(line, file=self.proc.stdin, flush=True)", []),
        ("self.proc.stdin.close()", [3]),
        ("await proc.stdin.drain()", []),
    ],
)
def test_input_of_another_program_that_nothing_flushes_is_marked(
    more: str, lines: list[int], tmp_path: Path
) -> None:
    file = tmp_path / "protocol.py"
    file.write_text(
        "def send(self, command):\n    self.proc.stdin.write(command)\n"
        f"    print(command, file=proc.stdin)\n    sys.stdin.write(command)\n    {more}\n"
    )

    found = SourceCode().marks(OWN, str(file), time.time())

    assert [mark.statement.line for mark in found if mark.kind == "unflushed"] == lines


APART = """\
import torch

def forward(self, rois):
    if rois is None:
        return {"loss": torch.zeros(1, requires_grad=True).sum(), "n": 0}
    start = torch.zeros(1, requires_grad=True)
    return {"loss": self.head(rois).sum() + start}

def evaluate(self):
    if self.rank != 0:
        return OrderedDict()
    return {"iou": 1.0}

def save(self):
    if self.rank != 0:
        return
    write(self)

def load(self):
    if not self.path:
        return {}
    return read(self.path)
"""


def test_results_that_set_a_rank_apart_from_the_others_are_marked(tmp_path: Path) -> None:
    """A loss of no parameter in one case, and a result that only one rank has."""
    assert marks_of(tmp_path / "apart.py", APART) == [
        ("fresh-loss", 5, "if rois is None: in line 4"),
        ("empty-on-ranks", 11, "if self.rank != 0: in line 10"),
    ]


@pytest.mark.parametrize(
    ("rest", "found"),
    [
        ("    if found.any():\n        losses['box'] = f(b)", [("if found.any(): in line 4", 5)]),
        ("    if len(b) > 0:\n        losses['box'] = f(b)", [("if len(b) > 0: in line 4", 5)]),
        ("    if self.with_box:\n        losses['box'] = f(b)", []),  # the same on all ranks
        ("    if found.any():\n        losses['cls'] = f(b)", []),
        (
            "    if found.any():\n        losses['box'] = f(b)\n"
            "    else:\n        losses['box'] = b.sum() * 0",
            [],
        ),
        ("    if found.any():\n        self.seen['box'] = f(b)", []),
    ],
)
def test_keys_that_only_some_data_add_to_a_result_are_marked(
    tmp_path: Path, rest: str, found: list[tuple[str, int]]
) -> None:
    head = "import torch\ndef loss(self, b, found):\n    losses = {}; losses['cls'] = g(b)\n"
    text = f"{head}{rest}\n    return losses\n"

    marked = [each for each in marks_of(tmp_path / "head.py", text) if each[0] == "optional-key"]
    assert [(about, number) for _, number, about in marked] == found


TALLIES = """\
import torch
from torch import nn


class Tally:
    def add(self, loss):
        self.total += loss.sum()


def epoch(model, rows, held, optimizer):
    tally, started = Tally(), 1
    seen, rest = set(), []
    for row in rows:
        loss = model.neg_log_likelihood(row)
        loss.mean().backward()
        tally.add(loss)
        tally.add(model.neg_log_likelihood(held))
        tally.add(model.neg_log_likelihood(held).item())
        seen.add(model.loss(held))
        with torch.no_grad():
            tally.add(model.neg_log_likelihood(held))
        tally.add(model.parameters(held))


def probe(model, row):
    tally = Tally()
    torch.set_grad_enabled(False)
    tally.add(model.loss(row))
"""


def test_a_value_that_no_backward_pass_reaches_is_passed_with_its_graph(tmp_path: Path) -> None:
    marks = marks_of(tmp_path / "tagger.py", TALLIES)

    assert [each for each in marks if "graph" in each[0]] == [("graph-passed", 17, "add, 0, 17")]


STORES = """\
from collections import OrderedDict, deque
from functools import lru_cache

class Book:
    def __init__(self, model, limit):
        self.rows, self.limit = {}, limit
        self.rows = {}
        self.memo = dict()
        self.shadow = {}
        self.cache = OrderedDict()
        self.recent = deque(maxlen=limit)
        self.all = deque()

    def record(self, key, frames):
        self.rows[key, 1] = (len(frames), frames)
        self.rows["last"] = frames
        self.rows[key] = len(frames)

    def update(self, model):
        for name, part in model.named_parameters():
            self.shadow[name] = part.clone()

    def get(self, key):
        if key not in self.memo:
            self.memo[key] = make(key)
        return self.memo[key]

    def put(self, key, value):
        while len(self.cache) > self.limit:
            self.cache.popitem(last=False)
        self.cache[key] = value


@lru_cache(maxsize=None)
def unbounded(x):
    return x


@lru_cache(maxsize=64)
def bounded(x):
    return x
"""


def test_dicts_that_only_grow_and_containers_with_a_bound_are_read(tmp_path: Path) -> None:
    marks = marks_of(tmp_path / "book.py", STORES)

    assert [each for each in marks if each[0] in ("stored", "bounded")] == [
        ("bounded", 11, "deque limit"),
        ("stored", 15, "self.rows"),
        ("bounded", 29, "self.cache"),
        ("bounded", 39, "lru_cache 64"),
    ]


def test_the_size_of_a_tensor_is_no_view_of_it(tmp_path: Path) -> None:
    text = (
        "import torch\n"
        "def add(self, x):\n"
        "    self.seen.add(x.shape[1])\n"
        "    self.seen.add(x.size()[1])\n"
        "    self.seen.add(x.tolist()[1])\n"
        "    self.seen.add(x[1])\n"
    )

    views = [each for each in marks_of(tmp_path / "seen.py", text) if each[0] == "view"]
    assert views == [("view", 6, "x[1]")]


BEAM = """\
import torch

class Beam:
    def __init__(self, size):
        self.tokens = torch.full((size, 1), 1)
        self.names = list(range(size))

    def repeats(self, row, words):
        for start in range(9):
            if all(row[start + k] == row[k] for k in range(3)):
                return True
            if words[start] == words[0]:
                return False
        return row[0] == row[1]

    def advance(self):
        last = torch.zeros(3)
        for i in range(3):
            self.repeats(self.tokens[i], self.names)
            if int(last[i]) > 2 or int(self.names[i]) > 2:
                return
            if (last[:2] == 0).all() or last == 0:
                return
        return int(last[0])
"""


def test_elements_of_tensors_that_are_compared_one_by_one_are_read(tmp_path: Path) -> None:
    marks = marks_of(tmp_path / "beam.py", BEAM)

    assert [each for each in marks if each[0] == "slow"] == [
        ("slow", 10, "elements: row[start + k] == row[k]"),
        ("slow", 20, "elements: int(last[i])"),
    ]


def test_a_file_whose_reading_fails_is_reported_once_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd.py").write_text("def step():\n    wait()\n")
    (tmp_path / "train.py").write_text("def step():\n    wait()\n")
    odd = Frame("step", str(tmp_path / "odd.py"), 2)
    frame = Frame("step", str(tmp_path / "train.py"), 2)
    code = marks_in

    def marks(path: str, *others: Any) -> Any:
        if path == odd.file:
            raise KeyError("\x1b[2J")
        return code(path, *others)

    monkeypatch.setattr(source_code, "marks", marks)
    job = snapshot_of(process(OWN.pid, born_wall_s=time.time()))
    found: list[SourceRead] = []
    reads = SourceReads(found.append)
    try:
        for frames in ((odd,), (odd._replace(line=1), frame)):
            reads.received(taken(*frames))
            reads.start_due(job)
            reads.wait(10)
    finally:
        reads.stop()

    assert [line.file for each in found for line in each.lines] == [frame.file]
    (problem,) = [problem for each in found for problem in each.problems]
    assert problem.startswith(f"the source file {odd.file} was not understood (KeyError: ")
    assert "\x1b" not in problem


@pytest.mark.parametrize(
    "text", ["#" * FILE_BYTES + "\n", "a\n" * (NODES // 2)], ids=["bytes", "nodes"]
)
def test_a_file_that_is_too_long_is_told_once(tmp_path: Path, text: str) -> None:
    path = tmp_path / "generated.py"
    path.write_text(text)
    job = snapshot_of(process(OWN.pid, born_wall_s=time.time()))
    found: list[SourceRead] = []
    reads = SourceReads(found.append)
    try:
        for line in (1, 2):
            reads.received(taken(Frame("step", str(path), line)))
            reads.start_due(job)
            reads.wait(10)
    finally:
        reads.stop()

    told = f"the source file {path} is too long to be read: no finding knows its code"
    assert [problem for each in found for problem in each.problems] == [told]


def test_many_marks_of_one_kind_leave_room_for_others(tmp_path: Path) -> None:
    taking = "".join(f"    tasks.get()  # {number}\n" for number in range(100))
    text = f"def step(tasks, loss):\n{taking}    loss.backward()\n"

    found = [kind for kind, _, _ in marks_of(tmp_path / "train.py", text)]

    assert found == ["takes"] * MARKS_OF_KIND + ["backward"]


def test_draws_of_an_object_of_numpy_are_marked_where_they_go_through_all(tmp_path: Path) -> None:
    text = (
        "import numpy as np\n\nclass Buffer:\n    def __init__(self):\n"
        "        self.old = np.random.RandomState(1)\n"
        "        self.new = np.random.default_rng(1)\n\n"
        "    def sample(self, n, p):\n"
        "        a = self.old.choice(n, size=4, replace=False)\n"
        "        b = self.new.choice(n, size=4, replace=False)\n"
        "        c = self.new.choice(n, p=p)\n"
        "        d = self.old.choice(n, size=4)\n"
        "        return self.other.choice(n, p=p), a, b, c, d\n"
    )

    found = [each for each in marks_of(tmp_path / "buffer.py", text) if each[0] == "slow"]

    assert found == [
        ("slow", 9, "choice: self.old.choice(n, size=4, replace=False)"),
        ("slow", 11, "choice: self.new.choice(n, p=p)"),
    ]


POLLS = """
import select, subprocess
class Helper:
    def start(self):
        self.proc = subprocess.Popen(["helper"], stdin=-1, stdout=-1{options})
        self.poller = select.poll()
        self.poller.register(self.proc.stdout, select.POLLIN)
    def answer(self):
        self.poller.poll()
        return {reads}
"""


@pytest.mark.parametrize(
    ("reads", "options", "about"),
    [
        ("self.proc.stdout.readline()", "", "self.proc.stdout, 7"),
        ("self.proc.stdout.read(4)", "", "self.proc.stdout, 7"),
        ("next(self.proc.stdout)", ", text=True", "self.proc.stdout, 7"),
        ("self.proc.stdout.readline()", ", bufsize=0, text=True", "self.proc.stdout, 7"),
        ("self.proc.stdout.readline()", ", bufsize=0", ""),
        ("os.read(self.proc.stdout.fileno(), 4096)", "", ""),
        ("self.proc.stdout.read1(4096)", "", ""),
        ("self.proc.stdout.read()", "", ""),
        ("self.proc.stderr.readline()", "", ""),
        ("self.proc.stdout.peek() and self.proc.stdout.readline()", "", ""),
    ],
)
def test_reads_through_a_buffer_of_what_poll_waits_for_are_read(
    tmp_path: Path, reads: str, options: str, about: str
) -> None:
    found = marks_of(tmp_path / "helper.py", POLLS.format(reads=reads, options=options))

    assert [e for e in found if e[0] == "buffered-read"] == [("buffered-read", 10, about)] * bool(
        about
    )


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "import select, sys\nwhile True:\n  ready, _, _ = select.select([sys.stdin], [], [])\n"
            "  for f in ready:\n    line = f.readline()\n",
            [5],
        ),
        (
            "import selectors\ndef serve(sock, sel):\n  lines = sock.makefile('r')\n"
            "  sel.register(sock, 1)\n  while sel.select():\n    use(lines.readline())\n",
            [6],
        ),
        (
            "import selectors\ndef serve(proc, sel):\n  sel.register(proc.stdout, 1)\n"
            "  for key, _ in sel.select():\n    use(key.fileobj.readline())\n",
            [5],
        ),
        (
            "import asyncio\ndef watch(loop, proc):\n"
            "  loop.add_reader(proc.stdout.fileno(), f)\n  def f():\n    proc.stdout.readline()\n",
            [5],
        ),
        # A file of the program, or of a library such as that for serial ports, without a buffer.
        ("import select\ndef f(port):\n  select.select([port], [], [])\n  port.readline()\n", []),
        # Nothing waits for it.
        ("import select\ndef f(proc):\n  return proc.stdout.readline()\n", []),
        # It reads until nothing is left.
        (
            "import os, select\ndef f(proc):\n  os.set_blocking(proc.stdout.fileno(), False)\n"
            "  select.select([proc.stdout], [], [])\n  while proc.stdout.readline(): pass\n",
            [],
        ),
        # To the end of the file.
        (
            "import select\ndef f(proc):\n  select.select([proc.stdout], [], [])\n"
            "  for line in proc.stdout:\n    use(line)\n",
            [],
        ),
    ],
)
def test_ways_to_wait_for_a_file_that_is_read_through_a_buffer(
    tmp_path: Path, text: str, lines: list[int]
) -> None:
    found = marks_of(tmp_path / "serve.py", text)

    assert [line for kind, line, _ in found if kind == "buffered-read"] == lines


@pytest.mark.parametrize(
    ("end", "lines"),
    [("", [3]), ("dist.destroy_process_group()", [3]), ("dist.destroy_process_group(group)", [])],
)
def test_process_groups_that_a_file_ends_are_not_marked(
    tmp_path: Path, end: str, lines: list[int]
) -> None:
    text = f"def average(ranks):\n  r = sorted(ranks)\n  group = dist.new_group(r)\n  {end}\n"
    found = marks_of(tmp_path / "groups.py", text)

    assert [line for kind, line, _ in found if kind == "makes-group"] == lines


@pytest.mark.parametrize(
    ("name", "last", "lines"),
    [
        ("forward", "return torch.cat(out)", [3]),
        ("forward", "return torch.zeros(4)", []),  # it has no graph at all
        ("pad", "return torch.cat(out)", []),
    ],
)
def test_a_forward_pass_that_returns_a_tensor_without_a_graph_is_marked(
    tmp_path: Path, name: str, last: str, lines: list[int]
) -> None:
    empty = "  if rows.size(0) == 0:\n    return torch.empty_like(rows)\n"
    found = marks_of(tmp_path / "moe.py", f"def {name}(self, rows):\n{empty}  {last}\n")

    assert [line for kind, line, _ in found if kind == "cuts-graph"] == lines


def registered_in(tmp_path: Path, body: str, name: str = "make", head: str = "") -> list[str]:
    """What is registered again and again by a file with a class that a loop makes anew."""
    text = (
        f"import atexit, logging, threading, weakref\n{head}"
        f"class Conn:\n  def __init__(self, bus, loop, item):\n    self.bus = bus\n    {body}\n"
        "  def close(self):\n    pass\n"
        f"def {name}():\n  while True:\n    Conn(BUS, LOOP, 1)\n"
    )
    found = marks_of(tmp_path / "conn.py", text)
    return [about for kind, _, about in found if kind == "registers"]


@pytest.mark.parametrize(
    ("before", "is_told"),
    [
        ("def logger_of(name):\n  log = getLogger(name)\n", True),
        (
            "def logger_of(name):\n  log = getLogger(name)\n  if log.handlers:\n    return log\n",
            False,
        ),
        (
            "def logger_of(name):\n  if name in _loggers:\n    return\n  log = getLogger(name)\n",
            False,
        ),
        ("@lru_cache\ndef logger_of(name):\n  log = getLogger(name)\n", False),
    ],
)
def test_a_handler_of_each_call_is_told_unless_the_function_asks_for_one(
    tmp_path: Path, before: str, is_told: bool
) -> None:
    text = (
        f"{before}  handler = DatagramHandler('a', 1)\n  log.addHandler(handler)\n  return log\n"
        "class Frame:\n  def __init__(self):\n    self.log = logger_of(1)\n"
        "def render(jobs):\n  for job in jobs:\n    Frame()\n"
    )

    found = [each for each in marks_of(tmp_path / "logs.py", text) if each[0] == "registers"]

    assert bool(found) == is_told


STORE = """
import json, pickle, time
class Store:
  def __init__(self, path):
    self.path, self.results = path, {{}}
    self.results = json.load(open(path))
  def add(self, item):
    {add}
  def save(self):
{save}
{more}
def run(jobs, store):
  for job in jobs:
{each}
"""
SAVES = "    with open(self.path, 'w') as f:\n      json.dump(self.results, f, indent=2)\n"
ADDS_ONE = "self.results[item.key] = item"


@pytest.mark.parametrize(
    ("add", "save", "each", "where"),
    [
        (f"{ADDS_ONE}; self.save()", SAVES, "    store.add(job)", "each call of save()"),
        (ADDS_ONE, SAVES, "    store.add(job)\n    store.save()", "store.py:15-17 run"),
        (
            "self.results.append(item); self.save()",
            "    self.path.write_text(json.dumps({'rows': [r.row() for r in self.results]}))\n",
            "    store.add(job)",
            "each call of save()",
        ),
        (
            "self.results.update({item.key: item}); self.save()",
            "    df = pd.DataFrame(self.results)\n    df.to_csv(self.path)\n",
            "    store.add(job)",
            "each call of save()",
        ),
        # Now and then.
        (ADDS_ONE, SAVES, "    store.add(job)\n    if job.n % 100 == 0:\n      store.save()", ""),
        (
            f"{ADDS_ONE}; self.save()",
            f"    if time.time() - self.saved < 60:\n      return\n{SAVES}",
            "    store.add(job)",
            "",
        ),
        (
            f"{ADDS_ONE}\n    if len(self.results) > 99: self.save()",
            SAVES,
            "    store.add(job)",
            "",
        ),
        # Once, at the end.
        (
            ADDS_ONE,
            f"    pass\n  def on_finish(self):\n{SAVES}",
            "    store.add(job)\n  for each in (store, store):\n    each.on_finish()",
            "",
        ),
        (ADDS_ONE, SAVES, "    store.add(job)\n  store.save()", ""),
        # One item.
        (
            f"{ADDS_ONE}; self.save()",
            "    with open(self.path, 'a') as f:\n      f.write(json.dumps(self.results[-1]))\n",
            "    store.add(job)",
            "",
        ),
        (
            f"{ADDS_ONE}; self.save()",
            f"{SAVES}    self.results.clear()\n",  # what was written is let go
            "    store.add(job)",
            "",
        ),
        ("self.results['state'] = item; self.save()", SAVES, "    store.add(job)", ""),
        # Methods of the program.
        ("self.results.append(item, 1); self.save()", SAVES, "    store.add(job)", ""),
        ("self.results.update(item, 1); self.save()", SAVES, "    store.add(job)", ""),
    ],
)
def test_what_writes_all_that_was_collected_for_each_item_is_read(
    tmp_path: Path, add: str, save: str, each: str, where: str
) -> None:
    text = STORE.format(add=add, save=save, each=each, more="")

    found = [
        about for kind, _, about in marks_of(tmp_path / "store.py", text) if kind == "rewrites"
    ]

    assert found == [f"self.results, add, 8; {where}"] * bool(where)


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (
            "  rows = []\n  for j in jobs:\n    rows.append(j())\n    json.dump(rows, f)",
            4,
        ),
        ("  rows = []\n  for j in jobs:\n    rows.append(j())\n  json.dump(rows, open(p, 'w'))", 0),
        ("  for j in jobs:\n    rows = []\n    rows.append(j())\n    json.dump(rows, f)", 0),
        ("  df = None\n  for j in jobs:\n    df = pd.concat([df, j()])\n    df.to_csv(p)", 5),
    ],
)
def test_a_variable_that_is_written_as_a_whole_in_each_round_is_read(
    tmp_path: Path, body: str, line: int
) -> None:
    found = marks_of(tmp_path / "collect.py", f"def collect(jobs, p, f):\n{body}\n")

    lines = [about for kind, _, about in found if kind == "rewrites"]
    assert bool(lines) == bool(line)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("inspect.stack()", "stack"),
        ("inspect.stack(0)", None),
        ("traceback.format_stack()", "stack"),
        ("datetime.strptime(text, '%Y')", "dates"),
        ("json.dumps(rows, indent=2)", "indented"),
        ("json.dumps(rows, indent=None)", None),
        ("json.dumps(rows)", None),
        ("importlib.metadata.version('torch')", "metadata"),
        ("self.metadata.version('torch')", None),
        ("player.stack()", None),
    ],
)
def test_calls_that_are_known_to_be_slow_are_read(
    tmp_path: Path, call: str, kind: str | None
) -> None:
    found = marks_of(tmp_path / "calls.py", f"def read(self, rows, text):\n  return {call}\n")

    slow = [about.partition(":")[0] for each, _, about in found if each == "slow"]
    assert slow == ([] if kind is None else [kind])


@pytest.mark.parametrize(
    ("statement", "is_slow"),
    [
        ("self._md5.update(np.ascontiguousarray(scan).data.cast('B'))", True),
        ("self._md5.update(scan)", True),
        ("self._md5.update(scan.numpy().tobytes())", True),
        ("self._md5.update(pickle.dumps(scan))", True),
        ("self._md5.update(name.encode())", False),
        ("self._md5.update(repr((scan.dtype, scan.shape)).encode())", False),
        ("self._md5.update(b'end')", False),
        ("self._md5.update(scan[:8].tobytes())", False),
        ("self._md5.update(resize(scan).tobytes())", False),
        ("self.seen.update(scan)", False),
        ("text = str(scan); self._md5.update(text)", False),
        ("key = hashlib.sha256(memoryview(scan)).hexdigest()", True),
        ("key = hashlib.new('sha1', scan).hexdigest()", True),
        ("key = hashlib.md5(f'{name}:{scan}'.encode()).hexdigest()", False),
        ("key = hashlib.md5().hexdigest()", False),
        ("key = xxhash.xxh64(scan.tobytes()).intdigest()", True),
        ("key = zlib.crc32(open(name, 'rb').read())", True),
        ("key = zlib.crc32(f'{name}'.encode())", False),
        ("key = joblib.hash(scan)", True),
        ("key = hash(name)", False),
    ],
)
def test_a_digest_of_all_of_an_array_or_file_is_slow(
    tmp_path: Path, statement: str, is_slow: bool
) -> None:
    head = (
        "class Keys:\n  def __init__(self):\n    self._md5 = hashlib.md5()\n    self.seen = set()\n"
    )
    body = f"  def key(self, scan, name):\n    {statement}\n"

    found = marks_of(tmp_path / "keys.py", head + body)

    slow = [about.partition(":")[0] for kind, _, about in found if kind == "slow"]
    assert slow == ["digest"] * is_slow


@pytest.mark.parametrize(
    ("head", "is_marked"), [("def __init__(self, scan):", False), ("for scan in scans:", True)]
)
def test_a_digest_that_is_computed_once_is_not_marked(
    tmp_path: Path, head: str, is_marked: bool
) -> None:
    found = marks_of(tmp_path / "keys.py", f"{head}\n    key = hashlib.md5(scan.tobytes())\n")

    assert [kind for kind, _, _ in found if kind == "slow"] == ["slow"] * is_marked


LOOP = "; conn.py:9-10 make"


@pytest.mark.parametrize(
    ("body", "undo"),
    [
        ("atexit.register(self.close)", "atexit.unregister()"),
        ("atexit.register(lambda: item.close())", "atexit.unregister()"),
        ("atexit.register(shutil.rmtree, self.folder)", "atexit.unregister()"),
        ("weakref.finalize(self, self.close)", "a function that does not refer to the object"),
        ("weakref.finalize(self, f, self)", "a function that does not refer to the object"),
        ("loop.call_later(900, self.close)", "cancel() of its handle"),
        ("loop.call_later(item.limit, expire, item)", "cancel() of its handle"),
        ("threading.Timer(300, self.close).start()", "cancel() of its handle"),
        ("logging.getLogger('a').addHandler(Lines(item))", "removeHandler()"),
        ("h = SocketHandler('a', 1); log.addHandler(h)", "removeHandler() for SocketHandler"),
        ("log.addHandler(logging.FileHandler(item))", "removeHandler() for FileHandler"),
        ("bus.subscribe('readings', self.close)", "unsubscribe()"),
        ("self.bus.add_listener(self.close)", "remove_listener()"),
        ("self.handle = bus.register_forward_hook(self.close)", "remove() of its handle"),
        ("item.register_full_backward_hook(self.close)", "remove() of its handle"),
    ],
)
def test_what_objects_made_in_a_loop_register_and_never_take_back_is_read(
    tmp_path: Path, body: str, undo: str
) -> None:
    assert registered_in(tmp_path, body) == [f"{undo}{LOOP}"]


@pytest.mark.parametrize(
    ("body", "head"),
    [
        ("atexit.register(close_all)", ""),  # of the module: it keeps nothing
        ("atexit.register(os.close, 3)", ""),
        ("atexit.register(self.close)", "def close(f): atexit.unregister(f)\n"),
        ("weakref.finalize(self, os.close, self.fd)", ""),
        ("self.timer = loop.call_later(900, self.close); self.timer.cancel()", ""),
        ("loop.call_later(2, self.close)", ""),  # it ends soon
        ("loop.call_later(900, tick)", ""),
        ("if not log.handlers: log.addHandler(Lines(item))", ""),
        ("log.addHandler(Lines(item))", "def end(log, h): log.removeHandler(h)\n"),
        ("log.addHandler(Lines(item))", "def end(log): log.handlers.clear()\n"),
        ("log.addHandler(Lines(item))", "def end(log): log.handlers = []\n"),
        ("bus.subscribe('readings', self.close)", "def end(b, f): b.unsubscribe(f)\n"),
        ("self.bus = Bus(); self.bus.subscribe('readings', self.close)", ""),  # its own
        ("self.net = Net(); self.net.register_forward_hook(self.close)", ""),
        ("self.handle = bus.register_forward_hook(self.close)", "def end(a): a.handle.remove()\n"),
    ],
)
def test_what_is_taken_back_or_keeps_nothing_is_not_called_registered(
    tmp_path: Path, body: str, head: str
) -> None:
    assert registered_in(tmp_path, body, head=head) == []


@pytest.mark.parametrize(
    ("keeps", "is_told"),
    [("handles = found", True), ("handles.extend(found)", False)],
)
def test_handles_of_hooks_that_the_next_call_overwrites_are_never_removed(
    tmp_path: Path, keeps: str, is_told: bool
) -> None:
    text = f"""\
def scaled(model):
    handles = []
    def before(module, args):
        nonlocal handles
        found = []
        for layer in module.modules():
            found.append(layer.register_forward_hook(lambda m, a, out: out * args[0]))
        {keeps}
    first = model.register_forward_pre_hook(before)
    for each in handles:
        each.remove()
    first.remove()
"""
    found = [about for kind, _, about in marks_of(tmp_path / "s.py", text) if kind == "registers"]

    assert found == ["remove() of its handle; each call of before()"] * is_told


def test_what_one_object_of_the_program_registers_is_not_called_repeated(tmp_path: Path) -> None:
    text = (
        "import atexit\nclass Board:\n  def __init__(self):\n    atexit.register(self.close)\n"
        "def main():\n  board = Board()\n  while True:\n    board.read()\n"
    )

    found = marks_of(tmp_path / "board.py", text)

    assert [kind for kind, _, _ in found if kind == "registers"] == []


def test_what_a_file_registers_is_repeated_by_a_loop_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "link.py").write_text(
        "import atexit\nclass Link:\n  def __init__(self):\n    atexit.register(self.close)\n"
    )
    main = tmp_path / "main.py"
    main.write_text(
        "from link import Link\ndef once():\n  with Link() as link:\n    link.ask()\n"
        "async def serve(jobs):\n  async for job in jobs:\n    spawn(once())\n"
    )
    code = SourceCode()

    # The stack of a process begins with the innermost file.
    first = code.marks(OWN, str(tmp_path / "link.py"), time.time() + 9.0)
    then = code.marks(OWN, str(main), time.time() + 9.0)

    assert [each.about for each in first if each.kind == "registers"] == []
    assert [(each.function, each.about) for each in then if each.kind == "registers"] == [
        ("__init__", "atexit.unregister(); main.py:6-7 async serve")
    ]


PREVIEWS = """\
import asyncio
class Previews:
  def __init__(self, pool):
    self.pool = pool
    self.loop = asyncio.{make}()
  def submit(self, step):
    {use}
  {more}
def train(previews):
  for step in range(9):
    previews.submit(step)
"""
SUBMITS = "self.loop.run_in_executor(self.pool, render, step)"


@pytest.mark.parametrize(
    ("use", "make", "more", "method"),
    [
        (SUBMITS, "new_event_loop", "", "run_in_executor"),
        (SUBMITS, "get_event_loop", "", "run_in_executor"),
        (f"if self.loop is not None: {SUBMITS}", "new_event_loop", "", "run_in_executor"),
        ("self.loop.create_task(one(step))", "new_event_loop", "", "create_task"),
        ("self.loop.call_soon_threadsafe(f, step)", "new_event_loop", "", "call_soon_threadsafe"),
        (SUBMITS, "new_event_loop", "def end(self): self.loop.close()", "run_in_executor"),
        (SUBMITS, "new_event_loop", "async def own(self): await f()", "run_in_executor"),
        (SUBMITS, "get_event_loop", "async def own(self): await f()", ""),
        (SUBMITS, "new_event_loop", "def run(self): self.loop.run_forever()", ""),
        (SUBMITS, "new_event_loop", "def run(self): Thread(target=self.loop.run_forever)", ""),
        (SUBMITS, "new_event_loop", "def run(self): Thread(target=serve, args=(self.loop,))", ""),
        (SUBMITS, "new_event_loop", "def run(self): asyncio.set_event_loop(self.loop)", ""),
        (SUBMITS, "new_event_loop", "def run(self): return self.loop", ""),
        (SUBMITS, "new_event_loop", "def run(self): asyncio.run(one())", ""),
        ("self.pool.submit(render, step)", "new_event_loop", "", ""),
    ],
)
def test_what_is_put_into_an_event_loop_that_nothing_runs_is_read(
    tmp_path: Path, use: str, make: str, more: str, method: str
) -> None:
    found = marks_of(tmp_path / "p.py", PREVIEWS.format(use=use, make=make, more=more))

    assert [(line, about) for kind, line, about in found if kind == "unrun-loop"] == [
        (7, f"self.loop, 5, {method}; p.py:10-11 train")
    ] * bool(method)


def test_what_runs_an_event_loop_is_read(tmp_path: Path) -> None:
    text = "asyncio.run(main())\nThread(target=loop.run_forever)\nsubprocess.run(['ls'])\n"

    found = marks_of(tmp_path / "main.py", text)

    assert [line for kind, line, _ in found if kind == "runs-loop"] == [1, 2]


def test_what_a_handler_of_requests_registers_is_repeated_by_its_clients(tmp_path: Path) -> None:
    text = "import logging\ndef on_message(log, item):\n  log.addHandler(Lines(item))\n"

    found = marks_of(tmp_path / "serve.py", text)

    assert [about for kind, _, about in found if kind == "registers"] == [
        "removeHandler(); each call of on_message()"
    ]


def test_a_method_that_is_given_to_remove_an_element_removes_it(tmp_path: Path) -> None:
    text = (
        "class Jobs:\n  def start(self, task):\n    self.running.add(task)\n"
        "    task.add_done_callback(self.running.discard)\n"
    )

    assert [kind for kind, _, _ in marks_of(tmp_path / "jobs.py", text) if kind == "kept"] == []


CATCHES = """
import sys, traceback
class Failure:
    def __init__(self, key, error):
        self.key, self.error = key, error
class Note:
    def __init__(self, key, error):
        self.text = str(error)
class Worker:
    def __init__(self):
        self.failures = []
    def one(self, key):
        try:
            self.work(key)
        except ValueError as error:
            {keeps}
    {more}
def serve(worker):
    while True:
        worker.one(1)
"""


@pytest.mark.parametrize(
    ("keeps", "container"),
    [
        ("self.failures.append(error)", "self.failures"),
        ("self.failures.append((key, error))", "self.failures"),
        ("self.failures.append(Failure(key, error))", "self.failures"),
        ("self.failures.append(Unknown(key=key, error=error))", "self.failures"),
        ("self.failures.append({'key': key, 'error': error})", "self.failures"),
        ("self.failures.append(sys.exc_info())", "self.failures"),
        ("self.failures += [error]", "self.failures"),
        ("self.by_key[key] = Failure(key, error)", "self.by_key"),
        ("found = Failure(key, error); self.failures.append(found)", "self.failures"),
        ("FAILURES.append(error)", "FAILURES"),
        ("self.failures.append(Note(key, error))", ""),
        ("self.failures.append(str(error))", ""),
        ("self.failures.append((key, repr(error), traceback.format_exc()))", ""),
        ("self.failures.append(Failure(key, str(error)))", ""),
        ("self.failures.append(Failure(key, error.with_traceback(None)))", ""),
        ("error.__traceback__ = None; self.failures.append(error)", ""),
        ("traceback.clear_frames(error.__traceback__); self.failures.append(error)", ""),
        ("self.failures.append(key)", ""),
        ("found = []; found.append(error)", ""),  # ends with the function
        ("raise Failure(key, error)", ""),
        ("self.failures.append(key, error)", ""),  # a method of the program
    ],
)
def test_exceptions_that_are_kept_are_read(tmp_path: Path, keeps: str, container: str) -> None:
    found = marks_of(tmp_path / "work.py", CATCHES.format(keeps=keeps, more="pass"))

    about = f"{container}; work.py:19-20 serve"
    assert [e for e in found if e[0] == "keeps-exception"] == [
        ("keeps-exception", 16, about)
    ] * bool(container)


@pytest.mark.parametrize(
    "more",
    [
        "def flush(self): self.failures.clear()",
        "def flush(self): self.failures = []",
        "def latest(self): self.failures.pop(0)",
    ],
)
def test_exceptions_that_are_removed_again_are_not_called_kept(tmp_path: Path, more: str) -> None:
    text = CATCHES.format(keeps="self.failures.append(error)", more=more)
    bounded = CATCHES.replace("self.failures = []", "self.failures = deque(maxlen=9)")
    found = marks_of(tmp_path / "work.py", text)
    found += marks_of(
        tmp_path / "last.py", bounded.format(keeps="self.failures += [error]", more="")
    )

    assert [kind for kind, _, _ in found if kind == "keeps-exception"] == []


ASKS = """\
class Asks:
    def __init__(self):
        self.known = {{}}
        self.failed = None

    def ask(self, key):
        {looks}
        try:
            return self.read(key)
        except OSError as error:
            {keeps}
            raise


def name_of(asks):
    try:
        return asks.ask("name")
    except OSError:
        {then}


def work(asks):
    while True:
        name_of(asks)
"""
IN_DICT = "known = self.known.get(key)\n        if isinstance(known, Exception): raise known"
TO_DICT = "self.known[key] = error"


@pytest.mark.parametrize(
    ("looks", "keeps", "then", "place"),
    [
        (IN_DICT, TO_DICT, "return ''", "self.known[]"),
        ("if key in self.known: raise self.known[key]", TO_DICT, "return ''", "self.known[]"),
        ("if self.failed: raise self.failed", "self.failed = error", "pass", "self.failed"),
        (IN_DICT, "self.known[key] = str(error)", "return ''", ""),
        (IN_DICT, TO_DICT, "raise", ""),  # the loop ends
        (f"{IN_DICT}.with_traceback(None)", TO_DICT, "return ''", ""),
        (IN_DICT.replace("raise known", "raise type(known)()"), TO_DICT, "return ''", ""),
        (IN_DICT.replace("self.known", "self.other"), TO_DICT, "return ''", ""),
    ],
)
def test_an_exception_that_is_kept_and_raised_again_is_read(
    tmp_path: Path, looks: str, keeps: str, then: str, place: str
) -> None:
    found = marks_of(tmp_path / "work.py", ASKS.format(looks=looks, keeps=keeps, then=then))

    line = 12 if "\n" in looks else 11
    about = f"{place}, {line}; work.py:{line + 12}-{line + 13} work"
    assert [each[2] for each in found if each[0] == "raises-kept"] == [about] * bool(place)


def test_an_exception_of_a_file_that_a_loop_catches_is_raised_again(tmp_path: Path) -> None:
    text = (
        "BUSY = BusyError()\ndef check(rows):\n  if rows: raise BUSY\n"
        "def work(rows):\n  while True:\n    try:\n      check(rows)\n"
        "    except BusyError:\n      pass\n"
    )
    found = marks_of(tmp_path / "work.py", text)
    ends = marks_of(tmp_path / "ends.py", text.replace("      pass", "      break"))

    assert [e for e in found if e[0] == "raises-kept"] == [
        ("raises-kept", 3, "BUSY, 1; work.py:5-9 work")
    ]
    assert [e for e in ends if e[0] == "raises-kept"] == []


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("    while True:\n      item = self.queue.get()\n", [(7, "self.queue")]),
        ("    while self.on:\n      item = self.read()\n", [(7, "self.queue")]),
        ("    for item in iter(self.queue.get, None):\n      use(item)\n", [(7, "self.queue")]),
        ("    while True:\n      item = todo.get(True, 5)\n", [(7, "todo")]),
        ("    item = self.queue.get()\n", []),  # one
        ("    while True:\n      item = self.rows.get(key)\n", []),  # of a dict
        ("    while True:\n      item = other.fetch()\n", []),
    ],
)
def test_loops_that_empty_a_queue_are_read(
    tmp_path: Path, body: str, found: list[tuple[int, str]]
) -> None:
    text = (
        "class Log:\n  def read(self):\n    return self.queue.get(timeout=1)\n"
        f"  def write(self, text):\n    self.queue.put(text)\n  def run(self):\n{body}"
    )

    marks = marks_of(tmp_path / "log.py", text)

    assert [(line, about) for kind, line, about in marks if kind == "empties"] == found


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n", [1]),
        ("from signal import *\nsignal(SIGPIPE, SIG_DFL)\n", [2]),
        ("for s in (signal.SIGINT, signal.SIGPIPE):\n  signal.signal(s, signal.SIG_DFL)\n", [2]),
        ("for s in signal.valid_signals():\n  signal.signal(s, signal.SIG_DFL)\n", [2]),
        ("for n in range(1, signal.NSIG):\n  signal.signal(n, signal.SIG_DFL)\n", [2]),
        (
            "NAMES = [getattr(signal, n) for n in ('SIGHUP', 'SIGPIPE')]\n"
            "def reset():\n  for s in NAMES:\n    signal.signal(s, signal.SIG_DFL)\n",
            [4],
        ),
        (
            "for n in ('SIGINT', 'SIGPIPE'):\n  signal.signal(getattr(signal, n), SIG_DFL)\n",
            [2],
        ),
        ("signal.signal(signal.SIGPIPE, signal.SIG_IGN)\n", []),
        ("signal.signal(signal.SIGINT, signal.SIG_DFL)\n", []),
        ("for s in (signal.SIGINT, signal.SIGTERM):\n  signal.signal(s, signal.SIG_DFL)\n", []),
        (
            "for s in set(signal.valid_signals()) - {signal.SIGPIPE}:\n"
            "  signal.signal(s, signal.SIG_DFL)\n",
            [],
        ),
        (
            "for s in signal.Signals:\n  if s == signal.SIGPIPE: continue\n"
            "  signal.signal(s, signal.SIG_DFL)\n",
            [],
        ),
        (
            "for s in [s for s in signal.Signals if s != signal.SIGPIPE]:\n"
            "  signal.signal(s, signal.SIG_DFL)\n",
            [],
        ),
    ],
)
def test_lines_that_give_sigpipe_its_default_action_are_read(
    tmp_path: Path, text: str, lines: list[int]
) -> None:
    found = marks_of(tmp_path / "child.py", text)

    assert [line for kind, line, _ in found if kind == "default-sigpipe"] == lines


@pytest.mark.parametrize(
    ("text", "about"),
    [
        # Made anew in each round of the outer loop, and three attempts at most.
        (
            "def work():\n  while True:\n    errors = []\n    for n in range(3):\n      try:\n"
            "        f()\n      except OSError as error:\n        errors.append(error)\n",
            [],
        ),
        (
            "def work():\n  errors = []\n  while True:\n    for n in range(3):\n      try:\n"
            "        f()\n      except OSError as error:\n        errors.append(error)\n",
            ["errors; work.py:3-8 work"],
        ),
        (
            "def work(jobs):\n  while True:\n    errors = []\n    for n in jobs:\n      try:\n"
            "        f()\n      except OSError as error:\n        errors.append(error)\n",
            ["errors; work.py:4-8 work"],
        ),
        # What a loop goes through is made once.
        (
            "import atexit\nclass Rows:\n  def __init__(self):\n    atexit.register(self.close)\n"
            "def main():\n  for row in Rows():\n    use(row)\n",
            [],
        ),
    ],
)
def test_the_loop_that_repeats_a_statement_is_the_outermost_one(
    tmp_path: Path, text: str, about: list[str]
) -> None:
    found = marks_of(tmp_path / "work.py", text)

    kinds = ("keeps-exception", "registers")
    assert [each[2] for each in found if each[0] in kinds] == about


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        ("sock.sendall(b'x')\n    return sock.recv(9)", "sock.sendall(b'x')"),
        ("send(sock)\n    while left:\n        left -= len(sock.recv(9))", "send(sock)"),
        ("send(sock)\n    for news in sock.makefile():\n        show(news.recv(9))", None),
        ("send(sock)\n    while True:\n        show(sock.recv(9))", None),
        ("while True:\n        send(sock)\n        show(sock.recv(9))", "send(sock)"),
        ("return sock.recv(9)", None),
        ("sys.stdout.write('waiting')\n    return sock.recv(9)", None),
        ("log_file.flush()\n    return sock.recv(9)", None),
        ("csv_rows.writerow([1])\n    return sock.recv(9)", None),
    ],
)
def test_what_a_function_has_sent_before_it_receives(
    tmp_path: Path, body: str, asked: str | None
) -> None:
    text = f"def ask(sock):\n    {body}\n"
    file = tmp_path / "client.py"
    file.write_text(text)
    line = next(n for n, row in enumerate(text.splitlines(), 1) if ".recv(" in row)

    found = at(str(file), line, "ask")

    assert found is not None
    assert (found.asked.text if found.asked is not None else None) == asked


@pytest.mark.parametrize(
    ("body", "about"),
    [
        ("log = logging.getLogger(f'job.{item}'); log.addHandler(Lines())", ["log"]),
        ("log = logging.getLogger('job.' + item.name); log.addHandler(Lines())", ["log"]),
        ("log = logging.getLogger('job.%s' % item); log.addHandler(Lines())", ["log"]),
        ("log = getLogger('job.{}'.format(item)); log.addHandler(Lines())", ["log"]),
        ("self.log = logging.getLogger(f'job.{self.name}')", ["self.log"]),  # opens() adds to it
        ("self.other = logging.getLogger(f'job.{self.name}')", []),
        ("log = logging.getLogger('job'); log.addHandler(Lines())", []),
        ("log = logging.getLogger(__name__); log.addHandler(Lines())", []),
        ("log = logging.getLogger(f'{__name__}.job'); log.addHandler(Lines())", []),
        ("log = logging.getLogger(f'{ROOT}.job'); log.addHandler(Lines())", []),
        ("log = logging.getLogger(name); log.addHandler(Lines())", []),
        ("log = logging.getLogger(f'job.{item}'); other.addHandler(Lines())", []),
    ],
)
def test_a_logger_whose_name_is_put_together_and_that_gets_a_handler_is_read(
    tmp_path: Path, body: str, about: list[str]
) -> None:
    text = (
        "import logging\nROOT = 'a'\n\n\nclass Job:\n    def make(self, item, name):\n"
        f"        {body}\n\n    def opens(self):\n        self.log.addHandler(Lines())\n"
    )
    found = marks_of(tmp_path / "job.py", text)

    assert [each for kind, _, each in found if kind == "named-logger"] == about


SAVES = """\
import torch


class Store:
    def put(self, name, features, meta):
        buffer = open(name)
        {saves}


def run(model, store, ids, loader):
    for frames in loader:
        feats = model(frames)
        rows = list(feats)
        for i, name in enumerate(ids):
            {gives}
"""


@pytest.mark.parametrize(
    ("saves", "place"),
    [
        ("data = pickle.dumps({'x': features})", ["1"]),
        ("self.conn.send_bytes(pickle.dumps(features))", ["1"]),
        ("self.conn.send(features)", []),  # with shared memory, as multiprocessing sends tensors
        ("torch.save(features, buffer)", ["1"]),
        ("torch.save({'features': features, 'meta': 1}, buffer)", ["1"]),
        ("torch.save([1, (meta,)], buffer)", ["2"]),
        ("torch.save(features.clone(), buffer)", []),
        ("features = features.clone()\n        torch.save(features, buffer)", []),
        ("np.save(features, buffer)", []),
    ],
)
def test_the_arguments_that_a_function_saves_as_they_are_are_read(
    tmp_path: Path, saves: str, place: list[str]
) -> None:
    found = marks_of(tmp_path / "store.py", SAVES.format(saves=saves, gives="pass"))

    assert [each for kind, _, each in found if kind == "saves"] == place


@pytest.mark.parametrize(
    ("gives", "about"),
    [
        ("store.put(name, feats[i], {})", ["put, 1, feats, feats[i]"]),
        ("store.put(name, feats[i:i + 1].detach(), {})", ["put, 1, feats, feats[i:i + 1]"]),
        ("for row in feats: store.put(name, row, {})", ["put, 1, feats, row"]),
        ("for n, row in zip(ids, feats): store.put(n, row, {})", ["put, 1, feats, row"]),
        ("store.put(name, feats[i].clone(), {})", []),
        ("store.put(name, feats[i].numpy(), {})", []),
        ("store.put(name, feats[mask], {})", []),
        ("store.put(name, feats, {})", []),
        ("store.put(name, rows[i], {})", []),  # of a list
        ("store.put(name, frames['a'], {})", []),
        ("loss = store.put(name, feats[i], {})", []),
    ],
)
def test_parts_of_a_tensor_that_are_given_to_a_method_are_read(
    tmp_path: Path, gives: str, about: list[str]
) -> None:
    found = marks_of(tmp_path / "run.py", SAVES.format(saves="pass", gives=gives))

    assert [each for kind, _, each in found if kind == "passes-part"] == about


@pytest.mark.parametrize(
    ("gives", "about"),
    [
        ("torch.save(feats[i], name)", ["feats[i], feats"]),
        ("torch.save({'id': name, 'x': feats[i]}, name)", ["feats[i], feats"]),
        ("torch.save(feats[i].clone(), name)", []),
        ("torch.save(feats, name)", []),
        ("torch.save(feats[0], name)", []),  # a model may return a tuple
        ("torch.save(rows[i], name)", []),
        ("out = pickle.dumps(feats[i])", ["feats[i], feats"]),
    ],
)
def test_parts_of_a_tensor_that_are_saved_are_read(
    tmp_path: Path, gives: str, about: list[str]
) -> None:
    found = marks_of(tmp_path / "run.py", SAVES.format(saves="pass", gives=gives))

    assert [each for kind, _, each in found if kind == "saves-part"] == about


KEEPS = """\
import torch
import numpy as np


class Table:
    def __init__(self, length):
        self.obs = {obs}
        self.at = 0

    def recent(self, count, mask):
        part = slice(self.at - count, self.at)
        return {recent}

    def send(self, writer, count, mask):
        {sends}
"""


@pytest.mark.parametrize(
    ("recent", "obs", "part"),
    [
        ("self.obs[part]", "torch.zeros(length, 4)", "self.obs[part]"),
        ("{'n': count, 'obs': self.obs[part]}", "torch.empty(length).to(DEVICE)", "self.obs[part]"),
        ("self.obs[-1]", "torch.zeros(length, 4)", "self.obs[-1]"),
        ("self.obs[:, 0].reshape(-1)", "torch.zeros(length, 4)", "self.obs[:, 0]"),
        ("self.obs.narrow(0, 0, 4)", "torch.zeros(length, 4)", "self.obs.narrow(0, 0, 4)"),
        ("torch.chunk(self.obs, 4)[0]", "torch.zeros(length)", "torch.chunk(self.obs, 4)[0]"),
        ("self.obs.split(4)[mask]", "torch.zeros(length)", "self.obs.split(4)[mask]"),
        ("self.obs[part].clone()", "torch.zeros(length, 4)", ""),
        ("self.obs[part].numpy()", "torch.zeros(length, 4)", ""),
        ("self.obs[mask]", "torch.zeros(length, 4)", ""),  # a mask or a list of indices copies
        ("self.obs[:]", "torch.zeros(length, 4)", ""),
        ("self.obs", "torch.zeros(length, 4)", ""),
        ("self.obs[part]", "np.zeros((length, 4))", ""),
        ("self.obs[part]", "[0] * length", ""),
    ],
)
def test_a_part_of_a_tensor_is_followed_through_the_function_that_returns_it(
    tmp_path: Path, recent: str, obs: str, part: str
) -> None:
    text = KEEPS.format(obs=obs, recent=recent, sends="writer.put(self.recent(count, mask))")
    found = marks_of(tmp_path / "run.py", text)

    expected = [f"put, 0, tensor self.obs, 12 recent: {part}"] if part else []
    assert [each for kind, _, each in found if kind == "passes-part"] == expected


@pytest.mark.parametrize(
    ("sends", "about"),
    [
        ("rows = self.obs[:count]; pickle.dumps(rows)", ["self.obs[:count], tensor self.obs"]),
        ("for row in self.obs.unbind(): torch.save(row, 'x')", ["row, tensor self.obs"]),
        ("rows = self.obs[:9]; rows = rows + 1; torch.save(rows, 'x')", []),
        ("torch.save(self.obs, 'x')", []),
    ],
)
def test_a_part_of_a_tensor_is_followed_through_variables(
    tmp_path: Path, sends: str, about: list[str]
) -> None:
    text = KEEPS.format(obs="torch.zeros(length, 4)", recent="None", sends=sends)
    found = marks_of(tmp_path / "run.py", text)

    assert [each for kind, _, each in found if kind == "saves-part"] == about


def test_a_part_of_a_tensor_is_followed_into_another_file(tmp_path: Path) -> None:
    table = KEEPS.format(obs="torch.zeros(length, 4)", recent="self.obs[part]", sends="pass")
    (tmp_path / "table.py").write_text(table)
    text = """\
import torch
from table import Table


def run(writer):
    table = Table(9)
    writer.put(table.recent(4, None))
"""
    found = marks_of(tmp_path / "run.py", text)

    about = "put, 0, tensor self.obs, table.py:12 recent: self.obs[part]"
    assert ("passes-part", 7, about) in found


CLEANS_UP = """\
def run(steps):
    try:
        for step in steps:
            if step is None:
                break
            if step > 3:
                return
        if not steps:
            return None
        yield steps
    except OSError:
        log()
    # Whatever has happened.
    finally:
        with lock() as held:
            stop()
"""


def test_a_line_of_a_clean_up_is_told_with_its_block_and_what_leaves_that(tmp_path: Path) -> None:
    file = tmp_path / "run.py"
    file.write_text(CLEANS_UP)
    stop, held, before = (at(str(file), number, "run") for number in (16, 15, 10))

    assert stop is not None
    assert held is not None
    assert before is not None
    assert [each.header for each in stop.cleans_up] == [(14, "finally:")]
    assert [(each.first, each.last) for each in stop.cleans_up] == [(3, 10)]
    assert [each.text for each in stop.cleans_up[0].leaves] == [
        "if step > 3: return",
        "if not steps: return None",
        "yield steps",
    ]
    assert [(each.header.text, each.is_exit) for each in held.cleans_up] == [
        ("finally:", False),
        ("with lock() as held:", True),
    ]
    assert before.cleans_up == ()


LEFT_BY_HANDLERS = """\
def run(steps):
    for step in steps:
        try:
            try:
                step()
                step.last()
            except KeyboardInterrupt:
                stop()
            except ValueError:
                raise
        except (OSError, RuntimeError) as error:
            if not steps:
                raise
            log.warning(error)
            failed = True
        except KeyError:
            return
        else:
            share(step)
        share()
"""


def test_a_line_in_a_try_block_is_told_with_the_handlers_that_go_on_behind_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / "run.py"
    file.write_text(LEFT_BY_HANDLERS)
    tried, handled, other, behind = (at(str(file), number, "run") for number in (5, 8, 19, 20))

    assert tried is not None
    assert [(e.header, e.first, e.last, e.end, e.log) for e in tried.caught] == [
        ((11, "except (OSError, RuntimeError) as error:"), 4, 10, 19, (14, "log.warning(error)"))
    ]
    assert handled is not None
    assert handled.caught == tried.caught
    for line in (other, behind):
        assert line is not None
        assert line.caught == ()
