"""Containers that grow in the loops of a program, and what removes from them."""

from __future__ import annotations

import ast
import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from mpwatch.collect.source.growth.holders import holders
from mpwatch.collect.source.source_code import SourceCode
from mpwatch.collect.source.syntax import ParsedFile
from mpwatch.model.ids import ProcessId
from mpwatch.model.source_code import Holder, LetGo, SourceRead


def found(**files: str) -> Sequence[Holder]:
    """The containers of a program of these files."""
    parsed = [
        (f"/home/me/{name}.py", ParsedFile(tuple(text.splitlines()), ast.parse(text)))
        for name, text in files.items()
    ]
    return holders(parsed)


def names(**files: str) -> list[str]:
    """Their names."""
    return [each.name for each in found(**files)]


def let_go(number: int, **files: str) -> LetGo | None:
    """What removes from the only container, seen from one of its loops, nearest first."""
    (holder,) = found(**files)
    return holder.rounds[number].let_go


STORE = """\
class Store:
    def __init__(self, root):
        self.root = root
        self.items = []
        self.names = []

    def add(self, name, item):
        self.names.append(str(name))
        self.items.append((name, item))
"""
RUN = """\
from store import Store


class Run:
    def __init__(self, args):
        self.store = Store(args.root)

    def finish(self, job):
        self.store.add(job.name, job.result)

    def main(self, jobs):
        while True:
            for job in jobs.done():
                self.finish(job)


if __name__ == "__main__":
    Run(arguments()).main(jobs())
"""


def test_what_a_loop_adds_by_way_of_calls_and_nothing_removes_is_found_in_another_file() -> None:
    (holder,) = found(store=STORE, run=RUN)

    assert (holder.owner, holder.name, holder.function) == ("Store", "self.items", "add")
    assert holder.file == "/home/me/store.py"
    assert holder.statement.text == "self.items.append((name, item))"
    assert [each.header.text for each in holder.rounds] == [
        "for job in jobs.done():",
        "while True:",
    ]
    assert holder.rounds[0].by == ("finish", "add")
    assert holder.rounds[1].let_go is None
    assert not holder.is_renewed


@pytest.mark.parametrize(
    "method",
    [
        "    def take(self):\n        return self.items.pop()\n",
        "    def take(self):\n        items, self.items = self.items, []\n        return items\n",
        "    def take(self):\n        for each in (self.items, self.names):\n"
        "            each.clear()\n",
        "    def take(self):\n        self.items = self.items[-100:]\n",
    ],
)
def test_what_empties_in_the_same_rounds_is_known(method: str) -> None:
    last = "                self.finish(job)\n"
    taken = RUN.replace(last, f"{last}            self.store.take()\n")

    gone = let_go(-1, store=f"{STORE}\n{method}", run=taken)
    never = let_go(-1, store=f"{STORE}\n{method}", run=RUN)

    assert gone is not None
    assert gone.how == "emptied"
    assert never is not None
    assert never.how == "end"


@pytest.mark.parametrize(
    "adds",
    [
        "if len(self.items) < 100:\n            self.items.append(item)",
        "self.items.append(item)\n        if len(self.items) > 100:\n            del self.items[0]",
        "self.items.append(time.monotonic() - item.began_s.item())",
        "self.items.append(len(item))",
    ],
)
def test_what_has_a_bound_or_keeps_numbers_is_left_out(adds: str) -> None:
    store = f"""\
class Store:
    def __init__(self):
        self.items = []

    def add(self, item):
        {adds}
"""
    run = "from store import Store\n\nstore = Store()\nfor item in read():\n    store.add(item)\n"

    assert names(store=store, run=run) == []


def test_a_deque_with_a_length_is_left_out_and_one_without_is_not() -> None:
    text = (
        "import collections\nrows = collections.deque({})\nwhile True:\n    rows.append(read())\n"
    )

    assert names(run=text.format("maxlen=9")) == []
    assert names(run=text.format("")) == ["rows"]


def test_what_is_made_anew_in_each_round_is_not_kept() -> None:
    text = """\
def work(jobs):
    for job in jobs:
        rows = []
        for part in job:
            rows.append(part.load())
        job.save(rows)


def main():
    while True:
        work(receive())
"""
    (holder,) = found(run=text)

    assert [each.header.text for each in holder.rounds] == ["for part in job:"]
    assert holder.is_renewed


def test_an_object_that_is_made_in_each_round_is_not_kept_by_that_loop() -> None:
    run = """\
from store import Store


def main(args):
    for path in args.paths:
        store = Store(path)
        for row in open(path):
            store.add(path, row)
"""
    (holder,) = found(store=STORE, run=run)

    assert [each.header.text for each in holder.rounds] == ["for row in open(path):"]


PENDING = """\
class Pending:
    def __init__(self, link):
        self.link = link
        self.waiting = {{}}

    def send(self, key, data):
        self.waiting[key] = (data, 1)

    def receive(self, key):
        {first}
        del self.waiting[key]


def main(link):
    pending = Pending(link)
    while True:
        pending.send(link.next_key(), link.read())
        for key in link.answers():
            try:
                pending.receive(key)
            except ValueError:
                continue
"""


@pytest.mark.parametrize(
    ("first", "past"),
    [
        ("if self.link.status(key): raise ValueError(key)", "if self.link.status(key): raise"),
        ("if key.late: return", "if key.late:"),
        ("if key not in self.waiting: return", None),
        ("print(key)", None),
    ],
)
def test_a_removal_that_something_leaves_before_is_found_with_that(
    first: str, past: str | None
) -> None:
    text = PENDING.format(first=first)
    if past is None:
        assert names(run=text) == []
        return
    gone = let_go(-1, run=text)

    assert gone is not None
    assert gone.past is not None
    assert (gone.how, gone.statement.text) == ("passed", "del self.waiting[key]")
    assert gone.past.text.startswith(past)
    assert gone.past_in == "receive"


def test_a_function_that_raises_before_the_removal_is_found() -> None:
    checks = "\n\ndef check(key):\n    if not key:\n        raise ValueError(key)\n"
    gone = let_go(-1, run=PENDING.format(first="check(key)") + checks)

    assert gone is not None
    assert gone.past is not None
    assert (gone.how, gone.past_in, gone.past.text) == ("passed", "check", "raise ValueError(key)")


def test_an_exception_that_nothing_catches_is_no_way_past_a_removal() -> None:
    ends = PENDING.format(first="check(key)").replace("except ValueError:", "finally:")
    ends = ends.replace("                continue\n", "                print(key)\n")
    checks = "\n\ndef check(key):\n    if not key:\n        raise ValueError(key)\n"

    assert names(run=ends + checks) == []


def test_a_removal_in_another_branch_than_what_adds_does_not_empty() -> None:
    text = """\
class Results:
    def __init__(self):
        self.outcomes = {}

    def success(self, message):
        self.outcomes.pop(message.key, None)

    def failure(self, message, error):
        self.outcomes[message.key] = error


def main(queue):
    results = Results()
    while True:
        message = queue.get()
        if message is None:
            continue
        try:
            message.run()
            results.success(message)
        except Exception as error:
            results.failure(message, error)
"""
    gone = let_go(0, run=text)

    assert gone is not None
    assert gone.past is not None
    assert (gone.how, gone.past.text) == ("under", "except Exception as error:")


def test_a_caller_that_gives_up_before_it_takes_its_entry_is_found() -> None:
    text = """\
import threading


class Client:
    def __init__(self, answers):
        self.answers = answers
        self.done = {}
        threading.Thread(target=self.collect).start()

    def collect(self):
        while True:
            key, image = self.answers.get()
            self.done[key] = image

    def fetch(self, key):
        return self.done.pop(key)


def serve(client, connection):
    while True:
        key = connection.read()
        if connection.is_closed:
            raise ConnectionError(key)
        connection.write(client.fetch(key))


def accept(client, server):
    for connection in server:
        try:
            serve(client, connection)
        except ConnectionError:
            pass


accept(Client(answers()), listen())
"""
    gone = let_go(0, run=text)

    assert gone is not None
    assert gone.past is not None
    assert (gone.how, gone.function, gone.past_in) == ("passed", "fetch", "serve")
    assert gone.past.text == "raise ConnectionError(key)"


def test_what_is_emptied_after_the_loop_or_never_called_is_told_as_that() -> None:
    text = """\
class Meter:
    def __init__(self):
        self.rows = []

    def update(self, row):
        self.rows.append(row.cpu())

    def reset(self):
        self.rows.clear()


def epoch(meter, loader):
    for row in loader:
        meter.update(row)
{end}

def main(loader):
    meter = Meter()
    while True:
        epoch(meter, loader)
"""
    later = let_go(0, run=text.format(end="    meter.reset()\n"))
    never = let_go(0, run=text.format(end=""))

    assert later is not None
    assert later.how == "later"
    assert never is not None
    assert never.how == "end"
    assert let_go(-1, run=text.format(end="")) == never


def test_a_global_of_another_file_and_a_method_that_a_library_calls_are_found() -> None:
    cache = "ROWS = {}\n\n\ndef row(key):\n    if key not in ROWS:\n"
    cache += "        ROWS[key] = load(key)\n    return ROWS[key]\n"
    data = """\
import torch
import cache


class Rows(torch.utils.data.Dataset):
    def __getitem__(self, index):
        return cache.row(index)
"""
    (holder,) = found(cache=cache, data=data)

    assert (holder.name, holder.outside, holder.is_asked) == ("ROWS", "__getitem__", True)


def test_what_has_a_descriptor_is_known_also_where_its_class_opens_it() -> None:
    text = """\
import numpy as np


class Reader:
    def __init__(self, path):
        self.rows = np.load(path, mmap_mode="r")


class Source:
    def __init__(self):
        self.readers = []
        self.notes = []

    def add(self, reader, note):
        self.readers.append(reader)
        self.notes.append(note)


def main(paths):
    source = Source()
    for path in paths:
        source.add(Reader(path), path.note)
"""
    opens = {each.name: each.opens for each in found(run=text)}

    assert opens == {"self.readers": True, "self.notes": False}


def test_methods_of_any_name_are_not_taken_for_those_of_a_program() -> None:
    text = """\
class Meter:
    def __init__(self):
        self.rows = []

    def update(self, row):
        self.rows.append(row)


METER = Meter()


def main(things):
    for thing in things:
        thing.update(thing)
"""
    assert names(run=text) == []


def test_arrays_that_are_added_up_are_no_containers() -> None:
    text = """\
import numpy as np


def main():
    weights = {"a": np.zeros(9)}
    total = np.zeros(9)
    while True:
        for each in weights.values():
            each += np.ones(9)
        total += np.ones(9)
"""
    assert names(run=text) == []


def test_a_file_of_any_shape_gives_no_more_than_a_bounded_number() -> None:
    many = "\n".join(f"a{n} = []" for n in range(200))
    many += "\nwhile True:\n" + "\n".join(f"    a{n}.append(read())" for n in range(200))

    assert len(found(run=many)) == 64


def test_a_file_that_is_read_later_changes_what_is_kept(tmp_path: Path) -> None:
    take = "\n\ndef take(run):\n    while True:\n        run.store.items.pop()\n\n\ntake(RUN)\n"
    (tmp_path / "store.py").write_text(STORE)
    (tmp_path / "run.py").write_text(RUN)
    (tmp_path / "taker.py").write_text(f"from run import RUN{take}")
    code, own = SourceCode(), ProcessId(os.getpid(), 1)

    code.marks(own, str(tmp_path / "run.py"), time.time() + 9.0)
    first, again = code.holders(), code.holders()
    code.marks(own, str(tmp_path / "taker.py"), time.time() + 9.0)
    later = code.holders()

    assert first is not None
    assert first[0].rounds[0].let_go is None
    assert again is None
    assert later is not None
    gone = later[0].rounds[0].let_go
    assert gone is not None
    assert (gone.how, gone.function) == ("slower", "take")


def test_containers_survive_a_recording() -> None:
    read = SourceRead(1.0, holders=tuple(found(run=PENDING.format(first="if key.late: return"))))

    assert read.holders
    assert msgspec.convert(msgspec.to_builtins(read), SourceRead) == read


CLIENT = """\
class Client:
    def __init__(self, conn):
        self.calls = {}
        threading.Thread(target=self._receive).start()

    def call(self, call):
        self.calls[call.ident] = call

    def _receive(self):
        while True:
            try:
                ident, result = self.conn.recv()
            except (EOFError, OSError):
                return
            call = self.calls.pop(ident, None)


def work(conn, items):
    client = Client(conn)
    while True:
        client.call(next(items))


work(connect(), rows())
"""


def test_a_reader_that_ends_with_its_connection_is_no_way_past_a_removal() -> None:
    gone = let_go(0, main=CLIENT)

    assert gone is not None
    assert (gone.how, gone.statement.line, gone.past) == ("slower", 15, None)
    skips = CLIENT.replace("                return\n", "                continue\n")
    assert (other := let_go(0, main=skips)) is not None
    assert other.how == "passed"


THREADED = """\
class Store:
    def __init__(self):
        self.rows = []

    def consume(self):
        while True:
            self.rows.clear()

    def produce(self, item):
        self.rows.append(item)


def main(items):
    store = Store()
    threading.Thread(target=store.consume).start()
    while True:
        store.produce(next(items))


main(connect())
"""


def test_a_method_that_is_given_to_a_thread_is_reached() -> None:
    assert (gone := let_go(0, main=THREADED)) is not None
    assert gone.how == "slower"


VECTORS = """\
from collections import defaultdict


class Table(dict):
    def __missing__(self, key):
        self[key] = value = np.zeros(9)
        return value


class Vectors:
    def __init__(self, words):
        self.table = {made}
        for word in words:
            self.table[word] = np.ones(9)

    def one(self, words):
        {reads}

    def run(self, texts):
        while True:
            self.one(texts.get().split())


Vectors(read()).run(connect())
"""


@pytest.mark.parametrize(
    ("made", "reads", "kind"),
    [
        (
            "defaultdict(lambda: np.zeros(9))",
            "return [self.table[w] for w in words]",
            "defaultdict",
        ),
        ("defaultdict(list)", "return self.table[words[0]]", "defaultdict"),
        ("Table()", "return self.table[words[0]]", "Table"),
        ("{}", "return self.table[words[0]]", ""),
        ("defaultdict(int)", "return self.table[words[0]]", ""),
        ("defaultdict(list)", "return self.table['all']", ""),
        ("defaultdict(list)", "return [self.table[w] for w in sorted(self.table)]", ""),
        ("defaultdict(list)", "return [self.table[w] for w in words if w in self.table]", ""),
        ("defaultdict(list)", "return self.table.get(words[0])", ""),
        ("defaultdict(list)", "return self.table.default_factory, self.table[words[0]]", ""),
    ],
)
def test_a_mapping_that_adds_what_is_looked_up(made: str, reads: str, kind: str) -> None:
    holders_found = found(main=VECTORS.format(made=made, reads=reads))
    looked = [each.looked_up for each in holders_found if each.looked_up is not None]

    assert [(each.kind, each.made) for each in looked] == (
        [(kind, 5 if kind == "Table" else 12)] if kind else []
    )


def test_a_mapping_that_is_looked_up_by_written_names_is_not_one() -> None:
    text = VECTORS.format(made="defaultdict(list)", reads="return self.table[words]")
    named = text.replace("self.one(texts.get().split())", "self.one('all')")

    assert [each.looked_up is not None for each in found(main=text) if each.name == "self.table"]
    assert "self.table" not in names(main=named)


CALLS = """\
class Calls:
    def __init__(self, link):
        self.link = link
        self.open = {}

    def ask(self, data):
        call = Call(next(NUMBERS), data)
        self.open[call.number] = call
        return call

    def look(self):
        for kind, head in self.link.poll():
            if kind == "answer":
                self.open.pop(head["number"], None)
"""
ASKS = """\
from calls import Calls


class Camera:
    def __init__(self, link):
        self.calls = Calls(link)
        self.asked = []

    def drop_late(self):
        while self.asked and self.asked[0].is_late():
            self.asked.pop(0)

    def run(self):
        while True:
            self.asked.append(self.calls.ask(image()))
            self.calls.look()
            self.drop_late()


def work(link):
    Camera(link).run()
"""
STARTS = "import asks\n\nProcess(target=asks.work, args=(connect(),)).start()\n"


def of_calls(**files: str) -> Holder:
    return next(each for each in found(**files) if each.name == "self.open")


def test_an_entry_that_only_its_answer_removes_is_told_with_what_gives_it_up() -> None:
    holder = of_calls(calls=CALLS, asks=ASKS, main=STARTS)
    gone, given_up = holder.rounds[0].let_go, holder.given_up

    assert gone is not None
    assert (gone.how, gone.function, gone.statement.line) == ("answered", "look", 14)
    assert given_up is not None
    assert (given_up.function, given_up.statement.line) == ("drop_late", 11)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # What gives it up removes it from both.
        (
            "            self.asked.pop(0)\n",
            "            self.calls.forget(self.asked.pop(0))\n",
        ),
        ("            self.drop_late()\n", ""),
    ],
)
def test_a_caller_that_gives_nothing_up_is_not_told(old: str, new: str) -> None:
    asks = ASKS.replace(old, new)
    if not new:
        asks = asks.replace("self.asked.pop(0)", "pass")
    forget = "\n    def forget(self, call):\n        self.open.pop(call.number, None)\n"

    assert old in ASKS
    holders_found = [
        each
        for each in found(calls=f"{CALLS}{forget}", asks=asks, main=STARTS)
        if each.name == "self.open"
    ]
    assert all(each.given_up is None for each in holders_found)


def test_what_goes_through_the_container_itself_is_no_answer() -> None:
    calls = CALLS.replace("for kind, head in self.link.poll():", "for kind, head in self.late():")

    assert "self.open" not in names(
        calls=calls.replace('            if kind == "answer":\n    ', ""), asks=ASKS, main=STARTS
    )


def test_a_function_whose_name_is_read_somewhere_may_be_reached() -> None:
    main = "import asks\n\nstart(choose(asks).work)\n"

    gone = of_calls(calls=CALLS, asks=ASKS, main=main).rounds[0].let_go
    never = of_calls(calls=CALLS, asks=ASKS, main="import asks\n").rounds[0].let_go

    assert gone is not None
    assert gone.how == "answered"
    assert never is not None
    assert never.how == "end"


def test_nothing_is_told_of_a_program_that_is_not_looked_at_as_a_whole() -> None:
    large = "\n".join(f"x{n} = [{', '.join('1' * 400)}]" for n in range(400))

    assert names(main=THREADED) == ["self.rows"]
    assert names(main=THREADED, pad=large) == []


CLIP = """\
class Clip:
    opened = {}

    def __init__(self, frames):
        self.frames = frames
        Clip.opened[id(self)] = self

    def close(self):
        Clip.opened.pop(id(self), None)


def record(env):
    while True:
        Clip(env.frames())
"""


def test_objects_that_a_class_keeps_until_they_are_closed_are_found() -> None:
    (holder,) = found(main=CLIP)

    assert (holder.name, holder.owner, holder.is_renewed) == ("Clip.opened", "Clip", False)
    assert holder.rounds[0].let_go is not None
    assert (holder.rounds[0].let_go.how, holder.rounds[0].let_go.function) == ("end", "close")
    own = CLIP.replace("Clip.opened[id(self)]", "self.seen[id(self)]").replace("Clip.opened", "x")
    assert names(main=own) == []


def shapes(count: int, calls: int = 1, *, is_chain: bool = False) -> str:
    """A class with a loop that draws, and many that are derived from it, or one from another."""
    base = "class S0:\n    def draw(self): ...\n    def run(self):\n        while True:\n"
    base += "            self.draw()\n" * calls
    return base + "".join(
        f"class S{n}(S{n - 1 if is_chain else 0}):\n"
        f"    def __init__(self):\n        self.rows{n} = []\n"
        f"    def draw(self):\n        self.rows{n}.append(self.picture())\n"
        for n in range(1, count)
    )


@pytest.mark.parametrize(("is_chain", "count"), [(False, 64), (True, 63)])
def test_many_derived_classes_are_followed(is_chain: bool, count: int) -> None:
    """Bases and derived classes are looked up once: a chain of 200 took half a minute."""
    main = shapes(400, is_chain=is_chain) + "S0().run()\n"

    assert names(main=main) == [f"self.rows{n + 1}" for n in range(count)]


def test_nothing_is_told_where_calls_lead_to_too_many_places() -> None:
    assert names(main=shapes(500, calls=1000) + "S0().run()\n") == []
    assert len(names(main=shapes(500) + "S0().run()\n")) == 64


WORKER = """\
import asyncio


class Worker:
    def __init__(self, link):
        self.link = link
        self.running = {{}}

    def done(self, task):
        {removes}

    async def serve(self):
        while True:
            job = await self.link.next()
            task = asyncio.create_task(job.run(), name={name})
            self.running[job.key] = (job, task)
            task.add_done_callback(self.done)


asyncio.run(Worker(connect()).serve())
"""


@pytest.mark.parametrize(
    "removes",
    [
        "self.running.pop(task.get_name(), None)",
        "if task.get_name() in self.running: del self.running[task.get_name()]",
        "try: del self.running[task.get_name()]\n        except KeyError: pass",
        "with suppress(KeyError): self.running.pop(task.get_name())",
        "name = task.get_name()\n        self.running.pop(name, None)",
        "self.forget(task.get_name())\n\n"
        "    def forget(self, name):\n        self.running.pop(name, None)",
    ],
)
def test_a_removal_by_another_key_that_never_fails_is_doubted(removes: str) -> None:
    gone = let_go(0, run=WORKER.format(removes=removes, name="job.title"))

    assert gone is not None
    assert (gone.how, gone.keys[0], gone.past) == ("keyed", "job.key", None)


@pytest.mark.parametrize(
    "removes",
    [
        "self.running.pop(task.get_name())",
        "del self.running[task.get_name()]",
        "self.running.pop(task.key, None)",
        "self.running.pop(task.job_key, None)",
        "self.running.pop(task.job['key'], None)",
        "self.running.pop(str(task), None)",
        "key = find(task)\n        self.running.pop(key, None)",
        "try: del self.running[task.get_name()]\n        except KeyError: raise SystemExit",
        "self.running.pop(task.get_name(), None)\n        self.running.pop(task.key, None)",
        "self.running.pop(task.get_name(), None)\n"
        "        if len(self.running) > 9: self.running.popitem()",
    ],
)
def test_a_removal_that_would_fail_or_may_be_by_the_same_key_is_one(removes: str) -> None:
    assert names(run=WORKER.format(removes=removes, name="job.title")) == []


def test_a_container_with_entries_under_both_keys_is_not_doubted() -> None:
    text = WORKER.format(removes="self.running.pop(task.get_name(), None)", name="job.title")
    both = text.replace("(job, task)\n", "(job, task)\n            self.running[task.name] = job\n")

    assert names(run=both) == []


def test_a_name_of_a_task_that_has_more_text_than_the_key_is_told() -> None:
    removes = "self.running.pop(task.get_name(), None)"
    gone = let_go(0, run=WORKER.format(removes=removes, name="f'job {job.key}'"))
    same = let_go(0, run=WORKER.format(removes=removes, name="f'{job.key}'"))

    assert gone is not None
    assert same is not None
    assert gone.past is not None
    assert gone.past.text == "task = asyncio.create_task(job.run(), name=f'job {job.key}')"
    assert same.past is None


def test_the_key_of_an_answer_is_not_compared() -> None:
    text = """\
class Client:
    def __init__(self, link):
        self.open = {}
        self.link = link

    def run(self):
        while True:
            job = self.link.job()
            self.open[job.serial] = job.data
            answer = self.link.recv()
            self.open.pop(answer.token, None)


Client(connect()).run()
"""
    assert names(run=text) == []


SERVED = """
class Server:
    def __init__(self):
        self.sessions = {{}}

    def handle(self, batch):
        for message in batch:
            if isinstance(message, Begin):
                self.sessions[message.name] = Session()
            elif isinstance(message, End):
                {removes}

    def serve(self):
        while True:
            self.handle(self.inbox.take())


def main():
    Server().serve()
"""


@pytest.mark.parametrize(
    "removes",
    [
        "self.sessions.pop(message.name, None)",
        "if message.name in self.sessions: self.sessions.pop(message.name)",
    ],
)
def test_of_several_branches_the_one_that_removes_is_told(removes: str) -> None:
    gone = let_go(0, server=SERVED.format(removes=removes))

    assert gone is not None
    assert gone.past is not None
    assert (gone.how, gone.past.text) == ("under", "elif isinstance(message, End):")


ENDING_CLIENT = """
from server import Server

class Client:
    def end(self):
        self.out.put(End(self.name))


def run(client):
    while True:
        done = client.step()
        {calls}
"""


@pytest.mark.parametrize(
    ("calls", "told"),
    [
        ("if done: client.end()", "if done:"),
        ("client.end()", ""),
        ("client.end()\n        if done: client.end()", ""),
    ],
    ids=["sometimes", "always", "at two places"],
)
def test_the_condition_under_which_a_message_is_sent_is_told(calls: str, told: str) -> None:
    """Of the message for which the branch that removes asks."""
    server = SERVED.format(removes="self.sessions.pop(message.name, None)")
    classes = "class Begin:\n    pass\n\n\nclass End:\n    pass\n\n"

    gone = let_go(0, server=f"{classes}{server}", client=ENDING_CLIENT.format(calls=calls))

    assert gone is not None
    assert (gone.made.text if gone.made is not None else "") == told
    assert gone.message == ("End" if told else "")


WEIGHTS = """\
import torch.distributed as dist


class Weights:
    def __init__(self, port, server):
        self.store = dist.TCPStore("127.0.0.1", port, is_master=server)

    def publish(self, state, version):
        for name, tensor in state.items():
            self.store.set(f"policy/{version}/{name}", tensor.numpy().tobytes())
        self.store.set("policy/latest", str(version))
"""
FIT = """\
from weights import Weights


def fit(weights, model, steps):
    for step in range(steps):
        weights.publish(model.state_dict(), step)


fit(Weights(0, True), make(), 1000)
"""


def test_ever_new_keys_of_a_store_are_found_with_the_loop_that_makes_them_new() -> None:
    (holder,) = found(weights=WEIGHTS, fit=FIT)

    assert (holder.name, holder.owner, holder.store) == ("self.store", "Weights", "TCPStore")
    assert holder.statement.line == 10
    assert [each.header.text for each in holder.rounds] == ["for step in range(steps):"]
    assert holder.rounds[0].let_go is None


@pytest.mark.parametrize(
    ("weights", "fit"),
    [
        (WEIGHTS.replace("{version}/", ""), FIT),
        (WEIGHTS, FIT.replace("model.state_dict(), step", "model.state_dict(), 7")),
        (WEIGHTS.replace('f"policy/{version}/{name}"', '"policy"'), FIT),
        (WEIGHTS.replace('.set("policy/latest", str(version))', ".delete_key(old(version))"), FIT),
        (WEIGHTS.replace("dist.TCPStore", "Redis"), FIT),
    ],
)
def test_keys_of_a_store_that_are_written_again_or_deleted_are_not(weights: str, fit: str) -> None:
    assert found(weights=weights, fit=fit) == ()


@pytest.mark.parametrize(
    ("loop", "key", "is_new"),
    [
        ("for step in range(9):", 'f"w/{step}"', True),
        ("for step, batch in enumerate(loader):", '"w/" + str(step)', True),
        ("while True:", "uuid.uuid4().hex", True),
        ("while True:", "str(time.time())", True),
        ("while True:", 'f"hb/{rank}"', False),
        ("for name, value in model.named_parameters():", "name", False),
        ("for name in ['a', 'b']:", "name", False),
        ("while True:\n        for layer in range(9):", 'f"w/{layer}"', False),
    ],
)
def test_a_key_is_new_where_a_part_of_it_changes_from_round_to_round(
    loop: str, key: str, is_new: bool
) -> None:
    indent = " " * 8 if "\n" in loop else "    "
    text = (
        "import torch.distributed as dist\n\n\ndef run(rank, loader, model):\n"
        "    store = dist.HashStore()\n"
        f"    {loop}\n    {indent}store.set({key}, load())\n\n\nrun(0, [], make())\n"
    )

    assert [each.store for each in found(run=text)] == ["HashStore"] * is_new


def test_a_counter_of_an_object_makes_keys_new_and_a_store_may_be_passed_on() -> None:
    text = """\
from torch.distributed import FileStore


class Log:
    def __init__(self, store):
        self.store, self.round = store, 0

    def write(self, data):
        self.round += 1
        key = f"log/{self.round}"
        self.store.append(key, data.tobytes())


def main(source):
    store = FileStore("/tmp/x", 2)
    log = Log(store)
    while True:
        log.write(source.read())


main(connect())
"""
    assert [(each.name, each.store) for each in found(run=text)] == [("self.store", "FileStore")]


CHANNEL = """\
import asyncio


class Promise:
    def __init__(self):
        self.event = asyncio.Event()

    async def wait(self):
        await self.event.wait()


class Channel:
    def __init__(self, link):
        self.link = link
        self.closed = asyncio.Event()

    async def serve(self):
        async for answer in self.link:
            self.take(answer)
        self.closed.set()

    async def on_closed(self):
        await self.closed.wait()

    async def answer(self, promise: Promise):
{wait}

    async def call(self, text):
        promise = Promise()
        self.link.send(promise, text)
        return await self.answer(promise)


async def ask(channel: Channel):
    while True:
        await channel.call(await read())


channel = Channel(connect())
asyncio.run(ask(channel))
"""
FIRST = """\
        for done in asyncio.as_completed([promise.wait(), self.on_closed()]):
            return await done"""
WAIT = """\
        both = [asyncio.create_task(promise.wait()), asyncio.create_task(self.on_closed())]
        done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)"""


@pytest.mark.parametrize(("wait", "how"), [(FIRST, "as_completed"), (WAIT, "wait")])
def test_a_task_that_each_call_leaves_waiting_for_a_lasting_event_is_found(
    wait: str, how: str
) -> None:
    (holder,) = found(channel=CHANNEL.format(wait=wait))

    assert (holder.owner, holder.name, holder.function) == ("Channel", "self.closed", "answer")
    assert holder.left_waiting is not None
    assert (holder.left_waiting.how, holder.left_waiting.made) == (how, "self.on_closed()")
    assert holder.left_waiting.statement.text == "await self.closed.wait()"
    assert [(each.header.text, each.is_async) for each in holder.rounds] == [("while True:", True)]


def test_a_task_that_a_loop_drops_and_that_waits_for_a_lasting_event_is_found() -> None:
    wait = "        while True:\n            asyncio.create_task(self.on_closed())\n"
    (holder,) = found(channel=CHANNEL.format(wait=f"{wait}            await promise.wait()"))

    assert holder.left_waiting is not None
    assert holder.left_waiting.how == "task"


@pytest.mark.parametrize(
    "wait",
    [
        # All of them are used, or what is pending is cancelled, kept or awaited.
        FIRST.replace("return await done", "self.take(await done)"),
        f"{WAIT}\n        for each in both:\n            each.cancel()",
        WAIT.replace("done, _", "done, rest") + "\n        await asyncio.gather(*rest)",
        "        gone = asyncio.create_task(self.on_closed())\n"
        + WAIT.replace("asyncio.create_task(self.on_closed())", "gone")
        + "\n        await gone",
        WAIT.replace("done, _", "done, self.rest"),
        WAIT.replace("done, _", "()"),
        # Each waits for something of this call alone.
        FIRST.replace("self.on_closed()", "promise.wait()"),
        # The event is set in each round, or used again.
        f"        self.closed.set()\n{FIRST}",
        f"        self.closed.clear()\n{FIRST}",
    ],
)
def test_a_task_that_ends_or_is_cancelled_keeps_nothing(wait: str) -> None:
    assert found(channel=CHANNEL.format(wait=wait)) == ()


@pytest.mark.parametrize("target", ["self.task", "self.tasks[text]", "task = self.task"])
def test_a_task_that_an_object_keeps_is_not_dropped(target: str) -> None:
    wait = f"        while True:\n            {target} = asyncio.create_task(self.on_closed())\n"

    assert found(channel=CHANNEL.format(wait=wait)) == ()


GATE = """\
import asyncio


class Server:
    def __init__(self):
        self.ready = asyncio.Event()
        {made}

    async def opened(self):
        await self.ready.wait()

    def open(self):
        self.ready.set()

    async def serve(self, link):
        {before}
        while True:
            asyncio.create_task(self.opened())
            await link.read()


async def main(link):
    server = Server()
    {starts}
    await server.serve(link)


asyncio.run(main(connect()))
"""


@pytest.mark.parametrize(
    ("made", "before", "starts", "is_kept"),
    [
        ("pass", "pass", "pass", True),
        ("pass", "pass", "asyncio.create_task(later(server.open))", True),
        ("self.ready.set()", "pass", "pass", False),
        ("pass", "self.ready.set()", "pass", False),
        ("pass", "self.open()", "pass", False),
        ("pass", "pass", "server.ready.set()", False),
        ("pass", "pass", "server.open()", False),
    ],
)
def test_an_event_that_is_set_before_the_loop_keeps_nothing(
    made: str, before: str, starts: str, is_kept: bool
) -> None:
    text = GATE.format(made=made, before=before, starts=starts)

    assert names(server=text) == ["self.ready"] * is_kept


HANDLER = """\
import asyncio


class Handler(Base):
    def __init__(self):
        self.over = asyncio.Event()

    async def on_over(self):
        await self.over.wait()

    async def do_GET(self):
        {first}
        await asyncio.wait([self.read(), self.on_over()], return_when=asyncio.FIRST_COMPLETED)
        {last}

    def end(self):
        self.over.set()
"""


@pytest.mark.parametrize(
    ("first", "last", "is_kept"),
    [
        ("pass", "pass", True),
        ("pass", "self.over.set()", False),
        ("pass", "self.end()", False),
        ("self.over.set()", "pass", False),
    ],
)
def test_an_event_that_is_set_in_each_call_of_a_library_keeps_nothing(
    first: str, last: str, is_kept: bool
) -> None:
    text = HANDLER.format(first=first, last=last)

    assert names(server=text) == ["self.over"] * is_kept


@pytest.mark.parametrize("is_set", [False, True])
def test_an_event_that_another_part_of_the_program_sets_is_told_as_that(is_set: bool) -> None:
    text = CHANNEL.format(wait=FIRST)
    (holder,) = found(channel=text if is_set else text.replace("self.closed.set()", "pass"))

    assert holder.left_waiting is not None
    assert holder.left_waiting.is_set is is_set


def test_a_statement_that_leaves_two_tasks_for_one_event_is_told_once() -> None:
    two = FIRST.replace("promise.wait()", "self.on_closed()")

    assert names(channel=CHANNEL.format(wait=two)) == ["self.closed"]


@pytest.mark.parametrize(
    ("below", "is_of"),
    [
        ('dist.FileStore("/tmp/x", 2)', "FileStore"),
        ('dist.TCPStore("127.0.0.1", 0)', "TCPStore"),
        ("dist.PrefixStore('b', dist.HashStore())", "HashStore"),
        ("given", "FileStore"),
        ("made", "HashStore"),
        ("current_store()", "PrefixStore"),
    ],
)
@pytest.mark.parametrize("by", ["'a', {}", "'a', store={}", "prefix='a', store={}"])
def test_a_prefix_store_is_told_as_the_store_below_it(below: str, is_of: str, by: str) -> None:
    text = f"""\
import torch.distributed as dist


class Log:
    def __init__(self, given):
        made = dist.HashStore()
        self.store = dist.PrefixStore({by.format(below)})

    def write(self, step, data):
        self.store.set(f"log/{{step}}", data.tobytes())


def main(source):
    log = Log(dist.FileStore("/tmp/x", 2))
    for step in range(1000):
        log.write(step, source.read())


main(connect())
"""
    assert [each.store for each in found(run=text)] == [is_of]


def test_a_loop_over_what_is_there_does_not_go_on_unseen_in_a_coroutine() -> None:
    text = (
        "import asyncio\nasync def run(addresses):\n    channels = []\n"
        "    for address in {}:\n        channels.append(await connect(address))\n"
        "    await asyncio.gather(*channels)\nasyncio.run(run(read()))\n"
    )
    few, endless = (found(run=text.format(of)) for of in ("addresses", "itertools.count()"))

    assert [e.rounds[0].is_async for e in (*few, *endless)] == [False, True]


CELLS = """\
from collections import defaultdict


class Cells:
    def __init__(self, most):
        self.most = most
        self.cells = defaultdict(Cell)
        self.order = {order}

    def seen(self, place):
        return self.cells[place].visits

    def visit(self, place):
        cell = self.cells[place]
        if cell.visits == 0:
            self.order.append(place)
            if len(self.order) > self.most:
                self.drop()
        cell.visits += 1

    def drop(self):
        {drops}


def run(world):
    cells = Cells(5000)
    while True:
        options = world.options()
        best = min(options, key=cells.seen)
        counts = [cells.seen(each) for each in options]
        {visits}


run(World())
"""
DROPS = """\
for place in self.order[:10]:
            self.cells.pop(place, None)
        del self.order[:10]"""
"""By the keys that another list holds."""


@pytest.mark.parametrize(
    ("order", "drops"),
    [
        ("[]", DROPS),
        ("collections.deque()", "del self.cells[self.order.popleft()]"),
        ("[]", "oldest = self.order.pop(0)\n        del self.cells[oldest]"),
    ],
)
def test_entries_of_look_ups_that_no_list_of_keys_has_stay(order: str, drops: str) -> None:
    text = CELLS.format(order=order, drops=drops, visits="cells.visit(world.move(best))")
    (holder,) = [each for each in found(main=text) if each.looked_up is not None]
    gone = [each.let_go for each in holder.rounds]

    assert holder.function == "seen"
    assert not holder.is_renewed
    assert {(e.how, e.function, e.keys[0]) for e in gone if e is not None} == {
        ("listed", "drop", "self.order")
    }


@pytest.mark.parametrize(
    ("drops", "visits"),
    [
        # What is looked up is listed as well, under the same name or out of the same list.
        (DROPS, "[cells.visit(each) for each in options]"),
        (DROPS, "for other in options:\n            cells.visit(other)"),
        # Not by a list.
        (
            "for place in list(self.cells)[:10]:\n            del self.cells[place]",
            "cells.visit(1)",
        ),
    ],
)
def test_entries_of_look_ups_that_are_listed_or_dropped_are_not_told(
    drops: str, visits: str
) -> None:
    text = CELLS.format(order="[]", drops=drops, visits=visits)

    assert [each.name for each in found(main=text) if each.looked_up is not None] == []
