"""Reads for the hook's thread that never hold the last reference to an object of the program.

A thread that holds a reference while other threads run may drop the last one, and then
`__del__` of the program runs there. CPython switches threads only between bytecodes: at the start
of a function, at the end of a loop's turn and after a call. So while one call consumes a chain of
iterators written in C, no other thread runs, and only the results remain, which have to be plain
values (CPython 3.10 to 3.15, `ceval.c`; not true of an interpreter without the GIL).

Stacks come from `faulthandler`, which writes them as text without making a frame object
(`traceback.c`, `_Py_DumpTracebackThreads`). A frame object that another thread holds when its
function returns keeps all local variables of that function.

The garbage collector could also run the program's destructors on this thread: it runs on the
thread whose allocation exceeds the threshold (3.12 and later: at that thread's next bytecode).
`Reserve` keeps small objects that the collector counts. Freeing them lowers its count by
as many, so the next allocations of this thread do not exceed the threshold.

Not covered:

- the list, tuples and dictionary that `poll` returns, if a full collection has just emptied
  the interpreter's free lists and other threads have brought the count to the threshold;
- a program that stops allocating just below the threshold with the reserve used (`WAIT_S`);
- thresholds below twice `AT_A_TIME`;
- a kernel that keeps this thread from running for longer than the switch interval (5 ms) between
  reading the count and an allocation, while other threads allocate;
- on Python 3.12, a collection that was due on another thread when that released the GIL in a call
  written in C: the request belongs to the interpreter and not to the thread (`_Py_ScheduleGC`).
"""

from __future__ import annotations

import faulthandler
import gc
import json.encoder
import operator
import os
import re
import sys
from types import GetSetDescriptorType

from . import exact
from .unpatched import System

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

AT_A_TIME = 96
"""Objects that a reply may allocate at a time; freed objects are available again."""
RESERVE = 3 * AT_A_TIME
"""About 14 KB; the check of most objects is loaded with it, see `checks.OBJECTS`."""
WAIT_S = 1.0
"""After this time a reply is made without a reserve, so that a program that has stopped allocating
does not appear to hang; so are all later ones until the next collection."""
_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.016
_TEXT_BYTES = 4 << 20
_THREAD = re.compile(r"(?:Current thread|Thread) 0x([0-9a-f]+)")
_FRAME = re.compile(r'  File "(.*)", line (\d+|\?\?\?) in (.*)')
_quoted: Callable[[str], str] = json.encoder.encode_basestring_ascii
_ESCAPE = re.compile(r"\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\U[0-9a-f]{8}")

dereference: Callable[[Any], Any] = operator.methodcaller("__call__")
"""The object of a weak reference, as a step of `through`."""


def through(source: Iterable[Any], *steps: Callable[[Any], Any]) -> list[Any]:
    """Apply steps written in C to each item in one call.

    Args:
        source: An iterable whose iterator is written in C. It must not hold a program's object
            that has no other reference: pass a weak reference, or a table of the interpreter.
        steps: Functions written in C, such as `operator.attrgetter` makes. The results of the last
            one have to be plain values.

    Raises:
        Exception: Raised by a step.
    """
    for step in steps:
        source = map(step, source)
    return list(source)


class _Counted:
    """An object that the collector counts; recycled lists and tuples are not counted."""

    __slots__ = ("_",)


class Reserve:
    """Keeps the hook's thread from exceeding the garbage collector's threshold."""

    __slots__ = ("_collections_in_vain", "_objects", "_sleep")

    def __init__(self) -> None:
        self._objects: list[_Counted] = []
        self._collections_in_vain: tuple[int, ...] = ()
        """Collections so far, as `gc.get_count` has them, at the end of a wait in vain."""
        self._sleep = System().sleep

    def fill(self) -> None:
        """Fill the reserve; to be called on a thread of the program."""
        self._objects += [_Counted() for _ in range(RESERVE - len(self._objects))]

    def wait(self, objects: int = AT_A_TIME) -> None:
        """Wait until so many objects may be allocated without a collection on this thread.

        To be called after each call during which other threads may run. A program that allocates
        soon reaches the threshold itself; for one that does not, the reserve is used.
        """
        waited_s, pause_s = 0.0, _PAUSE_S
        while not self._is_there(objects):
            collections = gc.get_count()[1:]
            if collections == self._collections_in_vain:
                return  # the program is as idle as it was
            if waited_s >= WAIT_S:
                self._collections_in_vain = collections
                return
            self._sleep(pause_s)
            waited_s += pause_s
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _is_there(self, objects: int) -> bool:
        threshold = gc.get_threshold()[0]
        if threshold < 2 * AT_A_TIME or not gc.isenabled():
            return True
        left = threshold - gc.get_count()[0]
        if left <= objects:
            if not self._objects:
                return False
            del self._objects[-objects:]
        elif left > 3 * AT_A_TIME and len(self._objects) < RESERVE:
            self._objects += [_Counted() for _ in range(AT_A_TIME)]
        return True


reserve = Reserve()
"""The reserve of the hook's thread."""


def frames() -> Iterator[tuple[int, int, str, str, int]]:
    """The frames of all other threads: thread identifier, depth, function, file and line.

    Innermost first. At most the 100 newest threads (MAX_NTHREADS of `traceback.c`) with 100 frames
    each; names are cut at 500 characters. One tuple at a time, because the collector counts tuples.

    Raises:
        OSError: No descriptor is left, or the program closed this one.
    """
    fd = os.memfd_create("mpwatch-stacks", os.MFD_CLOEXEC)
    inode = 0
    try:
        # The program may close it at any time, and open a file with a name under this number.
        found = os.fstat(fd)
        if found.st_nlink:
            raise OSError("the program closed the descriptor")
        inode = found.st_ino
        faulthandler.dump_traceback(fd, True)
        text = os.pread(fd, _TEXT_BYTES, 0).decode("ascii", "replace")
    finally:
        if os.fstat(fd).st_ino == inode:
            os.close(fd)
    reserve.wait()
    return parse(text)


def parse(text: str) -> Iterator[tuple[int, int, str, str, int]]:
    """The frames in what `faulthandler` wrote; the thread that called it is left out."""
    ident = depth = 0
    for line in text.splitlines():
        if frame := _FRAME.fullmatch(line):
            if ident:
                number = int(frame[2]) if frame[2].isdigit() else 0
                yield ident, depth, _plain(frame[3]), _plain(frame[1]), number
            depth += 1
        elif thread := _THREAD.match(line):
            depth, ident = 0, 0 if line.startswith("Current") else int(thread[1], 16)


def stacks_as_json() -> str:
    """A JSON list of threads: `tid`, `name` and `frames`; see `wire.ASKS`.

    Written as text at once: a list for each frame would be thousands of counted objects.

    Raises:
        OSError: As `frames`.
    """
    names, tids = thread_table("_name"), thread_table("_native_id")
    threads: list[str] = []
    last = 0
    for ident, _, function, file, line in frames():
        if ident != last:
            last = ident
            tid, name = tids.get(ident), names.get(ident)
            shown = _quoted(name) if type(name) is str else '""'
            number = tid if type(tid) is int else "null"
            threads.append(f'{"]}, " if threads else ""}{{"tid": {number}, "name": {shown}, ')
            threads.append('"frames": [')
        else:
            threads.append(", ")
        threads.append(f"[{_quoted(function)}, {_quoted(file)}, {line}]")
    return f"[{''.join(threads)}{']}' if threads else ''}]"


def _plain(name: str) -> str:
    """A name without the escapes that `faulthandler` writes for non-ASCII characters."""
    return _ESCAPE.sub(lambda found: chr(int(found[0][2:], 16)), name)


def thread_table(attribute: str) -> dict[int, Any]:
    """One attribute of all threads by their identifier, from `threading`'s own table.

    The table is read without its lock, and without an attribute that a subclass may override. It is
    empty where a library keeps something else there than instances of `threading.Thread`.
    """
    threading: Any = sys.modules.get("threading")
    if threading is None:
        return {}
    own_attributes = _own_attributes(threading)
    if own_attributes is None:
        return {}
    try:
        read = map(
            operator.methodcaller("get", attribute), map(own_attributes, threading._active.values())
        )
        return dict(zip(threading._active, read))  # noqa: B905 - with a keyword it is not a single call
    except (AttributeError, TypeError):
        return {}


def _own_attributes(threading: Any) -> Callable[[Any], Any] | None:
    """A function in C that reads the `__dict__` of a thread, or `None`.

    gevent replaces `threading.Thread` by a class that derives from it, and only the first of these
    classes has the descriptor.
    """
    kind = vars(threading).get("Thread")
    for base in reversed(exact.bases_of(kind) if type(kind) is type else ()):
        descriptor = vars(base).get("__dict__")
        if type(descriptor) is GetSetDescriptorType:
            return descriptor.__get__
    return None
