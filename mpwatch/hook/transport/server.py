"""The socket and the one thread behind it.

The thread sleeps in `poll` until an observer connects, and for 3 s at most. It is a bare thread of
`_thread`, invisible to `threading.enumerate`, holds no lock, blocks all signals, imports nothing,
and is ended before a fork and started again after it, so that a fork in a program of one thread
stays one.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import collections
import contextlib
import errno

from .. import wire
from ..safe import foreign_exceptions
from ..safe.one_call import room
from . import runtime_dir
from .connection import Connection, is_welcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..session import Session

_AF_UNIX, _SOCK_STREAM, _SHUT_RDWR = 1, 1, 2
_POLLIN, _POLLOUT = 1, 4
_BACKLOG = 16
CONNECTIONS = 8
"""More observers than this wait until one leaves."""
TICK_MS = 100
AGAIN_NS = 100_000_000
"""A thread that the system refused is asked for again after this time at the earliest."""
STOP_S = 0.25
"""How long a fork waits for the thread at most; usually it takes 0.2 ms.

Where nine processes wanted each cpu, 50 ms were too few now and then: the thread was seen alive in
the fork (Python 3.10 and 3.13, 2 cpus).
"""


class Run:
    """One life of the thread, between two forks."""

    __slots__ = ("is_done", "is_late", "should_stop", "tid")

    def __init__(self) -> None:
        self.should_stop = False
        self.is_done = False
        self.is_late = False
        """It did not end in time: it is blocked on a disk, and nobody waits for it again."""
        self.tid = 0


class Server:
    """Listens for observers and serves them."""

    __slots__ = (
        "_again_ns",
        "_connections",
        "_cpu_before_ns",
        "_inode",
        "_is_broken",
        "_is_wanted",
        "_listener",
        "_refusals",
        "_run",
        "_session",
        "_tokens",
        "is_opening",
        "path",
    )

    def __init__(self, session: Session) -> None:
        self._session = session
        self._listener: Any = None
        self.path: str | None = None
        self.forget()

    def forget(self) -> None:
        """Start from nothing: in a forked child, where listener and thread are the parent's."""
        if self._listener is not None:
            for connection in self._connections:
                connection.close()
            self._close_listener()
        self._listener = None
        self._inode = 0
        self.path = None
        self.is_opening = False
        """The thread is to make the socket, or is about to."""
        self._connections: list[Connection] = []
        self._run: Run | None = None
        self._is_broken = False
        self._is_wanted = False
        self._refusals = 0
        self._again_ns = 0
        self._cpu_before_ns = 0
        # Whoever takes the token may start the thread: `deque.pop` is atomic and never waits.
        self._tokens = collections.deque((True,))

    def listen(self, path: str) -> None:
        """Bind the socket, for this user only.

        Raises:
            OSError: It could not be bound.
        """
        system = self._session.system
        listener = system.socket(_AF_UNIX, _SOCK_STREAM)
        try:
            with contextlib.suppress(FileNotFoundError):
                system.os.unlink(path)
            listener.bind(path)
            system.os.chmod(path, 0o600)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
        self._listener, self.path = listener, path
        self._inode = _inode(system, listener)

    def start(self) -> None:
        """Start the thread unless it runs."""
        self._is_wanted = True
        if self.path is None and not self.is_opening:
            return
        try:
            self._tokens.pop()
        except BaseException as error:
            if isinstance(error, IndexError) and foreign_exceptions.is_ours(error):
                return
            self._tokens.append(True)  # a signal handler's, and the token is out
            raise
        run = Run()
        room.fill()
        try:
            if self._is_broken and not self._session.is_on_disk:
                self._mend()
            if self.path is None and not self.is_opening:
                self._tokens.append(True)
                return
            self._run = run
            self._session.system.start_new_thread(self._serve, (run,))
        except (OSError, RuntimeError) as error:
            if not foreign_exceptions.is_ours(error):
                raise
            run.is_done = True
            self._tokens.append(True)
            self._be_refused(error)
        else:
            self._refusals = 0

    def start_again(self) -> None:
        """Start the thread that the system refused, unless that was a moment ago."""
        session = self._session
        if self._is_wanted and session.system.monotonic_ns() > self._again_ns:
            session.ring.on_new_thread = None
            self.start()

    def _be_refused(self, error: Exception) -> None:
        """No thread or no socket was to be had: try again as records are written."""
        session = self._session
        if not self._refusals:
            what = "socket" if self._is_broken else "thread"
            session.note("hook-problem", what=what, text=str(error))
        self._refusals += 1
        self._again_ns = session.system.monotonic_ns() + AGAIN_NS
        session.call_with_next_record(self.start_again)

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
        deadline_ns = system.monotonic_ns() + int(STOP_S * 1e9)
        while not self._has_ended(run):
            if system.monotonic_ns() > deadline_ns:
                run.is_late = True
                return False
            system.sleep(0.00002)
        return True

    def wait_for_opening(self, limit_s: float) -> None:
        """Wait until the thread has made the socket, or cannot, or the time is over."""
        system = self._session.system
        deadline_ns = system.monotonic_ns() + int(limit_s * 1e9)
        while self.is_opening and self._run is not None and not self._run.is_done:
            if system.monotonic_ns() > deadline_ns:
                return
            system.sleep(0.0002)

    def is_current_thread(self) -> bool:
        """Whether the caller is the hook's thread."""
        return self._run is not None and self._run.tid == self._session.system.get_native_id()

    def remove_socket(self) -> None:
        """Unlink the socket."""
        runtime_dir.remove(self._session.system, self.path)
        self.path = None

    def cpu_ns(self) -> int:
        """Cpu time of this thread, which is the hook's, and of those that ended for forks."""
        return self._cpu_before_ns + self._session.system.thread_time_ns()

    def is_stopping(self) -> bool:
        """Whether the thread was asked to end."""
        return self._run is None or self._run.should_stop

    def close(self, reason: str) -> None:
        """Say goodbye to all observers, close and unlink the socket."""
        if self._listener is not None:
            self._close_listener()
            self._listener = None
        self.remove_socket()
        for connection in self._connections:
            connection.say_goodbye(reason, self._session.patcher.left)
            connection.close()
        self._connections = []

    def _is_its_own(self) -> bool:
        """Whether the listener's descriptor still is the listener.

        Programs close descriptors that they do not know (`os.closerange`, daemons), and the number
        may be a file or socket of the program's afterwards.
        """
        listener = self._listener
        return listener is not None and _inode(self._session.system, listener) == self._inode

    def _give_up(self) -> None:
        """Listen no longer: the program closed the descriptor.

        A new one could get a number that the program expects, such as 0 after a daemon has closed
        everything.
        """
        if self._listener is not None:
            self._close_listener()
            self._listener = None
            path, self.path = self.path, None
            runtime_dir.remove(self._session.system, path)

    def _close_listener(self) -> None:
        """Close the listener, or only forget it if its descriptor is somebody else's by now."""
        if self._is_its_own():
            self._listener.close()
        else:
            self._listener.detach()

    def _has_ended(self, run: Run) -> bool:
        """Whether the thread is gone for the kernel too, whom Python 3.12 asks at a fork."""
        if not run.tid:
            return run.is_done
        try:
            self._session.system.os.stat(f"/proc/self/task/{run.tid}")
        except OSError as error:
            if not foreign_exceptions.is_ours(error):
                raise
            return run.is_done
        return False

    def _wake(self) -> None:
        """Make `poll` return, by knocking at our own door."""
        if self._listener is None:
            return  # it was closed while the thread was busy, who sees that next
        client = None
        try:
            client = self._session.system.socket(_AF_UNIX, _SOCK_STREAM)
            client.setblocking(False)
            client.connect(self.path)
        except BlockingIOError:
            return  # the backlog is full, so the thread is awake
        except (OSError, TypeError) as error:
            if not foreign_exceptions.is_ours(error):
                raise
            # No descriptor left, or the socket file is gone. This needs neither, but afterwards
            # the listener is of no use, and `start` makes a new one. Not here: the new one would
            # get the old one's number, and `poll` look at that when it wakes.
            self._is_broken = True
            with contextlib.suppress(OSError):
                if self._is_its_own():
                    self._listener.shutdown(_SHUT_RDWR)
        finally:
            if client is not None:
                client.close()

    def _mend(self) -> None:
        """Listen anew, after the thread that looked at the old socket has ended.

        Raises:
            OSError: There was no descriptor for it.
        """
        if self._listener is not None and not self._is_its_own():
            self._give_up()
            return
        if self._listener is not None:
            self._close_listener()
            self._listener = None
        self.listen(str(self.path))
        self._is_broken = False

    def _serve(self, run: Run) -> None:
        """Be the thread."""
        # The session that leaves on this very thread has to outlive it.
        session = self._session.itself()
        run.tid = session.system.get_native_id()
        try:
            # A signal that all other threads block must find this one blocking it too: its
            # default action would end the process.
            _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
            runtime_dir.name_thread(session.system, run.tid, wire.THREAD_NAME)
            room.wait()
            if self._is_broken:
                self._mend()
            session.work()
            while not run.should_stop:
                self._turn(run)
            session.finish()
        except Exception as error:  # noqa: BLE001 - else the interpreter would print it
            session.note("hook-problem", what="server", text=repr(error)[:500])
        finally:
            self._cpu_before_ns = self.cpu_ns()
            run.is_done = True
            self._tokens.append(True)
            if run.should_stop and self._is_wanted:
                # It took longer than a fork waits, and `start` found no token meanwhile.
                self.start()

    def _turn(self, run: Run) -> None:
        """Wait once and do what there is to do."""
        poll = self._session.system.poll()
        listener = self._listener
        if listener is None or not self._is_its_own():
            run.should_stop = True
            self._give_up()
            return
        if len(self._connections) < CONNECTIONS:
            poll.register(listener.fileno(), _POLLIN)
        for connection in tuple(self._connections):
            if not connection.is_its_own():
                connection.close()
                self._connections.remove(connection)
                continue
            events = _POLLIN | _POLLOUT if connection.is_behind else _POLLIN
            poll.register(connection.sock.fileno(), events)
        ready = dict(poll.poll(TICK_MS if self._connections else self._session.patience_ms()))
        room.wait()
        if run.should_stop:
            return
        self._session.work()
        if listener.fileno() in ready:
            self._accept(run)
        for connection in tuple(self._connections):
            self._attend(connection, connection.sock.fileno() in ready)

    def _attend(self, connection: Connection, is_ready: bool) -> None:
        """Serve one observer; whatever goes wrong ends that connection and nothing else."""
        room.wait()
        try:
            if is_ready:
                connection.receive(self._session.answer)
            connection.push()
        except Exception as error:  # noqa: BLE001 - other observers are still to be served
            connection.close()
            self._connections.remove(connection)
            if not isinstance(error, (OSError, ValueError, RecursionError)):
                self._session.note("hook-problem", what="answer", text=repr(error)[:500])

    def _accept(self, run: Run) -> None:
        """Let one observer in."""
        try:
            fd, _ = self._listener._accept()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                # The program has no descriptor to spare; `poll` would return at once, so pause.
                self._pause(run)
            return
        sock = self._session.system.socket(fileno=fd)
        sock.setblocking(False)
        connection = Connection(sock, self._session)
        try:
            if not is_welcome(sock, self._session.system.os.getuid()):
                raise PermissionError("another user")
            connection.greet()
        except OSError:
            connection.close()
            return
        self._connections.append(connection)

    def _pause(self, run: Run) -> None:
        for _ in range(20):
            if run.should_stop:
                return
            self._session.system.sleep(0.005)


def _inode(system: Any, sock: Any) -> int:
    """The inode of a socket, which says that a descriptor is still this one; 0 if it is closed."""
    try:
        return int(system.os.fstat(sock.fileno()).st_ino)
    except OSError as error:
        if not foreign_exceptions.is_ours(error):
            raise
        return 0
