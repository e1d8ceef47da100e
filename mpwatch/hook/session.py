"""The hook of one process, from attaching to detaching, and its state after a fork."""

from __future__ import annotations

import functools
import gc
import os
import sys
import weakref

from . import checks, requests, wire
from .lifecycle.patcher import Patcher
from .safe import exact, foreign_exceptions
from .safe.unpatched import System
from .state.call_sites import CallSites
from .state.loader_state import LoaderStates
from .state.queue_sampling import QueueSampling
from .state.start_checks import StartChecks
from .state.thread_state import Worker, make_here
from .transport.notes import Notes, Problems
from .transport.process_files import SAVE_EVERY_S, Files, Identity
from .transport.ring import Ring, make_record
from .transport.server import Server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from .lifecycle.patcher import Point


LATE = ("attach", "instrument")
"""Values of `started_by` with which the program may have run before the hook was attached."""
_ATTEMPTS = (1, 2, 3)
"""Detaching is repeated where signal handlers raise; a tuple, for no call may come between."""
_OPENING_S = 1.0
"""Longest wait of `instrument` for files and socket on a disk; usually it takes 2 ms.

A process that exits before leaves nothing for the autopsy.
"""
_OPENING_WITHIN_S = 0.25
"""Longest such wait of a program that runs already."""


class Session:
    """The parts of the hook, and their life cycle; wrappers record and note through it."""

    version: str | None = None
    """Version of the hook's sources in this process, once read; the same for all sessions."""

    __slots__ = (
        "__weakref__",
        "_restart_record",
        "births",
        "files",
        "forks",
        "gauges",
        "here",
        "identity",
        "is_crashed",
        "items",
        "jobs",
        "loaders",
        "notes",
        "on_detached",
        "origins",
        "patcher",
        "problems",
        "record",
        "ring",
        "server",
        "start_checks",
        "state",
        "stock",
        "system",
        "worker",
        "wrapper_ns",
    )

    def __init__(self, started_by: str, birth: dict[str, Any] | None = None) -> None:
        self.system = System()
        self.forks: Any = None
        self.identity = Identity(self.system, started_by, birth)
        self.ring = Ring(self.system)
        self.record, self._restart_record = make_record(self.ring, self.system)
        self.here = make_here(self.system)
        self.loaders = LoaderStates(self.identity.pid)
        self.worker = Worker()
        # The parts refer to the session by a proxy: after detaching, session and ring are freed
        # together with the last wrapper that the program kept, also in programs without `gc`.
        part_of: Any = weakref.proxy(self)

        def note(kind: str, **fields: Any) -> None:
            # The bound method would be a reference to the session.
            part_of.note(kind, **fields)

        self.origins = CallSites(self.system, note)
        self.items = QueueSampling(self.system, self.record, note, self.origins)
        self.start_checks = StartChecks(note, self.worker)
        self.notes = Notes(self.system)
        self.gauges: dict[str, Callable[[], Any]] = {}
        self.problems = Problems()
        self.files = Files(self.system, self.identity, self.ring, self.notes, self.problems)
        self.patcher = Patcher(part_of)
        self.server = Server(part_of)
        self.on_detached: Callable[[Session], None] | None = None
        """Called once this hook is detached."""
        self.state = "new"
        """`new`, `on`, `asleep` in a forked child without a record, `off`."""
        self.stock: dict[str, Any] | None = None
        """Summary of the objects found when the hook was attached to a running program."""
        self.wrapper_ns: int | None = None
        """Cost of a wrapped call once it was measured; forked children inherit it."""
        self.is_crashed = False
        """An exception ended this process: its files stay for the autopsy."""
        self.births: dict[int, dict[str, Any]] = {}
        """`birth` of each process that is being started, by the thread that starts it."""
        self.jobs: list[Callable[[], None]] = []
        """Functions that the hook's thread calls once each."""

    def enter(self, points: tuple[Point, ...]) -> None:
        """Attach the hook: patches first, then files, socket and thread."""
        self._become_worker()
        self.patcher.install(points)
        self.open()
        self._scan_existing_objects()
        # Loaded here and not on the thread: loading may start a garbage collection.
        wrapper_ns = checks.load("overhead").wrapper_ns
        self.jobs.append(functools.partial(self._measure_overhead, wrapper_ns))
        self._read_version()
        self.server.start()
        is_late = self.identity.started_by == "attach"
        self.server.wait_for_opening(_OPENING_WITHIN_S if is_late else _OPENING_S)

    def open(self) -> None:
        """Make the files and the socket; without them the hook works and reports why.

        On a disk that may block, so the thread does it; until then the ring is in memory.
        """
        self.state = "on"
        self.identity.read_start_ticks()
        if not self.files.open(self.server.listen, may_block=False):
            self.server.is_opening = True
            self.jobs.append(self._open_on_disk)

    def _open_on_disk(self) -> None:
        """Make the files and the socket, on the hook's thread; later if the disk is frozen."""
        is_tried = True
        try:
            is_tried = self.files.open(self.server.listen, may_block=True)
        finally:
            self.server.is_opening = not is_tried
        if not is_tried:
            self.jobs.append(self._open_on_disk)

    def leave(self, reason: str) -> None:
        """Detach: restore originals, end the thread, close and unlink everything.

        Each step may run twice: if a signal handler raises in one, all are repeated before the
        exception reaches the program. What an audit hook refuses stays undone.
        """
        if self.state == "off":
            return
        foreign: BaseException | None = None
        for _ in _ATTEMPTS:
            try:
                self._detach(reason)
                break
            except BaseException as error:  # noqa: BLE001 - it is raised below
                foreign = error if self._is_foreign(error) else foreign
        if foreign is not None:
            raise foreign

    def _detach(self, reason: str) -> None:
        self.state = "off"
        self.patcher.uninstall()
        try:
            self._end(reason)
        except BaseException as error:
            if foreign_exceptions.is_ours(error):
                self._release()
            raise
        self._release()

    def _end(self, reason: str) -> None:
        """End the thread, remove the files, close the socket.

        The thread removes them before it ends, and not its caller: a disk may block, and so may an
        audit hook of the program, which may take a lock that is never released any more. Files that
        it cannot remove in time stay, and a later process removes them like those of a dead one.
        """
        self.files.is_ending = True
        self._finish()
        self.server.close(reason)

    def save_now(self) -> None:
        """Write everything, and remove what only a living process needs.

        The process is about to exit without exit functions.
        """
        self.files.is_saving = True
        self._finish()

    def _finish(self) -> None:
        """End the thread, which writes or removes files; where none runs, do it here."""
        files, server = self.files, self.server
        is_here = server.is_current_thread()
        if files.is_on_disk and not is_here:
            server.start()  # if it does not run
        if server.stop() and (is_here or (files.has_tasks and not files.is_on_disk)):
            try:
                self.finish()
            except BaseException as error:
                if self._is_foreign(error):
                    raise

    def _is_foreign(self, error: BaseException) -> bool:
        """Whether an exception belongs to the program; a problem of the hook is remembered."""
        if not foreign_exceptions.is_ours(error):
            return True
        self.problems.append(f"{type(error).__name__}: {error}"[:200])
        return False

    def finish(self) -> None:
        """Write or remove files; the thread does it before it ends."""
        hook = sys.modules.get(_package().RENDEZVOUS)
        if hook is not None and hook.current() not in (None, self):
            return  # the hook was attached again before this thread ran: its files have these names
        if self.files.has_tasks:
            self.server.remove_socket(self.files.is_ending)
        self.files.finish(self.is_crashed)

    def _release(self) -> None:
        """Remove the references to this session and close the ring."""
        self.jobs.clear()
        self.ring.on_new_thread = None
        self.ring.close()
        if self.on_detached is not None:
            self.on_detached(self)

    def itself(self) -> Session:
        """This session; through a proxy, the object behind it."""
        return self

    def note_end(self) -> None:
        """Note the exception that ended the main thread, if any; the interpreter keeps it."""
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if error is not None and exact.is_a(error, BaseException) and not self.is_crashed:
            self.is_crashed = True
            self.note("exception", where="main", **foreign_exceptions.described(error))

    def reset_in_child(self) -> None:
        """In a forked child: drop all that belongs to the parent, and sleep until the first record.

        A child that only calls `exec` never wakes, and leaves no files.
        """
        if self.state == "off":
            return
        self.state = "asleep"
        # First, so that nothing is written to the parent's file if a later step fails.
        self.ring.restart()
        self._restart_record()
        self.items.record_next()
        self.files.restart()
        self.server.forget()
        self.notes.restart()
        self.jobs.clear()
        self.problems.restart()
        self.is_crashed = False
        self.stock = None
        self.identity.begin("fork", self.births.get(self.system.get_ident()))
        self.births.clear()
        self.loaders.reset_in_child(self.identity.pid)
        self.drop_gauges("cuda_lent")  # those tensors are the parent's
        self._become_worker()
        if wire.disabled_by(os.environ):  # set by the program since the hook was loaded
            self.leave("disabled")
            return
        self.ring.on_new_thread = self.wake

    def wake(self) -> None:
        """In a forked child: make files, socket and thread, at the first record."""
        if self.state != "asleep":
            return
        try:
            self.ring.on_new_thread = None
            self.open()
            self.server.start()
        except BaseException as error:
            if self._is_foreign(error):
                raise

    def call_with_next_record(self, call: Callable[[], None]) -> None:
        """Call a function with each record from the next one on, until it is removed.

        Other records cost nothing more: `_restart_record` makes every thread count as new, and
        the first record of a new thread calls `on_new_thread`.
        """
        self.ring.on_new_thread = call
        self._restart_record()
        self.items.record_next()

    def note(self, kind: str, **fields: Any) -> None:
        """Add an event with text; never raises."""
        if kind == "exit":
            self.notes.defer()  # to the thread, which ends next: see `_end`
        try:
            self.notes.add(kind, fields, kind == "exit" or self.is_crashed)
        except BaseException as error:
            if not foreign_exceptions.is_ours(error):
                raise
            self.problems.append(f"note {kind}: {type(error).__name__}")

    def failed(self, kind: int, began_ns: int, error: BaseException, **fields: Any) -> None:
        """Record that an exception crossed a wrapper, and note its text; never raises."""
        self.record(wire.EXCEPTION, began_ns, wire.FLAG_RAISED, aux=kind)
        self.note(
            "exception",
            where=wire.KIND_NAMES.get(kind, str(kind)),
            tid=self.system.get_native_id(),
            **foreign_exceptions.described(error),
            **fields,
        )

    def hello(self) -> dict[str, Any]:
        """The first frame of a connection."""
        return requests.hello(self)

    def answer(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """The reply to an observer's request."""
        return requests.answer(self, request)

    def work(self) -> None:
        """Do the jobs of the thread."""
        count = len(self.jobs)  # what a job adds is for the next turn
        while self.jobs and count:
            count -= 1
            job = self.jobs.pop(0)
            try:
                job()
            except BaseException as error:  # noqa: BLE001 - the thread has more to do than this job
                self.note("hook-problem", what="job", text=foreign_exceptions.named(error))
        if self.patcher.is_waiting_for_import():
            self.patcher.catch_up()
        self.files.work(self.server.is_stopping)

    def sleep_limit_ms(self) -> int:
        """How long the thread may sleep while no observer is connected.

        The sleep is bounded because the program may close the listener and open another file under
        its number: `poll` then looks at that file, and nothing else wakes it.
        """
        return 100 if self.patcher.is_waiting_for_import() else int(SAVE_EVERY_S * 1000)

    def close(self, reason: str) -> None:
        """End with the process: like `leave`, but the patches stay.

        By now the program has joined its children. What other processes still use of the CUDA
        tensors that it has sent ends with it.
        """
        if self.state == "off":
            return
        self.notes.defer()
        lent = requests.read_gauge(self, "cuda_lent")
        if lent and lent.get("unreleased"):
            self.note("cuda-lent", **lent)
        self.state = "off"
        self._end(reason)

    def drop_gauges(self, *names: str) -> None:
        """Remove gauges."""
        for name in names:
            self.gauges.pop(name, None)

    def _become_worker(self) -> None:
        """Become the DataLoader worker that the parent described in `birth`, if it did."""
        number = self.identity.birth.get("worker_id")
        if number is None:
            self.worker.clear()
        else:
            self.worker.begin(number, self.identity.birth.get("loader") or 0)

    def _scan_existing_objects(self) -> None:
        """Scan objects that the program made before the hook was attached."""
        if "multiprocessing.util" in sys.modules and self.identity.started_by in LATE:
            scan = checks.load("late_attach_scan").LateAttachScan(weakref.proxy(self))
            scan.take()
            self.stock = scan.summary

    def _read_version(self) -> None:
        """Read the version of the sources, as soon as the modules were loaded from them.

        Not on the hook's thread, where a program that closes all descriptors when it becomes a
        daemon would meet one open file of many.
        """
        if Session.version is None:
            known: str | None = _package().known_version
            try:
                Session.version = known or wire.sources_version(os.path.dirname(__file__))
            except OSError as error:
                if not foreign_exceptions.is_ours(error):
                    raise

    def _measure_overhead(self, wrapper_ns: Callable[[System], int]) -> None:
        self.wrapper_ns = wrapper_ns(self.system)
        checks.unload("overhead")
        self.jobs.append(self._unload_scan)

    def _unload_scan(self) -> None:
        """Unload the scan of existing objects, which runs once.

        Its class is freed by a garbage collection only. While collections are disabled, as they are
        until the injection is over, each attach would leave a class behind: this waits for them.
        """
        if gc.isenabled():
            checks.unload("late_attach_scan")
        else:
            self.jobs.append(self._unload_scan)


def _package() -> ModuleType:
    """The hook's package, under the name by which this one was loaded."""
    return sys.modules[__name__.rpartition(".")[0]]
