"""Frees what the interpreter keeps of the hook's modules and nothing reads in a training.

Most of the 1 MiB that the hook may take is code. Annotations are 29 KB of that, the docstrings of
modules and classes 16 KB, those of functions 40 KB, equal tuples of constants and names 9 KB. The
tables that map each instruction to a line and columns are 109 KB on CPython 3.11 and 72 KB on 3.12
and later; each function gets one instead that names its first line, 10 KB in all, because functions
of the same length share it. So a stack shows a wrapper with the line of its `def`. Qualified names
are 28 KB; a function keeps its name.
"""

from __future__ import annotations

import sys
from types import CodeType, FunctionType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_IS_FUNCTION = 1
_HAS_DOCSTRING = 0x4000000 if sys.version_info >= (3, 14) else 0
"""Flags of code (CO_OPTIMIZED, CO_HAS_DOCSTRING). Before 3.14 the first constant of each function
with a name is its docstring, or `None`."""
_HAS_COLUMNS = sys.version_info >= (3, 11)
"""The format of the table since then is that of Objects/locations.md."""
_ENTRY = 0x80 | 13 << 3
"""First byte of an entry without columns, for 1 to 8 instructions; a line difference follows."""


_tables: dict[int, bytes] = {}
"""Tables of lines by the number of instructions: functions of the same length share one."""
_PLAIN = frozenset((type(None), str, bytes, int, bool))
_tuples: dict[tuple[tuple[Any, ...], tuple[type, ...]], tuple[Any, ...]] = {}
"""Names and constants of functions, for functions with the same ones."""
_files: dict[str, str] = {}
"""The `__file__` of each module, of which its functions have a copy: 3 KB in all."""


def strip_package(package: ModuleType, public: Sequence[str] = ()) -> None:
    """Make all modules of a package smaller.

    The modules are found from the package itself: a search of all loaded modules would make a
    forked process copy 700 pages of the heap that it shares with its parent.

    Args:
        package: The package. It keeps its docstring.
        public: Its functions that users call, which keep docstring, annotations and lines.
    """
    _strip_modules(package)
    _strip_members(package, package.__name__, public)


def _strip_modules(package: ModuleType) -> None:
    for folder in vars(package).get("__path__", ()):
        sys.path_importer_cache.pop(folder, None)  # what the import system knows of the folder
    prefix = package.__name__ + "."
    for value in tuple(vars(package).values()):
        if isinstance(value, ModuleType) and value.__name__.startswith(prefix):
            strip(value)
            if vars(value).get("__package__") == package.__name__:
                value.__package__ = package.__name__  # one string for all modules: 2 KB
            _strip_modules(value)


def strip(module: ModuleType) -> None:
    """Make one module smaller."""
    module.__doc__ = None
    module.__cached__ = None  # type: ignore[attr-defined]
    vars(module).pop("__annotations__", None)
    if "__path__" not in vars(module):
        # 300 bytes each. The import system reads those of packages, for modules within them.
        module.__spec__ = module.__loader__ = None
    elif module.__spec__ is not None:
        module.__spec__.cached = None  # the path of its bytecode; found again when it is asked for
    path = vars(module).get("__file__")
    if path is not None:
        _files[path] = path
    _strip_members(module, module.__name__)


def without_docstrings(code: CodeType) -> CodeType:
    """The same code, whose functions and those within them have no docstrings and small tables."""
    constants = [*map(_constant, code.co_consts)]
    is_function = code.co_flags & _IS_FUNCTION and not code.co_name.startswith("<")
    can_have_one = code.co_flags & _HAS_DOCSTRING == _HAS_DOCSTRING
    if is_function and can_have_one and constants and isinstance(constants[0], str):
        constants[0] = None
    changed: dict[str, Any] = {"co_qualname": code.co_name} if _HAS_COLUMNS else {}
    return code.replace(
        co_consts=_shared(tuple(constants)),
        co_names=_shared(code.co_names),
        co_filename=_files.get(code.co_filename, code.co_filename),
        co_linetable=_lines(code),
        **changed,
    )


def _constant(value: Any) -> Any:
    """A constant of a function, made smaller where that is possible."""
    if isinstance(value, CodeType):
        return without_docstrings(value)
    return _shared(value) if type(value) is tuple else value


def _shared(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """One tuple for those with the same values, where equal ones of a type are the same."""
    types = tuple(map(type, values))  # 1 and True are equal
    return _tuples.setdefault((values, types), values) if _PLAIN.issuperset(types) else values


def _lines(code: CodeType) -> bytes:
    """A table of lines that names the first line for all instructions."""
    if not _HAS_COLUMNS:
        return code.co_linetable
    count = len(code.co_code) // 2
    table = _tables.get(count)
    if table is None:
        # Exactly as long as the code: CPython 3.11 writes beyond an array of lines otherwise
        # (`_PyCode_CreateLineArray`), as soon as a function is traced.
        last = bytes((_ENTRY | count % 8 - 1, 0)) if count % 8 else b""
        table = _tables[count] = bytes((_ENTRY | 7, 0)) * (count // 8) + last
    return table


def _is_small(table: bytes) -> bool:
    """Whether a table of lines has only entries as `_lines` makes them.

    It is not compared with `_lines`: reading `co_code` leaves a copy of that in the code object, in
    Python 3.11 and later.
    """
    return not any(table[1::2])


def _strip_members(holder: Any, module: str, public: Sequence[str] = ()) -> None:
    for name, value in tuple(vars(holder).items()):
        if name in public:
            continue
        function: Any = value
        if isinstance(value, property):
            function = value.fget
            value.__doc__ = None
        elif isinstance(value, staticmethod | classmethod):
            function = value.__func__
        if isinstance(function, FunctionType) and function.__module__ == module:
            function.__annotations__ = None  # type: ignore[assignment]
            _strip_function(function)
        elif isinstance(value, type) and value.__module__ == module:
            value.__doc__ = None
            for unused in ("__annotations__", "__slots__"):
                if unused in vars(value):  # the slots themselves stay
                    delattr(value, unused)
            _strip_members(value, module)


def _strip_function(function: FunctionType) -> None:
    code = function.__code__
    if function.__doc__ is not None or (_HAS_COLUMNS and not _is_small(code.co_linetable)):
        function.__doc__ = None
        function.__code__ = without_docstrings(code)
        function.__qualname__ = function.__name__
