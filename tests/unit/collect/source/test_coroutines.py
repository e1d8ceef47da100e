"""What the source shows of waits of coroutines: calls of other threads, and tasks nobody reads."""

from __future__ import annotations

import os
import time
from pathlib import Path
from textwrap import dedent, indent

import pytest

from mpwatch.collect.source.source_code import SourceCode
from mpwatch.model.ids import ProcessId
from mpwatch.model.source_code import Coroutines, UnreadTask

OWN = ProcessId(os.getpid(), 1)


def found(folder: Path, text: str, **others: str) -> Coroutines:
    """What a program shows, with the files that it imports."""
    for name, each in {"main": text, **others}.items():
        (folder / f"{name}.py").write_text(dedent(each))
    code = SourceCode()
    code.marks(OWN, str(folder / "main.py"), time.time() + 9)
    shown = code.coroutines()
    assert shown is not None
    assert code.coroutines() is None
    return shown


EVENT = """\
import asyncio, threading

def work(flag, loop):
BODY

async def main():
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    threading.Thread(target=work, args=(done, loop)).start()
    await done.wait()

asyncio.run(main())
"""


def unsafe(folder: Path, body: str, text: str = EVENT) -> list[str]:
    shown = found(folder, text.replace("BODY", indent(dedent(body).strip(), "    ")))
    return [f"{each.kind} {each.name}.{each.method}" for each in shown.unsafe]


def test_an_event_that_a_thread_sets_is_followed_to_what_makes_it_and_waits_for_it(
    tmp_path: Path,
) -> None:
    [wake] = found(tmp_path, EVENT.replace("BODY", "    flag.set()")).unsafe

    assert (wake.kind, wake.name, wake.method, wake.function) == ("Event", "flag", "set", "work")
    assert wake.statement.text == "flag.set()"
    assert wake.started.text == "threading.Thread(target=work, args=(done, loop)).start()"
    assert wake.awaited is not None
    assert wake.awaited.text == "await done.wait()"
    assert wake.made == "asyncio.Event()"
    assert not wake.is_in_loop
    assert not wake.wakes_at_end


@pytest.mark.parametrize(
    "body",
    [
        "loop.call_soon_threadsafe(flag.set)",
        "loop.call_soon_threadsafe(lambda: flag.set())",
        "def finish():\n    flag.set()\nloop.call_soon_threadsafe(finish)",
        "flag.set()\nloop.call_soon_threadsafe(print)",
        "flag.set()\ndef wake():\n    loop.call_soon_threadsafe(print)\nwake()",
        "async def finish():\n    flag.set()\nasyncio.run_coroutine_threadsafe(finish(), loop)",
        "flag = threading.Event()\nflag.set()",
        "flag.clear()",
    ],
    ids=["safe", "lambda", "inner", "then", "helper", "coroutine", "of threads", "clear"],
)
def test_what_a_thread_has_the_loop_do_is_not_told(tmp_path: Path, body: str) -> None:
    assert unsafe(tmp_path, body) == []


def test_calls_of_the_loop_itself_are_told(tmp_path: Path) -> None:
    assert unsafe(tmp_path, "loop.call_soon(print)") == ["loop loop.call_soon"]
    assert unsafe(tmp_path, "loop.create_task(other())") == ["loop loop.create_task"]


def test_a_thread_with_a_loop_of_its_own_wakes_it_up_itself(tmp_path: Path) -> None:
    text = """\
    import asyncio, threading

    async def serve():
        done = asyncio.Event()
        asyncio.get_running_loop().call_later(1, done.set)
        done.set()
        await done.wait()

    def work():
        asyncio.run(serve())

    def forever():
        loop = asyncio.new_event_loop()
        loop.create_task(serve())
        loop.run_forever()

    threading.Thread(target=work).start()
    threading.Thread(target=forever).start()
    """
    assert found(tmp_path, text).unsafe == ()


def test_the_loop_of_one_thread_is_not_woken_up_by_a_coroutine_of_another(tmp_path: Path) -> None:
    text = """\
    import asyncio, threading

    class Bridge:
        def __init__(self):
            self.ready = asyncio.Event()
            threading.Thread(target=self._run).start()

        def _run(self):
            asyncio.run(self._serve())

        async def _serve(self):
            await asyncio.sleep(1)
            self.ready.set()

        async def ask(self):
            await asyncio.wait_for(self.ready.wait(), None)

    asyncio.run(Bridge().ask())
    """
    [wake] = found(tmp_path, text).unsafe

    assert (wake.name, wake.function, wake.awaited_in) == ("self.ready", "_serve", "ask")


SERVER = """\
import asyncio, concurrent.futures, queue, threading

class Server:
    def __init__(self):
        self.jobs = queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            value, answer = self.jobs.get()
            answer.set_result(value)

    async def ask(self, value):
        answer = MADE
        self.jobs.put((value, answer))
        return await answer

async def main():
    await Server().ask(3)
"""


def test_a_future_that_goes_through_a_queue_is_known_where_all_are_of_asyncio(
    tmp_path: Path,
) -> None:
    made = "asyncio.get_running_loop().create_future()"
    [wake] = found(tmp_path, SERVER.replace("MADE", made)).unsafe

    assert (wake.kind, wake.method, wake.is_in_loop) == ("Future", "set_result", True)
    assert found(tmp_path, SERVER.replace("MADE", "concurrent.futures.Future()")).unsafe == ()


def test_callbacks_of_executors_and_pools_run_in_other_threads(tmp_path: Path) -> None:
    text = """\
    import asyncio, concurrent.futures

    pool = concurrent.futures.ThreadPoolExecutor()

    class Trainer:
        def __init__(self):
            self.results: asyncio.Queue = asyncio.Queue()

        def _finished(self, future):
            self.results.put_nowait(future.result())

        async def train(self):
            pool.submit(print).add_done_callback(self._finished)
            return await self.results.get()
    """
    [wake] = found(tmp_path, text).unsafe

    assert (wake.kind, wake.name, wake.method) == ("Queue", "self.results", "put_nowait")


def test_what_a_coroutine_awaits_in_a_thread_wakes_the_loop_up_when_it_returns(
    tmp_path: Path,
) -> None:
    text = EVENT.replace(
        "threading.Thread(target=work, args=(done, loop)).start()",
        "await asyncio.to_thread(work, done, loop)",
    )
    [wake] = found(tmp_path, text.replace("BODY", "    flag.set()")).unsafe

    assert wake.wakes_at_end


TASKS = """\
import asyncio

async def produce(queue):
    for number in range(9):
        await asyncio.sleep(0.1)
        await queue.put(load(number))

async def consume(items):
    while True:
        item = await items.get()

async def main():
    items = asyncio.Queue()
BODY
"""


def unread(folder: Path, *lines: str) -> tuple[UnreadTask, ...]:
    return found(folder, TASKS.replace("BODY", "\n".join(f"    {each}" for each in lines))).unread


MAKES = "task = asyncio.create_task(produce(items))"


@pytest.mark.parametrize(
    ("lines", "how", "read"),
    [
        (("asyncio.create_task(produce(items))", "await consume(items)"), "dropped", ""),
        ((MAKES, "await consume(items)", "task.cancel()"), "kept", ""),
        ((MAKES, "await consume(items)", "await task"), "later", "await task"),
        (
            ("tasks = [asyncio.create_task(produce(items)) for _ in [1, 2]]", "await items.get()"),
            "kept",
            "",
        ),
        (
            ("await asyncio.gather(produce(items), consume(items), return_exceptions=True)",),
            "together",
            "await asyncio.gather(produce(items), consume(items), return_exceptions=True)",
        ),
        (
            (MAKES, "other = asyncio.create_task(consume(items))", "await other", "await task"),
            "later",
            "await task",
        ),
    ],
    ids=["dropped", "kept", "later", "several", "together", "one after the other"],
)
def test_a_task_that_alone_puts_what_another_waits_for(
    tmp_path: Path, lines: tuple[str, ...], how: str, read: str
) -> None:
    [task] = unread(tmp_path, *lines)

    assert (task.coroutine, task.how) == ("produce", how)
    assert ("" if task.read is None else task.read.text) == read
    assert task.gives.text == "await queue.put(load(number))"
    assert task.waits is None


@pytest.mark.parametrize(
    "lines",
    [
        ("await asyncio.gather(produce(items), consume(items))",),
        ("async with asyncio.TaskGroup() as tg:", "    tg.create_task(produce(items))"),
        (MAKES, "await task", "await consume(items)"),
        (MAKES, "task.add_done_callback(report)", "await consume(items)"),
        (MAKES, "asyncio.create_task(consume(items))", "await asyncio.gather(task)"),
        (MAKES, "watch(task)", "await consume(items)"),
        (MAKES, "items.put_nowait(None)", "await consume(items)"),
        ("await produce(items)", "await consume(items)"),
        (
            "tasks = {asyncio.create_task(produce(items)), asyncio.create_task(consume(items))}",
            "await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)",
        ),
    ],
)
def test_a_task_whose_exception_arrives_is_not_told(tmp_path: Path, lines: tuple[str, ...]) -> None:
    assert unread(tmp_path, *lines) == ()


def test_a_task_that_may_wait_itself_is_told_with_that_wait(tmp_path: Path) -> None:
    text = TASKS.replace("await asyncio.sleep(0.1)", "number = await requests.get()").replace(
        "produce(queue)", "produce(queue, requests)"
    )
    body = (
        "    requests = asyncio.Queue()\n"
        "    asyncio.create_task(produce(items, requests))\n"
        "    requests.put_nowait(1)\n"
        "    await items.get()"
    )
    [task] = found(tmp_path, text.replace("BODY", body)).unread

    assert task.waits is not None
    assert task.waits.text == "number = await requests.get()"


@pytest.mark.parametrize("clause", ["finally", "except Exception"])
def test_a_task_that_puts_the_end_after_an_exception_as_well_is_not_told(
    tmp_path: Path, clause: str
) -> None:
    inner = "        await asyncio.sleep(0.1)\n        await queue.put(load(number))\n"
    text = TASKS.replace(
        inner, f"        try:\n            work()\n        {clause}:\n    {inner.splitlines()[1]}\n"
    )
    body = "    asyncio.create_task(produce(items))\n    await items.get()"

    assert found(tmp_path, text.replace("BODY", body)).unread == ()


def test_a_large_program_is_left_alone_in_time(tmp_path: Path) -> None:
    one = "async def f{0}(q):\n    await q.get()\n    q.put_nowait(t)\n"
    made = "    t = asyncio.create_task(f{0}(q))\n"
    text = "import asyncio\n" + "".join(one.format(n) for n in range(300))
    text += "async def main():\n    q = asyncio.Queue()\n"
    text += "".join(made.format(n) for n in range(300))

    assert found(tmp_path, text) == Coroutines()


def test_a_program_without_asyncio_shows_nothing(tmp_path: Path) -> None:
    text = EVENT.replace("import asyncio, threading", "import trio as asyncio, threading")

    assert found(tmp_path, text.replace("BODY", "    flag.set()")) == Coroutines()
