"""Inspections of the program's objects, each loaded when it is first needed.

Until then a check is compressed bytecode, read while the hook is loaded. `load` makes a module of
it in the thread of the program that needs it. So it takes no import lock (another thread may fork
meanwhile), reads no file (which could block), and does not change `sys.modules` (another thread may
be iterating over it). The hook's own thread loads no check: the allocations could start a
garbage collection there, see `safe.one_call`.

A check imports only modules that are loaded with the hook, and gets another check by `load`. State
is kept by the objects that call a check, not by its module.
"""

from __future__ import annotations

import importlib.util
import marshal
import sys
from types import CodeType, ModuleType

from .. import strip_docs
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
    from typing import Any

NAMES = (
    "cuda_lent",
    "dangling_views",
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
OBJECTS = 432
"""That the collector counts while `values` is loaded: 368 on CPython 3.11, after a collection."""
_code = b""
"""Bytecode of each check, compressed together: 25 KB, one by one it would be 31."""
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


def _execute(name: str) -> ModuleType:
    code = marshal.loads(marshal.loads(decompress(_code))[name])
    module = ModuleType(f"{__name__}.{name}")
    vars(module).update(__package__=__name__, __file__=code.co_filename)
    exec(code, vars(module))
    strip_docs.strip(module)
    strip_docs.forget()
    return module


def _read_all() -> None:
    """Read the code of all checks, from memory in an injected hook, otherwise from their files.

    Raises:
        OSError: A file could not be read.
    """
    global _code

    def without_lines(code: CodeType) -> CodeType:
        """The same code without lines, which `strip_docs` gives to it again."""
        constants = [
            without_lines(each) if isinstance(each, CodeType) else each for each in code.co_consts
        ]
        return code.replace(co_consts=tuple(constants), co_linetable=b"")

    codes: dict[str, bytes] = {}
    for name in NAMES:
        full_name = f"{__name__}.{name}"
        spec = importlib.util.find_spec(full_name)
        loader: Any = None if spec is None else spec.loader
        if loader is None:
            raise ImportError(full_name)
        code = strip_docs.without_docstrings(loader.get_code(full_name))
        # Without the module's docstring.
        code = code.replace(co_consts=(None, *code.co_consts[1:]))
        codes[name] = marshal.dumps(without_lines(code))
    _code = compress(marshal.dumps(codes), 6)  # 9 takes 14 ms longer, for 660 bytes


_read_all()
del _read_all  # 2 KB
