"""The program that runs inside a target: loads or unloads the hook and answers how that went.

It runs on a thread that `native_call` starts for it and for which the main thread waits, see there
what follows from that. It gets `folder`, a descriptor of its exchange directory, and `contents`, a
dict of the observer, by its globals. It needs nothing but the standard library of Python 3.10 or
later, and raises nothing.

All of it happens under the interpreter's global import lock, which `os.fork` takes as well
(`PyOS_BeforeFork`, CPython 3.10 to 3.14). So no thread forks a child meanwhile that would inherit a
half imported module, the lock of a module, or a garbage collector that is turned off. Nothing may
be waited for under that lock except the GIL: the import system is only entered where no other
thread is importing a module that the hook needs, and finders of the program are not asked
(`path_loader`).

An injection may be called off while it runs, by the removal of its payload (`exchange_dir`). So it
is asked before the hook is loaded, and afterwards, still under the import lock: then the hook is
unloaded again. A hook that stays was there, to be seen, before the payload was removed.

The main thread waits for 0.1 s only. If it comes to the end of the program after that, an exit
function lets it wait here: a daemon thread that is ended with the interpreter keeps its locks, also
one of the program that an audit hook takes.
"""

from __future__ import annotations

import _imp
import _thread
import gc
import marshal
import posix
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LATER = "later"
"""The state in the answer of a program that is in the middle of an import."""
_ANSWER_CHARACTERS = 1000
_AUDITED_WITHIN_S = 0.1
_EXIT_WITHIN_S = 5.0
EXIT_LOCK = "payload_exit_lock"
"""Attribute of the hook's package with the lock for which the interpreter's exit waits."""


def run(folder: int, contents: dict[str, Any]) -> None:
    """Do what the contents ask for, and answer.

    Args:
        folder: Descriptor of the exchange directory, which was checked.
        contents: See `compiled_payload`.
    """
    try:
        result = _before_exit(folder, contents)
    except BaseException as error:  # noqa: BLE001 - it is in the answer; no caller could catch it
        result = {"state": "failed", "reason": f"{type(error).__name__}: {error}"}
    answer(folder, result)


def _exclusively(folder: int, contents: dict[str, Any]) -> dict[str, Any]:
    """Do it while no other thread imports or forks; `LATER` if one does.

    If the lock is held, this does not wait for it: the holder could be the main thread, interrupted
    between two bytecodes of the import system, and it waits for this thread.
    """
    if _audit_hooks_wait() or _imp.lock_held():
        return {"state": LATER}
    _imp.acquire_lock()
    try:
        if is_importing():
            return {"state": LATER}
        return _uncollected(folder, contents)
    finally:
        _imp.release_lock()


def _audit_hooks_wait() -> bool:
    """Whether an audit hook of the program waits for something when a module is imported.

    It may take a lock of the program. Under the import lock, to wait for that could be for ever:
    its holder may fork, or import a module. So audit hooks are asked before. Those that do not wait
    will hardly do so within the next 0.1 s, in which the main thread waits and takes no lock.
    """
    began_s = time.monotonic()
    sys.audit("import", "_mpwatch_hook", None, sys.path, sys.meta_path, sys.path_hooks)
    return time.monotonic() - began_s > _AUDITED_WITHIN_S


def is_importing() -> bool:
    """Whether a thread is importing a module of the standard library, or of the hook.

    To wait for its lock could be for ever. `_frozen_importlib` keeps weak references to the locks
    of all modules that are being imported (`_module_locks`, CPython 3.10 to 3.14).
    """
    locks = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    for name, reference in tuple(locks.items()):
        top = name.partition(".")[0]
        if reference() is not None and (
            top in sys.stdlib_module_names or top in ("mpwatch", "_mpwatch_hook")
        ):
            return True
    return False


def _before_exit(folder: int, contents: dict[str, Any]) -> dict[str, Any]:
    """Do it; the interpreter's exit waits for its end, at most `_EXIT_WITHIN_S`.

    One lock serves all injections of a process, and its exit callback is registered once: in
    CPython 3.10 to 3.13 `atexit.unregister` leaves an empty entry behind, and it compares the
    function with every callback of the program, which may call the program's `__eq__`.
    """
    atexit = _exit_functions()
    lock: Any = getattr(sys.modules.get("_mpwatch_hook"), EXIT_LOCK, None)
    is_new = lock is None
    if is_new:
        lock = _thread.allocate_lock()
        atexit.register(lock.acquire, True, _EXIT_WITHIN_S)
    lock.acquire(False)  # it may be held already in a child that was forked during an injection
    try:
        return _exclusively(folder, contents)
    finally:
        lock.release()
        package = sys.modules.get("_mpwatch_hook")
        if package is not None:
            setattr(package, EXIT_LOCK, lock)
        elif is_new:
            atexit.unregister(lock.acquire)


def _exit_functions() -> Any:
    """The module `atexit`, without an import: audit hooks would see it, and other threads wait."""
    found: Any = sys.modules.get("atexit")
    if found is None:
        found = _imp.create_builtin(sys.modules["_frozen_importlib"].ModuleSpec("atexit", None))
        _imp.exec_builtin(found)
    return found


def _uncollected(folder: int, contents: dict[str, Any]) -> dict[str, Any]:
    """Collect no garbage meanwhile.

    Thousands of new objects would cause a collection of all generations, which takes a
    worker of torch 0.1 s and, where it was forked, copies the heap that it shares with its parent.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return unload() if contents["action"] == "unload" else _load_if_wanted(folder, contents)
    finally:
        if was_enabled:
            gc.enable()


def _load_if_wanted(folder: int, contents: dict[str, Any]) -> dict[str, Any]:
    """Load the hook, unless the injection is called off before or meanwhile.

    A hook that was attached before, by another injection or by the program, stays.
    """
    was_attached = getattr(sys.modules.get("_mpwatch_hook"), "current", bool)()
    if not is_called_off(folder):
        result = load(contents)
        if not is_called_off(folder):
            return result
        if not was_attached:
            unload()
    return {"state": "failed", "reason": "it was called off"}


def is_called_off(folder: int) -> bool:
    """Whether the payload was removed, or the whole directory."""
    try:
        posix.stat("payload", dir_fd=folder)
    except OSError:
        return True
    return False


def load(contents: dict[str, Any]) -> dict[str, Any]:
    """Load the hook, or find it loaded."""
    modules = contents["modules"]
    if is_for_this_python(contents):
        modules = marshal.loads(modules)
    path, _, code = modules["lifecycle.path_loader"]
    if isinstance(code, bytes):
        code = compile(code, path, "exec", dont_inherit=True)
    path_loader: dict[str, Any] = {"__name__": "mpwatch_payload_loader", "__file__": path}
    exec(code, path_loader)
    package = path_loader["load"](
        contents["hook_directory"], "attach", compiled=modules, version=contents["version"]
    )
    if package is None:
        reason = path_loader["reason"] or "the hook refused to start"
        return {"state": "failed", "reason": str(reason)}
    return described("loaded", package)


def unload() -> dict[str, Any]:
    """Unload the hook; also a success when it was not there."""
    package = sys.modules.get("_mpwatch_hook")
    session = None if package is None else package.current()
    if package is None or session is None:
        return {"state": "unloaded"}
    if package.uninstrument():
        return {**described("unloaded", package), "left": _left(session)}
    return {**described("failed", package), "reason": "the hook did not leave"}


def described(state: str, package: Any) -> dict[str, Any]:
    """An answer that says where the hook's files are, as this process names them."""
    session = package.current()
    found = {"state": state, "version": str(package.version() or "")}
    if hasattr(package, "wire"):
        found["release"] = package.wire.RELEASE
    if session is not None:
        found["socket"] = str(session.server.path or "")
        found["reason"] = "; ".join(map(str, session.problems))[:_ANSWER_CHARACTERS]
    return found


def _left(session: Any) -> str:
    """What the hook could not undo, a line each; as many as an answer has room for."""
    lines: list[str] = []
    left = {} if session is None else session.patcher.left
    for name, reason in left.items():
        line = f"{name}: {reason}"
        if sum(map(len, lines)) + len(lines) + len(line) > _ANSWER_CHARACTERS - 20:
            lines.append(f"and {len(left) - len(lines)} more")
            break
        lines.append(line)
    return "\n".join(lines)


def is_for_this_python(contents: dict[str, Any]) -> bool:
    """Whether the observer compiled the modules for this version of the interpreter."""
    magic: bytes = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER
    return bool(contents["magic"] == magic)


def answer(folder: int, result: dict[str, Any]) -> None:
    """Write the answer so that it appears at once and whole; tidy up if no observer waits.

    Where it cannot be written (a full disk) the observer learns from `native_call` that the call
    is over. To a frozen disk nothing is written: a process that waits for that could not end.
    """
    if _is_frozen(folder):
        return
    names = posix.listdir(folder)
    if result["state"] in ("loaded", "unloaded") and "unattended" in names:
        for name in names:
            posix.unlink(name, dir_fd=folder)
        above = posix.open(
            "..", posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC, dir_fd=folder
        )
        try:
            posix.rmdir(globals()["contents"]["name"], dir_fd=above)
        finally:
            posix.close(above)
        return
    flags = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_NOFOLLOW | posix.O_CLOEXEC
    file = posix.open(".result", flags, 0o600, dir_fd=folder)
    try:
        posix.write(file, as_json(result))
    finally:
        posix.close(file)
    posix.rename(".result", "result", src_dir_fd=folder, dst_dir_fd=folder)


def _is_frozen(folder: int) -> bool:
    """Whether the directory is on a frozen disk, as far as the hook that was loaded can tell."""
    package = sys.modules.get("_mpwatch_hook")
    session = package and package.current()
    runtime_dir: Any = sys.modules.get(f"{getattr(package, '__name__', '')}.transport.runtime_dir")
    if session is None or not hasattr(runtime_dir, "is_frozen"):
        return False
    try:
        above = posix.readlink(f"/proc/self/fd/{folder}").rpartition("/")[0]
    except OSError:  # there is no procfs, or an audit hook refuses
        return False
    return bool(runtime_dir.is_frozen(session.system, above, session.identity.stem))


def as_json(result: dict[str, Any]) -> bytes:
    """An object of texts as JSON in ASCII, without importing `json` into the program."""
    pairs = (f"{_quoted(key)}: {_quoted(result[key])}" for key in result)
    return ("{" + ", ".join(pairs) + "}").encode("ascii")


def _quoted(text: str) -> str:
    """A JSON string; characters beyond the basic plane and lone surrogates become `?`."""
    escaped = []
    for character in text[:_ANSWER_CHARACTERS]:
        code = ord(character)
        if 32 <= code < 127 and character not in '"\\':
            escaped.append(character)
        elif code < 0x10000 and not 0xD800 <= code < 0xE000:
            escaped.append(f"\\u{code:04x}")
        else:
            escaped.append("?")
    return '"' + "".join(escaped) + '"'


if __name__ == "mpwatch_payload":
    run(globals()["folder"], globals()["contents"])
