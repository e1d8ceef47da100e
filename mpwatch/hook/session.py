"""The hook of one process, from coming in to leaving, and what a fork does to it."""

from __future__ import annotations

import functools
import os
import sys
import weakref

from . import answers, errors, exact, places, wire
from .items import Items
from .loaders import Readings
from .notes import Notes, Problems
from .origins import Origins
from .patching import Patcher
from .pristine import System
from .readings import Worker, make_here
from .ring import Ring, make_record
from .server import Server
from .sweeping import Sweeper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .stock import Stock

LATE = ("attach", "instrument")
"""How a hook comes into a program that may have run for a while."""
_STRIKES = (1, 2, 3)
"""As often as a handler of a signal may raise while it leaves; a call could be struck, too."""


class Identity:
    """Which process this is, and how the hook came in."""

    __slots__ = ("birth", "forked_by", "pid", "start_ticks", "started_by")

    def __init__(self, system: System, started_by: str, birth: dict[str, Any] | None) -> None:
        self.pid: int = system.os.getpid()
        self.start_ticks = places.start_ticks(system) or 0
        self.started_by = started_by
        self.birth = birth or {}
        # Asked at once: what it says when the parent has ended is another process.
        self.forked_by: int = system.os.getppid() if started_by == "fork" else 0

    def look_again(self, system: System) -> None:
        """Ask for the start time once more, if no descriptor could be had for it in the fork."""
        if not self.start_ticks:
            self.start_ticks = places.start_ticks(system) or 0

    def origin(self, system: System) -> tuple[int, int, bytes]:
        """Who started this process, for those who find only its own ring; see `wire.ORIGIN`."""
        parent, ticks, name = self.forked_by, 0, ""
        if self.birth.get("parent"):
            parent, ticks = self.birth["parent"], self.birth.get("parent_start_ticks") or 0
            name = str(self.birth.get("name") or "")
        elif self.started_by != "fork":  # what a fork has there is a copy of its parent's
            parent, name = places.parent_and_name()
        if parent and not ticks:
            ticks = places.start_ticks(system, parent) or 0
        return parent, ticks, name.encode(errors="replace")

    @property
    def stem(self) -> str:
        """Name without suffix of this process's files."""
        return wire.stem(self.pid, self.start_ticks)


class Session:
    """What the wrappers write to, and the life cycle of it all."""

    __slots__ = (
        "__weakref__",
        "_restart_record",
        "births",
        "gauges",
        "here",
        "identity",
        "is_crashed",
        "items",
        "jobs",
        "loaders",
        "notes",
        "on_left",
        "on_request",
        "origins",
        "patcher",
        "problems",
        "record",
        "ring",
        "server",
        "since_ns",
        "state",
        "stock",
        "sweeper",
        "system",
        "worker",
        "wrapper_ns",
    )

    def __init__(self, started_by: str, birth: dict[str, Any] | None = None) -> None:
        self.system = System()
        self.since_ns = self.system.monotonic_ns()
        self.identity = Identity(self.system, started_by, birth)
        self.ring = Ring(self.system)
        self.ring.on_lost = self._ring_lost
        self.record, self._restart_record = make_record(self.ring, self.system)
        self.here = make_here(self.system)
        self.loaders = Readings(self.identity.pid)
        self.worker = Worker()
        # Its parts know it by a proxy: a session that has left goes when the last wrapper that
        # somebody kept does, at once, and its ring with it, also in programs that turn `gc` off.
        part_of: Any = weakref.proxy(self)
        self.items = Items(part_of)
        self.origins = Origins(part_of)
        self.notes = Notes(self.system)
        self.gauges: dict[str, Callable[[], Any]] = {}
        self.on_request: dict[str, Callable[[], Any]] = {}
        """Gauges that are read only for a request that names them."""
        self.problems = Problems()
        self.patcher = Patcher(part_of)
        self.server = Server(part_of)
        self.sweeper = Sweeper(self.system)
        self.on_left: Callable[[Session], None] | None = None
        """Called once this hook has left."""
        self.state = "new"
        """`new`, `on`, `asleep` in a forked child that did nothing yet, `off`."""
        self.stock: Stock | None = None
        """What was there before, where the hook came into a running program."""
        self.is_crashed = False
        """An exception ended this process: its files stay for the autopsy."""
        self.births: dict[int, dict[str, Any]] = {}
        """What a process being started will want to know about itself, by the starting thread."""
        self.wrapper_ns: int | None = None
        """What a wrapped call costs, once that was measured; forked children know it by birth."""
        self.jobs: list[Callable[[], None]] = []
        """Work for the thread, done once, off the program's threads."""

    def enter(self) -> None:
        """Bring the hook in: patches first, then files, socket and thread."""
        self._be_born()
        self.patcher.install()
        self.open()
        self._take_stock()
        # Imported here: what an import allocates may start a garbage collection, and the program
        # may be iterating over `sys.modules`.
        from .calibration import wrapper_ns

        self.jobs.append(functools.partial(self._calibrate, wrapper_ns))
        self.server.start()

    def open(self) -> None:
        """Make the files and the socket; without them the hook works on and says so."""
        self.state = "on"
        self.identity.look_again(self.system)
        directory, problem = places.find_directory(self.system, os.environ)
        if problem:
            self.problems.append(problem)
        if directory is None:
            return
        stem = f"{directory}/{self.identity.stem}"
        try:
            places.remove(self.system, stem + wire.RING_SUFFIX)
            self.ring.open_file(
                stem + wire.RING_SUFFIX,
                self.identity.pid,
                self.identity.start_ticks,
                self.identity.origin(self.system),
            )
        except OSError as error:
            if not errors.is_ours(error):
                raise
            self.problems.append(f"ring: {error.strerror or error}")
        try:
            self.server.listen(stem + wire.SOCKET_SUFFIX)
        except OSError as error:
            if not errors.is_ours(error):
                raise
            self.problems.append(f"socket: {error.strerror or error}")
        self.notes.save(stem + wire.NOTES_SUFFIX)
        self.sweeper.directory = directory
        self.sweeper.begin_as(self.identity.started_by, self.identity.pid)

    def leave(self, reason: str) -> None:
        """Take the hook out: originals restored, thread ended, everything closed and unlinked.

        Each step may be taken twice: where a signal handler raises in one, all are taken again
        before that reaches the program.
        """
        if self.state == "off":
            return
        foreign: BaseException | None = None
        for _ in _STRIKES:
            try:
                self._go(reason)
                break
            except BaseException as error:  # noqa: BLE001 - it is raised below
                foreign = error
        if foreign is not None:
            raise foreign

    def _go(self, reason: str) -> None:
        self.state = "off"
        self.patcher.uninstall()
        self.server.stop()
        self.remove_files()
        self.server.close(reason)
        self._let_go()

    def _let_go(self) -> None:
        """Be known to nobody any more."""
        self.jobs.clear()
        self.ring.on_new_thread = self.ring.on_lost = None
        self.ring.close()
        if self.on_left is not None:
            self.on_left(self)

    def itself(self) -> Session:
        """This session, out of a proxy."""
        return self

    def note_end(self) -> None:
        """Note the exception that ended the main thread, if one did: the interpreter keeps it."""
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if error is not None and exact.is_a(error, BaseException) and not self.is_crashed:
            self.is_crashed = True
            self.note(
                "exception",
                where="main",
                type=exact.class_name(type(error)),
                text=errors.text_of(error),
                frames=errors.frames_of(error),
            )

    def remove_files(self) -> None:
        """Unlink ring and notes, unless an autopsy will want them."""
        if not self.is_crashed:
            places.remove(self.system, self.ring.path)
            places.remove(self.system, self.notes.path)
        self.notes.path = None

    def reset_in_child(self) -> None:
        """Be a forked child: let go of all that is the parent's, and sleep until there is news.

        A child that only calls `exec` never wakes, and leaves nothing behind.
        """
        if self.state == "off":
            return
        self.state = "asleep"
        # First of all, so that whatever fails after it, nothing is written to the parent's file.
        self.ring.restart()
        self._restart_record()
        self.items.hurry()
        self.server.forget()
        self.notes.restart()
        self.jobs.clear()
        self.sweeper.restart()
        self.problems = Problems()
        self.is_crashed = False
        self.stock = None
        self.identity = Identity(self.system, "fork", self.births.get(self.system.get_ident()))
        self.births.clear()
        self.since_ns = self.system.monotonic_ns()
        self.loaders.be_child(self.identity.pid)
        self._be_born()
        self.ring.on_new_thread = self.wake

    def wake(self) -> None:
        """In a forked child: get files, socket and thread, at the first thing that happens."""
        if self.state != "asleep":
            return
        try:
            self.ring.on_new_thread = None
            self.open()
            self.server.start()
        except Exception as error:
            if not errors.is_ours(error):
                raise
            self.problems.append(f"{type(error).__name__}: {error}")

    def stop_thread(self) -> None:
        """End the thread for a fork, and let no record start it while that lasts."""
        self.let_no_record_start_it()
        self.server.stop()

    def let_no_record_start_it(self) -> None:
        """Take `start_with_next_record` back."""
        if self.ring.on_new_thread == self.resume:
            self.ring.on_new_thread = None

    def start_with_next_record(self) -> None:
        """Let whoever records next start the thread: the fork is still being counted."""
        self.call_with_next_record(self.resume)

    def call_with_next_record(self, call: Callable[[], None]) -> None:
        """Have something called with each record from the next one on, until it is let go.

        It costs other records nothing: to them all threads are new ones.
        """
        self.ring.on_new_thread = call
        self._restart_record()
        self.items.hurry()

    def resume(self) -> None:
        """Start the thread if a fork left that for later; never blocks."""
        if self.ring.on_new_thread == self.resume:
            self.ring.on_new_thread = None
            self.server.start()

    def note(self, kind: str, **fields: Any) -> None:
        """Note something rare; never raises."""
        try:
            self.notes.add(kind, fields, kind == "exit" or self.is_crashed)
        except Exception as error:
            if not errors.is_ours(error):
                raise
            self.problems.append(f"note {kind}: {type(error).__name__}")

    def failed(self, kind: int, began_ns: int, error: BaseException, **fields: Any) -> None:
        """Record that an exception crossed a wrapper, and note its text; never raises."""
        self.record(wire.EXCEPTION, began_ns, wire.FLAG_RAISED, aux=kind)
        self.note(
            "exception",
            where=wire.KIND_NAMES.get(kind, str(kind)),
            type=exact.class_name(type(error)),
            text=errors.text_of(error),
            frames=errors.frames_of(error),
            tid=self.system.get_native_id(),
            **fields,
        )

    def hello(self) -> dict[str, Any]:
        """The first frame of a connection."""
        return answers.hello(self)

    def answer(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """The reply to an observer's request."""
        return answers.answer(self, request)

    def work(self) -> None:
        """Do the jobs that were left for the thread."""
        while self.jobs:
            job = self.jobs.pop(0)
            try:
                job()
            except Exception as error:  # noqa: BLE001 - the thread has more to do than this job
                self.note("hook-problem", what="job", text=repr(error)[:500])
        if self.patcher.is_waiting_for_import():
            self.patcher.catch_up()
        self.sweeper.work(self.server.is_stopping)

    def patience_ms(self) -> int | None:
        """How long the thread may sleep while nobody is connected; `None` is for ever."""
        return 100 if self.patcher.is_waiting_for_import() else None

    def close(self, reason: str) -> None:
        """End with the process: as `leave`, but the patches stay, for nobody will miss them."""
        if self.state == "off":
            return
        self.state = "off"
        self.server.stop()
        self.remove_files()
        self.server.close(reason)

    def drop_gauges(self, *names: str) -> None:
        """Take gauges out."""
        for name in names:
            self.gauges.pop(name, None)
            self.on_request.pop(name, None)

    def _be_born(self) -> None:
        """Be the DataLoader worker that the parent meant to start, if it did."""
        number = self.identity.birth.get("worker_id")
        if number is None:
            self.worker.clear()
        else:
            self.worker.begin(number, self.identity.birth.get("loader") or 0)

    def _take_stock(self) -> None:
        """Look at what the program has made without us."""
        if "multiprocessing.util" in sys.modules and self.identity.started_by in LATE:
            from .stock import Stock

            self.stock = Stock(weakref.proxy(self))
            self.stock.take()

    def _calibrate(self, wrapper_ns: Callable[[System], int]) -> None:
        self.wrapper_ns = wrapper_ns(self.system)

    def _ring_lost(self, reason: str) -> None:
        self.problems.append(f"ring: {reason}")
        self.note("ring-lost", reason=reason)
