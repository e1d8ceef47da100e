"""The hook: the part of mpwatch inside a training job, standard library only.

Where mpwatch is not importable, it is loaded by path under another name than `mpwatch.hook`.
So its modules import each other relatively, and `RENDEZVOUS` names the one that is attached.
"""

from __future__ import annotations

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
"""The entry of `sys.modules` for the hook that is attached, under any name."""

_attach_token = [True]
"""The thread that pops the token attaches the hook; `list.pop` is atomic and never waits."""
_undo_in_child: dict[str, Any] = {}
"""What a child has to do if it was forked while the hook was being attached: enable `gc`."""
_is_watched: list[bool] = []
"""Whether forks are watched: a registration with the interpreter cannot be removed."""
_session: Session | None = None
_forks: ForkSteps | None = None
refusal = ""
"""Why the last `enter` refused, one sentence, or empty."""


def instrument() -> bool:
    """Attach the hook to this process.

    Returns:
        Whether it is attached. It refuses a forkserver, whose children load their own, an
        interpreter that runs without the GIL, a process with the rights of several users
        (`wire.has_several_users`), and one whose environment or interpreter's option forbids it
        (`wire.DISABLING`, `wire.DISABLING_OPTION`).
    """
    return enter("instrument")


def uninstrument() -> bool:
    """Detach the hook from this process.

    Returns:
        Whether it is detached.
    """
    other = _other()
    if other is not None:
        return bool(other.uninstrument())
    if _session is not None:
        _session.leave("uninstrument")
    return True


def enter(started_by: str, birth: dict[str, Any] | None = None) -> bool:
    """Attach the hook; never raises into the program.

    Args:
        started_by: `instrument`, `run`, `fork`, `spawn`, `forkserver` or `attach`.
        birth: Description of this process by its parent, see `wire.HELLO`.
    """
    global refusal
    other = _other()
    if other is not None:
        return bool(other.enter(started_by, birth))
    if _session is not None and _session.state != "off":
        _session.wake()
        _session.server.resume()
        _session.server.start_again()
        return True
    try:
        refusal = _refusal()
    except BaseException as error:
        if not _is_ours(error):
            raise
        # Only the name of the class: the text may be made by a method of the program.
        refusal = f"an audit hook refused, or a module is missing: {type(error).__name__}"
    if refusal:
        return False
    is_collecting = gc.isenabled()
    try:
        _attach_token.pop()
    except IndexError:
        return True  # another thread is attaching it
    except BaseException:  # a signal handler raised after the token was popped
        _attach_token.append(True)
        raise
    # A handler may raise in each of these steps; each is done even if another fails.
    try:
        try:
            attach = _enter_uncollected if is_collecting else _enter
            return attach(started_by, birth)
        finally:
            _undo_in_child.clear()
    finally:
        _attach_token.append(True)


known_version: str | None = None
"""Version of these modules, given by the loader; see `wire.sources_version`."""


def version() -> str | None:
    """The version of these modules, see `wire.sources_version`; `None` if not read yet."""
    if known_version is not None:
        return known_version
    session = sys.modules.get(f"{__name__}.session")
    return None if session is None else session.Session.version


def current() -> Session | None:
    """The session of this process, for tests and for `attach`."""
    return _session


def _enter_uncollected(started_by: str, birth: dict[str, Any] | None) -> bool:
    """Attach with garbage collection disabled.

    The hook's modules are thousands of new objects, which would cause a collection of all
    generations: 0.1 s with torch loaded, and in a forked process a copy of the shared heap.
    """
    try:
        _watch_forks()
        _undo_in_child["gc"] = gc.enable
        gc.disable()
        return _enter(started_by, birth)
    finally:
        gc.enable()


def _watch_forks() -> None:
    """Enable `gc` in children forked while the hook is attached, with C code only.

    Another thread may fork while this one attaches the hook; this thread does not exist in the
    child. `lifecycle.fork` says why it has to be C code.
    """
    if not _is_watched:
        call, take = (
            operator.methodcaller("__call__"),
            functools.partial(_undo_in_child.pop, "gc", bool),
        )
        posix.register_at_fork(after_in_child=functools.partial(next, map(call, iter(take, None))))
        _is_watched.append(True)


def _enter(started_by: str, birth: dict[str, Any] | None) -> bool:
    """Begin a session; `False` if that failed."""
    try:
        _begin(started_by, birth)
    except BaseException as error:
        if not _is_ours(error):
            raise
        return False
    return True


def _is_ours(error: BaseException) -> bool:
    try:
        from .safe import foreign_exceptions
    except BaseException as failure:
        if type(failure) is not type(error):
            raise
        return True  # an audit hook refuses this import as well

    return foreign_exceptions.is_ours(error)


def _begin(started_by: str, birth: dict[str, Any] | None) -> None:
    """Make a session, register it for forks and attach it; a failure detaches it again."""
    global _session, _forks
    import atexit

    from . import checks
    from .lifecycle.fork import ForkSteps
    from .points import table
    from .session import Session

    points = table()
    # Before any wrapper is made: a wrapper would keep the unstripped code.
    checks.strip(sys.modules[__name__], ("instrument", "uninstrument"))
    session = Session(started_by, birth)
    session.on_detached = _forget
    if _forks is None:
        forks = ForkSteps()
        forks.register()
        atexit.register(_at_exit)
        _forks = forks
    try:
        _session = _forks.session = session
        session.forks = _forks
        sys.modules[RENDEZVOUS] = sys.modules[__name__]
        session.enter(points)
    except BaseException:
        session.leave("failed")
        raise


def _forget(session: Session) -> None:
    """Forget a detached session."""
    global _session
    if _session is session:
        _session = None
    if _forks is not None and _forks.session is session:
        _forks.session = None


def _at_exit() -> None:
    """Close the session with the interpreter, as late as possible.

    `multiprocessing` joins children and feeder threads in its own exit function, which may take
    very long; if that has not run yet, the hook closes after it.
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
    """Why the hook must not be attached to this process, or an empty string."""
    import os

    from . import wire

    disabling = wire.disabled_by(os.environ)
    if disabling is not None:
        return f"{disabling} is set in the process"
    if any(name in sys._xoptions for name in wire.DISABLING_OPTION):
        return f"it was started with -X {wire.DISABLING_OPTION[0]}"
    if wire.has_several_users(os):
        return wire.SEVERAL_USERS
    if _is_forkserver():
        return "the process is a forkserver"
    return "" if _has_gil() else "the interpreter runs without the GIL"


def _has_gil() -> bool:
    """Whether the interpreter has the GIL, which the ring relies on; it cannot be lost later."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)
    return is_enabled is None or bool(is_enabled())


def _other() -> Any:
    """The hook attached under another name, or `None`."""
    other = sys.modules.get(RENDEZVOUS)
    return None if other is None or other is sys.modules.get(__name__) else other


def _is_forkserver() -> bool:
    """Whether this is multiprocessing's forkserver, which imports the main module for its children.

    All threads are examined: an injected hook is attached on another thread than the serving one.
    """
    return any(map(_is_serving, sys._current_frames().values()))


def _is_serving(frame: Any) -> bool:
    """Whether a thread, from this frame outwards, runs the loop of a forkserver."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_serve_one":
            return False
        if code.co_name == "main" and code.co_filename.endswith("multiprocessing/forkserver.py"):
            return True
        frame = frame.f_back
    return False
