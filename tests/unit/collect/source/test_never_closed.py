"""What each round of a program makes, and nothing that it reaches closes."""

from __future__ import annotations

import ast
import textwrap

import pytest

from mpwatch.collect.source.growth.never_closed import never_closed
from mpwatch.collect.source.repetition import Call, calls_of, repeated
from mpwatch.collect.source.syntax import ParsedFile


def parsed(text: str) -> ParsedFile:
    text = textwrap.dedent(text)
    return ParsedFile(tuple(text.splitlines()), ast.parse(text))


def told(**texts: str) -> list[str]:
    """What marks say of a program of these files, without the loop."""
    files = [(f"/home/me/{name}.py", parsed(text)) for name, text in texts.items()]
    calls: dict[str, list[Call]] = {}
    for path, module in files:
        for call in calls_of(path, module):
            calls.setdefault(call.name, []).append(call)
    return [mark.about.partition(";")[0] for _, mark in repeated(never_closed(files), calls)]


FEED = """
    import threading

    class Feed:
        def __init__(self, path):
            self.path = path
            self.done = threading.Event()
            self.thread = threading.Thread(target=self._run, daemon=True)
            self.thread.start()

        def _run(self):
            while not self.done.wait(0.1):
                self.path.touch()

        def take(self):
            return self.path

        def close(self):
            self.done.set()
            self.thread.join()
"""
IS_LEFT = ["threads, Feed, close, feed.py:8, none"]


def rounds(*lines: str) -> str:
    """A function that a loop calls."""
    body = "".join(f"    {each}\n" for each in lines)
    return f"def main():\n    for path in paths:\n        work(path)\n\ndef work(path):\n{body}"


@pytest.mark.parametrize(
    "lines",
    [
        ("feed = Feed(path)", "return feed.take()"),
        ("Feed(path)",),
        ("Feed(path).take()",),
        ("feed = feeds.Feed(path)", "if feed:", "    print(f'{feed}')"),
        ("feed = Feed(path)", "feed.take()", "feed = None"),
        ("feed = Feed(path)", "show(feed)"),
    ],
)
def test_a_thread_that_each_round_starts_and_no_call_ends(lines: tuple[str, ...]) -> None:
    shows = "def show(feed):\n    print(feed.take())\n"

    assert told(feed=FEED, main=rounds(*lines), more=shows) == IS_LEFT


@pytest.mark.parametrize(
    "lines",
    [
        ("feed = Feed(path)", "feed.take()", "feed.close()"),
        ("feed = Feed(path)", "try:", "    feed.take()", "finally:", "    feed.close()"),
        ("with closing(Feed(path)) as feed:", "    feed.take()"),
        ("with Feed(path) as feed:", "    feed.take()"),
        ("feed = stack.enter_context(Feed(path))",),
        ("feed = Feed(path)", "stack.callback(feed.close)"),
        ("feed = Feed(path)", "feeds.append(feed)"),
        ("feed = Feed(path)", "return feed"),
        ("return Feed(path)",),
        ("feed = Feed(path)", "finish(feed)"),
        ("feed = Feed(path)", "feed.done.set()", "feed.stop()"),
        ("feed = Feed(path)", "def end():", "    feed.close()", "atexit.register(end)"),
        ("feed = Feed(path)", "feed = other(path)"),
        ("feed = Feed(path)", "if feed.take():", "    feed.close()"),
        ("if path:", "    feed = Feed(path)", "    feed.close()"),
        ("global feed", "feed = Feed(path)"),
    ],
)
def test_what_a_round_closes_or_may_close(lines: tuple[str, ...]) -> None:
    ends = "def finish(feed):\n    feed.close()\n"

    assert told(feed=FEED, main=rounds(*lines), more=ends) == []


def test_an_object_that_a_round_closes_under_a_condition_only() -> None:
    lines = ("feed = Feed(path)", "if path.exists():", "    feed.close()")

    (about,) = told(feed=FEED, main=rounds(*lines))

    assert about == "threads, Feed, close, feed.py:8, if path.exists(): in line 7"


def test_an_object_that_is_made_once() -> None:
    assert told(feed=FEED, main="def main():\n    feed = Feed(1)\n    feed.take()\n") == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def take(self):", "def __del__(self):"),
        ("while not self.done.wait(0.1):", "if self.path:"),
        ("target=self._run", "target=run"),
        ("class Feed:", "class Feed(Base):"),
        ("self.thread.start()", "self.ready = True"),
        ("self.path = path\n", "self.path = path\n            weakref.finalize(self, end)\n"),
        (
            "def close(self):",
            "def more(self):\n            self.close()\n\n        def close(self):",
        ),
    ],
)
def test_objects_that_may_release_what_they_have(before: str, after: str) -> None:
    line = "Feed(path).more()" if "more" in after else "Feed(path).take()"
    assert before in FEED

    assert told(feed=FEED.replace(before, after), main=rounds(line)) == []


HAS_FEED = """
    class Skill:
        def __init__(self, path):
            self.feed = Feed(path)

        def act(self):
            return plan(self.feed, 3)

    def plan(feed, n):
        return feed.take()

    def main():
        while True:
            skill = Skill(1)
            skill.act()
"""


def test_an_object_in_an_object_of_which_close_has_no_caller() -> None:
    assert told(feed=FEED, main=HAS_FEED) == ["threads, Skill, feed.close, feed.py:8, none"]


@pytest.mark.parametrize(
    "more",
    [
        "def end(skill):\n    skill.feed.close()\n",
        "def end(feed):\n    feed.close()\n",
    ],
)
def test_an_object_in_an_object_that_another_file_may_close(more: str) -> None:
    assert told(feed=FEED, main=HAS_FEED, more=more) == []


def over(*lines: str, more: str = "") -> str:
    body = "".join(f"        {each}\n" for each in lines)
    return (
        "class Env:\n    def __init__(self):\n        self.feed = None\n\n"
        f"    def reset(self, path):\n{body}\n"
        "    def close(self):\n        if self.feed is not None:\n            self.feed.close()\n\n"
        f"def main(env):\n    for path in paths:\n        env.reset(path)\n{more}    env.close()\n"
    )


def test_an_attribute_that_is_given_a_new_object_over_the_former_one() -> None:
    every = told(feed=FEED, main=over("self.feed = Feed(path)", "self.feed.take()"))

    assert every == ["threads, Feed, close, feed.py:8, over"]


def test_an_attribute_whose_former_object_is_closed_under_a_condition() -> None:
    lines = ("if self.viewer:", "    self.feed.close()", "self.feed = Feed(path)")

    (about,) = told(feed=FEED, main=over(*lines))

    assert about == "threads, Feed, close, feed.py:8, over if self.viewer: in line 6"


@pytest.mark.parametrize(
    ("lines", "more"),
    [
        (("self.close()", "self.feed = Feed(path)"), ""),
        (("if self.feed is not None:", "    self.feed.close()", "self.feed = Feed(path)"), ""),
        (("if self.feed is None:", "    self.feed = Feed(path)"), ""),
        (("if self.feed:", "    return", "self.feed = Feed(path)"), ""),
        (("self.feed = Feed(path)",), "        env.close()\n"),
        (("old = self.feed", "self.feed = Feed(path)", "old.close()"), ""),
        (("feeds.append(self.feed)", "self.feed = Feed(path)"), ""),
    ],
)
def test_an_attribute_whose_former_object_is_closed(lines: tuple[str, ...], more: str) -> None:
    assert told(feed=FEED, main=over(*lines, more=more)) == []


NUMBER = """
    import os

    class Lock:
        def __init__(self, path):
            self.fd = os.open(path, os.O_RDWR)

        def take(self):
            fcntl.flock(self.fd, 2)
"""


def test_a_descriptor_that_is_an_attribute_and_a_number() -> None:
    closes = "\n        def close(self):\n            os.close(self.fd)\n"
    calls = rounds("Lock(path).take()")

    assert told(lock=NUMBER, main=calls) == ["file, Lock, , lock.py:6, none"]
    assert told(lock=NUMBER + closes, main=calls) == ["file, Lock, close, lock.py:6, none"]
    assert told(lock=NUMBER, main=calls, more="def f(lock):\n    os.close(lock.fd)\n") == []
    given = NUMBER.replace("fcntl.flock(self.fd, 2)", "self.file = os.fdopen(self.fd)")
    assert told(lock=given, main=calls) == []


CHILD = """
    import subprocess

    class Engine:
        def __init__(self, path):
            self.child = subprocess.Popen([path])

        def ask(self, text):
            self.child.stdin.write(text)

        def quit(self):
            self.child.terminate()
"""


def test_a_child_that_nothing_ends() -> None:
    asks = rounds("engine = Engine(path)", "engine.ask('go')")

    assert told(engine=CHILD, main=asks) == ["processes, Engine, quit, engine.py:6, none"]
    waits = CHILD.replace(
        "= subprocess.Popen([path])", "= subprocess.Popen([path])\n            self.child.wait()"
    )
    assert told(engine=waits, main=asks) == []


PLOT = "import matplotlib.pyplot as plt\n"
FIGURE = ["figures, matplotlib.pyplot.figure, matplotlib.pyplot.close, , none"]


@pytest.mark.parametrize(
    "lines",
    [
        ("fig = plt.figure(figsize=(8, 4))", "fig.savefig(path)"),
        ("plt.figure()", "plt.plot(path)", "plt.savefig(path)"),
        ("fig = plt.figure()", "show(fig)", "del fig"),
        ("fig = plt.figure()", "fig.canvas.draw()", "return np.array(fig.canvas.buffer_rgba())"),
    ],
)
def test_figures_that_pyplot_keeps(lines: tuple[str, ...]) -> None:
    shows = "def show(fig):\n    fig.savefig('a.png')\n"

    assert told(main=PLOT + rounds(*lines), more=shows) == FIGURE


@pytest.mark.parametrize(
    ("lines", "more"),
    [
        (("fig = plt.figure()", "plt.close(fig)"), ""),
        (("fig = plt.figure(1)", "fig.savefig(path)"), ""),
        (("fig = plt.figure(num='losses')", "fig.savefig(path)"), ""),
        (("fig = plt.figure()", "writer.add_figure('losses', fig)"), ""),
        (("fig = plt.figure()", "report(fig)"), ""),
        (("plt.plot(path)", "plt.savefig(path)"), ""),
        (("fig = figure.Figure()", "fig.savefig(path)"), ""),
        (("fig = plt.figure()", "stack.callback(plt.close, fig)"), ""),
        (("plt.figure()",), "from matplotlib.pyplot import close\ndef end():\n    close('all')\n"),
        (("plt.figure()",), "from matplotlib import pyplot\ndef end():\n    pyplot.close()\n"),
        (("fig = plt.figure()", "return fig"), "def log(x):\n    board.put(work(x))\n"),
    ],
)
def test_figures_that_something_may_close(lines: tuple[str, ...], more: str) -> None:
    assert told(main=PLOT + rounds(*lines), more=more) == []


def test_clients_and_writers_of_libraries() -> None:
    sim = """
        import pybullet as p

        class Sim:
            def __init__(self):
                self.client = p.connect(p.DIRECT)
                p.setGravity(0, 0, -9.8, physicsClientId=self.client)

            def close(self):
                p.disconnect(self.client)
    """
    writes = (
        "from torch.utils.tensorboard import SummaryWriter\n",
        rounds("writer = SummaryWriter(path)", "writer.add_scalar('loss', 1)"),
    )

    assert told(sim=sim, main=rounds("sim = Sim()", "sim.step()")) == [
        "memory, Sim, close, sim.py:6, none"
    ]
    assert told(main="".join(writes)) == [
        "writers, torch.utils.tensorboard.SummaryWriter, close, , none"
    ]
    assert told(main="".join(writes) + "    writer.close()\n") == []


WITH = f"{FEED}\n        def __enter__(self):\n            return self\n" + (
    "\n        def __exit__(self, *raised):\n            self.close()\n"
)


@pytest.mark.parametrize(
    "uses",
    [
        "    with feed:\n        print(feed.take())\n",
        "    with contextlib.closing(feed):\n        print(feed.take())\n",
        "    contextlib.ExitStack().enter_context(feed)\n",
        "    getattr(feed, 'close')()\n",
    ],
)
def test_an_object_that_another_function_closes_without_a_call_of_its_method(uses: str) -> None:
    main = rounds("feed = Feed(path)", "use(feed)")

    assert told(feed=WITH, main=main, more=f"def use(feed):\n{uses}") == []
    assert told(feed=WITH, main=main, more="def use(feed):\n    feed.take()\n") == IS_LEFT


@pytest.mark.parametrize("line", ["feed.put(None)", "feed.done.set()", "feed.thread.join()"])
def test_a_thread_that_is_told_to_end_by_a_message_or_an_event(line: str) -> None:
    feed = f"{FEED}\n        def put(self, path):\n            self.paths.put(path)\n"

    assert told(feed=feed, main=rounds("feed = Feed(path)", "feed.put(path)", line)) == []
    assert told(feed=feed, main=rounds("feed = Feed(path)", "feed.put(path)")) == IS_LEFT


def test_a_thread_that_counts_its_rounds_ends_by_itself() -> None:
    feed = FEED.replace("while not self.done.wait(0.1)", "while self.number < 10")

    assert told(feed=feed, main=rounds("feed = Feed(path)")) == []


def test_a_method_that_waits_or_frees_places_ends_no_thread() -> None:
    feed = FEED.replace("def close(self)", "def wait_ready(self)").replace(
        "self.done.set()\n            self.thread.join()", "self.ready.wait()"
    )

    assert told(feed=feed, main=rounds("feed = Feed(path)")) == []


def test_a_decorator_may_make_a_class_whose_objects_close_themselves() -> None:
    feed = FEED.replace("class Feed:", "@closed_when_dropped\n    class Feed:")

    assert told(feed=feed, main=rounds("feed = Feed(path)")) == []


HOOKS = """
    class Hook:
        def on_start(self, path):
            self.feed = Feed(path)

        def on_end(self):
            self.feed.close()

    class Trainer:
        def before(self, path):
            self.hook.on_start(path)

        def after(self):
            self.hook.on_end()

        def fit(self, paths):
            for path in paths:
                self.before(path)
                {after}
"""


@pytest.mark.parametrize(
    ("after", "ways"), [("self.after()", []), ("pass", ["threads, Feed, close, feed.py:8, over"])]
)
def test_an_attribute_whose_object_another_call_of_the_round_closes(
    after: str, ways: list[str]
) -> None:
    assert told(feed=FEED, main=HOOKS.format(after=after)) == ways
