"""The Python interpreter of a process: its version, and the addresses a pending call needs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from mpwatch.attach.native import elf, native_call
from mpwatch.attach.native.elf import Layout, Mapping, Module
from mpwatch.attach.outcomes import Refused
from mpwatch.collect.process import procfs

_ADD, _IS_UP = "Py_AddPendingCall", "Py_IsInitialized"
# Functions that hold the lock around the pending calls, or are called while it is held:
# Python/ceval.c and ceval_gil.c of CPython 3.10 to 3.14. If one of them is running, a call of
# Py_AddPendingCall on the same thread would deadlock. Since 3.13 the lock is a PyMutex.
_WAITING = (
    "PyThread_acquire_lock", "PyThread_acquire_lock_timed", "PyMutex_Lock", "_PyMutex_LockSlow",
    "_PyMutex_LockTimed", "_PyParkingLot_Park", "_PySemaphore_Wait",
)  # fmt: skip
_LOCKING = (
    *_WAITING, "PyThread_release_lock", "PyMutex_Unlock", "_PyMutex_UnlockSlow",
    "_PyMutex_TryUnlock", "_PySemaphore_Wakeup", "_PyParkingLot_Unpark", "Py_AddPendingCall",
    "_PyEval_AddPendingCall", "Py_MakePendingCalls", "_Py_MakePendingCalls",
)  # fmt: skip
# Only builds without the GIL export it (Include/internal/pycore_object.h, CPython 3.13 and later).
_FREE_THREADED = "_Py_MergeZeroLocalRefcount"
_NAMES = frozenset((_ADD, _IS_UP, _FREE_THREADED, *_LOCKING, *native_call.FUNCTIONS))
LOADED_WITHIN_S = 2.0
"""Age from which a process without an interpreter counts as one that gets none, also where its
loader has not mapped the C library yet."""
_C_LIBRARIES = ("libc.so", "libc-", "ld-musl")
"""An interpreter in a library of its own is mapped before the C library, on which it depends."""
_VERSION = re.compile(r"python(3\.\d+)(t?)")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """CPython as loaded into one process."""

    pid: int
    module: Module
    layout: Layout
    mappings: tuple[Mapping, ...]
    modules: tuple[Module, ...]
    version: tuple[int, int] | None
    is_free_threaded: bool

    @property
    def add_pending_call(self) -> int:
        """Address of `Py_AddPendingCall`."""
        return self.address(_ADD)

    @property
    def is_initialized(self) -> int:
        """Address of `Py_IsInitialized`."""
        return self.address(_IS_UP)

    @property
    def locking_ranges(self) -> tuple[tuple[int, int], ...]:
        """Code in which the lock around the pending calls may be held."""
        return self._ranges(_LOCKING)

    @property
    def waiting_ranges(self) -> tuple[tuple[int, int], ...]:
        """The part of `locking_ranges` in which a sleeping thread does not hold that lock.

        The thread waits for a lock there, and a thread that holds the lock around the pending
        calls acquires no other. `Event.wait`, `Thread.join` and `Future.result` sleep here.
        """
        return self._ranges(_WAITING)

    def _ranges(self, names: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
        bias = self.module.bias(self.layout)
        symbols = (self.layout.symbols[name] for name in names if name in self.layout.symbols)
        return tuple((bias + s.value, bias + s.value + max(s.size, 16)) for s in symbols)

    def contains(self, address: int) -> bool:
        """Whether an address is in the code or data of the interpreter's file."""
        at = address - self.module.bias(self.layout)
        return any(start <= at < start + size for _, start, _, size, _ in self.layout.segments)

    def address(self, name: str) -> int:
        """Address of an exported function.

        Raises:
            Refused: The interpreter does not export it.
        """
        if name not in self.layout.symbols:
            raise Refused(f"its interpreter does not export {name}")
        return self.module.bias(self.layout) + self.layout.symbols[name].value


def find(pid: int, proc: str = "/proc") -> Interpreter:
    """Find the interpreter of a process.

    Raises:
        Refused: The process has no interpreter (yet, if it is young), or its file cannot be read.
        OSError: The process is gone or hidden.
    """
    mappings = elf.read_mappings(pid, proc)
    loaded = elf.modules(mappings)
    exe = os.readlink(f"{proc}/{pid}/exe").removesuffix(" (deleted)")
    unreadable: Refused | None = None
    for module in _likely(loaded, exe):
        try:
            layout = elf.layout(pid, module, _NAMES, proc)
        except Refused as refusal:
            unreadable = refusal
            continue
        if {_ADD, _IS_UP} <= layout.symbols.keys():
            return Interpreter(
                pid, module, layout, mappings, loaded,
                _version(module.path) or _version(exe) or _version_of_library(loaded),
                _FREE_THREADED in layout.symbols,
            )  # fmt: skip
    if unreadable is not None:
        raise unreadable
    is_loading = not any(each.name.startswith(_C_LIBRARIES) for each in loaded)
    raise Refused(
        "it is not a Python process: nothing in it exports the C API of CPython",
        passes=is_loading and procfs.age_s(pid, proc) < LOADED_WITHIN_S,
    )


def _likely(loaded: tuple[Module, ...], exe: str) -> list[Module]:
    """Files that can contain the interpreter, most likely first."""
    libraries = [m for m in loaded if m.name.startswith("libpython")]
    programs = [m for m in loaded if m.path.removesuffix(" (deleted)") == exe]
    return libraries + [m for m in programs if m not in libraries]


def _version(path: str) -> tuple[int, int] | None:
    """The version in a file name: `libpython3.11.so.1.0` or `python3.11`."""
    match = _VERSION.search(path.rsplit("/", 1)[-1])
    if match is None:
        return None
    major, minor = match.group(1).split(".")
    return int(major), int(minor)


def _version_of_library(loaded: tuple[Module, ...]) -> tuple[int, int] | None:
    """The version in the path of an extension module, for an executable named `python`."""
    for module in loaded:
        match = re.search(r"/python(3)\.(\d+)t?/", module.path)
        if match is not None:
            return int(match.group(1)), int(match.group(2))
    return None
