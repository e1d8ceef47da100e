"""mpwatch: see why a PyTorch multi-process job hangs, leaks or dies.

Importing this costs nothing: no thread, no file, no environment read, no import beyond the
interpreter's own. The hook is loaded when `instrument` is called.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["__version__", "instrument", "uninstrument"]

__version__ = "0.2.0"


def instrument() -> bool:
    """Attach the hook to this process and its future children.

    Safe to call twice, before or after torch is imported. It never raises and prints nothing: a
    training must not fail because its observer did.

    Returns:
        Whether the hook is attached. It is not in a free-threaded Python that runs without the GIL,
        nor in a process whose real, effective and saved user or group ids differ, nor with
        `MPWATCH_DISABLE=1` or `PYTHON_DISABLE_REMOTE_DEBUG=1` in the environment.
    """
    hook = _hook()
    return False if hook is None else bool(hook.instrument())


def uninstrument() -> bool:
    """Detach the hook: every original object restored, thread stopped, files removed.

    Returns:
        Whether the hook is detached.
    """
    hook = _hook()
    return True if hook is None else bool(hook.uninstrument())


def _hook() -> "Any":
    """The package `mpwatch.hook`, or `None` if it cannot be loaded."""
    # An audit hook of the program may refuse that, by any exception, and does it each time. What a
    # signal handler raises meanwhile comes once, and belongs to the program.
    failure: BaseException | None = None
    for _ in (1, 2, 3, 4):
        try:
            from mpwatch import hook
        except BaseException as error:  # noqa: BLE001 - it is raised below, if it is not one of these
            failure = error
            continue
        if failure is not None:
            raise failure
        return hook
    return None
