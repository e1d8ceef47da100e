"""The table of patch points, walked to come in and walked back to leave.

What may be replaced is chosen with care. Functions that pickles name (`rebuild_storage_fd`,
`_worker_loop` and their like) stay the very objects they are: pickle refuses a function that is
not the one its name leads to, so replacing one while some thread holds it for pickling would fail
in the program. Methods of classes, entries of `ForkingPickler`'s table and functions that are only
ever called are safe to replace at any moment.
"""

from __future__ import annotations

import functools
import sys

from ..safe import foreign_exceptions
from .import_watch import ImportWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..session import Session

    Undo = Callable[[], None]
    Install = Callable[[ModuleType, Session], Undo]
    Wrap = Callable[[Any, Session], Any]


_SUSPENDS = 0x20 | 0x80 | 0x100 | 0x200
"""`co_flags` of generators and coroutines (inspect.CO_GENERATOR and its like)."""


class Point:
    """One row of the table."""

    __slots__ = ("install", "module", "name", "since")

    def __init__(self, name: str, module: str, install: Install, since: str = "2.1") -> None:
        self.name = name
        self.module = module
        """The point is set once this module has been imported by the program."""
        self.install = install
        self.since = since
        """First version of torch that has it, or of Python for the standard library's."""


class Patcher:
    """The points set in this process."""

    __slots__ = (
        "_rows",
        "_session",
        "_undo",
        "_unfinished",
        "_watch",
        "left",
        "missing",
        "prepared",
    )

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rows: tuple[Point, ...] = ()
        self._undo: dict[str, Undo] = {}
        self._watch = ImportWatch(self._loaded)
        self._unfinished: set[str] = set()
        self.missing: dict[str, str] = {}
        """Points that could not be set, with the reason."""
        self.left: dict[str, str] = {}
        """Replacements that could not be taken back, with the reason: see `leave_under`."""
        self.prepared: Undo | None = None
        """Undoes what is being set just now; a signal handler may raise in the middle of it."""

    def install(self) -> None:
        """Set every point whose module is there, and wait for the other modules."""
        from ..points import TABLE

        self._rows = TABLE
        for name in dict.fromkeys(row.module for row in self._rows):
            module = sys.modules.get(name)
            if module is None:
                self._watch.names.add(name)
            elif _is_initializing(module):
                self._unfinished.add(name)
            else:
                self._loaded(name)
        self._watch.start()

    def uninstall(self) -> None:
        """Put every original object back, where ours is still in its place."""
        self._watch.end()
        self._unfinished.clear()
        if self.prepared is not None:
            self.prepared()
            self.prepared = None
        while self._undo:
            name = next(reversed(self._undo))
            try:
                self._undo[name]()
            except Exception as error:
                if not foreign_exceptions.is_ours(error):
                    raise
                self.missing[name] = f"could not be restored: {error}"
            # Only now: what was struck is undone once more.
            self._undo.pop(name, None)

    def installed(self) -> list[str]:
        """Names of the points that are set."""
        return list(self._undo)

    def waiting(self) -> list[str]:
        """Names of the modules that the program has not imported."""
        return sorted(self._watch.names | self._unfinished)

    def is_waiting_for_import(self) -> bool:
        """Whether a module was found in the middle of its import, which nothing announces."""
        return bool(self._unfinished)

    def catch_up(self) -> None:
        """Set the points of modules whose import has ended since."""
        for name in tuple(self._unfinished):
            module = sys.modules.get(name)
            if module is None:
                self._unfinished.discard(name)
                self._watch.names.add(name)
            elif not _is_initializing(module):
                self._unfinished.discard(name)
                self._loaded(name)

    def _loaded(self, name: str) -> None:
        """Set the points of one module; one that fails is missing, and takes no other with it."""
        module = sys.modules.get(name)
        if module is None:
            return
        for row in self._rows:
            if row.module != name or row.name in self._undo:
                continue
            try:
                self._undo[row.name] = row.install(module, self._session.itself())
            except Exception as error:
                if not foreign_exceptions.is_ours(error):
                    raise
                self.missing[row.name] = f"{type(error).__name__}: {error}"[:200]
            self.prepared = None


def attribute(path: str, wrap: Wrap) -> Install:
    """Replace an attribute of the module, or of a class in it.

    Args:
        path: `function` or `Class.method`.
        wrap: Makes the replacement out of the original function and the session.
    """

    def install(module: ModuleType, session: Session) -> Undo:
        holder: Any = module
        *owners, name = path.split(".")
        for owner in owners:
            holder = getattr(holder, owner)
        if name not in vars(holder):
            raise LookupError(f"{module.__name__} has no {path}")
        raw = vars(holder)[name]
        kind = type(raw) if isinstance(raw, (staticmethod, classmethod)) else None
        original = raw if kind is None else raw.__func__
        wrapper = wrap(original, session)
        functools.update_wrapper(wrapper, original)
        ours = wrapper if kind is None else kind(wrapper)

        def undo() -> None:
            now = vars(holder).get(name)
            if now is ours:
                setattr(holder, name, raw)
            elif now is not raw:
                leave_under(session.patcher, f"{module.__name__}.{path}", wrapper, original)

        session.patcher.prepared = undo
        setattr(holder, name, ours)
        return undo

    return install


def leave_under(patcher: Patcher, name: str, wrapper: Any, original: Any) -> None:
    """Leave a replacement in place because another library has replaced or wrapped it in turn.

    That library may hold on to it and call it, so it cannot be taken back. It is made to do nothing
    but call the original.
    """
    try:
        make_pass_through(wrapper, original)
        does = "what is left of the hook there only calls the original"
    except Exception as error:
        if not foreign_exceptions.is_ours(error):
            raise
        does = f"what is left of the hook there could not be reduced: {type(error).__name__}"
    patcher.left[name] = f"another library has replaced it since; {does}"


def make_pass_through(wrapper: Any, original: Any) -> None:
    """Give a function the code `return original(*args, **kwargs)`; calls under way go on as before.

    Raises:
        ValueError: It is no plain function whose closure holds the original.
    """
    names = wrapper.__code__.co_freevars
    cells = dict(zip(names, wrapper.__closure__ or (), strict=True))
    name = next((name for name in names if cells[name].cell_contents is original), None)
    if name is None or wrapper.__code__.co_flags & _SUSPENDS:
        raise ValueError
    # All cells have to be named, for a function's code and its closure must agree in number.
    text = (
        f"def make({', '.join(names)}):\n"
        " def passes(*_args, **_kwargs):\n"
        f"  if 0: {', '.join(names)}\n"
        f"  return {name}(*_args, **_kwargs)\n"
        " return passes\n"
    )
    made: dict[str, Any] = {}
    exec(compile(text, __file__, "exec"), made)
    code = made["make"](*names).__code__
    if code.co_freevars != names:
        raise ValueError
    wrapper.__code__ = code.replace(co_name=wrapper.__code__.co_name)


def _is_initializing(module: ModuleType) -> bool:
    """Whether the module's code is still running."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
