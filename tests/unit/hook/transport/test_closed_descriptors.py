"""The program closes a descriptor that the hook has just opened, and opens a file of its own."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import os
import socket
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from mpwatch.hook.checks import cuda_lent
from mpwatch.hook.safe import one_call
from mpwatch.hook.safe.unpatched import System
from mpwatch.hook.transport import runtime_dir
from mpwatch.hook.transport.notes import Notes
from mpwatch.hook.transport.process_files import RingCopy
from mpwatch.hook.transport.ring import Ring
from mpwatch.hook.transport.server import Run

CONTENT = b"a line of the program\n"


class Os:
    """`os`, but a descriptor is the program's file as soon as this function made or saw it.

    Args:
        own: The program's file.
        name: The function.
        calls: How many calls with a descriptor it takes.
    """

    def __init__(self, own: int, name: str, calls: int = 1) -> None:
        self._own, self._name, self._calls = own, name, calls
        self.taken: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return self._opening if name == self._name else getattr(os, name)

    def _opening(self, *args: Any) -> Any:
        made = getattr(os, self._name)(*args)
        fd = args[0] if self._name in ("stat", "fstat") else made
        if isinstance(fd, int):
            self._calls -= 1
            if not self._calls:
                self.taken.append(fd)
                os.dup2(self._own, fd, inheritable=False)
        return made


@pytest.fixture
def own(tmp_path: Path) -> Iterator[int]:
    """The program's file."""
    (tmp_path / "own").write_bytes(CONTENT)
    fd = os.open(tmp_path / "own", os.O_RDWR)
    yield fd
    os.close(fd)


def read_procfs(system: System, _: Path) -> None:
    assert runtime_dir.start_ticks(system) is None


def name_thread(system: System, _: Path) -> None:
    runtime_dir.name_thread(system, os.getpid(), b"mpwatch-hook")


def write_note(system: System, folder: Path) -> None:
    notes = Notes(system)
    notes.save(str(folder / "notes"))
    notes.add("fork", {})


def copy_ring(system: System, folder: Path) -> None:
    copy = RingCopy(system)
    copy.path = str(folder / "copy")
    copy.save(Ring(system, 16))


def open_ring(system: System, folder: Path) -> None:
    Ring(system, 16).open_file(str(folder / "ring"), 1, 1)


def count_lent(system: System, folder: Path) -> None:
    (folder / "counters").write_bytes(bytes(128))
    lent = cuda_lent.Lent(system, str(folder))
    lent.send((0, b"", 8, 0, b"counters", 0, b"", False))
    lent.show()


@pytest.mark.parametrize(
    "act", [read_procfs, name_thread, write_note, copy_ring, open_ring, count_lent]
)
def test_a_file_of_the_program_under_the_number_is_neither_written_nor_closed(
    act: Callable[[System, Path], None], own: int, tmp_path: Path
) -> None:
    system = System()
    system.os = replaced = Os(own, "open")

    with contextlib.suppress(OSError):
        act(system, tmp_path)

    require_untouched(replaced.taken, own)


@pytest.mark.parametrize("call", range(1, 9))
@pytest.mark.parametrize("act", [read_procfs, write_note, copy_ring, name_thread])
def test_a_file_of_the_program_is_safe_after_each_check_of_the_descriptor(
    act: Callable[[System, Path], None], call: int, own: int, tmp_path: Path
) -> None:
    """Each check releases the GIL: what it has found may be old once it returns."""
    system = System()
    system.os = replaced = Os(own, "stat", call)

    with contextlib.suppress(OSError, AssertionError):
        act(system, tmp_path)

    if replaced.taken:  # there are as many checks
        require_untouched(replaced.taken, own)
    else:
        assert call > 2


@pytest.mark.parametrize("is_loaded", [True, False])
def test_a_descriptor_of_procfs_is_closed_without_letting_the_program_run(
    is_loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where ctypes is loaded: `os.close` releases the GIL before it closes."""
    monkeypatch.setitem(sys.modules, "ctypes", ctypes if is_loaded else None)
    system = System()
    before = vars(ctypes.pythonapi).copy()
    released: list[int] = []

    class Releasing:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def close(self, fd: int) -> None:
            released.append(fd)
            os.close(fd)

    system.os = Releasing()
    (fd,) = runtime_dir.opened(system, "/proc/self/stat", os.O_RDONLY)
    runtime_dir.close(system, fd, "/proc/self/stat")

    assert runtime_dir.identity(system, fd) is None
    assert bool(released) is not is_loaded
    assert vars(ctypes.pythonapi) == before


def test_a_module_that_the_program_has_put_in_place_of_ctypes_is_not_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs = MagicMock()
    monkeypatch.setitem(sys.modules, "ctypes", theirs)
    system = System()
    assert system.close_at_once() is system.os.close
    assert not theirs.pythonapi["close"].called


def test_a_ring_in_memory_leaves_a_file_of_the_program_alone(own: int) -> None:
    system = System()
    system.os = replaced = Os(own, "memfd_create")

    with pytest.raises(OSError, match="closed the descriptor"):
        Ring(system, 16).open_memory(1, 1)

    require_untouched(replaced.taken, own)


def test_stacks_are_not_written_into_a_file_of_the_program(
    own: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced = Os(own, "memfd_create")
    monkeypatch.setattr(one_call, "os", replaced)

    with pytest.raises(OSError, match="closed the descriptor"):
        list(one_call.frames())

    require_untouched(replaced.taken, own)


def test_a_search_for_listeners_closes_no_file_of_the_program(own: int, tmp_path: Path) -> None:
    system = System()
    (tmp_path / "4194305-1.sock").touch()
    system.os = replaced = Os(own, "stat")

    for _ in runtime_dir.sweep(system, str(tmp_path)):
        pass

    require_untouched(replaced.taken, own)


def test_a_listener_that_cannot_be_bound_closes_no_file_of_the_program(
    own: int, session: Any, tmp_path: Path
) -> None:
    session.system.os = replaced = Os(own, "stat")
    mode = os.fstat(own).st_mode
    with pytest.raises(OSError, match="closed the descriptor"):
        session.server.listen(str(tmp_path / "hook.sock"))
    assert os.fstat(own).st_mode == mode
    require_untouched(replaced.taken, own)


def test_a_thread_is_ended_without_closing_a_file_of_the_program(
    own: int, session: Any, tmp_path: Path
) -> None:
    """The hook connects to its own socket, to wake the thread."""
    session.server.listen(str(tmp_path / "hook.sock"))
    session.server.start()
    session.system.os = replaced = Os(own, "stat")
    assert session.server.stop()
    require_untouched(replaced.taken, own)


def test_a_thread_is_ended_where_the_program_has_closed_the_socket_before_its_file_is_known(
    own: int, session: Any, tmp_path: Path
) -> None:
    session.server.listen(str(tmp_path / "hook.sock"))
    session.server.start()
    taken: list[int] = []

    class Closing(Os):
        """`os`, whose `stat` finds a descriptor closed, and then the program opens its file."""

        def _opening(self, *args: Any) -> Any:
            if not isinstance(args[0], int) or taken:
                return os.stat(*args)
            taken.append(args[0])
            os.dup2(own, args[0], inheritable=False)
            raise OSError(errno.EBADF, "closed")

    session.system.os = Closing(own, "stat")
    assert session.server.stop()
    require_untouched(taken, own)


def test_a_connection_that_becomes_a_file_as_it_is_examined_is_left_alone(
    own: int, session: Any, tmp_path: Path
) -> None:
    server = session.server
    server.listen(str(tmp_path / "hook.sock"))
    taken: list[int] = []

    def made(fileno: int) -> socket.socket:
        sock = socket.socket(fileno=fileno)
        taken.append(fileno)
        os.dup2(own, fileno, inheritable=False)
        return sock

    session.system.socket = made
    with socket.socket(socket.AF_UNIX) as observer, warnings.catch_warnings():
        warnings.simplefilter("error")
        observer.connect(server.path)
        server._accept(Run())
        gc.collect()

    require_untouched(taken, own)


@pytest.mark.parametrize("kind", ["file", "socket of another name", "socket of the network"])
def test_a_connection_that_the_program_has_replaced_is_left_alone(
    kind: str, own: int, session: Any, tmp_path: Path
) -> None:
    """The program closed the descriptor of an observer right after the hook had accepted it."""
    server = session.server
    server.listen(str(tmp_path / "hook.sock"))
    listener = server._listener
    replaced: list[int] = []

    class Accepting:
        """The listener, whose next connection becomes the program's."""

        def __getattr__(self, name: str) -> Any:
            return getattr(listener, name)

        def _accept(self) -> tuple[int, Any]:
            fd, peer = listener._accept()
            os.dup2(theirs.fileno() if theirs else own, fd, inheritable=False)
            replaced.append(fd)
            return fd, peer

    theirs = None
    if kind != "file":
        theirs = socket.socket(socket.AF_UNIX if "name" in kind else socket.AF_INET)
    server._listener = Accepting()
    with contextlib.closing(theirs or socket.socket()), socket.socket(socket.AF_UNIX) as observer:
        observer.connect(server.path)
        server._accept(Run())
        (fd,) = replaced
        assert os.path.sameopenfile(fd, theirs.fileno() if theirs else own)
        assert os.get_blocking(fd)
        assert not server.connections
        os.close(fd)


def require_untouched(taken: list[int], own: int) -> None:
    """The descriptors are the program's file still, with its content and position."""
    (fd,) = taken
    assert os.path.sameopenfile(fd, own)
    os.close(fd)
    assert os.fstat(own).st_size == len(CONTENT)
    assert os.pread(own, 100, 0) == CONTENT
    assert os.lseek(own, 0, os.SEEK_CUR) == 0


def test_only_a_socket_of_the_known_identity_is_closed() -> None:
    system = System()
    one, other = socket.socketpair()
    with one, other:
        one.setblocking(False)
        known = runtime_dir.identity(system, one.fileno())
        assert known is not None
        fd = other.fileno()
        runtime_dir.close_socket(system, other, known)
        assert other.fileno() == -1
        os.close(fd)
        runtime_dir.close_socket(system, one, known)
        assert runtime_dir.identity(system, one.fileno()) is None
