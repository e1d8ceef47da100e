"""The hook: lives inside the training, standard library only.

It may be loaded under another name than `mpwatch.hook`, by path, where mpwatch is not importable;
so its modules refer to each other relatively, and `RENDEZVOUS` says which one is in.
"""

from __future__ import annotations

import collections
import functools
import gc
import operator
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .lifecycle.fork import ForkSteps
    from .session import Session

RENDEZVOUS = "_mpwatch_hook"
"""The entry of `sys.modules` that holds the hook that is in, whatever its name is."""

_entrance = collections.deque((True,), maxlen=1)
"""Whoever takes the token out may enter; `deque.pop` is atomic and never waits."""
_owed: dict[str, Any] = {}
"""What a child has to do whose parent forked in the middle of an entrance: collect garbage."""
_is_watched: list[bool] = []
"""Whether forks are: what is registered with the interpreter cannot be taken back."""
_session: Session | None = None
_forks: ForkSteps | None = None
refusal = ""
"""Why the last `enter` refused, one sentence; empty if it did not."""


def instrument() -> bool:
    """Bring the hook into this process.

    Returns:
        Whether it is in. It stays out of a forkserver, whose children bring their own, of an
        interpreter that runs without its lock, and of a process whose environment forbids it
        (`wire.DISABLING`).
    """
    return enter("instrument")


def uninstrument() -> bool:
    """Take the hook out of this process.

    Returns:
        Whether it is out.
    """
    other = _other()
    if other is not None:
        return bool(other.uninstrument())
    if _session is not None:
        _session.leave("uninstrument")
    return True


def enter(started_by: str, birth: dict[str, Any] | None = None) -> bool:
    """Bring the hook in, saying how; never raises, for it runs in somebody's training.

    Args:
        started_by: `instrument`, `run`, `fork`, `spawn`, `forkserver` or `attach`.
        birth: What the parent knew about this process, see `wire.HELLO`.
    """
    global refusal
    other = _other()
    if other is not None:
        return bool(other.enter(started_by, birth))
    if _session is not None and _session.state != "off":
        _session.wake()
        _session.resume()
        _session.server.start_again()
        return True
    refusal = _refusal()
    if refusal:
        return False
    is_collecting = gc.isenabled()
    try:
        _entrance.pop()
    except IndexError:
        return True  # another thread is bringing it in
    except BaseException:  # a signal handler's, and the token is out
        _entrance.append(True)
        raise
    # A handler may raise in each of these, so each is to be done whatever becomes of the others.
    try:
        try:
            come_in = _enter_uncollected if is_collecting else _enter
            return come_in(started_by, birth)
        finally:
            _owed.clear()
    finally:
        _entrance.append(True)


known_version: str | None = None
"""Of these modules as whoever loaded them says, see `wire.sources_version`; `None`: not told."""


def version() -> str | None:
    """Which version of the hook these modules are, see `wire.sources_version`; `None`: not read."""
    if known_version is not None:
        return known_version
    session = sys.modules.get(f"{__name__}.session")
    return None if session is None else session.Session.version


def current() -> Session | None:
    """The session of this process, for tests and for the attaching side."""
    return _session


def _enter_uncollected(started_by: str, birth: dict[str, Any] | None) -> bool:
    """Enter with no garbage collected meanwhile.

    The hook's modules are thousands of new objects, which would bring a collection of all
    generations about: 0.1 s with torch loaded, and in a forked process a copy of the heap that it
    shares.
    """
    try:
        _watch_forks()
        _owed["gc"] = gc.enable
        gc.disable()
        return _enter(started_by, birth)
    finally:
        gc.enable()


def _watch_forks() -> None:
    """Have what is owed done in each forked child, by nothing but C: see `forks`.

    Another thread may fork while this one brings the hook in. In the child nobody would end what
    this thread began.
    """
    if not _is_watched:
        call, take = operator.methodcaller("__call__"), functools.partial(_owed.pop, "gc", bool)
        posix.register_at_fork(after_in_child=functools.partial(next, map(call, iter(take, None))))
        _is_watched.append(True)


def _enter(started_by: str, birth: dict[str, Any] | None) -> bool:
    """Begin a session; whether that went well."""
    from .safe import foreign_exceptions

    try:
        _begin(started_by, birth)
    except Exception as error:
        if not foreign_exceptions.is_ours(error):
            raise
        return False
    return True


def _begin(started_by: str, birth: dict[str, Any] | None) -> None:
    """Make a session, let forks know it, and bring it in; whatever fails, it is in or it is out."""
    global _session, _forks
    import atexit

    from .lifecycle.fork import ForkSteps
    from .points import table
    from .session import Session
    from .strip_docs import strip_package

    points = table()
    # Before any wrapper is made: it would keep the code that it was made of.
    strip_package(sys.modules[__name__])
    session = Session(started_by, birth)
    session.on_left = _left
    if _forks is None:
        forks = ForkSteps()
        forks.register()
        atexit.register(_at_exit)
        _forks = forks
    try:
        _session = _forks.session = session
        sys.modules[RENDEZVOUS] = sys.modules[__name__]
        session.enter(points)
    except BaseException:
        session.leave("failed")
        raise


def _left(session: Session) -> None:
    """Forget a session that has left."""
    global _session
    if _session is session:
        _session = None
    if _forks is not None and _forks.session is session:
        _forks.session = None


def _at_exit() -> None:
    """End with the interpreter, as late as it allows.

    `multiprocessing` joins children and feeder threads in its own exit function, which may take for
    ever; if that is still to come, the hook ends after it.
    """
    session = _session
    if session is None or session.state == "off":
        return
    session.note_end()
    util = sys.modules.get("multiprocessing.util")
    if util is not None and not getattr(util, "_exiting", True):
        util.Finalize(None, session.close, args=("exit",), exitpriority=-1000)
    else:
        session.close("exit")


def _refusal() -> str:
    """Why the hook must stay out of this process, or an empty string."""
    import os

    from . import wire

    disabling = wire.disabled_by(os.environ)
    if disabling is not None:
        return f"{disabling} is set in the process"
    if _is_forkserver():
        return "the process is a forkserver"
    return "" if _has_gil() else "the interpreter runs without the GIL"


def _has_gil() -> bool:
    """Whether one thread at a time runs; buffers without locks rely on it. None loses it later."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)
    return is_enabled is None or bool(is_enabled())


def _other() -> Any:
    """The hook that is in under another name, if there is one."""
    other = sys.modules.get(RENDEZVOUS)
    return None if other is None or other is sys.modules.get(__name__) else other


def _is_forkserver() -> bool:
    """Whether this is multiprocessing's forkserver, importing the main module for its children.

    The thread that asks is not the one that serves where an observer injects the hook.
    """
    return any(map(_is_serving, sys._current_frames().values()))


def _is_serving(frame: Any) -> bool:
    """Whether the calls of a thread, innermost first, are those of a forkserver."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_serve_one":
            return False
        if code.co_name == "main" and code.co_filename.endswith("multiprocessing/forkserver.py"):
            return True
        frame = frame.f_back
    return False
