"""The hook of one process, from coming in to leaving, and what a fork does to it."""

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
from .transport.server import Server
from .transport.stale_files import StaleFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .lifecycle.patcher import Point


LATE = ("attach", "instrument")
"""How a hook comes into a program that may have run for a while."""
_STRIKES = (1, 2, 3)
"""As often as a handler of a signal may raise while it leaves; a call could be struck, too."""
_OPENING_S = 0.25
"""How long the caller of `instrument` waits for files and socket on a disk; usually it is 2 ms."""


class Identity:
    """Which process this is, and how the hook came in."""

    __slots__ = ("birth", "forked_by", "pid", "start_ticks", "started_by")

    def __init__(self, system: System, started_by: str, birth: dict[str, Any] | None) -> None:
        self.pid: int = system.os.getpid()
        self.start_ticks = runtime_dir.start_ticks(system) or 0
        self.started_by = started_by
        self.birth = birth or {}
        # Asked at once: what it says when the parent has ended is another process.
        self.forked_by: int = system.os.getppid() if started_by == "fork" else 0

    def look_again(self, system: System) -> None:
        """Ask for the start time once more, if no descriptor could be had for it in the fork."""
        if not self.start_ticks:
            self.start_ticks = runtime_dir.start_ticks(system) or 0

    def origin(self, system: System) -> tuple[int, int, bytes]:
        """Who started this process, for those who find only its own ring; see `wire.ORIGIN`."""
        parent, ticks, name = self.forked_by, 0, ""
        if self.birth.get("parent"):
            parent, ticks = self.birth["parent"], self.birth.get("parent_start_ticks") or 0
            name = str(self.birth.get("name") or "")
        elif self.started_by != "fork":  # what a fork has there is a copy of its parent's
            parent, name = runtime_dir.parent_and_name()
        if parent and not ticks:
            ticks = runtime_dir.start_ticks(system, parent) or 0
        return parent, ticks, name.encode(errors="replace")

    @property
    def stem(self) -> str:
        """Name without suffix of this process's files."""
        return wire.stem(self.pid, self.start_ticks)


class Session:
    """What the wrappers write to, and the life cycle of it all."""

    version: str | None = None
    """Of the sources that this process runs, once read: of the class, for they do not change."""

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
        "on_left",
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
        # Its parts know it by a proxy: a session that has left goes when the last wrapper that
        # somebody kept does, at once, and its ring with it, also in programs that turn `gc` off.
        part_of: Any = weakref.proxy(self)

        def note(kind: str, **fields: Any) -> None:
            # The method itself would be a reference to this session.
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
        self.on_left: Callable[[Session], None] | None = None
        """Called once this hook has left."""
        self.state = "new"
        """`new`, `on`, `asleep` in a forked child that did nothing yet, `off`."""
        self.stock: dict[str, Any] | None = None
        """What was there before, where the hook came into a running program."""
        self.is_crashed = False
        """An exception ended this process: its files stay for the autopsy."""
        self.is_on_disk = False
        """The runtime directory may be on a disk: only the hook's thread touches anything there."""
        self.is_saving = self.is_ending = False
        """What the thread does as it ends: write everything out, and remove files and socket."""
        self.births: dict[int, dict[str, Any]] = {}
        """What a process being started will want to know about itself, by the starting thread."""
        self.wrapper_ns: int | None = None
        """What a wrapped call costs, once that was measured; forked children know it by birth."""
        self.jobs: list[Callable[[], None]] = []
        """Work for the thread, done once, off the program's threads."""

    def enter(self, points: tuple[Point, ...]) -> None:
        """Bring the hook in: patches first, then files, socket and thread."""
        self._be_born()
        self.patcher.install(points)
        self.open()
        self._take_stock()
        # Loaded here: what that allocates may start a garbage collection.
        wrapper_ns = checks.load("overhead").wrapper_ns
        self.jobs.append(functools.partial(self._measure_overhead, wrapper_ns))
        self.jobs.append(self._read_version)
        self.server.start()
        self.server.wait_for_opening(_OPENING_S)

    def open(self) -> None:
        """Make the files and the socket; without them the hook works on and says so.

        On a disk that may block, so it is left to the thread; the ring is in memory meanwhile.
        """
        self.state = "on"
        self.identity.look_again(self.system)
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
        """Make the files and the socket: on the thread."""
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
        self.sweeper.directory = directory
        self.sweeper.begin_as(self.identity.started_by, self.identity.pid)

    def _open_ring_file(self, path: str, device: int) -> bool:
        """Have the ring in a file of a file system in memory; whether that could be done."""
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
        """Have the ring in a memfd, or in private memory where there is none."""
        identity = self.identity
        origin = identity.origin(self.system)
        try:
            self.ring.open_memory(identity.pid, identity.start_ticks, origin)
        except OSError as error:
            if not foreign_exceptions.is_ours(error):
                raise
            self.problems.append(f"ring in memory: {error.strerror or error}")

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
        self._end(reason)
        self._let_go()

    def _end(self, reason: str) -> None:
        """End the thread, remove the files, close the socket.

        On a disk the thread removes them as it ends. If it cannot within the time that `stop`
        waits, they stay, and are removed by a later process as those of a dead one.
        """
        if self.is_on_disk and not self.server.is_current_thread():
            self.is_ending = True
            self.server.start()  # unless it runs
            self.server.stop()
            self.server.path = None
        else:
            self.server.stop()
            self.remove_files()
        self.server.close(reason)

    def finish(self) -> None:
        """Do on the thread, as it ends, what may block and has to be done before."""
        if self.is_saving or self.is_ending:
            self.is_saving = False
            self.notes.write_pending()
            if self.is_ending:
                self.remove_files()
                self.server.remove_socket()
            else:
                self.ring_copy.save(self.ring)

    def save_now(self) -> None:
        """Have the thread write everything out: the process is about to end without ceremony."""
        if self.is_on_disk and not self.server.is_current_thread():
            self.is_saving = True
            self.server.stop()
            self.server.start()  # the program may have replaced what ends it

    def _let_go(self) -> None:
        """Be known to nobody any more."""
        self.jobs.clear()
        self.ring.on_new_thread = None
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
                text=foreign_exceptions.text_of(error),
                frames=foreign_exceptions.frames_of(error),
            )

    def remove_files(self) -> None:
        """Unlink ring and notes, unless an autopsy will want them."""
        if self.is_crashed:
            self.ring_copy.save(self.ring)
        else:
            runtime_dir.remove(self.system, self.ring.path)
            runtime_dir.remove(self.system, self.ring_copy.path)
            runtime_dir.remove(self.system, self.notes.path)
        self.notes.path = self.ring_copy.path = None

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
        self._be_born()
        if wire.disabled_by(os.environ):  # set by the program since the hook was loaded
            self.leave("disabled")
            return
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
            if not foreign_exceptions.is_ours(error):
                raise
            self.problems.append(f"{type(error).__name__}: {error}")

    def stop_thread(self) -> None:
        """End the thread for a fork, and let no record start it while that lasts."""
        self.let_no_record_start_it()
        self.server.stop()

    def start_thread(self) -> None:
        """Start the thread unless it runs."""
        self.server.start()

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
        self.items.record_next()

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
        """Do the jobs that were left for the thread."""
        while self.jobs:
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

    def patience_ms(self) -> int:
        """How long the thread may sleep while no observer is connected.

        The sleep is bounded because the program may close the listener and open another file under
        its number: `poll` then looks at that file, and nothing else wakes it.
        """
        return 100 if self.patcher.is_waiting_for_import() else int(SAVE_EVERY_S * 1000)

    def close(self, reason: str) -> None:
        """End with the process: as `leave`, but the patches stay, for nobody will miss them."""
        if self.state == "off":
            return
        self.state = "off"
        self._end(reason)

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
            scan = checks.load("late_attach_scan").LateAttachScan(weakref.proxy(self))
            scan.take()
            self.stock = scan.summary

    def _read_version(self) -> None:
        """Read which version this is, soon after its modules were loaded from the same files."""
        if Session.version is None:
            package = sys.modules[__name__.rpartition(".")[0]]
            known: str | None = package.known_version
            Session.version = known or wire.sources_version(os.path.dirname(__file__))

    def _measure_overhead(self, wrapper_ns: Callable[[System], int]) -> None:
        self.wrapper_ns = wrapper_ns(self.system)
        checks.unload("overhead")
        # The class in this one is freed by a garbage collection only. It was loaded with that
        # turned off, so this is decided later; without it each attach would leave a class behind.
        if gc.isenabled():
            checks.unload("late_attach_scan")
