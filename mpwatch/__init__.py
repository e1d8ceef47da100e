"""mpwatch: see why a PyTorch multi-process job hangs, leaks or dies.

Importing this costs nothing: no thread, no file, no environment read, no import beyond the
interpreter's own. The hook is loaded when `instrument` is called.
"""

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
    from mpwatch import hook

    return hook.instrument()


def uninstrument() -> bool:
    """Detach the hook: every original object restored, thread stopped, files removed.

    Returns:
        Whether the hook is detached.
    """
    from mpwatch import hook

    return hook.uninstrument()
