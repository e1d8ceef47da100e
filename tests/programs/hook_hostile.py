"""Objects of which every special method counts its calls: `hook_hostile.py with|without CASE`.

The counts, the output and the exceptions have to be the same with and without the hook. `queues`,
`starting`, `pools` and `failures` need no torch, `loaders` does.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

calls: collections.Counter[str] = collections.Counter()
METHODS = (
    "__bool__",
    "__bytes__",
    "__call__",
    "__contains__",
    "__enter__",
    "__eq__",
    "__exit__",
    "__float__",
    "__format__",
    "__ge__",
    "__getitem__",
    "__gt__",
    "__hash__",
    "__index__",
    "__int__",
    "__iter__",
    "__le__",
    "__len__",
    "__lt__",
    "__ne__",
    "__next__",
    "__repr__",
    "__sizeof__",
    "__str__",
    "__dir__",
)
PROPERTIES = (
    "_cache",
    "_callback",
    "_data",
    "_maxsize",
    "_reader",
    "_rlock",
    "_sem",
    "data_ptr",
    "device",
    "func",
    "is_shared",
    "name",
    "nbytes",
    "pid",
    "shape",
    "work_id",
)


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def counting(name: str) -> Callable[..., Any]:
    """A method that counts its calls and raises."""

    def method(self: Any, *_: Any) -> Any:
        calls[name] += 1
        raise RuntimeError(f"{name} was called")

    return method


def looked_up(self: Any, name: str) -> Any:
    # `__class__` and the methods that pickle calls on every object are counted, and answer.
    calls[f"get {name}"] += 1
    return object.__getattribute__(self, name)


def missing(self: Any, name: str) -> Any:
    calls[f"miss {name}"] += 1
    raise AttributeError(name)


def make(name: str, *bases: type, **more: Any) -> type:
    """A class all of whose special methods count; methods that a base needs stay unchanged."""
    body: dict[str, Any] = {each: counting(each) for each in METHODS}
    body.update({each: property(counting(each)) for each in PROPERTIES})
    body.update({"__getattribute__": looked_up, "__getattr__": missing, "__module__": __name__})
    return type(name, bases, {**body, **more})


def _state(self: Any) -> dict[str, Any]:
    calls["__getstate__"] += 1
    return {}


def _reduced(self: Any, _: int) -> Any:
    calls["__reduce_ex__"] += 1
    return str, ("sent",)


def _refused(self: Any, _: int) -> Any:
    calls["__reduce_ex__"] += 1
    try:
        raise KeyError("the reason")
    except KeyError as reason:
        raise TypeError("cannot pickle this") from reason


Sent: Any = make("Sent", object, __reduce_ex__=_reduced)
Refused: Any = make("Refused", object, __reduce_ex__=_refused)
Stateful: Any = make("Stateful", object, __getstate__=_state)
List: Any = make("List", list, __reduce_ex__=_reduced)
Dict: Any = make("Dict", dict, __reduce_ex__=_reduced)
Tuple: Any = make("Tuple", tuple, __reduce_ex__=_reduced)
Text: Any = make("Text", str, __reduce_ex__=_reduced)
Number: Any = make("Number", int, __reduce_ex__=_reduced)
ALL = (Sent, Stateful, List, Dict, Tuple, Text, Number)


class Key:
    """A key of a dictionary that cannot be shown."""

    def __hash__(self) -> int:
        calls["Key hash"] += 1
        return 1

    def __eq__(self, other: object) -> bool:
        calls["Key eq"] += 1
        return self is other

    def __repr__(self) -> str:
        calls["Key repr"] += 1
        raise RuntimeError("repr of a key")


class Target:
    """Something callable that has no truth value."""

    def __call__(self, *_: object) -> None:
        calls["Target call"] += 1

    def __bool__(self) -> bool:
        calls["Target bool"] += 1
        raise ValueError("The truth value is ambiguous")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # which Python and pickle call a number of times
        calls[f"Target miss {name}"] += 1
        raise RuntimeError(f"no {name}")


class Shown(Exception):
    """An exception whose text and attributes count their uses."""

    def __str__(self) -> str:
        calls["Shown str"] += 1
        return f"text {calls['Shown str']}"

    def __getattr__(self, name: str) -> Any:
        calls[f"Shown miss {name}"] += 1
        raise AttributeError(name)

    @property
    def code(self) -> int:
        calls["Shown code"] += 1
        return 7


def report(what: str) -> None:
    say(what, sorted(calls.items()))
    calls.clear()


def attempt(what: str, call: Callable[..., Any], *arguments: Any) -> None:
    try:
        result = call(*arguments)
        say(what, "result", type(result).__name__)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is shown
        for each in (error, error.__cause__, error.__context__):
            if each is not None:
                lines = traceback.format_tb(each.__traceback__)
                say(what, type(each).__name__, *each.args, "\n", "".join(lines))
    report(what)


def do_nothing(*_: object) -> None:
    """The target of a process."""


def queues() -> None:
    context = multiprocessing.get_context("fork")
    fifo, simple = context.Queue(), context.SimpleQueue()
    for kind in ALL:
        thing = kind()
        attempt(f"simple {kind.__name__}", simple.put, thing)
        simple.get()
        attempt(f"simple in a tuple {kind.__name__}", simple.put, (1, [thing]))
        simple.get()
        for _ in range(20):  # some of which are in the hook's sample
            fifo.put(thing)
            fifo.get()
        report(f"queue {kind.__name__}")
    attempt("simple refused", simple.put, Refused())
    attempt("simple key", simple.put, {Key(): lambda: 0})
    fifo.put(Refused())  # whose traceback the feeder thread prints
    fifo.put(1)
    say(fifo.get())
    report("feeder")


def start(method: str, **arguments: Any) -> None:
    context: Any = multiprocessing.get_context(method)
    process = context.Process(**arguments)
    process.start()
    process.join()
    say(process.exitcode)


def starting() -> None:
    for method in ("spawn", "fork", "forkserver"):

        def begin(*things: Any, method: str = method, **options: Any) -> None:
            start(method, **{"target": do_nothing, "args": things, **options})

        for kind in ALL:
            attempt(f"{method} {kind.__name__}", begin, kind(), [kind()], {"a": kind()})
        attempt(f"{method} refused", begin, Refused())
        attempt(f"{method} beside", begin, [Stateful(), lambda: 0])
        attempt(f"{method} key", begin, {Key(): lambda: 0})
        attempt(f"{method} target", functools.partial(begin, target=Target()))
        attempt(f"{method} name", functools.partial(begin, name=Sent()))


def _raise_shown(*_: object) -> None:
    raise Shown("from a worker")


def pools() -> None:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        for kind in ALL:
            attempt(f"apply {kind.__name__}", pool.apply, do_nothing, (kind(),))
            attempt(f"map {kind.__name__}", pool.map, do_nothing, [kind(), kind()])
        attempt("apply callable", pool.apply, Target())
        attempt("apply raises", pool.apply, _raise_shown)
        attempt("apply refused", pool.apply, do_nothing, (Refused(),))


def failures() -> None:
    import threading

    def fail(error: BaseException) -> None:
        raise error

    thread = threading.Thread(target=fail, args=(Shown("in a thread"),))
    thread.start()
    thread.join()
    report("thread")
    for error in (Shown("in a child"), SystemExit(Sent()), SystemExit(3)):
        multiprocessing.get_context("fork").Process(target=_fail_in_child, args=(error,)).run()


def _fail_in_child(error: BaseException) -> None:
    process = multiprocessing.get_context("fork").Process(target=_fail_and_count, args=(error,))
    process.start()
    process.join()
    say(process.exitcode)


def _fail_and_count(error: BaseException) -> None:
    process = multiprocessing.process.BaseProcess(target=_fail, args=(error,))
    with contextlib.suppress(BaseException):
        process.run()
    report("run")


def _fail(error: BaseException) -> None:
    raise error


def loaders() -> None:
    import torch

    class Set(torch.utils.data.Dataset):
        def __init__(self, kind: Any) -> None:
            self.kind, self.thing = kind, kind()

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            return self.kind()

    class Stream(torch.utils.data.IterableDataset):
        def __init__(self, kind: Any) -> None:
            self.kind, self.thing = kind, kind()

        def __iter__(self) -> Any:
            return iter([self.kind() for _ in range(8)])

    def iterate(loader: Any) -> None:
        for batch in loader:
            say(batch)

    for kind in ALL:
        for data in (Set, Stream):
            loader = torch.utils.data.DataLoader(
                data(kind), num_workers=1, collate_fn=_collated, multiprocessing_context="fork"
            )
            attempt(f"{data.__name__} {kind.__name__}", iterate, loader)


def _collated(samples: list[Any]) -> str:
    """A batch: the calls in the worker since the last one."""
    counts = sorted(calls.items())
    calls.clear()
    return str(counts)


if __name__ == "__main__":
    if sys.argv[1] == "with":
        import mpwatch

        assert mpwatch.instrument()
        time.sleep(0.05)
    globals()[sys.argv[2]]()
    say("done")
