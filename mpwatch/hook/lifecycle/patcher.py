"""Set the patch points of a table as the program imports their modules, and restore the originals.

Functions that pickles refer to by name (`rebuild_storage_fd`, `_worker_loop`) are never replaced:
pickle refuses a function that is not the one its name leads to, so a thread of the program that is
about to pickle the original would fail. Methods of classes, entries of `ForkingPickler`'s table and
functions that are only called can be replaced at any moment.
"""

from __future__ import annotations

import functools
import sys

from ..safe import foreign_exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from ..context import Context

    Undo = Callable[[], None]
    Install = Callable[[ModuleType, Context], Undo]
    Wrap = Callable[[Any, Context], Any]


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

    def __init__(self, session: Context) -> None:
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

    def install(self, points: tuple[Point, ...]) -> None:
        """Set every point whose module is imported, and wait for the other modules."""
        self._rows = points
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
        """Restore every original object, where its replacement is still in place."""
        self._watch.end()
        self._unfinished.clear()
        if self.prepared is not None:
            self.prepared()
            self.prepared = None
        while self._undo:
            name = next(reversed(self._undo))
            try:
                self._undo[name]()
            except BaseException as error:
                if not foreign_exceptions.is_ours(error):
                    raise
                self.missing[name] = f"could not be restored: {error}"
            # Only now: if this was interrupted, it is undone once more.
            self._undo.pop(name, None)

    def installed(self) -> list[str]:
        """Names of the points that are set."""
        return list(self._undo)

    def waiting(self) -> list[str]:
        """Names of the modules that the program has not imported."""
        return sorted(self._watch.names | self._unfinished)

    def is_waiting_for_import(self) -> bool:
        """Whether a module was being imported when it was found: nothing tells when that ends."""
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
        """Set the points of one module; one that fails goes to `missing`, the others are set."""
        module = sys.modules.get(name)
        if module is None:
            return
        for row in self._rows:
            if row.module != name or row.name in self._undo:
                continue
            try:
                self._undo[row.name] = row.install(module, self._session.itself())
            except BaseException as error:
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
    return Attribute(path, wrap)


class Attribute:
    """What `attribute` returns: 48 bytes, where a partial with its arguments has 144."""

    __slots__ = ("_wrap", "path")

    def __init__(self, path: str, wrap: Wrap) -> None:
        self.path = path
        self._wrap = wrap

    def __call__(self, module: ModuleType, session: Context) -> Undo:
        """Replace the attribute; what is returned restores it."""
        holder: Any = module
        *owners, name = self.path.split(".")
        for owner in owners:
            holder = getattr(holder, owner)
        if name not in vars(holder):
            raise LookupError(f"{module.__name__} has no {self.path}")
        raw = vars(holder)[name]
        kind = type(raw) if isinstance(raw, (staticmethod, classmethod)) else None
        original = raw if kind is None else raw.__func__
        wrapper = self._wrap(original, session)
        functools.update_wrapper(wrapper, original)
        ours = wrapper if kind is None else kind(wrapper)
        undo = _Replaced(session, module, self.path, holder, raw, ours)
        session.patcher.prepared = undo
        setattr(holder, name, ours)
        return undo


class _Replaced:
    """An attribute that was replaced: 80 bytes, where a partial with its arguments has 200."""

    __slots__ = ("_holder", "_module", "_ours", "_path", "_raw", "_session")

    def __init__(
        self, session: Context, module: ModuleType, path: str, holder: Any, raw: Any, ours: Any
    ) -> None:
        self._session = session
        self._module = module
        self._path = path
        self._holder = holder
        self._raw = raw
        self._ours = ours

    def __call__(self) -> None:
        """Restore the attribute, unless another library has replaced it since."""
        name, raw, ours = self._path.rpartition(".")[2], self._raw, self._ours
        now = vars(self._holder).get(name)
        if now is ours:
            setattr(self._holder, name, raw)
        elif now is not raw:
            is_method = isinstance(raw, (staticmethod, classmethod))
            wrapper, original = (ours.__func__, raw.__func__) if is_method else (ours, raw)
            where = f"{self._module.__name__}.{self._path}"
            leave_under(self._session.patcher, where, wrapper, original)


def leave_under(patcher: Patcher, name: str, wrapper: Any, original: Any) -> None:
    """Leave a replacement in place because another library has replaced or wrapped it in turn.

    That library may hold on to it and call it, so it cannot be taken back. It is made to do nothing
    but call the original.
    """
    try:
        make_pass_through(wrapper, original)
        does = "what is left of the hook there only calls the original"
    except BaseException as error:
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


class ImportWatch:
    """Tells when a module has been imported, without importing anything.

    It is a finder at the head of `sys.meta_path` that finds nothing itself. For the few names in
    `names`, the finders behind it find the module, and it is told when the module's code has run.
    Any other import costs one lookup in a set, 0.1 us of the 100 us and more that an import takes.
    """

    __slots__ = ("_on_loaded", "names")

    def __init__(self, on_loaded: Callable[[str], None]) -> None:
        self._on_loaded = on_loaded
        self.names: set[str] = set()

    def start(self) -> None:
        """Put it at the head of `sys.meta_path`."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """Take it out of `sys.meta_path`, which becomes another list; `start` puts it back.

        Another thread may be between two finders of the old list. Before CPython 3.14 the import
        system iterates over that list itself: if an item were removed from it, the thread would
        skip a finder, and if that is the last one, raise ModuleNotFoundError for a module there is.
        """
        if self in sys.meta_path:
            sys.meta_path = [finder for finder in sys.meta_path if finder is not self]

    def end(self) -> None:
        """Stop for good, and drop the reference to the callback's owner."""
        self.stop()
        self.names.clear()
        self._on_loaded = _ignore

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module in `names` through the finders behind this one."""
        if name not in self.names:
            return None
        # That of another hook in this process asks this one, too: then it finds nothing. One thread
        # at a time imports a module.
        self.names.discard(name)
        try:
            for finder in tuple(sys.meta_path):
                if finder is self or not hasattr(finder, "find_spec"):
                    continue
                spec = finder.find_spec(name, path, target)
                if spec is None:
                    continue
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self._loaded)  # type: ignore[assignment]
                return spec
            return None
        finally:
            self.names.add(name)

    def _loaded(self, name: str) -> None:
        self.names.discard(name)
        self._on_loaded(name)


def _ignore(name: str) -> None:
    """The callback after `ImportWatch.end`."""


class _Loader:
    """Replaces a module's loader until the module's code has run."""

    def __init__(self, loader: Any, on_loaded: Callable[[str], None]) -> None:
        self._loader = loader
        self._on_loaded = on_loaded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Have the real loader make the module."""
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the real loader of the module, let it execute the code, and report the module."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._on_loaded(module.__name__)
