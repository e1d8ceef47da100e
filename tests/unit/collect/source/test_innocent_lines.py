"""Lines that look like a cause and are none: what libraries and programs do every day.

Each case has its opposite, in which the mechanism is there.
"""

from __future__ import annotations

import ast
import textwrap
from typing import get_args

import pytest

from mpwatch.collect.source.growth.kept_references import registrations, replaced_parameters
from mpwatch.collect.source.marks import marks
from mpwatch.collect.source.syntax import ParsedFile
from mpwatch.model.source_code import MarkKind


def parsed(text: str) -> ParsedFile:
    text = textwrap.dedent(text)
    return ParsedFile(tuple(text.splitlines()), ast.parse(text))


def lines(text: str, kind: MarkKind) -> list[int]:
    """The lines of a text that are marked as one kind."""
    return sorted(m.statement.line for m in marks("/home/me/a.py", parsed(text)) if m.kind == kind)


def body(text: str) -> str:
    return "def f(self, x, y):\n" + textwrap.indent(textwrap.dedent(text), "    ")


@pytest.mark.parametrize(
    ("text", "is_marked"),
    [
        ("return tasks.get()", True),
        ("return self.inbox.get(timeout=1)", True),
        ("return self.from_store.get_nowait()", True),
        ("return self.queues[x].get()", True),
        ("return self.next_queue().get()", True),
        ("return TracingContext.get()", False),
        ("return self.config_var.get()", False),
        ("return pool.apply_async(x).get()", False),
        ("return result.get()", False),
        ("return ray.get()", False),
    ],
)
def test_what_has_a_method_get_may_be_no_queue(text: str, is_marked: bool) -> None:
    assert lines(body(text), "takes") == [2] * is_marked


@pytest.mark.parametrize(
    ("text", "is_marked"),
    [
        ("tasks.put(x)", True),
        ("self.to_store.put(x)", True),
        ("tasks.put(x, False)", True),
        ("remote.put(x, y)", False),
        ("self.cache_stats.put(x)", False),
        ("ray.put(x)", False),
    ],
)
def test_what_has_a_method_put_may_be_no_queue(text: str, is_marked: bool) -> None:
    assert lines(body(text), "put") == [2] * is_marked


@pytest.mark.parametrize(
    ("call", "is_marked"),
    [
        ("dist.broadcast(x, 0)", True),
        ("backend.broadcast_parameters(x)", True),
        ("dist.gather_object(x, y)", True),
        ("torch.broadcast_shapes(x, y)", False),
        ("torch.broadcast_tensors(x, y)", False),
        ("x.scatter_add(0, y, y)", False),
    ],
)
def test_what_is_called_like_a_collective_may_be_none(call: str, is_marked: bool) -> None:
    assert lines(body(call), "collective") == [2] * is_marked


MEMO = "if x not in {0}:\n    {0}[x] = y\nreturn {0}[x]\n"


@pytest.mark.parametrize(
    ("before", "name", "line"),
    [
        ("pass", "self.known", 4),
        ("known = self.known", "known", 4),
        ("global known; known = {}", "known", 4),
        ("pass", "known", 4),
        ("known = {}", "known", 0),
        ("known = made()", "known", 0),
        ("pass", "y", 0),
    ],
)
def test_what_ends_with_the_call_is_no_cache(before: str, name: str, line: int) -> None:
    assert lines(body(f"{before}\n{MEMO.format(name)}"), "cache") == [line] * (line > 0)


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("def f(x, y, cache):", "cache"),
        ("def f(x, y, seen={}):", "seen"),
        ("def f(x, y, *, seen={}):", "seen"),
    ],
)
def test_a_cache_that_is_an_argument_or_a_default_lasts(head: str, name: str) -> None:
    text = f"{head}\n" + textwrap.indent(MEMO.format(name), "    ")
    assert lines(text, "cache") == [3]


def test_a_cached_function_without_arguments_has_one_result() -> None:
    head = "import functools\n@functools.cache\n"
    assert lines(f"{head}def f():\n    return 1\n", "cache") == []
    assert lines(f"{head}def f(x):\n    return 1\n", "cache") == [2]


def test_a_list_that_is_written_out_is_short() -> None:
    text = "KINDS = ['gzip', 'zip']\ndef f(x):\n    return x in KINDS\n"
    assert lines(text, "walks") == []
    assert lines(f"{text}KINDS.append(1)\n", "walks") == [3]
    assert lines(text.replace("['gzip', 'zip']", "[]"), "walks") == [3]


@pytest.mark.parametrize(
    ("work", "is_marked"),
    [
        ("self.all.add(each)", False),
        ("if each:\n        self.all.discard(each)", False),
        ("del self.all[each]", False),
        ("self.rows.append(each)", True),
        ("send(each)", True),
    ],
)
def test_a_loop_that_does_the_same_in_any_order(work: str, is_marked: bool) -> None:
    assert lines(body(f"for each in set(x):\n    {work}"), "set-order") == [2] * is_marked


@pytest.mark.parametrize(
    ("more", "is_marked"),
    [
        ("pass", True),
        ("held = self.rows\n    take = held.pop\n    return take()", False),
        ("held = self.rows\n    del held[:]", False),
    ],
)
def test_a_container_is_emptied_by_another_name(more: str, is_marked: bool) -> None:
    text = body("self.rows.append(x)") + f"\ndef g(self):\n    {more}\n"
    assert lines(text, "kept") == [2] * is_marked


@pytest.mark.parametrize(
    ("test", "is_marked"),
    [
        ("len(self.rows) > 9", True),
        ("self.size > self.limit", True),
        ("len(x) > self.width", False),
        ("y[0] > 3", False),
    ],
)
def test_a_comparison_that_is_of_no_size_is_no_bound(test: str, is_marked: bool) -> None:
    text = body(f"self.rows.append(x)\nif {test}:\n    self.rows.pop(0)\n")
    assert lines(text, "bounded") == [3] * is_marked


@pytest.mark.parametrize(
    ("raised", "is_marked"),
    [("E('none left')", True), ("errors.Gone", True), ("found[0]", False), ("last", False)],
)
def test_an_exception_that_was_caught_is_raised_itself(raised: str, is_marked: bool) -> None:
    text = "for each in x:\n    try:\n        y()\n    except OSError:\n        pass\n"
    assert lines(body(f"{text}raise {raised}\n"), "gives-up") == [7] * is_marked


@pytest.mark.parametrize(
    ("head", "text", "is_marked"),
    [
        ("", "return self.model.module", True),
        ("", "return net.module", True),
        ("", "return engine.module", False),
        ("from torch.nn.parallel import DistributedDataParallel", "return engine.module", True),
        ("", "return x.module if hasattr(x, 'module') else x", True),
        ("", "return self.module", False),
        ("", "return torch.nn.modules.module.hooks", False),
        ("", "return self.model.module()", False),
    ],
)
def test_what_has_an_attribute_module_may_be_no_wrapper(
    head: str, text: str, is_marked: bool
) -> None:
    assert lines(f"import torch\n{head}\n{body(text)}", "unwrapped") == [4] * is_marked


def test_a_method_of_an_attribute_module_of_no_model_is_none_of_a_wrapped_one() -> None:
    assert lines(body("self.graph.module.register(x)"), "calls-wrapped") == []
    assert lines(body("self.model.module.grow(x)"), "calls-wrapped") == [2]


def test_a_part_of_a_model_that_the_function_makes_is_not_replaced() -> None:
    make = "net.fc = nn.Linear(net.fc.n, 2)"
    assert lines(body(make), "replaces-module") == [2]
    assert lines(body(f"net = Net()\n{make}"), "replaces-module") == []


@pytest.mark.parametrize(
    ("text", "is_marked"),
    [
        ("for row in y:\n    if self.seen < x:\n        continue\n    g(row)", True),
        ("for n, row in enumerate(y):\n    if n < x:\n        continue\n    g(row)", True),
        ("for n, row in enumerate(y):\n    if n == x:\n        continue\n    g(row)", False),
        ("for n, row in enumerate(y):\n    if n not in x:\n        continue\n    g(row)", False),
        ("for n in range(9):\n    if x < y:\n        continue\n    g(n)", False),
    ],
)
def test_items_that_are_chosen_are_not_passed_over(text: str, is_marked: bool) -> None:
    assert lines(body(text), "passed-over") == [3] * is_marked


def test_statements_in_two_branches_do_not_follow_each_other() -> None:
    sends = "if x:\n    {0}self.sock.sendall(x)\n{1}    self.sock.sendall(y)\n"
    assert lines(body(sends.format("", "else:\n")), "two-writes") == []
    assert lines(body(sends.format("", "")), "two-writes") == [4]
    adds = "\ndef add(self, x):\n    self.rows.append(x)\n"
    late = "if x:\n    return list(self.rows)\nelif y:\n    g()\n    self.rows.clear()\n"
    assert lines(body(late) + adds, "emptied-late") == []
    late = "if x:\n    rows = list(self.rows)\n    g()\n    self.rows.clear()\n"
    assert lines(body(late) + adds, "emptied-late") == [5]


def test_a_lock_of_another_class_is_not_the_one_that_its_method_takes() -> None:
    text = (
        "class Lock:\n    def acquire(self):\n        self._block.acquire()\n"
        "    def release(self):\n        self._block.release()\n"
        "class Condition:\n    def wait(self, waiter):\n        waiter.acquire()\n"
        "        self.rows.append(read())\n        self.release()\n"
    )
    assert lines(text, "unreleased") == []
    own = text.replace("waiter.acquire()", "self.acquire()")
    assert lines(own, "unreleased") == [9]


def test_a_function_that_removes_hooks_registers_them_for_a_while() -> None:
    text = "h = x.register_forward_hook(y)\nx(y)\n"
    assert lines(body(text), "registers-hook") == [2]
    assert lines(body(f"{text}h.remove()\n"), "registers-hook") == []


def test_the_timer_of_timeit_registers_nothing() -> None:
    text = "def f(x):\n    return Timer(x, lambda: x).timeit()\n"
    assert list(registrations("/a.py", parsed(text))) == []
    text = "from threading import Timer\ndef f(x):\n    Timer(x, lambda: x).start()\n"
    assert len(list(registrations("/a.py", parsed(text)))) == 1


@pytest.mark.parametrize(
    ("returned", "is_marked"),
    [
        ("time.monotonic() > x", True),
        ("now - x > y", True),
        ("x is not None", False),
        ("[x > y, y]", False),
    ],
)
def test_a_comparison_of_a_function_that_reads_a_clock_is_of_something_else(
    returned: str, is_marked: bool
) -> None:
    text = body(f"now = time.time()\nlog(now)\nreturn {returned}")
    assert lines(text, "asks-clock") == [4] * is_marked


@pytest.mark.parametrize(
    ("text", "is_marked"),
    [
        ("self.rows.append(x)", True),
        ("self.total += x", True),
        ("other.rows.append(x)", False),
        ("self.text += 'line %d' % x", False),
    ],
)
def test_an_argument_is_kept_by_its_own_object(text: str, is_marked: bool) -> None:
    assert lines(body(text), "argument-kept") == [2] * is_marked


def test_a_part_of_a_list_or_dict_is_no_view() -> None:
    text = "import numpy\ndef f(self, x):\n    rows = {0}\n    self.kept.append(rows[1:x])\n"
    assert lines(text.format("load(x)"), "view") == [4]
    assert lines(text.format("[0, 1, 2]"), "view") == []
    assert lines(text.format("sorted(x)"), "view") == []


LAYERS = """
    import torch
    def {0}(self, x):
        kept = []
        for {1} in self.blocks:
            x = {2}(self.y, x)
            kept.append(x)
        return kept
"""


def test_a_pass_through_layers_keeps_its_graph_for_one_step() -> None:
    carried: MarkKind = "graph-carried"
    assert lines(LAYERS.format("run", "each", "model"), carried) == [6]
    assert lines(LAYERS.format("run", "layer_module", "layer_module"), carried) == []
    assert lines(LAYERS.format("forward", "each", "self.encoder"), carried) == []
    assert lines(LAYERS.format("run", "each", "model"), "graph-kept") == [7]
    assert lines(LAYERS.format("forward_features", "each", "model"), "graph-kept") == []


def test_a_write_that_is_awaited_waits_itself() -> None:
    text = "async def f(writer, rows):\n    for row in rows:\n        {0}writer.write(row)\n"
    assert lines(text.format(""), "undrained-write") == [3]
    assert lines(text.format("await "), "undrained-write") == []


def test_a_pattern_with_comments_is_read_as_one() -> None:
    text = 'import re\nP = re.compile(r"""a+ b+  # (x+x+)+y\n""", re.{0})\n'
    assert lines(text.format("VERBOSE"), "wide-pattern") == []
    assert lines(text.format("DOTALL"), "wide-pattern") == [2]
    uses = 'import re\nP = r"a+ b+  # (x+x+)+y"\ndef f(x):\n    re.search(P, x, {0})\n'
    assert lines(uses.format("re.X"), "uses-wide-pattern") == []
    assert lines(uses.format("0"), "uses-wide-pattern") == [4]


def test_a_list_that_is_given_to_a_function_may_be_a_new_one() -> None:
    text = "names = []\n{0}    return sorted(names)\n"
    assert lines(text.format("def f(names):\n"), "slow") == []
    assert lines(text.format("def f(x):\n"), "slow") == [3]


def test_a_very_long_function_is_marked_as_any_other() -> None:
    long = "def f(self):\n" + "    g(1)\n" * 3_000
    assert lines(f"{long}    gc.disable()\ndef h():\n    gc.disable()\n", "gc-off") == [
        long.count("\n") + 1,
        long.count("\n") + 3,
    ]


def test_the_kinds_of_marks_are_in_the_order_of_letters() -> None:
    assert list(get_args(MarkKind)) == sorted(get_args(MarkKind))


ROUNDS = """
import torch.distributed as dist

class Trainer:
    def fit(self, loader, lines, steps):
        for number, (images, labels) in enumerate(loader):
            {made}
            for each in {over}:
                {body}
"""


@pytest.mark.parametrize(
    ("made", "over", "body", "is_marked"),
    [
        ("found = labels.any(dim=0).nonzero().tolist()", "found", "self.loss.backward()", True),
        ("ids = labels.unique(); found = ids.tolist()", "found", "self.loss.backward()", True),
        ("pass", "labels.unique()", "dist.all_reduce(self.total)", True),
        ("found = [e for e in images if e.sum() > 0]", "found", "self.loss.backward()", True),
        ("found = images[labels > 0]", "found", "self.loss.backward()", True),
        ("longest = labels.max().item()", "range(longest)", "self.loss.backward()", True),
        ("found = set(labels)", "sorted(found)", "self.step(each)", True),
        ("found = labels.unique()", "found", "self.count += 1", False),
        ("found = labels.unique()", "images", "self.loss.backward()", False),
        ("found = labels.unique(); found = images", "found", "self.loss.backward()", False),
        ("pass", "zip(images, labels)", "self.loss.backward()", False),
        ("parts = images.chunk(4)", "parts", "self.loss.backward()", False),
        ("pass", "range(len(images))", "self.loss.backward()", False),
        ("n = labels.unique()", "range(len(n))", "self.loss.backward()", True),
        ("found = images / labels.max()", "found", "self.loss.backward()", False),
        ("found = set(lines)", "found", "self.loss.backward()", False),
        ("found = range(max(number, 3))", "found", "self.loss.backward()", False),
        ("n = labels.max(); dist.all_reduce(n)", "range(n.item())", "self.loss.backward()", False),
    ],
)
def test_a_loop_over_what_a_batch_contains(
    made: str, over: str, body: str, is_marked: bool
) -> None:
    step = "\n    def step(self, each):\n        self.loss.backward()\n"
    text = ROUNDS.format(made=made, over=over, body=body) + step

    assert lines(text, "batch-rounds") == [8] * is_marked


@pytest.mark.parametrize(
    ("filled", "is_marked"),
    [("groups[item.task].append(item)", True), ("groups[number].append(item)", False)],
)
def test_a_loop_over_a_dict_that_a_batch_fills(filled: str, is_marked: bool) -> None:
    text = f"""
        import torch

        def training_step(self, batch, number):
            groups = defaultdict(list)
            for item in batch:
                {filled}
            for task, items in groups.items():
                self.loss_of(task, items).backward()
    """

    assert lines(text, "batch-rounds") == [8] * is_marked


BY_HAND = """
import torch
from torch import nn
import torch.distributed as dist

class Layer(nn.Module):
    def __init__(self, units):
        self.lateral = nn.Parameter(torch.zeros(units, units), requires_grad=False)
        self.register_buffer("mean", torch.zeros(units))
        self.out = nn.Linear(units, units)

    def forward(self, x):
        z = torch.tanh(self.out(x))
        {forward}
        return z

    @torch.no_grad()
    def learn(self, z, rate=0.1):
        corr = z.t() @ z
        {learn}
"""


@pytest.mark.parametrize(
    ("forward", "learn", "is_marked"),
    [
        ("self.learn(z)", "self.lateral.data.mul_(0.9).add_(corr, alpha=rate)", True),
        ("self.learn(z, rate=0.2)", "self.lateral.copy_(corr)", True),
        ("self.learn(z)", "self.lateral.data = corr", True),
        ("self.learn(z)", "self.lateral[range(len(z))] += corr.sum()", True),
        ("self.learn(z)", "self.out.weight.data.sub_(corr)", True),
        ("self.lateral.data.add_(z.mean())", "pass", True),
        ("pass", "self.lateral.data.add_(corr)", False),
        ("self.learn(self.lateral)", "self.lateral.data.add_(corr)", False),
        ("self.learn(z)", "dist.all_reduce(corr); self.lateral.data.add_(corr)", False),
        ("self.learn(z)", "self.lateral.data.add_(average(corr))", False),
        ("self.learn(gathered(z))", "self.lateral.data.add_(corr)", False),
        ("self.learn(z)", "self.mean.mul_(0.9).add_(corr.mean(0))", False),
        ("self.learn(z)", "self.lateral.data.div_(self.lateral.norm())", False),
        ("self.learn(z)", "corr.add_(z)", False),
        ("self.learn(z)", "self.lateral.add(corr)", False),
    ],
)
def test_a_parameter_that_the_forward_pass_changes_by_its_batch(
    forward: str, learn: str, is_marked: bool
) -> None:
    text = BY_HAND.format(forward=forward, learn=learn)

    assert len(lines(text, "changed-by-hand")) == is_marked


@pytest.mark.parametrize(
    ("text", "is_marked"),
    [
        ("for p in x.parameters(): dist.all_reduce(p.data)", True),
        ("v = parameters_to_vector(x.parameters()); dist.broadcast(v, 0)", True),
        ("averager.average_parameters(x)", True),
        ("y.step(x.parameters())", False),
        ("dist.all_reduce(x)", False),
    ],
)
def test_a_function_that_may_share_parameters(text: str, is_marked: bool) -> None:
    assert bool(lines(body(text), "shares-parameters")) is is_marked


@pytest.mark.parametrize(
    ("text", "is_marked"),
    [
        ("return hash(x) % y", True),
        ("return abs(hash((x, y))) % len(y)", True),
        ("return hash(7) % y", False),
        ("return hash(len(x)) % y", False),
        ("return hash(x) & 0xFFFF", False),
        ("return self.hash(x) % y", False),
        ("return hash(x) == hash(y)", False),
    ],
)
def test_a_hash_that_chooses_nothing_is_as_good_as_any(text: str, is_marked: bool) -> None:
    assert lines(body(text), "text-hash") == [2] * is_marked


def test_a_function_of_the_file_called_hash_is_not_that_of_python() -> None:
    own = "def hash(x):\n    return crc32(x)\n"
    assert lines(own + body("return hash(x) % y"), "text-hash") == []


STOPS = """\
class Quiet:
    def on_step(self, control):
        pass

class Stop:
    def __init__(self):
        self.stop = False
    def on_step(self, control):
        if {test}:
            control.stop = {value}
            {more}
"""


@pytest.mark.parametrize(
    ("test", "value", "more", "is_marked"),
    [
        ("time.monotonic() - self.begun >= self.limit", "True", "pass", True),
        ("control.step > 9 and time.time() > self.end", "True", "pass", True),
        ("control.step > 9", "True", "pass", False),
        ("time.time() > self.end", "None", "pass", False),
        ("time.time() > self.end", "True", "self.stop = self.is_bad", False),
        ("time.time() > self.end", "True", "dist.all_reduce(self.flag)", False),
        ("time.time() > self.end", "True", "if self.rank == 0: log()", False),
    ],
)
def test_a_flag_that_no_clock_of_each_rank_sets_is_none(
    test: str, value: str, more: str, is_marked: bool
) -> None:
    text = STOPS.format(test=test, value=value, more=more)
    assert lines(text, "set-by-clock") == [9] * is_marked


RETRY = """\
while True:
    try:
        loss = x.step(y)
        {ends}
    except RuntimeError:
        if x.is_small:
            raise
        {goes_on}
"""


@pytest.mark.parametrize(
    ("ends", "goes_on", "is_marked"),
    [
        ("break", "x.parts *= 2", True),
        ("return loss", "continue", True),
        ("x.save(loss)", "x.parts *= 2", False),
        ("break", "raise", False),
        ("break", "return None", False),
    ],
)
def test_a_block_is_repeated_only_where_its_handler_goes_on(
    ends: str, goes_on: str, is_marked: bool
) -> None:
    text = body(RETRY.format(ends=ends, goes_on=goes_on))
    assert lines(text, "retries") == [6] * is_marked
    assert [each.about for each in marks("/a.py", parsed(text)) if each.kind == "retries"] == [
        "4-5"
    ] * is_marked


@pytest.mark.parametrize(("arguments", "found"), [("k[i]", [4]), ("k[i], v[i]", []), ("", [])])
def test_a_method_with_more_arguments_than_that_of_a_list_is_one_of_the_program(
    arguments: str, found: list[int]
) -> None:
    text = f"import torch\n\ndef step(session, k, v, i):\n    session.append({arguments})\n"

    assert lines(text, "view") == found


@pytest.mark.parametrize(
    ("pause", "found"),
    [
        ("min(self.first * self.factor ** self.tries, 15.0)", [8]),
        ("self.first << self.tries", [8]),
        ("self.end - self.tries", []),
        ("self.pauses[self.tries]", []),
    ],
)
@pytest.mark.parametrize("reset", ["", "self.tries = 0"])
def test_a_pause_that_is_computed_from_a_count_of_tries_gets_longer(
    pause: str, found: list[int], reset: str
) -> None:
    """Unless the count is set back."""
    text = f"""import time
def next_task(self):
    while True:
        if self.find():
            {reset or "pass"}
            return True
        pause = {pause}
        self.tries += 1
        time.sleep(pause * random.uniform(0.9, 1.1))
"""
    assert lines(text, "backoff") == ([] if reset else found)


@pytest.mark.parametrize(
    ("made", "more", "found"),
    [
        ("self.out = pickle.Pickler(file)", "pass", [7]),
        ("self.out = pickle.Pickler(file)", "self.out.clear_memo()", []),
        ("self.out = pickle.Pickler(file)", "self.out.memo = {}", []),
        ("out = pickle.Pickler(file)", "pass", []),
        ("self.out = Writer(file)", "pass", []),
    ],
)
def test_a_pickler_that_writes_all_messages_refers_to_them(
    made: str, more: str, found: list[int]
) -> None:
    text = f"""import pickle
class Stream:
    def __init__(self, file):
        {made}

    def send(self, message):
        self.out.dump(message)
        {more}
"""
    assert lines(text, "reuses-pickler") == found


EXPERTS = """
class Layer(nn.Module):
    def __init__(self, n):
        self.experts = nn.ModuleList(make() for _ in range(n))

    def forward(self, x, chosen):
        for number, expert in enumerate(self.experts):
            {test}
            y = y + expert(x[rows])
"""


@pytest.mark.parametrize(
    ("test", "lines_"),
    [
        ("if not (chosen == number).any(): continue", [9]),
        ("if len(rows) == 0: continue", [9]),
        ("if torch.rand(1) < self.drop: continue", [9]),
        ("if number >= len(self.experts) - 1: continue", []),
        ("if number % 2: continue", []),
        ("if self.frozen: continue", []),
        ("if rows.any(): x = x * 2", []),
    ],
)
def test_modules_of_a_list_that_a_forward_pass_leaves_out(test: str, lines_: list[int]) -> None:
    assert lines(EXPERTS.format(test=test), "passes-over-module") == lines_
    plain = EXPERTS.replace("nn.ModuleList(make() for _ in range(n))", "make(n)")
    assert lines(plain.format(test=test), "passes-over-module") == []


@pytest.mark.parametrize(
    ("statements", "is_marked"),
    [
        ('os.environ["MASTER_PORT"] = str(find_free_port())', True),
        ("port = pick()\nos.environ['MASTER_PORT'] = f'{port}'", True),
        ("port = pick()\ndist.init_process_group('gloo', f'tcp://localhost:{port}')", True),
        ("dist.init_process_group('gloo', init_method='file://' + tempfile.mkdtemp())", True),
        ("store = dist.TCPStore('localhost', 29500 + os.getpid() % 99, 2, rank == 0)", True),
        ("os.environ['MASTER_PORT'] = y", False),
        ("os.environ.setdefault('MASTER_PORT', str(find_free_port()))", False),
        ("if x:\n    os.environ['MASTER_PORT'] = str(find_free_port())", False),
        ("if x:\n    pass\nelse:\n    os.environ['MASTER_PORT'] = str(find_free_port())", False),
        ("os.environ['HTTP_PORT'] = str(find_free_port())", False),
        ("store = dist.TCPStore('localhost', 29500, 2, is_first(os.getpid()))", False),
        ("os.environ['MASTER_PORT'] = '29500'\nother = find_free_port()", False),
        ("port = os.environ.get('P', find_free_port())\nos.environ['MASTER_PORT'] = port", False),
        ("os.environ['MASTER_PORT'] = args.port or find_free_port()", False),
        (
            "port = args.port\nif not port:\n    port = pick()\nos.environ['MASTER_PORT'] = port",
            False,
        ),
        ("port = comm.bcast(find_free_port())\nos.environ['MASTER_PORT'] = str(port)", False),
        ("try:\n    y()\nexcept KeyError:\n    os.environ['MASTER_PORT'] = pick()", False),
    ],
)
def test_where_ranks_meet_that_each_process_chooses(statements: str, is_marked: bool) -> None:
    pick = "def pick():\n    s = bound()\n    return s.getsockname()[1]\n\n"

    assert bool(lines(pick + body(statements), "own-rendezvous")) is is_marked


SWAP = """\
import torch


class Optimizers:
    def swap(self, index, value):
        group = self.optimizer.param_groups[index]
        parameter = torch.nn.Parameter(value)
        {asks}
        group["params"][0] = parameter
"""


@pytest.mark.parametrize(
    ("asks", "about"),
    [
        ("del self.optimizer.state[index]", "index, 8"),
        ("state = self.optimizer.state.pop(group['name'], {})", "group['name'], 8"),
        ("state = self.optimizer.state.get(0)", "0, 8"),
        ("key = id(value)\n        del self.optimizer.state[key]", "key, 9"),
        ("del self.optimizer.state[group['params'][0]]", ""),
        ("old = group['params'][0]\n        state = self.optimizer.state.pop(old, {})", ""),
        ("state = self.optimizer.state[value]", ""),
        ("self.optimizer.state[parameter] = self.optimizer.state[index]\n"
         "        del self.optimizer.state[group['params'][0]]", ""),
        ("pass", ""),
    ],
)  # fmt: skip
def test_a_replaced_parameter_whose_state_is_asked_for_by_another_key(
    asks: str, about: str
) -> None:
    found = list(replaced_parameters("/a.py", parsed(SWAP.replace("{asks}", asks))))

    assert [each.mark.about for each in found] == ([about] if about else [])


@pytest.mark.parametrize(
    ("statement", "kinds"),
    [
        ("warnings.warn(f'{name}: {box} is outside')", ["warns-anew"]),
        ("warnings.warn('%s is outside' % name, stacklevel=2)", ["warns-anew"]),
        ("text = 'box {}'.format(box)\n    warnings.warn(UserWarning(text))", []),
        ("text = 'box {}'.format(box)\n    warnings.warn(text, UserWarning)", ["warns-anew"]),
        ("warnings.warn(RuntimeWarning(f'box {box}'))", ["warns-anew"]),
        ("warnings.warn('a box is outside')", []),
        ("warnings.warn(f'more than {LIMIT} boxes')", []),
        ("warnings.warn(f'{name} is deprecated', DeprecationWarning)", []),
        ("log.warn(f'{name}: {box} is outside')", []),
        ("warnings.simplefilter('always')", ["warning-filter"]),
        ("warnings.simplefilter('once')", []),
        ("with warnings.catch_warnings():\n        warnings.warn('one')", ["warning-filter"]),
    ],
)
def test_a_text_of_a_warning_that_differs_from_call_to_call(
    statement: str, kinds: list[str]
) -> None:
    text = f"import warnings\n\n\ndef clip(name, box):\n    {statement}\n"

    assert [each.kind for each in marks("/a.py", parsed(text)) if "warn" in each.kind] == kinds
