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
from .state.thread_state import Worker, make_here
from .transport import runtime_dir
from .transport.notes import Notes, Problems
from .transport.ring import Ring, make_record
from .transport.ring_copy import SAVE_EVERY_S, RingCopy
from .transport.runtime_dir import StaleFiles
from .transport.server import Server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .lifecycle.patcher import Point


LATE = ("attach", "instrument")
"""Values of `started_by` with which the program may have run before the hook was attached."""
_ATTEMPTS = (1, 2, 3)
"""Detaching is repeated where signal handlers raise; a tuple, for no call may come between."""
_OPENING_S = 0.25
"""Longest wait of `instrument` for files and socket on a disk; usually it takes 2 ms."""


class Identity:
    """The process, and how the hook was attached."""

    __slots__ = ("birth", "forked_by", "pid", "start_ticks", "started_by")

    def __init__(self, system: System, started_by: str, birth: dict[str, Any] | None) -> None:
        self.pid: int = system.os.getpid()
        self.start_ticks = runtime_dir.start_ticks(system) or 0
        self.started_by = started_by
        self.birth = birth or {}
        # Read at once: after the parent has exited it is another process.
        self.forked_by: int = system.os.getppid() if started_by == "fork" else 0

    def read_start_ticks(self, system: System) -> None:
        """Read the start time again if no descriptor was available for it at the fork."""
        if not self.start_ticks:
            self.start_ticks = runtime_dir.start_ticks(system) or 0

    def origin(self, system: System) -> tuple[int, int, bytes]:
        """The parent of this process, for the header of its ring; see `wire.ORIGIN`."""
        parent, ticks, name = self.forked_by, 0, ""
        if self.birth.get("parent"):
            parent, ticks = self.birth["parent"], self.birth.get("parent_start_ticks") or 0
            name = str(self.birth.get("name") or "")
        elif self.started_by != "fork":  # after a fork these values are copies of the parent's
            parent, name = runtime_dir.parent_and_name()
        if parent and not ticks:
            ticks = runtime_dir.start_ticks(system, parent) or 0
        return parent, ticks, name.encode(errors="replace")

    @property
    def stem(self) -> str:
        """Name of the files of this process, without a suffix."""
        return wire.stem(self.pid, self.start_ticks)


class Session:
    """The parts of the hook, and their life cycle; wrappers record and note through it."""

    version: str | None = None
    """Version of the hook's sources in this process, once read; the same for all sessions."""

    __slots__ = (
        "__weakref__",
        "_restart_record",
        "births",
        "gauges",
        "here",
        "identity",
        "is_crashed",
        "is_ending",
        "is_on_disk",
        "is_saving",
        "items",
        "jobs",
        "loaders",
        "notes",
        "on_detached",
        "on_request",
        "origins",
        "patcher",
        "problems",
        "record",
        "ring",
        "ring_copy",
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
        self.ring_copy = RingCopy(self.system)
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
        self.items = QueueSampling(self.system, self.record, note, self.origins, self.worker)
        self.notes = Notes(self.system)
        self.gauges: dict[str, Callable[[], Any]] = {}
        self.on_request: dict[str, Callable[[], Any]] = {}
        """Gauges that are read only for a request that names them."""
        self.problems = Problems()
        self.patcher = Patcher(part_of)
        self.server = Server(part_of)
        self.sweeper = StaleFiles(self.system)
        self.on_detached: Callable[[Session], None] | None = None
        """Called once this hook is detached."""
        self.state = "new"
        """`new`, `on`, `asleep` in a forked child without a record, `off`."""
        self.stock: dict[str, Any] | None = None
        """Summary of the objects found when the hook was attached to a running program."""
        self.is_crashed = False
        """An exception ended this process: its files stay for the autopsy."""
        self.is_on_disk = False
        """The runtime directory may be on a disk: only the hook's thread accesses it."""
        self.is_saving = self.is_ending = False
        """Tasks of the thread before it ends: write everything; remove files and socket."""
        self.births: dict[int, dict[str, Any]] = {}
        """`birth` of each process that is being started, by the thread that starts it."""
        self.wrapper_ns: int | None = None
        """Cost of a wrapped call once it was measured; forked children inherit it."""
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
        self.server.wait_for_opening(_OPENING_S)

    def open(self) -> None:
        """Make the files and the socket; without them the hook works and reports why.

        On a disk that may block, so the thread does it; until then the ring is in memory.
        """
        self.state = "on"
        self.identity.read_start_ticks(self.system)
        try:
            directory, problem = runtime_dir.find_directory(
                self.system, os.environ, may_block=False
            )
        except runtime_dir.MightBlock:
            self.is_on_disk = self.server.is_opening = True
            self._open_ring_in_memory()
            self.jobs.append(self._open_on_disk)
            return
        self._open_in(directory, problem)

    def _open_on_disk(self) -> None:
        """Make the files and the socket, on the hook's thread."""
        try:
            self._open_in(*runtime_dir.find_directory(self.system, os.environ))
        finally:
            self.server.is_opening = False

    def _open_in(self, directory: str | None, problem: str) -> None:
        """Make the files and the socket in a directory."""
        if problem:
            self.problems.append(problem)
        if directory is None:
            return
        stem = f"{directory}/{self.identity.stem}"
        path = stem + wire.RING_SUFFIX
        runtime_dir.remove(self.system, path)
        device = runtime_dir.memory_device(self.system, directory)
        if device is None or not self._open_ring_file(path, device):
            if not self.ring.is_memory:
                self._open_ring_in_memory()
            self.ring_copy.path = path
            self.ring_copy.save(self.ring)
        try:
            self.server.listen(stem + wire.SOCKET_SUFFIX)
        except OSError as error:
            if not foreign_exceptions.is_ours(error):
                raise
            self.problems.append(f"socket: {error.strerror or error}")
        self.notes.save(stem + wire.NOTES_SUFFIX, is_deferred=self.is_on_disk)
        self.sweeper.directory, self.sweeper.may_block = directory, device is None
        self.sweeper.begin_as(self.identity.started_by, self.identity.pid)

    def _open_ring_file(self, path: str, device: int) -> bool:
        """Put the ring into a file on a file system in memory; `False` if that failed."""
        identity = self.identity
        origin = identity.origin(self.system)
        try:
            self.ring.open_file(path, identity.pid, identity.start_ticks, origin, device)
        except OSError as error:
            if not foreign_exceptions.is_ours(error):
                raise
            self.problems.append(f"ring: {error.strerror or error}")
            return False
        return True

    def _open_ring_in_memory(self) -> None:
        """Put the ring into a memfd, or into private memory if none is available."""
        identity = self.identity
        origin = identity.origin(self.system)
        try:
            self.ring.open_memory(identity.pid, identity.start_ticks, origin)
        except OSError as error:
            if not foreign_exceptions.is_ours(error):
                raise
            self.problems.append(f"ring in memory: {error.strerror or error}")

    def leave(self, reason: str) -> None:
        """Detach: restore originals, end the thread, close and unlink everything.

        Each step may run twice: if a signal handler raises in one, all are repeated before the
        exception reaches the program.
        """
        if self.state == "off":
            return
        foreign: BaseException | None = None
        for _ in _ATTEMPTS:
            try:
                self._detach(reason)
                break
            except BaseException as error:  # noqa: BLE001 - it is raised below
                foreign = error
        if foreign is not None:
            raise foreign

    def _detach(self, reason: str) -> None:
        self.state = "off"
        self.patcher.uninstall()
        self._end(reason)
        self._release()

    def _end(self, reason: str) -> None:
        """End the thread, remove the files, close the socket.

        On a disk the thread removes them before it ends. If that takes longer than `stop` waits,
        they stay, and a later process removes them like those of a dead process.
        """
        if self.is_on_disk and not self.server.is_current_thread():
            self.is_ending = True
            self.server.start()  # if it does not run
            self.server.stop()
            self.server.path = None
        else:
            self.server.stop()
            self.remove_files()
        self.server.close(reason)

    def finish(self) -> None:
        """On the thread, before it ends: write and remove files, which may block."""
        if self.is_saving or self.is_ending:
            self.is_saving = False
            self.notes.write_pending()
            if self.is_ending:
                self.remove_files()
                self.server.remove_socket()
            else:
                self.ring_copy.save(self.ring)

    def save_now(self) -> None:
        """Make the thread write everything: the process is about to exit without exit functions."""
        if self.is_on_disk and not self.server.is_current_thread():
            self.is_saving = True
            self.server.stop()
            self.server.start()  # the program may have replaced `os._exit`

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
            self.note(
                "exception",
                where="main",
                type=exact.class_name(type(error)),
                text=foreign_exceptions.text_of(error),
                frames=foreign_exceptions.frames_of(error),
            )

    def remove_files(self) -> None:
        """Unlink ring and notes, or keep them for `mpwatch autopsy` after a crash."""
        if self.is_crashed:
            self.ring_copy.save(self.ring)
        else:
            runtime_dir.remove(self.system, self.ring.path)
            runtime_dir.remove(self.system, self.ring_copy.path)
            runtime_dir.remove(self.system, self.notes.path)
        self.notes.path = self.ring_copy.path = None

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
        self.ring_copy.restart()
        self.is_on_disk = self.is_saving = self.is_ending = False
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
        self.loaders.reset_in_child(self.identity.pid)
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
        except Exception as error:
            if not foreign_exceptions.is_ours(error):
                raise
            self.problems.append(f"{type(error).__name__}: {error}")

    def stop_thread(self) -> None:
        """End the thread for a fork, and let no record start it before the fork has ended."""
        self.let_no_record_start_it()
        self.server.stop()

    def start_thread(self) -> None:
        """Start the thread unless it runs."""
        self.server.start()

    def let_no_record_start_it(self) -> None:
        """Cancel `start_with_next_record`."""
        if self.ring.on_new_thread == self.resume:
            self.ring.on_new_thread = None

    def start_with_next_record(self) -> None:
        """Start the thread with the next record: the threads of this fork are not counted yet."""
        self.call_with_next_record(self.resume)

    def call_with_next_record(self, call: Callable[[], None]) -> None:
        """Call a function with each record from the next one on, until it is removed.

        Other records cost nothing more: `_restart_record` makes every thread count as new, and
        the first record of a new thread calls `on_new_thread`.
        """
        self.ring.on_new_thread = call
        self._restart_record()
        self.items.record_next()

    def resume(self) -> None:
        """Start the thread if a fork postponed that; never blocks."""
        if self.ring.on_new_thread == self.resume:
            self.ring.on_new_thread = None
            self.server.start()

    def note(self, kind: str, **fields: Any) -> None:
        """Add an event with text; never raises."""
        try:
            self.notes.add(kind, fields, kind == "exit" or self.is_crashed)
        except Exception as error:
            if not foreign_exceptions.is_ours(error):
                raise
            self.problems.append(f"note {kind}: {type(error).__name__}")

    def failed(self, kind: int, began_ns: int, error: BaseException, **fields: Any) -> None:
        """Record that an exception crossed a wrapper, and note its text; never raises."""
        self.record(wire.EXCEPTION, began_ns, wire.FLAG_RAISED, aux=kind)
        self.note(
            "exception",
            where=wire.KIND_NAMES.get(kind, str(kind)),
            type=exact.class_name(type(error)),
            text=foreign_exceptions.text_of(error),
            frames=foreign_exceptions.frames_of(error),
            tid=self.system.get_native_id(),
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
            except Exception as error:  # noqa: BLE001 - the thread has more to do than this job
                self.note("hook-problem", what="job", text=repr(error)[:500])
        if self.patcher.is_waiting_for_import():
            self.patcher.catch_up()
        self.notes.write_pending()
        self.ring_copy.save_if_due(self.ring)
        self.sweeper.work(self.server.is_stopping)

    def sleep_limit_ms(self) -> int:
        """How long the thread may sleep while no observer is connected.

        The sleep is bounded because the program may close the listener and open another file under
        its number: `poll` then looks at that file, and nothing else wakes it.
        """
        return 100 if self.patcher.is_waiting_for_import() else int(SAVE_EVERY_S * 1000)

    def close(self, reason: str) -> None:
        """End with the process: like `leave`, but the patches stay."""
        if self.state == "off":
            return
        self.state = "off"
        self._end(reason)

    def drop_gauges(self, *names: str) -> None:
        """Remove gauges."""
        for name in names:
            self.gauges.pop(name, None)
            self.on_request.pop(name, None)

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
            package = sys.modules[__name__.rpartition(".")[0]]
            known: str | None = package.known_version
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
