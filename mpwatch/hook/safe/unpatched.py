"""The interpreter's own functions, without replacements by libraries.

Test suites mock `os` and `time`, gevent replaces `_thread` and `select`. The hook must neither read
a frozen clock nor run its thread as a coroutine of gevent. So it uses the
modules written in C, or new instances of them if the usual one was changed. The
references live in the slots of one object: freezegun walks the attributes of all modules and
replaces what it knows.
"""

from __future__ import annotations

import _socket
import _thread
import functools
import importlib.machinery
import importlib.util
import mmap
import posix
import select
import sys
import time
from types import BuiltinFunctionType

from . import exact, foreign_exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any


class System:
    """The functions of the operating system that the hook uses."""

    __slots__ = (
        "_close",
        "count_threads",
        "get_ident",
        "get_native_id",
        "interrupt_main",
        "local",
        "mmap",
        "monotonic_ns",
        "os",
        "page_bytes",
        "poll",
        "removals",
        "sleep",
        "socket",
        "start_new_thread",
        "thread_clock",
        "thread_time_ns",
        "time_ns",
    )

    def __init__(self) -> None:
        clock = _genuine(time, "monotonic_ns", "time_ns", "thread_time_ns")
        threads = _genuine(_thread, "start_new_thread", "get_ident", "get_native_id", "_count")
        self.os: Any = _genuine(posix, "open", "close", "write", "read", "stat", "getpid", "fork")
        self.monotonic_ns: Callable[[], int] = clock.monotonic_ns
        self.time_ns: Callable[[], int] = clock.time_ns
        self.thread_time_ns: Callable[[], int] = clock.thread_time_ns
        self.thread_clock: Callable[[int], int] = clock.pthread_getcpuclockid
        self.start_new_thread: Callable[..., int] = threads.start_new_thread
        self.count_threads: Callable[[], int] = threads._count  # without the main thread
        self.get_ident: Callable[[], int] = threads.get_ident
        self.get_native_id: Callable[[], int] = threads.get_native_id
        self.interrupt_main: Callable[..., None] = threads.interrupt_main
        self.local: Any = threads._local
        waits = _genuine(select, "poll", "select")
        self.poll: Callable[[], Any] = waits.poll
        # Of `time.sleep` Python 3.13 tells audit hooks, for which a fork or an exit may not wait.
        self.sleep: Callable[[float], object] = functools.partial(waits.select, (), (), ())
        self.removals = 0
        """How many files were unlinked: an exit waits as long as there are more."""
        # The class in C: gevent and test suites replace `socket.socket`.
        self.socket: Any = _socket.socket
        self.mmap: Any = mmap.mmap
        self.page_bytes: int = mmap.PAGESIZE
        self._close: Callable[[int], Any] | None = None

    def closes_at_once(self) -> bool:
        """Whether `close_at_once` does not release the GIL."""
        return self.close_at_once() is not self.os.close

    def close_at_once(self) -> Callable[[int], Any]:
        """A function that closes a descriptor without releasing the GIL; the call must not block.

        As `os.close` releases it, the program may close that descriptor, and open a file of its own
        under the number, before the kernel is called: of 150 programs that did so for 0.3 s while
        the hook's thread read a thousand files, 12 had a file closed, and none with this. It needs
        `ctypes`, which torch loads; without it this is `os.close`.
        """
        if self._close is not None:
            return self._close
        close: Callable[[int], Any] = self.os.close
        ctypes: Any = sys.modules.get("ctypes")
        if ctypes is None:
            return close
        try:
            # Not by its attribute, which the program would see in `ctypes.pythonapi` afterwards.
            found = ctypes.pythonapi["close"]
            is_genuine = exact.is_a(found, sys.modules["_ctypes"].CFuncPtr)
        except (AttributeError, KeyError):
            return close  # another thread is importing it
        except BaseException as error:
            # An audit hook refuses it, or the program has replaced the module.
            if not foreign_exceptions.is_ours(error):
                raise
            is_genuine = False
        self._close = found if is_genuine else close
        return self._close


def _genuine(module: ModuleType, *names: str) -> Any:
    """The module if these attributes are its own functions in C, else a new instance of it."""
    for name in names:
        function = getattr(module, name, None)
        owner = getattr(getattr(function, "__self__", None), "__name__", None)
        if not isinstance(function, BuiltinFunctionType) or owner != module.__name__:
            return _fresh(module.__name__) or module
    return module


@functools.cache
def _fresh(name: str) -> ModuleType | None:
    """A second instance of a module in C, not entered in `sys.modules`; made once.

    All of `time`, `posix`, `_thread` and `select` allow several instances since Python 3.10.
    """
    finders = (importlib.machinery.BuiltinImporter, importlib.machinery.PathFinder)
    spec = next((spec for finder in finders if (spec := finder.find_spec(name))), None)
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return None if module is sys.modules.get(name) else module
