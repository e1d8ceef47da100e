"""The socket, and the hook's thread, which serves it.

The thread sleeps in `poll` until an observer connects, at most 3 s. It is a thread of
`_thread`, invisible to `threading.enumerate`. It holds no lock, blocks all signals and imports
nothing. It ends before a fork and starts again after it, so that a program of one thread
still forks with one thread.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import contextlib
import errno
import functools
import itertools
import stat
import sys

from .. import wire
from ..safe import foreign_exceptions
from ..safe.one_call import reserve
from . import runtime_dir
from .connection import Connection, may_connect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from .connection import Owner

_AF_UNIX, _SOCK_STREAM, _SHUT_RDWR = 1, 1, 2
_POLLIN, _POLLOUT = 1, 4
_BACKLOG = 16
CONNECTIONS = 8
"""More observers than this wait until one disconnects."""
TICK_MS = 100
AGAIN_NS = 100_000_000
"""Interval before a thread that the system refused is started again."""
_KEEPS_MASKS = sys.version_info >= (3, 11)
"""Whether a `finally` clause calls its first function before a signal handler can raise.

Python 3.10 looks for signals between almost any two bytecodes (`eval_breaker` in its ceval.c), so a
mask that is set there might stay.
"""
MEMORY_PAUSE_S = 0.02
"""Interval in which the thread asks whether there is memory again."""
STOP_S = 0.25
"""Longest wait of a fork or an exit for the end of the thread; usually it takes 0.2 ms.

With nine running processes for each cpu, 50 ms were sometimes too short: the thread was alive
during the fork (Python 3.10 and 3.13, 2 cpus).
"""


class Run:
    """One thread, between two forks."""

    __slots__ = ("is_done", "is_late", "should_stop", "tid")

    def __init__(self) -> None:
        self.should_stop = False
        self.is_done = False
        self.is_late = False
        """It did not end in time, because a disk blocks it; no fork waits for it again."""
        self.tid = 0


class Server:
    """Listens for observers and serves them."""

    __slots__ = (
        "_again_ns",
        "_cpu_before_ns",
        "_identity",
        "_is_broken",
        "_is_wanted",
        "_listener",
        "_refusals",
        "_run",
        "_session",
        "_tokens",
        "connections",
        "is_opening",
        "path",
    )

    def __init__(self, session: Owner) -> None:
        self._session = session
        self._listener: Any = None
        self.path: str | None = None
        self.forget()

    def forget(self) -> None:
        """Reset in a forked child: listener and thread belong to the parent."""
        if self._listener is not None:
            for connection in self.connections:
                connection.close()
            self._close_listener()
        self._listener = None
        self._identity: tuple[int, int] | None = None
        self.path = None
        self.is_opening = False
        """The thread has not made the socket yet."""
        self.connections: list[Connection] = []
        self._run: Run | None = None
        self._is_broken = False
        self._is_wanted = False
        self._refusals = 0
        self._again_ns = 0
        self._cpu_before_ns = 0
        # The caller that pops the token starts the thread: `list.pop` is atomic and never waits.
        self._tokens = [True]

    def listen(self, path: str) -> None:
        """Bind the socket, for this user only.

        Raises:
            OSError: It could not be bound.
        """
        system = self._session.system
        listener = system.socket(_AF_UNIX, _SOCK_STREAM)
        listener.setblocking(False)
        self._identity = runtime_dir.identity(system, listener.fileno())
        try:
            if not stat.S_ISSOCK(system.os.fstat(listener.fileno()).st_mode):
                raise OSError(errno.EBADF, "the program closed the descriptor")
            # The file gets the mode of the descriptor (`unix_bind`). A change by its path could
            # follow a link, if others can rename the directory.
            system.os.fchmod(listener.fileno(), 0o600)
            with contextlib.suppress(FileNotFoundError):
                system.os.unlink(path)
            listener.bind(path)
            listener.listen(_BACKLOG)
        except BaseException:
            runtime_dir.close_socket(system, listener, self._identity)
            raise
        self._listener, self.path = listener, path

    def start(self) -> None:
        """Start the thread if it does not run."""
        self._is_wanted = True
        if (self.path is None and not self.is_opening) or not self._tokens:
            return
        try:
            self._tokens.pop()
        except BaseException as error:
            if isinstance(error, IndexError) and foreign_exceptions.is_ours(error):
                return
            self._tokens.append(True)  # a signal handler raised after the token was popped
            raise
        run = Run()
        started: list[int] = []
        try:
            reserve.fill()
            # A disk may block, so there the thread does it.
            if not self._session.files.is_on_disk:
                if self._is_no_socket():
                    self._stop_listening()
                elif self._is_broken:
                    self._listen_again()
            if self.path is None and not self.is_opening:
                self._tokens.append(True)
                return
            self._run = run
            self._start_thread(run, started)
        except BaseException as error:
            if started:  # the thread runs
                if not foreign_exceptions.is_ours(error):
                    raise
                unnamed = f"name of the thread: {type(error).__name__}"
                if unnamed not in self._session.problems:
                    self._session.problems.append(unnamed)
                self._refusals = 0
                return
            self._tokens.append(True)
            if not foreign_exceptions.is_ours(error):
                raise
            run.is_done = True
            self._retry_with_records(error)
        else:
            self._refusals = 0

    def _start_thread(self, run: Run, started: list[int]) -> None:
        """Start the thread, with all signals blocked from its first instruction on.

        It inherits the mask of the thread that starts it (pthread_create(3)). A signal that it took
        would not interrupt a call in which the main thread waits.

        The caller names it, by a file of procfs: while the thread had that open, the program could
        close unknown descriptors, or open its own and rely on their numbers.

        Args:
            run: What the thread works on.
            started: Its identifier is added as soon as the thread exists.
        """
        # The session itself: the thread may run first after all others have let go of it, and
        # has its files to remove then.
        serving = self._thread(run, self._session.itself())
        next(serving)
        system = self._session.system
        calls = (next,), ((serving, None),)
        start = system.start_new_thread
        # In one call with the start, after which the thread may end and free what its clock is read
        # from. `list.append` returns `None`, so the identifier is stored and passed on.
        identifiers = itertools.filterfalse(started.append, map(start, *calls))
        reads = map(system.thread_clock, identifiers)
        clocks: list[int] = []
        if _KEEPS_MASKS:
            self._with_signals_blocked(clocks, reads)
        else:
            clocks += reads
        for clock in clocks:
            runtime_dir.name_thread(system, _tid_of(clock), wire.THREAD_NAME)

    @staticmethod
    def _with_signals_blocked(results: list[int], calls: Iterable[int]) -> None:
        """Add the results of calls, which block all signals meanwhile."""
        mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
        try:
            _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
            results += calls  # one bytecode: no handler runs in between
        finally:
            try:
                _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
            except BaseException:
                # Of a handler. One below a trace or profile function prevented the call; the
                # exception has removed that function.
                _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
                raise

    def start_again(self) -> None:
        """Start the thread that the system refused, `AGAIN_NS` after the last attempt."""
        session = self._session
        if self._is_wanted and session.system.monotonic_ns() > self._again_ns:
            session.ring.on_new_thread = None
            self.start()

    def start_with_next_record(self) -> None:
        """Start the thread with the next record: the threads of this fork are not counted yet."""
        self._session.call_with_next_record(self.resume)

    def resume(self) -> None:
        """Start the thread if a fork postponed that; never blocks."""
        if self.let_no_record_start_it():
            self.start()

    def let_no_record_start_it(self) -> bool:
        """Cancel `start_with_next_record`; whether there was anything to cancel."""
        ring = self._session.ring
        is_postponed = bool(ring.on_new_thread == self.resume)
        if is_postponed:
            ring.on_new_thread = None
        return is_postponed

    def _retry_with_records(self, error: BaseException) -> None:
        """Note that the system gave no thread or socket; try again with later records."""
        session = self._session
        if not self._refusals:
            what = "socket" if self._is_broken else "thread"
            session.note("hook-problem", what=what, text=str(error))
        self._refusals += 1
        self._again_ns = session.system.monotonic_ns() + AGAIN_NS
        session.call_with_next_record(self.start_again)

    def stop_for_fork(self) -> None:
        """End the thread, and let no record start it before the fork has ended."""
        self.let_no_record_start_it()
        self.stop()

    def stop(self) -> bool:
        """End the thread and wait until the kernel no longer counts it.

        Returns:
            Whether it ended within `STOP_S`.
        """
        self._is_wanted = False
        run = self._run
        if run is None:
            return True
        run.should_stop = True
        system = self._session.system
        if run.tid == system.get_native_id() or self._has_ended(run):
            return True
        if run.is_late:
            return False
        self._wake()
        deadline_ns, removals = 0, -1
        while not self._has_ended(run):
            if removals != system.removals:
                removals = system.removals
                deadline_ns = system.monotonic_ns() + int(STOP_S * 1e9)
            elif system.monotonic_ns() > deadline_ns:
                run.is_late = True
                return False
            system.sleep(0.00002)
        return True

    def wait_for_opening(self, limit_s: float) -> None:
        """Wait until the thread has made the socket or failed, at most `limit_s`."""
        system = self._session.system
        deadline_ns = system.monotonic_ns() + int(limit_s * 1e9)
        while self.is_opening and self._run is not None and not self._run.is_done:
            if system.monotonic_ns() > deadline_ns:
                return
            system.sleep(0.0002)

    def is_current_thread(self) -> bool:
        """Whether the caller is the hook's thread."""
        return self._run is not None and self._run.tid == self._session.system.get_native_id()

    def remove_socket(self, is_for_good: bool = True) -> None:
        """Unlink the socket; on a frozen disk it stays.

        Args:
            is_for_good: Otherwise the thread makes another one if it is started again.
        """
        if not self._session.files.is_frozen():
            runtime_dir.remove(self._session.system, self.path)
        if is_for_good:
            self.path = None
        self._is_broken = self.path is not None

    def cpu_ns(self) -> int:
        """Cpu time of the hook's threads, to be called on the current one."""
        return self._cpu_before_ns + self._session.system.thread_time_ns()

    def is_stopping(self) -> bool:
        """Whether the thread was asked to end."""
        return self._run is None or self._run.should_stop

    def close(self, reason: str) -> None:
        """Send a GOODBYE to all observers and close the socket."""
        if self._listener is not None:
            self._close_listener()
            self._listener = None
        for connection in self.connections:
            connection.send_goodbye(reason, self._session.patcher.left)
            connection.close()
        self.connections = []

    def _is_its_own(self) -> bool:
        """Whether the descriptor still belongs to the listener.

        Programs close unknown descriptors (`os.closerange`, daemons), and then the number may be a
        file or socket of the program.
        """
        listener = self._listener
        return (
            listener is not None
            and runtime_dir.identity(self._session.system, listener.fileno()) == self._identity
        )

    def _stop_listening(self) -> None:
        """Stop listening: the program closed the descriptor.

        A new one could get a number that the program expects, such as 0 after a daemon has closed
        all descriptors.
        """
        if self._listener is not None:
            self._close_listener()
            self._listener = None
            self.remove_socket()

    def _close_listener(self) -> None:
        """Close the listener, or only forget it if the program has reused its descriptor."""
        runtime_dir.close_socket(self._session.system, self._listener, self._identity)

    def _has_ended(self, run: Run) -> bool:
        """Whether the thread has ended for the kernel too, which Python 3.12 asks at a fork."""
        os = self._session.system.os
        return run.is_done and not (run.tid and os.access(f"/proc/self/task/{run.tid}", os.F_OK))

    def _wake(self) -> None:
        """Make `poll` return by connecting to the own socket; at an exit without an audit event."""
        if self._listener is None:
            return  # it was closed while the thread was busy; the thread will see that
        if self._session.files.has_tasks:
            self._shut_down()
            return
        system = self._session.system
        client: Any = None
        known: tuple[int, int] | None = None
        is_asked = False
        try:
            client = system.socket(_AF_UNIX, _SOCK_STREAM)
            client.setblocking(False)
            known = runtime_dir.identity(system, client.fileno())
            is_asked = True
            client.connect(self.path)
        except BlockingIOError:
            return  # the backlog is full, so the thread is awake
        except BaseException as error:
            if not foreign_exceptions.is_ours(error):
                raise
            # No descriptor is left, the socket file was removed, or an audit hook refuses it.
            self._shut_down()
        finally:
            if is_asked and known is None:
                client.detach()  # the program has closed it, and may have its own there
            elif is_asked:
                runtime_dir.close_socket(system, client, known)
            elif client is not None:
                client.close()  # a signal handler raised before its identity was known

    def _shut_down(self) -> None:
        """Make `poll` return, without a descriptor and a file; `start` makes a new listener.

        Not here: it would get the old number, and `poll` would look at that when it wakes.
        """
        self._is_broken = True
        with contextlib.suppress(OSError):
            if self._is_its_own():
                self._listener.shutdown(_SHUT_RDWR)

    def _is_no_socket(self) -> bool:
        """Whether the program has closed the listener, or has another file under its number.

        Unlike a look at the file, the question for the name of a socket never waits for a disk.
        """
        if self._listener is None:
            return False
        try:
            return bool(self._listener.getsockname() != self.path)
        except OSError as error:
            if not foreign_exceptions.is_ours(error):
                raise
            return True

    def _listen_again(self) -> None:
        """Make a new listener, after the thread that used the old one has ended.

        Raises:
            OSError: No descriptor is left, or the disk is frozen.
        """
        if self._session.files.is_frozen():
            raise BlockingIOError(errno.EAGAIN, "the disk is frozen")
        if self._listener is not None and not self._is_its_own():
            self._stop_listening()
            return
        if self._listener is not None:
            self._close_listener()
            self._listener = None
        self.listen(str(self.path))
        self._is_broken = False

    def _thread(self, run: Run, session: Owner) -> Iterator[None]:
        """What the thread runs; a session detached on it has to outlive it.

        The first function in Python that a thread calls takes 16 KiB for its frames (`push_chunk`
        in CPython's pystate.c, 3.11 and later). Where the process may map nothing more, the
        interpreter would print that, and the thread would be gone. A generator has a frame of its
        own. So it waits here for memory, and calls only functions written in C meanwhile; a direct
        call that gets no frame ends the process in Python 3.11 (`CALL_PY_EXACT_ARGS`, ceval.c).
        """
        serve = functools.partial(
            next, map(self._serve, itertools.repeat(run), itertools.repeat(session))
        )
        yield
        run.tid = session.system.get_native_id()
        try:
            while True:
                try:
                    serve()
                    break
                except MemoryError:
                    if run.should_stop:
                        break
                except BaseException as error:  # noqa: BLE001 - else the interpreter would print it
                    self._is_wanted = False
                    session.problems.append(f"thread: {type(error).__name__}"[:200])
                    break
                session.system.sleep(MEMORY_PAUSE_S)
        finally:
            self._cpu_before_ns += session.system.thread_time_ns()
            run.is_done = True
            self._tokens.append(True)
        if run.should_stop and self._is_wanted:
            # It ended later than a fork waits, and `start` found no token meanwhile.
            self.start()

    def _serve(self, run: Run, session: Owner) -> None:
        """Serve observers until the thread has to end.

        Raises:
            MemoryError: It is to be called again.
        """
        try:
            # A signal that all other threads block must be blocked here too: its default action
            # would end the process.
            _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
            reserve.wait()
            if self._is_broken and not run.should_stop:
                self._listen_again()
            session.work()
            while not run.should_stop:
                self._wait_and_serve(run)
            if session.files.is_ending and self._is_its_own():
                for _ in range(_BACKLOG):  # who has just connected is told what there is, too
                    self._accept(run)
            session.finish()
        except MemoryError:
            raise
        except BaseException as error:  # noqa: BLE001 - else the interpreter would print it
            session.note("hook-problem", what="server", text=foreign_exceptions.named(error))

    def _wait_and_serve(self, run: Run) -> None:
        """Wait once for observers, then do the jobs and serve the observers."""
        poll = self._session.system.poll()
        listener = self._listener
        if listener is None and self.is_opening:
            self._pause(run)  # the disk is frozen
            if not run.should_stop:
                self._session.work()
            return
        if listener is None or not self._is_its_own():
            run.should_stop = True
            self._stop_listening()
            return
        if len(self.connections) < CONNECTIONS:
            poll.register(listener.fileno(), _POLLIN)
        for connection in tuple(self.connections):
            if not connection.is_its_own():
                connection.close()
                self.connections.remove(connection)
                continue
            events = _POLLIN | _POLLOUT if connection.is_behind else _POLLIN
            poll.register(connection.sock.fileno(), events)
        ready = dict(poll.poll(TICK_MS if self.connections else self._session.sleep_limit_ms()))
        reserve.wait()
        if run.should_stop:
            return
        self._session.work()
        if listener.fileno() in ready:
            self._accept(run)
        for connection in tuple(self.connections):
            self._serve_connection(connection, connection.sock.fileno() in ready)

    def _serve_connection(self, connection: Connection, is_ready: bool) -> None:
        """Serve one observer; an exception ends this connection only."""
        reserve.wait()
        try:
            if is_ready:
                connection.receive(self._session.answer)
            connection.push()
        except BaseException as error:  # noqa: BLE001 - other observers are still to be served
            connection.close()
            self.connections.remove(connection)
            if not isinstance(error, (OSError, ValueError, RecursionError)):
                self._session.note(
                    "hook-problem", what="answer", text=foreign_exceptions.named(error)
                )

    def _accept(self, run: Run) -> None:
        """Accept one observer."""
        try:
            fd, _ = self._listener._accept()
            sock = self._session.system.socket(fileno=fd)
            try:
                is_ours = sock.family == _AF_UNIX and sock.getsockname() == self.path
                if is_ours:
                    sock.setblocking(False)
            except BaseException:
                sock.detach()  # what is under the number now is closed by whoever has opened it
                raise
            if not is_ours:
                sock.detach()  # the program closed it, and has its own under the number
                return
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                # The program has no descriptor to spare; `poll` would return at once, so pause.
                self._pause(run)
            return
        connection = Connection(sock, self._session)
        try:
            if not may_connect(sock, self._session.system.os.getresuid()):
                raise PermissionError("another user")
            connection.send_hello()
        except OSError:
            connection.close()
            return
        self.connections.append(connection)

    def _pause(self, run: Run) -> None:
        """Sleep 0.1 s, or until the thread has to end."""
        for _ in range(20):
            if run.should_stop:
                return
            self._session.system.sleep(0.005)


def _tid_of(clock: int) -> int:
    """The kernel's id of the thread that a clock of `pthread_getcpuclockid` measures.

    The clock's number is part of the kernel's interface (`MAKE_THREAD_CPUCLOCK` in Linux's
    posix-timers_types.h): the inverted id, and three bits for its kind.
    """
    return ~(clock >> 3)
