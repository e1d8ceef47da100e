"""The names whose values decide, as the source shows them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mpwatch.collect.source.source_code import SourceCode
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.source_code import SourceLine, Statement

OWN = ProcessId(os.getpid(), 1)
METRICS = """\
class Metric:
    def __init__(self):
        self.preds = []

    def update(self, preds):
        self.preds.append(preds)

    def reset(self):
        self.preds.clear()
"""
TRAINER = """\
import os
from metrics import Metric


class Trainer:
    def __init__(self, args):
        self.metric = Metric()
        self.tasks = {}
        self.state = None

    def fit(self, loader):
        losses = []
        for i, batch in enumerate(loader):
            if os.path.exists(self.path) and batch is not None:
                continue
            self.step += 1
            out, self.state = self.model(batch, self.state)
            if self.step % self.args.every == 0:
                self.save()
            while not self.is_done(batch):
                self.wait()
            losses.append(loss.item())
            losses.append(out)
        return losses

    def add(self, task):
        self.tasks[task.id] = task
"""


def line(folder: Path, number: int, function: str) -> SourceLine:
    (folder / "metrics.py").write_text(METRICS)
    (folder / "trainer.py").write_text(TRAINER)
    code = SourceCode()
    file = str(folder / "trainer.py")
    code.marks(OWN, file, time.time())
    found = code.line(OWN, Frame(function, file, number), time.time())
    assert found is not None
    return found


def test_conditions_and_loops_have_their_names(tmp_path: Path) -> None:
    found = line(tmp_path, 17, "fit").deciders

    assert [(each.statement.line, each.last, each.names, each.counts) for each in found] == [
        (13, 23, ("loader",), ("i",)),
        (14, 15, ("self.path", "batch"), ()),
        (18, 19, ("self.step", "self.args.every"), ("self.step",)),
        (20, 21, ("batch",), ()),
    ]
    assert [each.leaves for each in found] == [False, True, False, False]


COUNTED = """\
from state import State
import engine


class Trainer:
    def fit(self):
        state = self.state
        while state.clock.batch < self.last:
            if state.clock.batch % 10 == 0 and engine.ready and State.known:
                self.evaluate()
            state.clock.advance()
"""


def test_what_an_object_of_another_file_counts_is_a_counter_by_any_name(tmp_path: Path) -> None:
    """A variable may have the name of a module from which something is imported."""
    state = "class State:\n    def advance(self):\n        self.batch += 1\n"
    (tmp_path / "state.py").write_text(state)
    path, now_s = tmp_path / "trainer.py", time.time() + 9.0
    path.write_text(COUNTED)
    code = SourceCode()
    code.marks(OWN, str(path), now_s)

    found = code.line(OWN, Frame("fit", str(path), 10), now_s)

    assert found is not None
    assert [(each.names, each.counts) for each in found.deciders] == [
        (("state.clock.batch", "self.last"), ("state.clock.batch",)),
        (("state.clock.batch",), ("state.clock.batch",)),
    ]


def test_what_a_function_can_reach_and_adds_to_is_found(tmp_path: Path) -> None:
    found = {each.name: each for each in line(tmp_path, 17, "fit").added}

    assert {name: each.statement.line for name, each in found.items()} == {
        "losses": 23,
        "self.tasks": 27,
        "self.state": 17,
        "self.metric.preds": 6,
    }
    assert found["self.metric.preds"].file == str(tmp_path / "metrics.py")
    assert [name for name, each in found.items() if each.is_emptied] == ["self.metric.preds"]
    assert [name for name, each in found.items() if each.is_carried] == ["self.state"]


@pytest.mark.parametrize(
    ("removes", "is_told"),
    [
        ("return self.done.pop(key)", True),
        ("del self.done[key]", True),
        ("self.done.popitem()", False),
        ("self.done.clear()", False),
        ("del self.done[key]\n        self.done.pop(0)\n        self.done.pop(key)", False),
    ],
)
def test_the_only_statement_that_removes_an_entry_is_told(
    tmp_path: Path, removes: str, is_told: bool
) -> None:
    (tmp_path / "a.py").write_text(
        "class Answers:\n"
        "    def __init__(self):\n"
        "        self.done = {}\n"
        "    def receive(self, key, image):\n"
        "        self.done[key] = image\n"
        "    def wait(self, key):\n"
        "        self.ready.wait_for(lambda: key in self.done)\n"
        f"        {removes}\n"
    )
    code = SourceCode()

    found = code.line(OWN, Frame("receive", str(tmp_path / "a.py"), 5), time.time())

    assert found is not None
    (done,) = found.added
    assert done.is_emptied
    expected = ("wait", Statement(8, removes)) if is_told else ("", None)
    assert (done.removed_in, done.removed_by) == expected


def test_a_state_that_its_class_detaches_is_not_carried(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "class A:\n"
        "    def step(self, x):\n"
        "        self.state = self.cell(x, self.state)\n"
        "    def end(self):\n"
        "        self.state = self.state.detach()\n"
    )
    file = str(tmp_path / "a.py")

    found = SourceCode().line(OWN, Frame("step", file, 3), time.time())

    assert found is not None
    assert found.added == ()


def test_a_class_of_which_there_are_two_is_not_followed(tmp_path: Path) -> None:
    text = METRICS + "\n\nclass Trainer:\n    def __init__(self):\n        self.metric = Metric()\n"
    (tmp_path / "a.py").write_text(f"{text}\n{METRICS}")
    file = str(tmp_path / "a.py")

    found = SourceCode().line(OWN, Frame("__init__", file, 14), time.time())

    assert found is not None
    assert found.added == ()


RESUMED = """\
class Worker:
    def resume(self):
        found = self.snaps.latest()
        {shared}
        self.first = found + 1

    def run(self):
        for epoch in range(self.first, {last}):
            self.step(epoch)
            {more}

    def step(self, epoch):
        self.done = epoch
"""


@pytest.mark.parametrize(
    ("last", "more", "shared", "is_start", "is_marked"),
    [
        ("self.args.epochs", "pass", "pass", True, True),
        ("self.args.epochs", "pass", "found = all_reduce(found)", True, False),
        ("self.args.epochs", "dist.broadcast(self.first)", "pass", True, False),
        ("self.first + 4", "pass", "pass", False, False),
        ("self.args.epochs", "self.first += 1", "pass", False, False),
        ("self.args.epochs, self.world", "pass", "pass", False, False),
    ],
    ids=["restored", "shared", "shared later", "a part", "counted in it", "every n-th"],
)
def test_what_a_loop_begins_with_is_set_before_it(
    tmp_path: Path, last: str, more: str, shared: str, is_start: bool, is_marked: bool
) -> None:
    file = tmp_path / "a.py"
    file.write_text(RESUMED.format(last=last, more=more, shared=shared))
    code = SourceCode()

    marks = code.marks(OWN, str(file), time.time() + 9)
    found = code.line(OWN, Frame("run", str(file), 9), time.time() + 9)

    assert found is not None
    assert found.deciders[0].starts == (("self.first",) if is_start else ())
    told = [(m.statement.line, m.about) for m in marks if m.kind == "restores-start"]
    assert told == [(5, "8, run, self.first")] * is_marked


RESUMES = """\
def saved(folder, rank):
    return sorted(glob.glob(f"{{folder}}/*-{{rank}}.pt"))


def resume(folder, {given}, state):
    {look}
    {more}
    state.load_state_dict(torch.load(path))
"""


@pytest.mark.parametrize(
    ("given", "look", "more", "is_marked"),
    [
        ("rank", "path = saved(folder, rank)[-1]", "pass", True),
        ("rank", "path = os.listdir(f'{folder}/{rank}')[-1]", "pass", True),
        ("name", "path = os.listdir(folder)[-1]", "pass", False),
        ("rank", "path = folder / f'{rank}.pt'", "pass", False),
        ("rank", "path = saved(folder, rank)[-1]", "dist.broadcast_object_list(path)", False),
    ],
    ids=["by a function", "itself", "no rank", "one file", "shared"],
)
def test_a_state_that_each_rank_finds_by_itself_is_marked(
    tmp_path: Path, given: str, look: str, more: str, is_marked: bool
) -> None:
    file = tmp_path / "a.py"
    file.write_text(RESUMES.format(given=given, look=look, more=more))

    marks = SourceCode().marks(OWN, str(file), time.time() + 9)

    told = [(m.statement.line, m.about) for m in marks if m.kind == "resumes-alone"]
    assert told == [(8, "6")] * is_marked


def test_what_a_function_that_the_loop_calls_sets_is_no_start(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    text = RESUMED.format(last="9", more="pass", shared="pass")
    file.write_text(text.replace("self.done = epoch", "self.first = epoch"))

    found = SourceCode().line(OWN, Frame("run", str(file), 9), time.time() + 9)

    assert found is not None
    assert found.deciders[0].starts == ()


def test_what_ends_the_loops_around_is_told_apart_from_what_ends_the_innermost(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "def fit(self):\n"
        "    for step in range(9):\n"
        "        for p in self.params:\n"
        "            if p.frozen:\n"
        "                break\n"
        "            reduce(p)\n"
        "        if self.control.stop:\n"
        "            break\n"
    )

    found = SourceCode().line(OWN, Frame("fit", str(file), 6), time.time() + 9)

    assert found is not None
    assert [each.text for each in found.ends] == ["if p.frozen: break"]
    (end,) = found.ends_around
    assert (end.header.line, end.condition.text) == (2, "if self.control.stop: break")
