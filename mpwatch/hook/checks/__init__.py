"""Inspections of the program's objects, each loaded when it is first needed.

Until then a check is compressed bytecode, read while the hook is loaded. `load` makes a module of
it in the thread of the program that needs it. So it takes no import lock (another thread may fork
meanwhile), reads no file (which could block), and does not change `sys.modules` (another thread may
be iterating over it). On the hook's own thread the allocations could start a garbage collection:
there a check is loaded only with a reserve (`load_on_hook_thread`), see `safe.one_call`.

A check imports only modules that are loaded with the hook, and gets another check by `load`. State
is kept by the objects that call a check, not by its module.
"""

from __future__ import annotations

import importlib.util
import marshal
import sys
from types import CodeType, FunctionType, ModuleType

from ..safe.one_call import reserve

try:
    from zlib import compress, decompress
except ImportError:  # this Python was built without zlib
    decompress = bytes  # type: ignore[assignment]

    def compress(data: bytes, level: int) -> bytes:  # type: ignore[misc]
        """The same data."""
        return data


TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

NAMES = (
    "cuda_allocator",
    "cuda_lent",
    "dangling_views",
    "errno_location",
    "flight_recorder",
    "fork_risks",
    "iterable_samples",
    "late_attach_scan",
    "object_walk",
    "overhead",
    "rng",
    "shared_memory",
    "shared_parameters",
    "unpicklable",
    "values",
)
_STRIPPING = "strip_docs"
_PACKAGE = __name__.rpartition(".")[0]
OBJECTS = 250
"""That the collector counts at most while a check is loaded: 205 to 218 for `values`, CPython 3.10
to 3.13."""
_code = b""
"""Bytecode of each check and of `strip_docs`, compressed together: 34 KB, one by one 43."""
_modules: dict[str, ModuleType] = {}


def load(name: str) -> Any:
    """The module of a check.

    Raises:
        Exception: Raised by the module's own code; the next call tries again.
    """
    module = _modules.get(name) or sys.modules.get(f"{__name__}.{name}")
    if module is None:
        # If two threads do this at once, both get the module of the first.
        module = _modules.setdefault(name, _execute(name))
    return module


def load_on_hook_thread(name: str) -> Any:
    """As `load`, once that starts no garbage collection on the calling thread, the hook's."""
    if name not in _modules:
        reserve.wait(OBJECTS)
    return load(name)


def unload(name: str) -> None:
    """Free the module of a check that is not used again; `load` can make it again.

    Its functions and its dictionary refer to each other, so the dictionary is emptied. Classes in
    it are freed by the next garbage collection.
    """
    module = _modules.pop(name, None)
    if module is not None:
        vars(module).clear()


def strip(module: ModuleType, public: Sequence[str] | None = None) -> None:
    """Make a module smaller by `strip_docs`, which takes 14 KB only meanwhile.

    Each call has a module `strip_docs` of its own, so another thread may strip at the same time.

    Args:
        module: The module, or a package with all its modules.
        public: For a package, its functions that users call.
    """
    strip_docs: Any = module_of(_STRIPPING)
    try:
        if public is None:
            strip_docs.strip(module)
        else:
            strip_docs.strip_package(module, public)
    finally:
        vars(strip_docs).clear()


def _execute(name: str) -> ModuleType:
    module = module_of(name)
    vars(module).pop("__annotations__", None)
    _drop_annotations(module, module.__name__)
    return module


def _drop_annotations(holder: Any, module: str) -> None:
    """Do the rest of what `strip_docs` does: the code is stripped before it is compressed."""
    for value in tuple(vars(holder).values()):
        if isinstance(value, FunctionType) and value.__module__ == module:
            value.__annotations__ = None  # type: ignore[assignment]
        elif isinstance(value, type) and value.__module__ == module:
            value.__doc__ = None
            _drop_annotations(value, module)


def module_of(name: str) -> ModuleType:
    """A new module of a check, or of `strip_docs`, as it was read."""
    code = marshal.loads(marshal.loads(decompress(_code))[name])
    module = ModuleType(f"{__name__}.{name}")
    vars(module).update(__package__=__name__, __file__=code.co_filename)
    exec(code, vars(module))
    return module


def _read_all() -> None:
    """Read the code of all checks, from memory in an injected hook, otherwise from their files.

    Raises:
        OSError: A file could not be read.
    """
    global _code

    def code_of(name: str) -> CodeType:
        full_name = f"{_PACKAGE}.{name}" if name == _STRIPPING else f"{__name__}.{name}"
        spec = importlib.util.find_spec(full_name)
        loader: Any = None if spec is None else spec.loader
        if loader is None:
            raise ImportError(full_name)
        code: CodeType = loader.get_code(full_name)
        return code

    stripping: Any = ModuleType(_STRIPPING)
    exec(code_of(_STRIPPING), vars(stripping))
    codes: dict[str, bytes] = {}
    for name in (*NAMES, _STRIPPING):
        code = stripping.without_docstrings(code_of(name))
        # Without the module's docstring.
        codes[name] = marshal.dumps(code.replace(co_consts=(None, *code.co_consts[1:])))
    vars(stripping).clear()
    _code = compress(marshal.dumps(codes), 6)  # 9 takes 14 ms longer, for 660 bytes


_read_all()
del _read_all  # 2 KB
