"""Memory that a container of the program keeps, as its source shows together with stacks."""

from __future__ import annotations

import ast
import re

import pytest
from msgspec.structs import replace

from mpwatch.collect.source.growth.holders import holders
from mpwatch.collect.source.syntax import ParsedFile
from mpwatch.diagnose.analysis.growth.holders import Held, kept_by, not_at_work
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.rules.memory import persistent_workers_leak
from mpwatch.diagnose.rules.memory.steady_growth import check
from mpwatch.model.account import Activity, Callers
from mpwatch.model.findings import Finding
from mpwatch.model.samples import FdLink, Frame, FrameValues, NameValue, ValuesRead
from mpwatch.model.snapshot import Snapshot, Thread
from mpwatch.model.source_code import AddedTo, Holder, LeftWaiting, LetGo, SourceLine, Statement
from tests.builders.accounts import with_shares
from tests.builders.snapshots import (
    MAIN,
    MIB,
    NOW_S,
    fds,
    history,
    line,
    main,
    only,
    pid,
    process,
    snapshot_of,
    thread,
)
from tests.unit.diagnose.rules.test_steady_growth import rising

BROKER = """\
class Broker:
    def __init__(self, link):
        self.link = link
        self.open = {}
        self.done = []

    def send(self, key, data):
        self.open[key] = (data, data.copy())

    def receive(self, key):
        if self.link.is_late(key):
            raise TimeoutError(key)
        del self.open[key]

    def record(self, result):
        self.done.append(result.tobytes())
"""
RUN = """\
from broker import Broker


def serve(broker, link):
    for key in link.requests():
        broker.send(key, link.read())
        try:
            broker.receive(key)
        except TimeoutError:
            continue


def collect(broker, link):
    while link.is_open:
        broker.record(link.read())


def main(link):
    broker = Broker(link)
    serve(broker, link)
    collect(broker, link)


main(connect())
"""


def kept(**files: str) -> tuple[Holder, ...]:
    return holders(
        (f"/home/me/{name}.py", ParsedFile(tuple(text.splitlines()), ast.parse(text)))
        for name, text in files.items()
    )


def at(*calls: str) -> Thread:
    """The main thread in functions of the program, innermost first: `run.py:main:20`."""
    parts = [each.split(":") for each in calls]
    stack = [Frame(name, f"/home/me/{file}", int(line)) for file, name, line in parts]
    return replace(thread(MAIN), stack=tuple(stack))


def finding(found: tuple[Holder, ...], *stack: str) -> Finding:
    grows = main(threads=[at(*stack)])
    return only(check, snapshot_of(grows, holders=found), GROWS)


def test_the_attribute_that_the_present_loop_adds_to_is_named_with_the_loop() -> None:
    found = finding(kept(broker=BROKER, run=RUN), "run.py:collect:15", "run.py:main:21")

    assert found.cause == (
        "Most likely `self.done.append(result.tobytes())` at broker.py:16 record adds to self.done "
        "of Broker in each round of `while link.is_open:` at run.py:14 collect, and nothing in the "
        "program removes anything from it."
    )
    assert found.advice.startswith("Remove each entry of done once it was used")
    assert "losses" not in found.cause + found.advice


def test_a_removal_that_is_passed_over_is_named_with_what_passes_it() -> None:
    found = finding(kept(broker=BROKER, run=RUN), "run.py:serve:6", "run.py:main:20")

    assert found.cause == (
        "Most likely `self.open[key] = (data, data.copy())` at broker.py:8 send adds to self.open "
        "of Broker in each round of `for key in link.requests():` at run.py:5 serve, and what "
        "removes from it, `del self.open[key]` at broker.py:13 receive, is not reached where "
        "`raise TimeoutError(key)` at broker.py:12 receive leaves before: such entries stay."
    )
    assert found.advice.startswith("Remove the entry of open on every way out")


@pytest.mark.parametrize(("stacks", "is_named"), [(3, True), (1, False)])
def test_a_loop_that_several_stacks_have_not_left_is_the_one_of_a_growth(
    stacks: int, is_named: bool
) -> None:
    """The last stack is missing: what all of them had in common shows the loop, one alone not."""
    grows = main(threads=[at()])
    job = snapshot_of(grows, holders=kept(broker=BROKER, run=RUN))
    job = with_shares(job, p100={Activity("computing", place="run.py:15 collect"): 1.0})
    common = (Frame("main", "/home/me/run.py", 21), Frame("collect", "/home/me/run.py", 0))
    account = job.account.processes[pid(MAIN)]
    callers = (Callers(NOW_S - 30, NOW_S - 1, common, stacks, 0),)
    account = replace(account, uncounted=(account.uncounted[0]._replace(callers=callers),))
    job = replace(job, account=replace(job.account, processes={pid(MAIN): account}))

    assert ("self.done" in only(check, job, GROWS).cause) == is_named


@pytest.mark.parametrize("stack", ["run.py:serve:11", "run.py:main:21", "other.py:collect:12"])
def test_no_container_is_named_outside_of_its_loop(stack: str) -> None:
    found = finding(kept(broker=BROKER, run=RUN), stack)

    assert "self.done" not in found.cause
    assert "self.open" not in found.cause
    assert "a list or dict that is only ever added to" in found.cause


def test_what_is_emptied_in_the_same_loop_is_not_named() -> None:
    run = RUN.replace("record(link.read())", "record(link.read())\n        broker.done.clear()")
    found = finding(kept(broker=BROKER, run=run), "run.py:collect:16", "run.py:main:22")

    assert "self.done" not in found.cause


TABLES = """\
import numpy as np


class Tables:
    def __init__(self):
        self.policy = {}
        self.value = {}
        self.ended = {}

    def look(self, key, game):
        if key not in self.ended:
            self.ended[key] = game.ended()
            self.policy[key] = np.zeros(9)
            self.value[key] = np.ones(9)


TABLES = Tables()
while True:
    TABLES.look(read(), GAME)
"""


def test_containers_of_one_class_are_named_together_the_larger_first() -> None:
    found = finding(kept(tables=TABLES), "tables.py:<module>:18")

    assert found.cause.startswith(
        "Most likely `self.policy[key] = np.zeros(9)` at tables.py:13 look and 2 more lines add to "
        "self.policy, self.value and self.ended of Tables in each round of `while True:`"
    )
    assert "nothing in the program removes anything from them" in found.cause


WEIGHTS = """\
import torch.distributed as dist


def fit(source, steps):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True)
    for step in range(steps):
        store.set(f"policy/{step}", source.read())


fit(connect(), 1000)
"""


def test_a_store_whose_keys_nothing_deletes_is_named_where_its_server_runs() -> None:
    """Whoever writes the keys; the process that writes them keeps none."""
    holders_ = kept(weights=WEIGHTS)
    writes = at("weights.py:fit:7", "weights.py:<module>:10")
    server = thread(MAIN + 1, name="pt_tcpstore_uv")
    alone = snapshot_of(main(threads=[writes, server]), holders=holders_)
    apart = snapshot_of(
        main(threads=[at("serve.py:serve:3"), server]),
        process(300, "spawned", threads=[replace(writes, tid=300)]),
        holders=holders_,
    )
    elsewhere = snapshot_of(main(threads=[writes]), holders=holders_)

    found = only(check, alone, GROWS)

    assert found.cause.startswith(
        'Most likely `store.set(f"policy/{step}", source.read())` at weights.py:7 fit writes ever '
        "new keys of store, kept by a TCPStore, in each round of `for step in range(steps):` at "
        "weights.py:6 fit, and nothing in the program deletes a key of it (delete_key). The server "
        "of a TCPStore keeps each key with its value until delete_key()."
    )
    assert "Call store.delete_key(key)" in found.advice
    assert "gc.collect(), del, detach() or a smaller queue do not help" in found.advice
    assert only(check, apart, GROWS).cause == found.cause
    assert "TCPStore" not in only(check, elsewhere, GROWS).cause


def test_a_variable_of_a_function_that_ends_is_only_an_example() -> None:
    text = """\
def work(job):
    rows = []
    for part in job:
        rows.append(part.load())
    return len(rows)


while True:
    work(receive())
"""
    found = finding(kept(work=text), "work.py:work:4", "work.py:<module>:9")

    assert found.cause.startswith("It keeps what it allocates")
    assert "(as where `rows.append(part.load())` at work.py:4 work adds to rows" in found.cause


def test_of_several_containers_the_one_that_was_measured_to_grow_is_named() -> None:
    text = """\
class Store:
    def __init__(self):
        self.rows = []
        self.files = []

    def add(self, row):
        self.rows.append(row)

    def keep(self, file):
        self.files.append(file)


def work(store):
    while True:
        store.add(read())
        store.keep(write())


work(Store())
"""
    both = finding(kept(work=text), "work.py:work:15")
    added = AddedTo(
        "store.files", "/home/me/work.py", "keep", Statement(10, "self.files.append(file)"), False
    )
    one = only(check, measured(added, kept(work=text)), GROWS)

    assert "self.rows of Store" in both.cause
    assert "It can also be that `self.files.append(file)` at work.py:10 keep adds" in both.cause
    named = [each for each in both.evidence if "self.files" in each]
    assert named[0].index("self.rows of Store") < named[0].index("self.files of Store")
    assert one.cause.startswith("`self.files.append(file)` at work.py:10 keep adds to self.files")
    assert "self.rows" not in one.cause
    assert "`store.files` (list, work.py:10 keep) has 300 entries, 10 a second more" in one.evidence


@pytest.mark.parametrize(
    ("value", "is_told"), [("loss", True), ("loss.detach()", False), ("frame", False)]
)
def test_a_result_of_a_model_that_is_kept_may_have_its_graph(value: str, is_told: bool) -> None:
    text = "import torch\nrows = []\nwhile True:\n    frame = loss = read()\n"
    text += f"    rows.append({value})\n"
    grows = main(threads=[at("v.py:<module>:4")], torch_loaded=True)

    found = only(check, snapshot_of(grows, holders=kept(v=text)), GROWS)

    assert found.cause.startswith(f"Most likely `rows.append({value})` at v.py:5")
    assert ("autograd graph" in found.cause) is is_told
    assert ("under torch.no_grad()" in found.advice) is is_told


CACHE = """\
import torch


class Views(torch.utils.data.Dataset):
    def __init__(self):
        self.views = {}

    def __getitem__(self, key):
        if key not in self.views:
            self.views[key] = render(key)
        return self.views[key]
"""


def test_what_a_data_set_keeps_in_the_workers_of_a_loader_is_named() -> None:
    workers = [process(number, start_method="fork") for number in (200, 201)]
    past = history(
        {
            (number, metric): line(300 * MIB, 2 * MIB)
            for number in (200, 201)
            for metric in ("rss_bytes", "private_bytes")
        }
    )
    job = snapshot_of(main(), *workers, holders=kept(views=CACHE))

    found = only(persistent_workers_leak.check, job, past)

    assert found.cause.startswith(
        "Most likely `self.views[key] = render(key)` at views.py:10 __getitem__ adds to self.views "
        "of Views each time that __getitem__() is called, and nothing in the program removes"
    )
    assert "one entry for each new key" in found.cause


MAPS = """import numpy as np


class Source:
    def __init__(self):
        self.parts = []
        self.notes = []

    def add(self, path):
        self.parts.append(np.load(path, mmap_mode="r"))
        self.notes.append(path.note)


source = Source()
while True:
    source.add(read())
"""


def test_open_files_that_a_container_keeps_are_named_with_it() -> None:
    links = [FdLink(fd, "file", f"/data/{fd}.npy", None, True) for fd in range(900)]
    sample = main(threads=[at("maps.py:<module>:16")], fds=fds(900, 1024, links, file=900))
    past = history(rising("fds", 900, 5))

    found = only(check, snapshot_of(sample, holders=kept(maps=MAPS)), past)

    assert "It opens files and does not close them. Most likely `self.parts.append(" in found.cause
    assert "self.notes" not in found.cause


def measured(added: AddedTo, found: tuple[Holder, ...]) -> Snapshot:
    """A process whose `store.files` gains 100 entries each 10 seconds."""
    source = SourceLine(added.file, 15, "work", Statement(15, "store.add(read())"), added=(added,))
    reads = tuple(
        ValuesRead(
            pid(MAIN),
            NOW_S - 30 + 10 * number,
            "hook",
            (FrameValues(MAIN, added.file, "work", 15, (files_of(100 * number),)),),
        )
        for number in (1, 2, 3)
    )
    grows = main(threads=[at("work.py:work:15")])
    return snapshot_of(grows, source=(source,), values=reads, holders=found)


def files_of(length: int) -> NameValue:
    return NameValue("store.files", "list", length=length)


GROWS = history(rising("anon_bytes", 900 * MIB, 5 * MIB))


def test_what_another_loop_takes_out_by_its_key_stays_where_no_answer_comes() -> None:
    broker = BROKER.replace("raise TimeoutError(key)", "pass")
    served = RUN.replace(
        "def serve(broker, link):",
        "def answers(broker, link):\n"
        "    while True:\n"
        "        del broker.open[link.answered()]\n\n\n"
        "def serve(broker, link):",
    )
    served = served.replace("            broker.receive(key)\n", "            pass\n")
    served = served.replace(
        "    serve(broker", "    Thread(target=answers).start()\n    serve(broker"
    )
    found = finding(kept(broker=broker, run=served), "run.py:serve:11", "run.py:main:26")

    assert (
        "only `del broker.open[link.answered()]` at run.py:6 answers removes one, in another"
        in (found.cause)
    )
    assert "a time limit, an exception, a client that has left" in found.cause
    assert found.advice.startswith("Remove the entry of open on every way out")


WORDS = """\
class Words:
    def __init__(self):
        self.table = defaultdict(lambda: np.zeros(9))
        self.table["the"] = np.ones(9)

    def known(self, words):
        return [self.table[w].any() for w in words]

    def run(self, texts):
        while True:
            words = texts.get().split()
            use(self.known(words), self.table[words[0]])


Words().run(connect())
"""


def test_a_mapping_to_which_each_look_up_adds_is_told_with_where_it_is_made() -> None:
    found = finding(kept(words=WORDS), "words.py:run:11", "words.py:<module>:15")

    assert found.cause.startswith(
        "Most likely `return [self.table[w].any() for w in words]` at words.py:7 known (as does "
        "line 12) looks up keys in self.table of Words, a defaultdict (words.py:3), in each round"
    )
    assert "each key that is not there yet gets an entry, which stays" in found.cause
    assert found.advice.startswith("Look keys up in table with get(key, default)")
    assert "default_factory" in found.advice


PENDING = """\
class Client:
    def __init__(self, link):
        self.link = link
        self.open = {}
        self.asked = []

    def ask(self, data):
        call = Call(next(NUMBERS), data.copy())
        self.open[call.number] = call
        return call

    def look(self):
        for number, answer in self.link.poll():
            self.open.pop(number, None)

    def run(self):
        while True:
            self.asked.append(self.ask(self.link.image()))
            self.look()
            if self.asked[0].is_late():
                self.asked.pop(0)


Client(connect()).run()
"""


def test_entries_that_only_an_answer_removes_are_told_with_what_gives_them_up() -> None:
    found = finding(kept(client=PENDING), "client.py:run:19", "client.py:<module>:24")

    assert found.cause.startswith("Possible: `self.open[call.number] = call` at client.py:9 ask")
    assert (
        "only `self.open.pop(number, None)` at client.py:14 look removes one, by the key of an "
        "answer that has come: an entry whose answer never comes stays" in found.cause
    )
    assert "at `self.asked.pop(0)` at client.py:21 run, it is left in there" in found.cause
    assert "no loop" not in found.cause
    assert found.advice.startswith(
        "Remove the entry of open also where the program gives it up (client.py:21 run)"
    )


def test_entries_that_an_answer_removes_are_not_told_where_nothing_gives_them_up() -> None:
    text = PENDING.replace("                self.asked.pop(0)\n", "                pass\n")
    found = finding(kept(client=text), "client.py:run:19", "client.py:<module>:24")

    assert "self.open" not in found.cause.partition("(as where")[0]


@pytest.mark.parametrize(
    ("takes", "is_by_key"),
    [
        ("self.rows.pop(key)", True),
        ("self.rows.pop(0)", False),
        ("self.rows.pop(-1)", False),
        ("del self.rows[key]", True),
        ("del self.rows[:10]", False),
        ("del self.rows[0]", False),
    ],
)
def test_what_takes_the_first_or_last_is_no_answer(takes: str, is_by_key: bool) -> None:
    gone = LetGo("slower", "/home/me/a.py", "read", Statement(9, takes))
    added = Statement(4, "self.rows.append(row)")
    of = Holder("self.rows", "Store", "/home/me/a.py", "add", added, 1, False, False, False, ())

    assert Held((of,), None, gone).is_taken_by_key is is_by_key


def test_a_removal_under_a_condition_is_only_possible() -> None:
    run = RUN.replace(
        "broker.record(link.read())",
        "broker.record(link.read())\n        if link.is_full:\n            broker.done.clear()",
    )
    found = finding(kept(broker=BROKER, run=run), "run.py:collect:16", "run.py:main:22")

    assert found.cause.startswith("Possible: `self.done.append(result.tobytes())` at broker.py:16")
    assert found.cause.endswith("If it is reached in each round, something else is kept.")


EXECUTOR = """\
class Executor:
    def __init__(self, outputs):
        self.outputs = outputs
        self.finished = {}

    def read(self):
        while True:
            key, image = self.outputs.get()
            self.finished[key] = image

    def wait(self, key, is_gone):
        if is_gone(key):
            raise ConnectionError(key)
        return self.finished.pop(key)
"""


def test_what_a_receiving_thread_keeps_itself_is_not_handed_on_to_another_thread() -> None:
    receives = replace(at("executor.py:read:8"), tid=101, name="outputs")
    get = Frame("get", "/usr/lib/python3.11/multiprocessing/queues.py", 100)
    receives = replace(receives, stack=(get, *receives.stack))
    reports = replace(at("main.py:report:9"), tid=102, name="report")
    grows = main(threads=[thread(MAIN, "main.py:main:30"), receives, reports])
    memory = rising("anon_bytes", 4 * 1024 * MIB, 5 * MIB)
    past = history({**memory, (MAIN, "read_bytes"): line(0.0, 6 * MIB, 60)})

    found = only(check, snapshot_of(grows, holders=kept(executor=EXECUTOR)), past)

    assert "`self.finished[key] = image` at executor.py:9 read adds to self.finished" in found.cause
    assert "hands them on" not in found.cause
    without = only(check, snapshot_of(grows), past)
    assert "hands them on faster than its thread report" in without.cause


DOCKET = """\
import asyncio


class Docket:
    def __init__(self, link):
        self.link = link
        self.running = {{}}

    def done(self, task):
        self.running.pop(task.get_name(), None)

    async def serve(self):
        while True:
            job = await self.link.next()
            task = asyncio.create_task(job.run(), name={name})
            self.running[job.key] = (job, task)
            task.add_done_callback(self.done)


asyncio.run(Docket(connect()).serve())
"""


def of_asyncio(name: str) -> Finding:
    """Of a process whose stack shows asyncio only, as where its coroutines wait."""
    waits = replace(
        thread(MAIN),
        stack=(
            Frame("select", "/usr/lib/python3.11/selectors.py", 468),
            Frame("run_forever", "/usr/lib/python3.11/asyncio/base_events.py", 608),
            Frame("<module>", "/home/me/docket.py", 20),
        ),
    )
    job = snapshot_of(main(threads=[waits]), holders=kept(docket=DOCKET.format(name=name)))
    return only(check, job, GROWS)


def test_a_removal_by_a_key_that_may_be_another_one_is_possible_and_both_lines_are_told() -> None:
    found = of_asyncio("job.title")

    assert found.cause == (
        "Possible: `self.running[job.key] = (job, task)` at docket.py:16 serve adds to "
        "self.running of Docket in each round of `while True:` at docket.py:13 serve, and what "
        "removes from it, `self.running.pop(task.get_name(), None)` at docket.py:10 done, asks for "
        "task.get_name(), and the entries are added under job.key: where these differ it finds no "
        "entry, which is passed over without an error, and the entry stays. If both are the same "
        "there, something else is kept."
    )
    assert found.advice.startswith("Remove the entry by the key that it was added under, job.key")
    assert "gc.collect() do not help" in found.advice


def test_a_removal_by_the_name_of_a_task_that_has_more_text_than_the_key_is_likely() -> None:
    found = of_asyncio("f'job {job.key}'")

    assert found.cause.startswith("Most likely `self.running[job.key] = (job, task)` at docket.py")
    assert found.cause.endswith(
        "`task = asyncio.create_task(job.run(), name=f'job {job.key}')` at docket.py:15 serve "
        "gives it that name, job.key with more text, so that the two are never the same. It finds "
        "no entry, which is passed over without an error, and all of them stay."
    )


SESSIONS = """\
class Begin:
    pass


class End:
    pass


class Server:
    def __init__(self):
        self.sessions = {}

    def handle(self, message):
        if isinstance(message, Begin):
            self.sessions[message.name] = Session(512)
        elif isinstance(message, End):
            self.sessions.pop(message.name, None)

    def serve(self):
        while True:
            self.handle(self.inbox.take())


def main():
    Server().serve()
"""
CLIENT = """\
from server import End


def run(client):
    while True:
        ended, cut = client.episode()
        if ended:
            client.out.put(End(client.name))
"""


def test_what_a_message_that_removes_depends_on_is_named_where_it_is_sent() -> None:
    found = finding(kept(server=SESSIONS, client=CLIENT), "server.py:serve:21", "server.py:main:25")

    assert (
        "depends on `elif isinstance(message, End):` at server.py:16 handle, and End is made "
        "only under `if ended:` at client.py:7 run"
    ) in found.cause
    assert found.advice.startswith(
        "Send End on every way out, also where `if ended:` does not hold"
    )


CHANNEL = """\
import asyncio


class Channel:
    def __init__(self, link):
        self.link = link
        self.closed = asyncio.Event()

    async def on_closed(self):
        await self.closed.wait()

    async def answer(self, promise):
        for done in asyncio.as_completed([promise, self.on_closed()]):
            return await done

    async def call(self, text):
        return await self.answer(self.link.send(text))


async def ask(channel: Channel):
    while True:
        await channel.call(await read())


async def main(addresses):
    channels = []
    for address in addresses:
        channels.append(Channel(await connect(address)))
    await asyncio.gather(*map(ask, channels))


asyncio.run(main(read()))
"""


def in_loop(*calls: str, place: str = "", share: float = 0.0) -> Finding:
    """Of a process in asyncio, with more calls, and with the line where its time went."""
    thread = at(*calls, "channel.py:<module>:32")
    loop = Frame("run_forever", "/usr/lib/python3.11/asyncio/base_events.py", 608)
    thread = replace(thread, stack=(*thread.stack[:-1], loop, thread.stack[-1]))
    job = snapshot_of(main(threads=[thread]), holders=kept(channel=CHANNEL))
    if place:
        rest = {Activity("waiting", "data"): 1 - share}
        job = with_shares(job, p100={Activity("computing", place=place): share, **rest})
    return only(check, job, GROWS)


def test_tasks_that_each_call_leaves_waiting_are_told_with_their_event() -> None:
    found = in_loop()

    assert found.cause == (
        "Most likely `for done in asyncio.as_completed([promise, self.on_closed()]):` at "
        "channel.py:13 answer goes on after the first, and neither awaits nor cancels the task of "
        "self.on_closed() in each round of `while True:` at channel.py:21 ask by way of call(). It "
        "waits at `await self.closed.wait()` at channel.py:10 on_closed until self.closed of "
        "Channel is set, and nothing in the rounds of that loop sets it. Each of them stays with "
        "its coroutine and its future, which the waiters of that event refer to, and with what "
        "as_completed() keeps for those that are not done (its queue, and the results in it)."
    )
    assert "cancel() each of the pending ones" in found.advice
    assert "nor does gc.collect() help" in found.advice


@pytest.mark.parametrize("is_set", [False, True])
def test_a_task_that_calls_of_a_library_leave_is_told_without_a_loop(is_set: bool) -> None:
    left = LeftWaiting(
        "wait", "self.on_over()", "/home/me/web.py", "on_over",
        Statement(9, "await self.over.wait()"), is_set=is_set,
    )  # fmt: skip
    waits = Statement(13, "await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)")
    of = Holder(
        "self.over", "Handler", "/home/me/web.py", "do_GET", waits, 1, False, False, False, (),
        outside="do_GET", left_waiting=left,
    )  # fmt: skip

    kept = kept_by([Held((of,), None, None)])

    assert kept is not None
    assert kept.cause.startswith("It can be that `await" if is_set else "Most likely `await")
    assert "each time that do_GET() is called" in kept.cause
    assert ", and nothing in do_GET() sets it. Each" in kept.cause
    assert kept.evidence.endswith("for self.over of Handler, which nothing in do_GET() sets")
    assert not {"loop", "rounds"} & set(re.findall(r"\w+", kept.cause + kept.evidence))


@pytest.mark.parametrize(
    ("store", "told"),
    [
        ("TCPStore", "The server of a TCPStore"),
        ("FileStore", "A FileStore only appends"),
        ("PrefixStore", "A store of torch.distributed keeps each key"),
    ],
)
def test_only_a_store_of_a_known_class_is_told_by_its_class(store: str, told: str) -> None:
    writes = Statement(9, "self.store.set(key, value)")
    of = Holder(
        "self.store", "Log", "/home/me/log.py", "write", writes, 1, False, False, False, (),
        outside="write", store=store,
    )  # fmt: skip

    kept = kept_by([Held((of,), None, None)])

    assert kept is not None
    assert told in kept.cause


def test_a_process_without_stacks_is_not_said_to_have_left_a_loop() -> None:
    job = snapshot_of(main(threads=[]), holders=kept(broker=BROKER, run=RUN))
    seen = snapshot_of(main(threads=[at("run.py:main:24")]), holders=job.holders)

    none, all_of = (not_at_work(Index(each), each.processes[0]) for each in (job, seen))

    assert none == frozenset()
    assert all_of != frozenset()


def test_a_loop_of_a_coroutine_over_what_is_there_is_named_only_where_it_is_seen() -> None:
    now = in_loop("channel.py:main:28")
    lately = in_loop(place="channel.py:28 main", share=0.5)
    at_start = in_loop(place="channel.py:28 main", share=0.03)

    assert [e.cause.count("channels.append") for e in (now, lately, at_start)] == [1, 1, 0]


CELLS = """\
from collections import defaultdict


class Cells:
    def __init__(self):
        self.cells = defaultdict(Cell)
        self.order = []

    def seen(self, place):
        return self.cells[place].visits

    def visit(self, place):
        self.order.append(place)
        self.cells[place].visits += 1
        if len(self.order) > 500:
            del self.cells[self.order.pop(0)]


def run(world):
    cells = Cells()
    while True:
        rows = []
        for _ in range(9):
            best = min(world.options(), key=lambda each: cells.seen(each))
            rows.append(world.to(best).numpy())
            cells.visit(world.move(best))
        world.rows.put(rows)


run(World())
"""


def test_look_ups_whose_keys_are_not_among_those_that_are_removed_are_named() -> None:
    found = finding(kept(world=CELLS), "world.py:run:26")

    assert found.cause.startswith(
        "Most likely `return self.cells[place].visits` at world.py:10 seen looks up keys in "
        "self.cells of Cells, a defaultdict (world.py:6), in each round of `while True:` at "
        "world.py:21 run: each key that is not there yet gets an entry, which "
        "stays, and what removes from it, `del self.cells[self.order.pop(0)]` at world.py:16 "
        "visit, takes only the keys that self.order holds, which `self.order.append(place)` at "
        "world.py:13 visit adds: an entry for a key that was only looked up is not among them."
    )
    assert "get(key, default)" in found.advice


def test_a_variable_that_each_round_sends_is_no_example() -> None:
    own = CELLS.replace("self.cells[place].visits", "self.cells.get(place)", 1)
    sent = finding(kept(world=own), "world.py:run:26")
    stays = finding(kept(world=own.replace("world.rows.put(rows)", "pass")), "world.py:run:26")

    assert "rows.append" not in sent.cause
    assert "rows.append" in stays.cause
