"""Calls of libraries that do more, or less, than their line shows."""

from __future__ import annotations

import ast
import textwrap

import pytest

from mpwatch.collect.source.ambiguous_patterns import matches_in_many_ways
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


def test_a_queue_handler_of_the_logger_of_multiprocessing() -> None:
    own = """
        def attach(log_queue):
            logger = {get}
            handler = logging.StreamHandler()
            logger.addHandler(handler)
            logger.addHandler(logging.handlers.QueueHandler(log_queue))
    """

    assert found(own.format(get="mp.get_logger()"), "queue-handler") == [("attach", "", 6)]
    assert found(own.format(get='logging.getLogger("mine")'), "queue-handler") == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("m = mp.Manager()\nq = m.Queue()", ["q"]),
        ("self.manager = ctx.Manager()\nself.jobs = self.manager.Queue()", ["self.jobs"]),
        ("with Manager() as m:\n    q = m.JoinableQueue(maxsize=0)", ["q"]),
        ("q = mp.Manager().Queue(-1)", ["q"]),
        ("run(work, self.manager.Queue())", [""]),
        ("m = mp.Manager()\nq = m.Queue(64)", []),
        ("m = mp.Manager()\nq = m.Queue(maxsize=limit)", []),
        ("m = mp.Manager()\nq = m.list()", []),
        ("q = mp.Queue()", []),
        ("ctx = mp.get_context('spawn')\nq = ctx.Queue()", []),
        ("q = queue.Queue()", []),
    ],
)
def test_a_queue_of_a_manager_without_a_bound(text: str, names: list[str]) -> None:
    assert [about for _, about, _ in found(text, "managed-queue")] == names


def test_a_loop_of_a_coroutine_that_writes_and_never_drains() -> None:
    relay = """
        async def forward(source, writer):
            while True:
                frame = await source.get()
                writer.write(frame)
                {drains}
    """

    assert found(relay.format(drains="pass"), "undrained-write") == [("forward", "writer", 5)]
    assert found(relay.format(drains="await writer.drain()"), "undrained-write") == []
    once = "async def f(writer):\n    writer.write(b'x')\n"
    assert found(once, "undrained-write") == []
    to_file = "async def f(out):\n    for row in rows:\n        out.write(row)\n"
    assert found(to_file, "undrained-write") == []


@pytest.mark.parametrize(
    "sent",
    ["HEADER.pack(len(text)) + text.encode()", 'len(text).to_bytes(4, "big") + text.encode()'],
)
def test_the_length_of_a_text_before_its_encoded_bytes(sent: str) -> None:
    send = f"def send(sock, text):\n    sock.sendall({sent})\n"

    assert found(send, "length-of-text") == [("send", "text", 2)]


def test_the_length_of_encoded_bytes_is_their_number() -> None:
    send = (
        "def send(sock, text):\n    {0} = text.encode()\n    sock.sendall(H.pack(len({0})) + {0})\n"
    )

    assert found(send.format("data"), "length-of-text") == []
    assert found(send.format("text"), "length-of-text") == []


def test_a_watchdog_that_ends_its_process() -> None:
    arms = "def arm(s):\n    faulthandler.dump_traceback_later({})\n"

    assert found(arms.format("s * 2, exit=True"), "exits-late") == [("arm", "s * 2; 1; ; ", 2)]
    assert found(arms.format("timeout=9, exit=True"), "exits-late") == [("arm", "9; 1; ; ", 2)]
    assert found(arms.format("s, repeat=True"), "exits-late") == []


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("if rows: return 1\n    cancel_dump_traceback_later()", "3"),
        ("try: rows()\n    except OSError: return 1\n    cancel_dump_traceback_later()", "4"),
        ("rows()\n    cancel_dump_traceback_later()", "raise of 3"),
        ("try: return rows()\n    finally: cancel_dump_traceback_later()", ""),
        ("cancel_dump_traceback_later()\n    return 1", ""),
    ],
)
def test_a_watchdog_that_its_function_leaves_armed(body: str, left: str) -> None:
    text = f"def arm(rows):\n    dump_traceback_later(9, exit=True, file=log)\n    {body}\n"

    assert found(text, "exits-late") == [("arm", f"9; 1; log; {left}", 2)]


@pytest.mark.parametrize(
    ("body", "about"),
    [
        ("return as_strided(rows, shape=(n, 4), strides=(s, s))", "rows; n"),
        ("count = n // 4\n    return as_strided(rows, (count, 4), (s, s))", "rows; n"),
        ("return np.lib.stride_tricks.as_strided(rows, shape=(n, 4), strides=(s, s))", "rows; n"),
        ("n = len(rows) - 3\n    return as_strided(rows, (n, 4), (s, s))", ""),
        ("n = min(n, rows.shape[0])\n    return as_strided(rows, (n, 4), (s, s))", ""),
        ("assert n <= rows.size\n    return as_strided(rows, (n, 4), (s, s))", ""),
        ("check(rows, n)\n    return as_strided(rows, (3, 4), (s, s))", ""),  # of a written shape
        ("return torch.as_strided(rows, (n, 4), (s, s))", ""),  # it raises
        ("return rows.as_strided((n, 4), (s, s))", ""),
        ("return (c_float * n).from_address(rows)", "rows; "),
        ("return (c_float * n).from_address(rows.data_ptr())", ""),
        ("return ctypes.string_at(rows + n, s)", "rows + n; "),
        ("assert n < s\n    return ctypes.string_at(rows + n, 4)", ""),
    ],
)
def test_a_view_whose_shape_nothing_compares_with_the_array(body: str, about: str) -> None:
    text = f"def view(rows, n, s):\n    {body}\n"

    assert [each[1] for each in found(text, "unchecked-view")] == [about] * bool(about)


def test_a_timer_that_ends_its_process_is_one_where_its_function_leaves_it_running() -> None:
    text = (
        "def arm(rows):\n    timer = Timer(9, os._exit, args=(3,))\n    timer.start()\n"
        "    if rows: return 1\n    timer.cancel()\n"
    )
    runs_out = text.replace("    timer.cancel()\n", "")

    assert found(text, "exits-late") == [("arm", "9; 3; nothing; 4", 2)]
    assert found(text.replace("(3,)", "(0,)"), "exits-late") == []
    assert found(runs_out, "exits-late") == []


def test_a_part_of_a_model_that_is_made_anew_and_the_call_of_a_wrapped_model() -> None:
    model = """
        class Net(nn.Module):
            def __init__(self):
                self.head = nn.Linear(4, 2)
                print(self.head)

            def add_classes(self, count):
                old = self.head
                self.head = nn.Linear(old.in_features, old.out_features + count)
                self.scale = torch.tensor(1.0)

            def forward(self, x):
                return self.head(x)
    """

    assert found(model, "replaces-module") == [("add_classes", "self.head", 9)]
    by_name = """
        def expand(self, n):
            old = self.head
            new = nn.Linear(4, old.out_features + n).to(old.weight.device)
            self.head = new
            self.weight = torch.nn.functional.softmax(old.weight)
    """
    assert found(by_name, "replaces-module") == [("expand", "self.head", 5)]
    grows = "def next_task(model):\n    model.module.add_classes(3)\n"
    assert found(grows, "calls-wrapped") == [("next_task", "add_classes", 2)]
    assert found(f"{grows}    return DDP(model.module)\n", "calls-wrapped") == []


def test_backward_passes_in_a_loop_before_one_step() -> None:
    step = """
        def train_step(self):
            for _ in range(self.rounds):
                loss = self.model(x)
                loss.backward()
            {after}
    """

    assert found(step.format(after="self.optim.step()"), "accumulates") == [
        ("train_step", "3, 6", 5)
    ]
    assert found(step.format(after="    self.optim.step()"), "accumulates") == []
    assert found(step.format(after="model.no_sync(); self.optim.step()"), "accumulates") == []
    assert found(step.format(after="return loss"), "accumulates") == []
    assert found(step.format(after="self.env.step(1)"), "accumulates") == []
    before = "def f(opt):\n    opt.step()\n    for x in xs:\n        loss.backward()\n"
    assert found(before, "accumulates") == []


@pytest.mark.parametrize(
    ("pattern", "is_wide"),
    [
        (r"\b\S+@\S+\.\S+\b", True),
        (r"(a+)+$", True),
        (r"(\w+)*x", True),
        (r"(x+x+)+y", True),
        (r".*foo.*bar", True),
        (r"(?:\d+|[a-f0-9]+)+:", True),
        (r"\d+-\d+", False),
        (r"\w+@\w+\.\w+", False),
        (r"\w+\s*=\s*\w+", False),
        (r"^\s+|\s+$", False),
        (r"\S{1,64}@\S{1,64}", False),
        (r"https?://\S+", False),
        (r"[^\s@]+@[^\s@]+", False),
        (r"(unbalanced", False),
        (r"^(?:[A-Za-z0-9]+_?)+\(\)$", True),
        (r"^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+$", False),
        (r"\[\d+(?:,\s*\d+)*\]", False),
        (r"(a+)+", False),
        (r"(?:\d{1,3}\.?)+$", True),
        (r"(a|b|ab)*c", True),
        (r"(?:\s*,\s*)+;", True),
        (r"(?:\s*,)+;", False),
        (r"<(.*)>.*</\1>$", True),
        (r"\s+$", False),
        (r"\d+(?=x)\d+", False),
        (r"\d+(?=x)\d+y", True),
        (r"(x)\d+\1\d+", False),
        (r"\S+@" * 1000, False),
    ],
)
def test_a_pattern_that_can_match_the_same_text_in_many_ways(pattern: str, is_wide: bool) -> None:
    assert matches_in_many_ways(pattern) is is_wide


def test_patterns_of_the_module_re_only() -> None:
    uses = """
        EMAIL = re.compile(r"\\S+@\\S+\\.")
        PHONE = re.compile(r"\\d+-\\d+")
        FILES = folder.match(r"\\S+@\\S+")
    """

    assert found(uses, "wide-pattern") == [("<module>", "\\S+@\\S+\\.", 2)]


@pytest.mark.parametrize(
    ("starts", "kills", "about"),
    [
        (
            "p = subprocess.Popen(['x'])",
            "os.killpg(os.getpgid(p.pid), signal.SIGKILL)",
            "SIGKILL, 3",
        ),
        ("p = Process(target=f)", "os.killpg(p.pid, SIGTERM)", "SIGTERM, 3"),
        ("p = Popen(['x'], start_new_session=True)", "os.killpg(p.pid, SIGTERM)", None),
        ("p = Popen(['x'], preexec_fn=os.setsid)", "os.killpg(p.pid, SIGTERM)", None),
        ("p = run_elsewhere()", "os.killpg(p.pid, SIGTERM)", None),
        ("p = Popen(['x'])", "p.kill()", None),
    ],
)
def test_signals_to_the_group_of_a_child_without_one(
    starts: str, kills: str, about: str | None
) -> None:
    text = f"""
        def score(self):
            {starts}
            {kills}
    """

    assert found(text, "kills-group") == ([] if about is None else [("score", about, 4)])


FREEZES = """
    class Tuning:
        def setup(self, module):
            for p in module.backbone.parameters():
                p.requires_grad = False
        def on_epoch(self, module):
            {0}
            for p in module.backbone.parameters():
                p.requires_grad = True
"""


def test_parameters_that_are_frozen_and_unfrozen_in_two_functions() -> None:
    assert found(FREEZES.format("pass"), "unfreezes") == [("on_epoch", "module.backbone, 5", 9)]
    assert found(FREEZES.format("model = DDP(module)"), "unfreezes") == []
    other = FREEZES.format("pass").replace("module.backbone", "module.head", 1)
    assert found(other, "unfreezes") == []
    toggles = """
        def round(self):
            self.critic.requires_grad_(False)
            self.critic.requires_grad_(True)
        def freeze(self):
            self.actor.requires_grad_(False)
        def thaw(self):
            self.actor.requires_grad_()
    """
    assert found(toggles, "unfreezes") == [("thaw", "self.actor, 6", 8)]
    apart = """
        def freeze(self):
            for p in self.a.parameters():
                p.requires_grad_(False)
        def thaw(self):
            for p in self.{0}.parameters():
                p.requires_grad_(True)
    """
    assert found(apart.format("b"), "unfreezes") == []
    assert found(apart.format("a"), "unfreezes") == [("thaw", "self.a, 4", 7)]
    assert found("model = nn.DataParallel(m)\nmodel = DDP(m)\n", "wraps") == [
        ("<module>", "DDP", 2)
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("g.deadline = time.monotonic() + self.wait", [("ready", "g.deadline", 3)]),
        ("self.flush_at = self.wait + monotonic()", [("ready", "self.flush_at", 3)]),
        ("self.due[key] = time.time() + 5", [("ready", "self.due[key]", 3)]),
        ("g.deadline = g.deadline or time.monotonic() + 5", []),
        ("g.deadline = time.monotonic() + 5 if g.deadline is None else g.deadline", []),
        ("if g.deadline is None: g.deadline = time.monotonic() + 5", []),
        ("deadline = time.monotonic() + 5", []),
        ("self.started = time.monotonic() + 0.5", []),
        ("self.deadline = start + 5", []),
    ],
)
def test_deadlines_that_are_set_anew_each_time(
    body: str, expected: list[tuple[str, str, int]]
) -> None:
    text = f"""
        def ready(self, g, key):
            {body}

        def is_due(self, g, key, now):
            return g.deadline <= now or self.flush_at <= now or self.due[key] <= now
    """

    assert found(text, "renews-deadline") == expected


NEWEST = """
    def save(model, version):
        torch.save(model, f"model_{0}.pt")

    def newest(folder):
        {1}
"""


@pytest.mark.parametrize(
    ("number", "newest", "line"),
    [
        ("{version}", 'paths = sorted(glob.glob("model_*.pt"));  return paths[-1]', 6),
        ("{version}", "return max(os.listdir(folder))", 6),
        ("{version}", "return sorted(folder.iterdir(), reverse=True)[0]", 6),
        ("{version}", "paths = os.listdir(folder); paths.sort(); return paths[-1]", 6),
        ("{version:05d}", "return max(os.listdir(folder))", None),
        ("{version}", "return max(os.listdir(folder), key=version_of)", None),
        ("{version}", "return sorted(os.listdir(folder), key=os.path.getmtime)[-1]", None),
        ("{version}", "return sorted(os.listdir(folder))", None),
        ("{version}", "return max(sizes)", None),
    ],
)
def test_names_of_files_with_numbers_that_are_sorted_as_texts(
    number: str, newest: str, line: int | None
) -> None:
    text = NEWEST.format(number, newest)

    expected = [] if line is None else [("newest", "model_{version}.pt", line)]
    assert found(text, "text-order") == expected


@pytest.mark.parametrize(
    ("calls", "about"),
    [
        ("loss = model.module.encode(x).mean()", "model"),
        ("loss = f(self.net.module(x))", "self.net"),
        ("loss = f(model(x), model.module.penalty(x))", None),
        ("n = sum(p.numel() for p in model.module.parameters()); loss = f(x)", None),
        ("model.module.load_state_dict(x); loss = f(x)", None),
        ("loss = self.module(x)", None),
        ("loss = f(x)", None),
    ],
)
def test_a_model_that_is_trained_past_its_wrapper(calls: str, about: str | None) -> None:
    text = f"""
        def step(self, model, x):
            {calls}
            loss.backward()
    """

    assert found(text, "trains-unwrapped") == ([] if about is None else [("step", about, 3)])
    assert found(text.replace("loss.backward()", "return loss"), "trains-unwrapped") == []


def test_calls_that_a_coroutine_gives_to_a_thread() -> None:
    text = """
        async def stage(self, source):
            await asyncio.wait_for(loop.run_in_executor(None, self.work, source), 4)
            await asyncio.to_thread(load, source)
            await loop.run_in_executor(pool)
            self.pool.run(load, source)
    """

    assert sorted(found(text, "runs-in-thread")) == [
        ("stage", "load", 4),
        ("stage", "self.work", 3),
    ]


def test_the_number_of_threads_for_remote_calls() -> None:
    text = """
        options = rpc.TensorPipeRpcBackendOptions(
            rpc_timeout=900,
            num_worker_threads=args.threads,
        )
        other = Options(num_worker_threads=1)
    """

    assert found(text, "rpc-threads") == [("<module>", "args.threads", 4)]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            "trains-unwrapped",
            """
            def train(model, x, out):
                step(x).backward()
                model.module.save_pretrained(out)
         """,
        ),
        (
            "text-order",
            """
            def newest(folder, user):
                save(f"user_{user}.json")
                return max(os.path.getmtime(p) for p in glob.glob(folder))
         """,
        ),
        (
            "renews-deadline",
            """
            def lease(self, now):
                self.deadline = time.monotonic() + 5
         """,
        ),
        (
            "unfreezes",
            """
            def freeze(model):
                for p in model.body.parameters():
                    p.requires_grad = False
                for p in model.head.parameters():
                    p.requires_grad = True
         """,
        ),
    ],
)
def test_innocent_lines_are_not_marked(kind: str, text: str) -> None:
    assert found(text, kind) == []


def test_a_long_chain_of_assignments_is_read() -> None:
    chain = "".join(f"        a{n + 1} = a{n}\n" for n in range(600))
    text = f"""
    def f(s):
        a0 = re.compile("x")
{chain}        return a600.match(s)
    """

    assert found(text, "uses-wide-pattern") == []


CALLBACKS = """
class Table:
    def add(self, row):
        self.rows[row["id"]] = row
        self.means.append(row["mean"])

    def careful(self, row):
        try:
            self.means.append(row["mean"])
        except KeyError:
            pass

    def asks(self, row):
        if "mean" in row:
            self.means.append(row["mean"])

    def counts(self, row):
        self.seen += 1
        self.means.append(row[0])

    def passes_on(self, row):
        self.add(row)


def run(pool, table, out, items, report):
    for item in items:
        pool.apply_async(work, (item,), callback=table.add)
        pool.apply_async(work, (item,), callback=table.careful)
        pool.apply_async(work, (item,), callback=table.asks)
        pool.apply_async(work, (item,), callback=table.counts)
        pool.apply_async(work, (item,), callback=table.passes_on)
        pool.apply_async(work, (item,), callback=out.append)
        pool.apply_async(work, (item,), callback=lambda row: out.append(row["mean"]))
        pool.apply_async(work, (item,), error_callback=report.failed)
        pool.submit(work, item, callback=table.add)
"""


def test_callbacks_of_a_pool_that_may_raise_a_key_error_are_marked() -> None:
    both = "table.add; 4 row['id']; 5 row['mean']"
    assert sorted(found(CALLBACKS, "pool-callback"), key=lambda each: each[2]) == [
        ("run", f"callback, {both}", 27),
        ("run", f"callback, {both.replace('add', 'passes_on')}", 31),
        ("run", "callback, lambda row: out.append(row['mean']); 33 row['mean']", 33),
        ("run", "error_callback, report.failed", 34),
    ]


def test_what_opens_a_connection_is_marked() -> None:
    text = """
        conn = psycopg2.connect(DSN)
        session = requests.Session()
        files = sqlite3.connect(PATH)
        session = tf.Session()
        button.connect(pressed)

        class Store:
            async def begin(self):
                self.pool = await asyncpg.create_pool(DSN)
                self.sock.connect((HOST, PORT))
    """

    assert sorted(found(text, "opens-connection"), key=lambda each: each[2]) == [
        ("<module>", "conn, psycopg2.connect", 2),
        ("<module>", "session, requests.Session", 3),
        ("begin", "self.pool, asyncpg.create_pool", 10),
        ("begin", "self.sock, self.sock.connect", 11),
    ]


def test_ends_of_processes_by_terminate_are_marked() -> None:
    text = """
        def shrink(self):
            server = subprocess.Popen(["serve"])
            self.procs.pop().terminate()
            self.pool.terminate()
            server.terminate()
            terminate()
            self.episode.terminate(3)
    """

    assert sorted(found(text, "terminates"), key=lambda each: each[2]) == [
        ("shrink", "self.procs.pop()", 4),
        ("shrink", "self.pool", 5),
    ]


def test_signals_that_end_a_process_without_a_handler_are_marked() -> None:
    text = """
        def tell(children, process, group):
            for child in children:
                os.kill(child.pid, signal.SIGUSR2)
            process.send_signal(signal.SIGHUP)
            os.killpg(group, signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(process.pid, signal.SIGTERM)
            process.kill()
            signal.signal(signal.SIGUSR1, tell)
    """

    assert sorted(found(text, "sends-signal"), key=lambda each: each[2]) == [
        ("tell", "SIGUSR2", 4),
        ("tell", "SIGHUP", 5),
        ("tell", "SIGUSR1", 6),
    ]


@pytest.mark.parametrize(
    ("text", "abouts"),
    [
        ("os.sched_setaffinity(0, {self.core})", ["one"]),
        ("os.sched_setaffinity(os.getpid(), [rank % os.cpu_count()])", ["one"]),
        ("cpus = [first]\nos.sched_setaffinity(0, set(cpus))", ["one"]),
        ("psutil.Process().cpu_affinity([core])", ["one"]),
        ("os.sched_setaffinity(0, cpus)", [""]),
        ("os.sched_setaffinity(0, {first, *more})", [""]),
        ("os.sched_setaffinity(0, {*more})", [""]),
        ("numa.schedule.run_on_nodes(node)", [""]),
        ("print(psutil.Process().cpu_affinity())", []),
        ("os.sched_setaffinity(0, range(os.cpu_count()))", []),
        ("os.sched_setaffinity(0, set(range(8)))", []),
        ("before = os.sched_getaffinity(0)\nos.sched_setaffinity(0, before)", []),
    ],
)
def test_calls_that_set_the_cpus_of_a_process(text: str, abouts: list[str]) -> None:
    assert [about for _, about, _ in found(text, "sets-affinity")] == abouts


def test_times_that_are_noted_and_judged_are_marked() -> None:
    text = """
        async def beat(beats, number):
            while True:
                beats[number] = time.monotonic()

        def check(self):
            now = time.monotonic()
            self.checked = now
            for name, seen in self.seen.items():
                if now - seen > self.ttl:
                    self.workers[name].kill()
            idle = time.time() - self.beat.value
            if idle >= 30 and self.is_on:
                self.end()
            if now - self.started.get(name, 0.0) < 5:
                pass
            if now - now > 5:
                pass
    """

    assert sorted(found(text, "notes-time"), key=lambda each: each[2]) == [
        ("beat", "beats, async again", 4),
        ("check", "checked, once", 8),
    ]
    assert sorted(found(text, "judges-silence"), key=lambda each: each[2]) == [
        ("check", "seen, 11, self.ttl", 10),
        ("check", "beat, 14, 30", 13),
    ]
    harmless = text.replace(".kill()", ".log()")
    assert not found(harmless, "judges-silence")
