"""Statements by which threads and coroutines of one process hand something to each other."""

from __future__ import annotations

import ast
import textwrap

import pytest

from mpwatch.collect.source.marks import marks
from mpwatch.collect.source.syntax import ParsedFile


def found(text: str, kind: str) -> list[tuple[str, str, int]]:
    """The marks of one kind in a file: function, what they are about and line."""
    text = textwrap.dedent(text)
    module = ParsedFile(tuple(text.splitlines()), ast.parse(text))
    return [
        (each.function, each.about, each.statement.line)
        for each in marks("/home/me/train.py", module)
        if each.kind == kind
    ]


QUEUE = """
    class Queue:
        def ask(self, key, value):
            self.items[key] = value
            self.done.wait()

        def run(self):
            {takes}
            answer(batch)
            {empties}
"""


@pytest.mark.parametrize("empties", ["self.items = {}", "self.items.clear()"])
def test_a_container_that_is_emptied_of_more_than_was_read(empties: str) -> None:
    text = QUEUE.format(takes="batch = list(self.items)", empties=empties)

    assert found(text, "emptied-late") == [("run", "self.items, 8, ask", 10)]


@pytest.mark.parametrize("adds", ["appendleft(value)", "insert(0, value)", "update(value)"])
def test_whatever_adds_to_it_may_come_between(adds: str) -> None:
    text = QUEUE.format(takes="batch = list(self.items)", empties="self.items.clear()")
    text = text.replace("self.items[key] = value", f"self.items.{adds}")

    assert found(text, "emptied-late") == [("run", "self.items, 8, ask", 10)]


@pytest.mark.parametrize(
    ("takes", "empties"),
    [
        ("batch, self.items = self.items, {}", "log(batch)"),
        ("batch = list(self.items); self.items = {}", "log(batch)"),
        ("batch = take()", "self.items = {}"),
    ],
)
def test_a_container_that_is_emptied_at_once_loses_nothing(takes: str, empties: str) -> None:
    assert found(QUEUE.format(takes=takes, empties=empties), "emptied-late") == []


def test_a_container_that_is_read_and_emptied_under_one_lock_loses_nothing() -> None:
    text = """
        class Queue:
            def ask(self, key, value):
                self.items[key] = value

            def run(self):
                with self.lock:
                    batch = list(self.items)
                    answer(batch)
                    self.items = {}
    """

    assert found(text, "emptied-late") == []


POOL = """
    class Gate:
        async def reply(self, key):
            async with {outer}:
                row = await self.row(key)
            return row

        async def row(self, key):
            async with {inner}:
                return await read(key)
"""


@pytest.mark.parametrize("taken", ["self.pool.acquire()", "self.slots"])
def test_a_coroutine_that_takes_a_second_permit_while_it_keeps_one(taken: str) -> None:
    text = POOL.format(outer=taken, inner=taken)

    assert found(text, "takes-again") == [("reply", f"{taken}, 4, row, 9", 5)]


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("self.pool.acquire()", "self.other.acquire()"),
        ("self.session.get(url)", "self.session.get(url)"),
        ("self.slots", "self.gates"),
    ],
)
def test_permits_of_two_kinds_are_no_second_one(outer: str, inner: str) -> None:
    assert found(POOL.format(outer=outer, inner=inner), "takes-again") == []


def test_a_permit_that_is_given_back_before_the_next_is_no_second_one() -> None:
    text = """
        class Gate:
            async def reply(self, key):
                async with self.slots:
                    pass
                return await self.row(key)

            async def row(self, key):
                async with self.slots:
                    return await read(key)
    """

    assert found(text, "takes-again") == []


def test_the_statements_that_wake_others_up() -> None:
    text = """
        def run(self):
            with self.ready:
                self.ready.notify_all()
            self.done.set()
            seen = set()
            self.config.set("a", 1)
    """

    assert sorted(found(text, "wakes")) == [("run", "self.done", 5), ("run", "self.ready", 4)]


def counting(task: str, *, handler: str = "log.warning(error)", last: str = "") -> str:
    """A worker whose loop catches the exceptions of a task that counts."""
    end = f"                finally:\n                    {last}\n" if last else ""
    return (
        "    class Worker:\n"
        "        def run(self):\n"
        "            while True:\n"
        "                path = self.inbox.get()\n"
        "                try:\n"
        "                    self.task(path)\n"
        "                except Exception as error:\n"
        f"                    {handler}\n"
        f"{end}"
        "        def task(self, path):\n" + textwrap.indent(textwrap.dedent(task), " " * 12)
    )


COUNTS = """
item = parse(path)
self.outbox.put(item)
with self.left.get_lock():
    self.left.value -= 1
"""


def test_a_count_that_a_caught_exception_passes_over_is_read() -> None:
    clause = "except Exception as error: in line 7"
    own = """
    def work(inbox, done):
        for path in inbox:
            try:
                parse(path)
                done.value += 1
            except (OSError, ValueError):
                continue
    """

    assert found(counting(COUNTS), "uncounted") == [("task", f"left.value, 11, {clause}", 14)]
    assert found(own, "uncounted") == [
        ("work", "done.value, 5, except (OSError, ValueError): in line 7", 6)
    ]


KEPT = """
try:
    self.outbox.put(parse(path))
finally:
    self.left.value -= 1
"""
FIRST = """
self.left.value -= 1
self.outbox.put(parse(path))
"""
CAUGHT = """
try:
    item = parse(path)
except ValueError:
    item = None
self.left.value -= 1
"""


@pytest.mark.parametrize(
    "text",
    [
        counting(KEPT),
        counting(FIRST),
        counting(CAUGHT),
        counting(COUNTS, handler="raise"),
        counting(COUNTS, handler="self.left.value -= 1"),
        counting(COUNTS.replace("-= 1", "-= 2")),
        counting(COUNTS.replace("self.left.value", "self.stats.pages")),
        counting("self.left.value -= 1", last="self.left.value -= 1"),
        counting("parse(path)", last="self.left.value -= 1"),
    ],
)
def test_a_count_that_each_way_reaches_is_not_left_out(text: str) -> None:
    assert found(text, "uncounted") == []


@pytest.mark.parametrize(
    ("loop", "about"),
    [
        ("for c, arg in zip(self.conns, args):\n    c.send((name, arg))", "several, (name, arg)"),
        ("for c in self.conns:\n    c.send(batch)", "same, batch"),
        ("for n, c in enumerate(self.conns):\n    c.send(batch)", "same, batch"),
        ("[c.send(batch) for c in self.conns]", "same, batch"),
        ("for c in self.conns:\n    c.send(None)", ""),
        ("for c in self.conns:\n    part = take()\n    c.send(part)", ""),
        ("for c in self.conns:\n    c.send(take())", ""),
        ("for part in parts:\n    conn.send(part)", ""),
        ("for c, part in self.work:\n    c.send(part)", ""),
        ("for c in self.conns:\n    c.send_bytes(data)", ""),
    ],
)
def test_a_loop_that_pickles_for_each_connection_is_marked(loop: str, about: str) -> None:
    text = "def run(self, name, args, batch):\n" + textwrap.indent(loop, "  ")

    marked = [each for _, each, _ in found(text, "sends-each")]

    assert marked == [about] * bool(about)
