"""Where the values come from that decide at a line, as the source shows."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mpwatch.collect.source.source_code import SourceCode
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.source_code import Origin

OWN = ProcessId(os.getpid(), 1)


def origins(folder: Path, text: str, function: str = "run", **files: str) -> tuple[Origin, ...]:
    """Those of the line `pass  # here` in a file, beside others."""
    for name, other in files.items():
        (folder / f"{name}.py").write_text(other)
    path = folder / "main.py"
    path.write_text(text)
    code, now_s = SourceCode(), time.time() + 9.0
    code.marks(OWN, str(path), now_s)
    number = next(n for n, row in enumerate(text.splitlines(), 1) if "# here" in row)
    assert code.line(OWN, Frame(function, str(path), number), now_s) is not None
    return code.origins()


def under(folder: Path, condition: str, before: str = "", head: str = "") -> dict[str, Origin]:
    """The origins of a condition in a function after some statements, by their kinds."""
    rows = "".join(f"    {row}\n" for row in before.splitlines())
    text = f"{head}\ndef run(self, item):\n{rows}    if {condition}:\n        pass  # here\n"
    return {each.kind: each for each in origins(folder, text) if each.statement.text[:3] == "if "}


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("time.monotonic() > self.end", "clock"),
        ("datetime.now() > item", "clock"),
        ("os.environ['RANK'] == '0'", "rank"),
        ("dist.get_rank() == 0", "rank"),
        ("is_main_process()", "rank"),
        ("os.getenv('STAGE') == 'x'", "environment"),
        ("os.environ['STAGE'] == 'x'", "environment"),
        ("hash(item) % 4 == 0", "hash"),
        ("random.random() < 0.1", "random"),
        ("self.rng.integers(9) > 1", "random"),
        ("psutil.virtual_memory().percent > 90", "machine"),
        ("torch.cuda.memory_allocated() > 3", "machine"),
        ("os.path.exists(item)", "file"),
        ("self.path.is_file()", "file"),
        ("self.inbox.qsize() > 3", "queue"),
        ("self.inbox.get()", "message"),
        ("conn.recv() is None", "message"),
        ("self.stop.is_set()", "flag"),
        ("self.lock.acquire(timeout=3)", "limit"),
        ("done.wait(5)", "limit"),
        ("open(item).read()", "data"),
        ("len(items[self.rank :: 4]) > 3", "data"),
        ("dist.reduce(item, dst=0)", "one-rank"),
        ("dist.all_reduce(item)", "shared"),
        ("args.limit > 3", "argument"),
        ("self.config.limit > 3", "argument"),
    ],
)
def test_an_expression_tells_by_its_names_where_a_value_comes_from(
    tmp_path: Path, condition: str, kind: str
) -> None:
    found = under(tmp_path, condition)

    assert list(found) == [kind]
    assert found[kind].steps == ()
    assert found[kind].is_certain


@pytest.mark.parametrize(
    "condition",
    [
        "x.to(rank) > 3",
        "', '.join(item)",
        "item.get(3)",
        "x.gather(1, item)",
        "sample(item)",
        "hash(self, item)",
    ],
)
def test_what_only_looks_like_it_is_not_classified(tmp_path: Path, condition: str) -> None:
    assert set(under(tmp_path, condition)) <= {""}


@pytest.mark.parametrize(
    ("condition", "before", "kind", "statements"),
    [
        ("due", "due = time.time() > 3", "clock", ["due = time.time() > 3"]),
        ("due", "a, due = 1, time.time()", "clock", ["a, due = 1, time.time()"]),
        ("due", "due: float = time.time()", "clock", ["due: float = time.time()"]),
        # The last one before the condition counts.
        ("due", "due = time.time()\ndue = hash(item)", "hash", ["due = hash(item)"]),
        # A constant comes from the condition around.
        (
            "due",
            "due = False\nif time.time() > 3:\n    due = True",
            "clock",
            ["due = True", "if time.time() > 3:"],
        ),
        (
            "ok",
            "ok = True\ntry:\n    f()\nexcept ValueError:\n    ok = False",
            "exception",
            ["ok = False", "except ValueError:"],
        ),
        ("name", "for name in open(item):\n    pass", "data", ["for name in open(item):"]),
        ("f", "with open(item) as f:\n    pass", "data", ["with open(item) as f:"]),
        (
            "n > 3",
            "n = 0\nfor x in item:\n    if os.path.exists(x):\n        n += 1",
            "file",
            ["n += 1", "if os.path.exists(x):"],
        ),
        (
            "found",
            "found = []\nfor x in os.listdir(item):\n    found.append(x)",
            "file",
            ["found.append(x)", "for x in os.listdir(item):"],
        ),
        ("x", "names = {'a', item}\nx = next(iter(names))", "set-order", None),
        ("x", "x = [name for name in {'a', item}]", "set-order", None),
        ("flag.item()", "flag = f(time.time())\ndist.all_reduce(flag)", "shared", None),
        ("flag", "flag = f(item)\ndist.reduce(flag, 0)", "one-rank", None),
    ],
)
def test_statements_of_a_function_are_followed(
    tmp_path: Path, condition: str, before: str, kind: str, statements: list[str] | None
) -> None:
    found = under(tmp_path, condition, before)

    assert kind in found
    if statements is not None:
        assert [each.statement.text for each in found[kind].steps] == statements


@pytest.mark.parametrize(
    ("condition", "before"),
    [
        ("x", "x = sorted(list({'a', item}))"),
        ("len(names)", "names = {'a', item}"),
        ("flag", "flag = f(hash(item))\ndist.all_reduce(flag)"),
        ("x", "x = random.Random(3).random()"),
        ("x", "rng = random.Random(3)\nx = rng.random()"),
        ("rank", "for rank in range(item):\n    pass"),
        ("each.rank", "for each in item:\n    pass"),
    ],
)
def test_what_is_the_same_for_all_is_not_told_to_differ(
    tmp_path: Path, condition: str, before: str
) -> None:
    assert set(under(tmp_path, condition, before)).isdisjoint(
        ("hash", "random", "rank", "set-order")
    )


@pytest.mark.parametrize(
    ("seed", "is_told"),
    [("random.seed(3)", False), ("random.seed(rank)", True), ("torch.manual_seed(3)", True)],
)
def test_random_numbers_may_be_seeded_alike(tmp_path: Path, seed: str, is_told: bool) -> None:
    found = under(tmp_path, "random.random() < 0.5", head=f"{seed}\n")

    assert ("random" in found) is is_told


SEEDS_BY_RANK = """
import torch
from torch.multiprocessing import spawn

def seed_all(value):
    torch.manual_seed(value)

def work(number, args):
    seed_all(args.seed + number)
    run(None, args)

spawn(work, args=(args,), nprocs=2)
"""


@pytest.mark.parametrize(
    ("condition", "head", "seed"),
    [
        ("torch.rand(()) < 0.5", SEEDS_BY_RANK, "seed_all(args.seed + number)"),
        (
            "torch.rand(()) < 0.5",
            "torch.manual_seed(3)\ntorch.manual_seed(3 + rank)",
            "torch.manual_seed(3 + rank)",
        ),
        ("probs.multinomial(1) < 3", "torch.manual_seed(rank)", "torch.manual_seed(rank)"),
        (
            "Categorical(logits=item).sample() < 3",
            "set_seed(rank)",
            "set_seed(rank)",
        ),
        (
            "torch.rand((), generator=GENERATOR) < 0.5",
            "GENERATOR = torch.Generator()\nGENERATOR.manual_seed(3 + rank)",
            "GENERATOR.manual_seed(3 + rank)",
        ),
        ("numpy.random.rand() < 0.5", "np.random.seed(rank)", "np.random.seed(rank)"),
    ],
)
def test_a_random_number_that_each_rank_seeds_otherwise_tells_by_what(
    tmp_path: Path, condition: str, head: str, seed: str
) -> None:
    found = under(tmp_path, condition, head=f"{head}\n")

    step = found["random"].seeded
    assert step is not None
    assert step.statement.text == seed


@pytest.mark.parametrize(
    ("condition", "head", "before"),
    [
        ("torch.rand(()) < 0.5", SEEDS_BY_RANK, "torch.manual_seed(3)"),
        ("torch.rand(()) < 0.5", SEEDS_BY_RANK.replace(" + number", ""), ""),
        (
            "torch.rand((), generator=GENERATOR) < 0.5",
            f"{SEEDS_BY_RANK}\nGENERATOR = torch.Generator().manual_seed(3)",
            "",
        ),
        (
            "torch.rand((), generator=GENERATOR) < 0.5",
            f"{SEEDS_BY_RANK}\nGENERATOR = torch.Generator()\nGENERATOR.manual_seed(3)",
            "",
        ),
        ("self.memory.sample() < 3", SEEDS_BY_RANK, ""),
    ],
)
def test_another_seed_elsewhere_is_none_of_what_is_drawn_alike(
    tmp_path: Path, condition: str, head: str, before: str
) -> None:
    assert "random" not in under(tmp_path, condition, before, head=f"{head}\n")


TRAINER = """\
from clock import Clock, files_of

class Trainer:
    def __init__(self, rank, limit):
        self.clock = Clock(limit)
        self.rank = rank
        self.stop = False

    @property
    def is_late(self):
        return self.clock.due()

    def decide(self):
        if self.rank == 0:
            self.stop = f()

    def tell(self):
        self.said = g()

    def run(self):
        if {condition}:
            pass  # here

def main(rank):
    trainer = Trainer(rank, 3)
    trainer.run()
    if rank == 0:
        trainer.tell()
"""
CLOCK = """\
import os, time

class Clock:
    def __init__(self, limit):
        self.began = time.monotonic()
        self.limit = limit

    def due(self):
        return time.monotonic() - self.began > self.limit

def files_of(path):
    for name in sorted(os.listdir(path)):
        if name.endswith("x"):
            yield name

def newest(path):
    names = list(files_of(path))
    if not names:
        return None
    return names[-1]
"""


@pytest.mark.parametrize(
    ("condition", "kind", "places"),
    [
        ("self.clock.due()", "clock", ["clock.py:9"]),
        ("self.is_late", "clock", ["main.py:11", "clock.py:9"]),
        ("self.clock.began > 3", "clock", ["clock.py:5"]),
        ("self.stop", "rank", ["main.py:15", "main.py:14"]),
        ("self.said", "rank", ["main.py:18", "main.py:27"]),
        ("newest(self.rank)", "file", ["clock.py:18", "clock.py:12"]),
        ("list(files_of(3))", "file", ["clock.py:14", "clock.py:12"]),
    ],
)
def test_values_are_followed_through_classes_functions_and_files(
    tmp_path: Path, condition: str, kind: str, places: list[str]
) -> None:
    text = TRAINER.format(condition=condition).replace("files_of\n", "files_of, newest\n", 1)
    found = {each.kind: each for each in origins(tmp_path, text, clock=CLOCK)}

    assert kind in found
    steps = found[kind].steps
    assert [f"{Path(e.file).name}:{e.statement.line}" for e in steps][-1] == places[-1]
    assert {f"{Path(e.file).name}:{e.statement.line}" for e in steps} <= {
        *places,
        *(f"clock.py:{n}" for n in range(11, 20)),
    }


@pytest.mark.parametrize(
    "call",
    [
        "Process(target=run, args=(None, time.time()))",
        "pool.submit(run, None, time.time())",
        "pool.apply_async(run, (None, time.time()))",
        "Process(target=run, kwargs={'due': time.time()})",
        "run(None, due=time.time())",
        "run(None, time.time())",
        "mp.spawn(run, args=(time.time(),))",
    ],
)
def test_a_parameter_comes_from_the_call(tmp_path: Path, call: str) -> None:
    text = (
        f"def run(self, due):\n    if due:\n        pass  # here\n\ndef main(pool):\n    {call}\n"
    )

    (found,) = [each for each in origins(tmp_path, text) if each.kind == "clock"]

    assert [each.statement.line for each in found.steps] == [6]


def test_a_call_that_was_followed_counts_and_no_other_one(tmp_path: Path) -> None:
    text = (
        "def later(x):\n    return x + 1\n\n"
        "def run(a):\n    due = later(time.time())\n    if due:\n        pass  # here\n\n"
        "def main():\n    later(hash('a'))\n"
    )

    assert [each.kind for each in origins(tmp_path, text)] == ["clock"]


def test_mp_spawn_gives_each_process_its_rank_first(tmp_path: Path) -> None:
    text = "def run(number):\n    if number:\n        pass  # here\n\nmp.spawn(run, nprocs=3)\n"

    assert "rank" in {each.kind for each in origins(tmp_path, text)}


def test_the_rounds_of_a_loop_come_from_what_it_goes_through(tmp_path: Path) -> None:
    text = (
        "class Shards:\n"
        "    def __init__(self, names, rank, count):\n"
        "        self.names = names[rank::count]\n"
        "    def __len__(self):\n"
        "        return len(self.names)\n\n"
        "def run(names, rank):\n"
        "    loader = DataLoader(Shards(names, rank, 3), batch_size=4)\n"
        "    for x, y in loader:\n        pass  # here\n"
    )

    (found,) = [each for each in origins(tmp_path, text) if each.kind == "data"]

    assert found.about == "names[rank::count]"
    assert [each.statement.line for each in found.steps] == [8, 5, 3]


def test_a_sampler_of_torch_gives_all_ranks_as_many_rounds(tmp_path: Path) -> None:
    loader = "DataLoader(d, sampler=DistributedSampler(d))"
    text = f"def run(d):\n    for x in {loader}:\n        pass  # here\n"

    assert [each.kind for each in origins(tmp_path, text)] == ["shared"]


def test_a_clause_comes_from_what_is_raised_in_its_block(tmp_path: Path) -> None:
    text = (
        "class Empty(ValueError):\n    pass\n\n"
        "def forward(lengths):\n    if not lengths.any():\n        raise Empty(lengths)\n\n"
        "def run(batch):\n    try:\n        forward(batch)\n"
        "    except ValueError as error:\n        pass  # here\n"
    )

    (found,) = [each for each in origins(tmp_path, text) if each.kind == "exception"]

    assert found.statement.text == "except ValueError as error:"
    assert [each.statement.line for each in found.steps] == [6]
    assert not found.is_certain


def test_the_rank_that_a_call_names_is_followed(tmp_path: Path) -> None:
    text = (
        "class Plan:\n    def __init__(self, names, n):\n        self.owner = {}\n"
        "        for name in names:\n            self.owner[name] = hash(name) % n\n\n"
        "def run(x, plan):\n    dist.broadcast(x, src=plan.owner[x])  # here\n"
    )

    (found,) = [each for each in origins(tmp_path, text) if each.kind == "hash"]

    assert found.names == ("src",)
    assert found.steps[-1].statement.text == "self.owner[name] = hash(name) % n"


def test_a_value_that_is_set_at_several_places_may_come_from_each(tmp_path: Path) -> None:
    found = under(tmp_path, "x", "if item:\n    x = hash(item)\nelse:\n    x = time.time()")

    assert {kind: each.is_certain for kind, each in found.items()} == {
        "hash": False,
        "clock": False,
    }


def test_what_is_not_known_is_quoted_without_a_claim(tmp_path: Path) -> None:
    found = under(tmp_path, "x", "x = library.call(3)")

    assert list(found) == [""]
    assert [each.statement.text for each in found[""].steps] == ["x = library.call(3)"]


def test_the_condition_under_which_a_wait_ends_is_followed(tmp_path: Path) -> None:
    text = (
        "class Server:\n"
        "    def run(self):\n        self.ready.wait()  # here\n\n"
        "    def load(self):\n        ok = os.path.exists('model')\n"
        "        if ok:\n            self.ready.set()\n"
    )

    (found,) = [each for each in origins(tmp_path, text) if each.kind == "file"]

    assert found.statement.text == "if ok:"


def test_each_condition_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "main.py"
    path.write_text("def run(a):\n    if hash(a):\n        x = 1\n        y = 2\n")
    code, now_s = SourceCode(), time.time() + 9.0
    counts = []
    for line in (3, 4, 3):
        code.marks(OWN, str(path), now_s)
        code.line(OWN, Frame("run", str(path), line), now_s)
        counts.append(len(code.origins()))

    assert counts == [1, 0, 0]


DEEP = "(" * 80 + "x" + ")" * 80
HOSTILE = {
    "names in a circle": "a = b\nb = c\nc = a\na = b\nx = a",
    "itself": "x = x\nx = x + x",
    "thousands of assignments": "\n".join(f"x = x + v{n}\nv{n} = x" for n in range(2000)),
    "nesting": f"x = {DEEP}",
    "attributes": "x = " + ".".join(["a"] * 150),
    "operators": "x = " + "+".join(f"f{n}(y)" for n in range(150)),
    "calls": "x = " + "f(" * 80 + "y" + ")" * 80,
}


@pytest.mark.parametrize("before", HOSTILE.values(), ids=list(HOSTILE))
def test_hostile_source_is_followed_within_bounds(tmp_path: Path, before: str) -> None:
    began_s = time.process_time()
    found = under(tmp_path, "x", before)

    assert all(len(each.steps) <= 5 and len(each.about) <= 81 for each in found.values())
    assert time.process_time() - began_s < 30.0


def test_functions_that_call_each_other_are_followed_within_bounds(tmp_path: Path) -> None:
    many = "".join(
        f"def f{n}(a):\n    if f{(n + 1) % 60}(a):\n        return f{(n + 7) % 60}(a)\n"
        f"    return f{(n + 3) % 60}(a)\n"
        for n in range(60)
    )
    text = f"{many}\ndef run(a):\n    if f0(a):\n        pass  # here\n"

    assert all(each.kind == "" for each in origins(tmp_path, text))


FILLED = """
class Scheduler:
    def drop_old(self):
        now = time.perf_counter()
        keep = deque()
        for each in self.waiting:
            if now - each.queued_at > 3:
                self.reply(each)
            else:
                keep.append(each)
        self.waiting = keep

    def next_batch(self):
        while self.waiting and len(self.running) < 8:
            self.running.append(self.waiting.popleft())
        return self.running

    def run(self):
        batch = self.next_batch()
        if batch:
            pass  # here
"""


def test_whether_a_container_is_empty_depends_on_what_was_added_to_it(tmp_path: Path) -> None:
    """Also of a variable that has the name of data, where the program shows what it is given."""
    found = {each.kind: each for each in origins(tmp_path, FILLED)}

    assert "data" not in found
    assert [each.statement.text for each in found["clock"].steps] == [
        "batch = self.next_batch()",
        "while self.waiting and len(self.running) < 8:",
        "keep.append(each)",
        "if now - each.queued_at > 3:",
        "now = time.perf_counter()",
    ]


@pytest.mark.parametrize("call", ["check(item, rank)", "lib.is_due(rank)"])
def test_a_flag_that_is_computed_from_the_rank_depends_on_the_rank(
    tmp_path: Path, call: str
) -> None:
    """A condition that tests it asks for no number of elements."""
    assert list(under(tmp_path, "flag", f"flag = {call}")) == ["rank"]


QUEUES = """\
def run(self, requests, chosen=ContextVar("chosen")):
    item = CALL
    if item is None:
        pass  # here

def main():
    requests = mp.get_context("fork").Queue()
    Process(target=run, args=(None, requests))
"""


@pytest.mark.parametrize("call", ["requests.get()", "requests.get(timeout=3)", "self.work.get()"])
def test_what_a_queue_gives_is_a_message_wherever_the_queue_was_made(
    tmp_path: Path, call: str
) -> None:
    (found,) = origins(tmp_path, QUEUES.replace("CALL", call))

    assert (found.kind, [each.statement.line for each in found.steps]) == ("message", [2])


@pytest.mark.parametrize("call", ["chosen.get()", "self.work.get('key')"])
def test_a_mapping_and_a_variable_give_no_message(tmp_path: Path, call: str) -> None:
    text = QUEUES.replace("    item", "    chosen = ContextVar('a')\n    item").replace(
        "CALL", call
    )

    assert "message" not in {each.kind for each in origins(tmp_path, text)}


STOPPING = """
class Stop:
    def __init__(self, signum=signal.SIGTERM):
        self.asked = False
        {register}

    def on_signal(self, *_):
        self.asked = True

    def fit(self):
        {loop}
            pass
"""


@pytest.mark.parametrize(
    ("register", "signals"),
    [
        ("signal.signal(signum, self.on_signal)", "SIGTERM"),
        ("signal.signal(signal.SIGUSR1, self.on_signal)", "SIGUSR1"),
        ("signal.signal(SIGUSR1, lambda *_: self.on_signal())", "SIGUSR1"),
        ("loop.add_signal_handler(signal.SIGINT, self.on_signal)", "SIGINT"),
        ("for n in (signal.SIGINT, signal.SIGTERM): signal.signal(n, self.on_signal)", "SIGINT or"),
    ],
)
def test_what_a_handler_of_a_signal_sets_is_told_with_the_signal(
    tmp_path: Path, register: str, signals: str
) -> None:
    text = STOPPING.format(register=register, loop="if self.asked:").replace("pass", "pass  # here")
    (found,) = origins(tmp_path, text, "fit")

    assert (found.kind, found.about[: len(signals)]) == ("signal", signals)
    assert [each.function for each in found.steps] == ["on_signal", "__init__"]
    assert found.is_certain


@pytest.mark.parametrize(
    ("before", "condition"),
    [
        ("stop = False\ndef on(*_):\n    nonlocal stop\n    stop = True", "stop"),
        ("stop = []\ndef on(*_):\n    stop.append(1)", "stop"),
        ("stop = {'now': False}\ndef on(*_):\n    stop['now'] = True", "stop['now']"),
        ("stop = threading.Event()\ndef on(*_):\n    stop.set()", "stop.is_set()"),
        ("stop = threading.Event()\non = lambda *_: stop.set()", ""),
    ],
)
def test_a_handler_in_a_function_changes_what_is_around_it(
    tmp_path: Path, before: str, condition: str
) -> None:
    before += "\nsignal.signal(signal.SIGTERM, on)"
    if not condition:
        before, condition = (
            before.replace("on = ", "").replace(", on)", ", lambda *_: stop.set())"),
            "stop.is_set()",
        )
    found = under(tmp_path, condition, before)

    assert found["signal"].about == "SIGTERM"


WRITING = """
WRITER = None

class Saver:
    def __init__(self):
        self.pool = {pool}

    def write(self, *_):
        global WRITER
        WRITER = Writer()

    def save(self):
        if WRITER is None:
            pass  # here
        {start}
"""


@pytest.mark.parametrize(
    ("start", "pool", "is_told"),
    [
        ("self.pool.submit(self.write, 3)", "ThreadPoolExecutor(1)", True),
        ("self.pool.submit(self.write, 3)", "ProcessPoolExecutor(1)", False),
        ("self.pool.submit(print).add_done_callback(self.write)", "ProcessPoolExecutor(1)", True),
        ("threading.Thread(target=self.write).start()", "None", True),
        ("threading.Timer(3, self.write).start()", "None", True),
        ("pool.apply_async(print, callback=self.write)", "None", True),
        ("multiprocessing.Process(target=self.write).start()", "None", False),
        # Also on the thread that tests it.
        ("threading.Thread(target=self.write).start(); self.write()", "None", False),
    ],
)
def test_what_a_function_sets_that_only_another_thread_runs_is_told(
    tmp_path: Path, start: str, pool: str, is_told: bool
) -> None:
    found = origins(tmp_path, WRITING.format(start=start, pool=pool), "save")

    assert ("thread" in [each.kind for each in found]) is is_told


def test_what_a_thread_sets_by_functions_that_only_it_calls_is_told(tmp_path: Path) -> None:
    text = WRITING.format(start="pass", pool="None").replace("write(self", "_write(self")
    loading = "class Loader(threading.Thread):\n    def run(self):\n        Saver()._write()\n"
    found = origins(tmp_path, f"{text}\n{loading}", "save")

    assert [each.kind for each in found] == ["thread"]


SPLIT = """
import torch.distributed as dist


def split(batch, group=None, force=False):
    count = torch.tensor([len(batch)])
    {guard}
        dist.all_reduce(count, group=group)
    return count.item()


class Actor:
    def __init__(self, group=None):
        self.group = group

    def run(self, batch):
        for part in range(split({given})):
            pass  # here


def main(batch):
    Actor({made}).run(batch)
"""


def kinds_of(
    folder: Path, guard: str, given: str, made: str = "", more: str = ""
) -> dict[str, Origin]:
    text = SPLIT.format(guard=guard, given=given, made=made) + more
    return {e.kind: e for e in origins(folder, text) if e.statement.text[:3] == "for"}


@pytest.mark.parametrize(
    ("guard", "given", "made"),
    [
        ("if group is not None:", "batch", ""),
        ("if group:", "batch", ""),
        ("if dist.is_initialized() and group is not None:", "batch", ""),
        ("if not (group is None):", "batch, force=True", ""),
        ("if group is not None:", "batch, None", ""),
        ("if group is not None:", "batch, self.group", ""),
        ("if force:", "batch, group=self.group", "world"),
        ("if group is None:\n        return len(batch)\n    if True:", "batch", ""),
        ("if group is None:\n        pass\n    else:", "batch", ""),
    ],
)
def test_a_collective_under_a_parameter_that_no_call_gives_shares_nothing(
    tmp_path: Path, guard: str, given: str, made: str
) -> None:
    found = kinds_of(tmp_path, guard, given, made)

    assert "shared" not in found
    about = "force" if "force:" in guard else "group"
    assert found["unshared"].about == about
    steps = [each.statement.text for each in found["unshared"].steps]
    assert "dist.all_reduce(count, group=group)" in steps
    assert steps[-1].startswith("if ")


@pytest.mark.parametrize(
    ("guard", "given", "made", "more"),
    [
        ("if group is not None:", "batch, dist.group.WORLD", "", ""),
        ("if group is not None:", "batch, group=self.group", "dist.group.WORLD", ""),
        ("if group is not None:", "batch, self.group", "", "\n\nActor(world)\n"),
        ("if group is not None:", "batch, self.group", "", "\n\nactor.group = world\n"),
        ("if group is not None:", "batch, self.group", "", "\n\nmake = Actor\n"),
        ("if group is not None:", "*batch", "", ""),
        ("if group is not None:", "**batch", "", ""),
        ("if dist.is_initialized() or group is not None:", "batch", "", ""),
        ("if dist.is_initialized():", "batch", "", ""),
        ("group = group or world()\n    if group is not None:", "batch", "", ""),
        ("if group is None:", "batch", "", ""),
    ],
)
def test_a_collective_that_may_be_called_shares_its_value(
    tmp_path: Path, guard: str, given: str, made: str, more: str
) -> None:
    assert "unshared" not in kinds_of(tmp_path, guard, given, made, more)


def test_a_collective_in_the_function_of_the_line_depends_on_all_its_callers(
    tmp_path: Path,
) -> None:
    text = """
def run(batch, group=None):
    count = len(batch)
    if group is not None:
        count = all_reduce_max(count, group)
    for part in range(count):
        pass  # here
"""
    calls = {"run(rows)": True, "run(rows, world)": False, "run(rows)\nrun(x, world)": False}
    calls["Thread(target=run)\nrun(rows)"] = False
    calls[""] = False

    for number, (call, is_off) in enumerate(calls.items()):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        found = {each.kind for each in origins(folder, f"{text}\n{call}\n")}
        assert ("unshared" in found) is is_off, call


@pytest.mark.parametrize(("handlers", "is_told"), [(20, True), (700, False)])
def test_what_runs_elsewhere_is_looked_for_within_the_limit(
    tmp_path: Path, handlers: int, *, is_told: bool
) -> None:
    """Each of many handlers may be of each signal that a variable ever is."""
    text = "import signal\n" + "number = signal.SIGTERM\n" * handlers
    text += "signal.signal(number, end)\n" * handlers
    text += "def end(*_): pass\n"
    text += "def run(path):\n    if os.path.exists(path):\n        pass  # here\n"

    assert bool(origins(tmp_path, text)) == is_told
