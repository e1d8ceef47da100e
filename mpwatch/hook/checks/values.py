"""Values of names in frames and modules of the program: numbers, lengths, types, on request.

It runs on the hook's thread and holds no object of the program but types: each read is one call of
functions written in C, see `safe.one_call`, which begins at the frame of a thread and ends at a
number or a type. No text of the program is read but the key of the sample that a worker fetches.

A dictionary is asked for a name only if all of its keys are plain strings: it compares others by
methods of the program. Of classes named like torch's tensors, only torch's own are asked for flags.

Before Python 3.13, a local variable is read where the interpreter has it, because `f_locals` would
leave a dict of all variables at the frame: that keeps what they refer to until the function
returns, and a debugger that begins later sets the variables back from it (`PyFrame_LocalsToFast`).
The variables lie in the frame object of CPython 3.10, and in the `_PyInterpreterFrame` of 3.11 and
3.12, to which the frame object refers; that is tried on a frame of this module first. It needs
ctypes, which torch loads, and without which no local variable is read.
"""

from __future__ import annotations

import collections
import json.encoder
import operator
import os
import struct
import sys
from itertools import chain, compress, repeat
from types import (
    CellType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    ModuleType,
)

from ..safe import exact, foreign_exceptions
from ..safe.one_call import dereference, frames, reserve, thread_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_FRAMES, _NAMES, _PARTS = 8, 16, 4
"""Frames of one request, names of a frame, parts of a name."""
_MAIN = ("__main__", "__mp_main__")
_PACKAGES = 5
"""Parts of a module's name."""
_IS_FUNCTION = 1
"""Flag of code (CO_OPTIMIZED): its variables are in no namespace."""
_HAS_PROXY = sys.version_info >= (3, 13)
"""Whether `f_locals` of a function is no copy."""
_HAS_INNER = sys.version_info >= (3, 11)
_INNER = 24
"""Where a frame object has the address of its `_PyInterpreterFrame`."""
_SLOTS = 72 if _HAS_INNER else 352
"""Where that, or the frame object, has the addresses of its variables."""
_WORD = struct.Struct("N")
_LIMIT = 1 << 63
_frames = sys._current_frames
_code, _globals = operator.attrgetter("f_code"), operator.attrgetter("f_globals")
_locals, _value = operator.attrgetter("f_locals"), operator.attrgetter("value")
_about = operator.attrgetter(
    *(f"f_code.co_{each}" for each in ("name", "flags", "varnames", "cellvars", "freevars"))
)
_quoted: Any = json.encoder.encode_basestring_ascii
_class_dict: Any = vars(type)["__dict__"].__get__
_module_dict: Any = vars(ModuleType)["__dict__"].__get__
"""Of a subclass, too: what that loads or computes when it is asked for an attribute stays away."""
# By their addresses: a metaclass may have an `__eq__` and a `__hash__` of its own.
_NUMBERS: dict[int, Any] = {
    id(int): int.__pos__,
    id(bool): int.__pos__,
    id(float): float.__pos__,
}
_SIZED: dict[int, Any] = {
    id(each): exact.in_class(each(), "__len__")
    for each in (
        *(str, bytes, bytearray, list, tuple, dict, set, frozenset, collections.deque),
        *(collections.OrderedDict, collections.defaultdict, collections.Counter),
    )
}
_ROWS = (id(list), id(tuple), id(collections.deque))
_TENSORS = (("torch", "Tensor", 3), ("torch.nn.parameter", "Parameter", 4))
"""Torch's own classes: module, name and number of base classes. Of these alone, it calls no
`__torch_function__` (`check_has_torch_function`)."""
_HEAD = slice(64)
_TABLES = ("_buffers", "_parameters", "_modules")
"""Where a module of torch keeps attributes."""


class _Nothing:
    """Found where there is nothing."""


_nothing = _Nothing()


def read(wanted: list[Any]) -> str:
    """A JSON list of what was asked for, as far as it is there; see `wire.ASKS`."""
    tids, left = thread_table("_native_id"), dict(enumerate(wanted[:_FRAMES]))
    parts: list[str] = []
    for number, (tid, file, _, names) in tuple(left.items()):
        if not tid:
            del left[number]
            values = ", ".join(_Module(file).read(names[:_NAMES]))
            if values:
                parts.append(f'{{"frame": {number}, "line": 0, "values": {{{values}}}}}')
    for ident, depth, *where, line in frames():
        for number, (tid, file, function, names) in tuple(left.items()):
            if tids.get(ident) == tid and [function, file] == where:
                del left[number]
                values = ", ".join(_Frame(ident, depth, function).read(names[:_NAMES]))
                parts.append(f'{{"frame": {number}, "line": {line}, "values": {{{values}}}}}')
    return f"[{', '.join(parts)}]"


def index_in_fetch() -> str | None:
    """The index being fetched, from the frame of torch's fetcher; a number or a string.

    Its list comprehension has a frame of its own before Python 3.12.
    """
    for ident, depth, function, file, _ in frames():
        if function in ("<listcomp>", "fetch") and file.endswith("fetch.py"):
            return _Frame(ident, depth, function).text("idx")
    return None


class _Names:
    """What has names; each read finds it anew."""

    def read(self, names: list[str]) -> Iterator[str]:
        """The values of names as members of a JSON object."""
        for path in names:
            name, *attributes = path.split(".")[:_PARTS]
            for shown in self._shown(name, attributes):
                yield f"{_quoted(path)}: {shown}"

    def _variable(self, name: str) -> Iterator[Any]:
        """A variable, for one call; nothing if it cannot be read."""
        raise NotImplementedError

    def _reached(self, name: str, *steps: tuple[Any, ...]) -> Any:
        """The result of some steps from a variable on; the last one gives a number or a type."""
        return next(iter(_all(self._chain(name, *steps))), _Nothing)

    def _chain(self, name: str, *steps: tuple[Any, ...]) -> Iterator[Any]:
        found = self._variable(name)
        for step, *arguments in steps:
            found = map(step, found, *map(repeat, arguments))
        return found

    def _shown(self, variable: str, attributes: list[str]) -> Iterator[str]:
        """What is at the end of a dotted name, as JSON."""
        steps: list[tuple[Any, ...]] = []
        kind = self._reached(variable, (type,))
        if kind is CellType:
            steps.append((_class_dict(CellType)["cell_contents"].__get__,))
            kind = self._reached(variable, *steps, (type,))
        for each in attributes:
            for more in _ways(kind, each):
                *inner, last = more
                keys = _KEYS.get(last[0])
                if keys and not _have_plain_keys(self._chain(variable, *steps, *inner), keys):
                    continue
                kind = self._reached(variable, *steps, *more, (type,))
                if kind is not _Nothing:
                    steps += more
                    break
            else:
                return
        if kind is _Nothing:
            return
        about, name = "", _name(kind)
        if id(kind) in _NUMBERS:
            number = self._reached(variable, *steps, (_NUMBERS[id(kind)],))
            if type(number) is float and number - number != 0:
                name = f"{number}"  # JSON has no NaN and no infinity
            elif type(number) is float or (type(number) is int and -_LIMIT < number < _LIMIT):
                about = f', "number": {number}'
        elif id(kind) in _SIZED:
            length = self._reached(variable, *steps, (_SIZED[id(kind)],))
            about = f', "length": {length}' if type(length) is int else ""
            if id(kind) in _ROWS:
                steps.append((_class_dict(kind)["__getitem__"], -1))
                kind = self._reached(variable, *steps, (type,))
        if _is_tensor(kind):
            flags = (_in_class(kind, flag) for flag in ("requires_grad", "is_leaf"))
            found = [
                self._reached(variable, *steps, (flag.__get__,))
                for flag in flags
                if type(flag) is GetSetDescriptorType
            ]
            has_graph = found == [True, False]
            about += f', "has_graph": {"true" if has_graph else "false"}'
        yield f'{{"type": {_quoted(name)}{about}}}'


class _Frame(_Names):
    """One frame."""

    def __init__(self, ident: int, depth: int, function: str) -> None:
        self._ident = ident
        self._back = operator.attrgetter(".".join(["f_back"] * depth)) if depth else None
        self._code = 0
        """Address of its code; 0 if it is of another function by now."""
        self._places: dict[str, int] = {}
        """The local variables, each with its number."""
        self._are_shown = False
        """Whether these can be read."""
        self._has_plain_globals = False
        for code in _all(map(id, map(_code, self._any()))):
            self._code = code
            for name, flags, plain, cells, free in _all(map(_about, self._same())):
                # Before Python 3.11 a parameter that is a cell has two places.
                alone = [each for each in cells if not _HAS_INNER or each not in plain]
                self._places = {each: n for n, each in enumerate((*plain, *alone, *free))}
                self._are_shown = flags & _IS_FUNCTION > 0 and (_HAS_PROXY or _are_readable())
                self._code = code if name == function else 0
        self._has_plain_globals = _have_plain_keys(map(_globals, self._same()))

    def text(self, name: str) -> str | None:
        """A local variable that is a number or a string, as a short text."""
        number = self._reached(name, (int.__pos__,))
        if type(number) is int:
            return str(number) if -_LIMIT < number < _LIMIT else None
        text = self._reached(name, (str.__getitem__, _HEAD), (str.__repr__,))
        return text[:64] if type(text) is str else None

    def _any(self) -> Iterator[Any]:
        """What is at this depth of the thread now; for one call, as all iterators of frames."""
        first = map(operator.itemgetter(self._ident), map(dereference, (_frames,)))
        return map(self._back, first) if self._back else first

    def _same(self) -> Iterator[Any]:
        """The frame; nothing if another function is there now."""
        codes = map(id, map(_code, self._any()))
        return compress(self._any(), map(operator.eq, codes, (self._code,)))

    def _variable(self, name: str) -> Iterator[Any]:
        """A local variable, or a global one; nothing if it cannot be read."""
        is_global = name not in self._places
        if not (self._has_plain_globals if is_global else self._are_shown):
            return iter(())
        if is_global:
            return map(dict.get, map(_globals, self._same()), repeat(name), repeat(_nothing))
        if _HAS_PROXY:
            proxies = map(_locals, self._same())
            return map(operator.methodcaller("get", name, _nothing), proxies)
        return _slots(map(id, self._same()), self._places[name])


class _Module(_Names):
    """The global variables of a module of the program."""

    def __init__(self, file: str) -> None:
        path = file.removesuffix(".py").removesuffix("/__init__").split("/")
        names = [".".join(path[-parts:]) for parts in range(1, _PACKAGES + 1)]
        self._name = next((n for n in (*names, *_MAIN) if self._is_from(n, file)), "")

    def _is_from(self, name: str, file: str) -> bool:
        """Whether the module of a name was loaded from a file."""
        if not _have_plain_keys(self._space(name)):
            return False
        found = map(dict.get, self._space(name), repeat("__file__"), repeat(_nothing))
        return _all(map(str.__eq__, repeat(file), found)) == [True]

    def _space(self, name: str) -> Iterator[Any]:
        """The dict of a module; for one call."""
        return map(_module_dict, map(sys.modules.get, (name,)))

    def _variable(self, name: str) -> Iterator[Any]:
        return map(dict.get, self._space(self._name), repeat(name), repeat(_nothing))


def _all(found: Iterator[Any]) -> list[Any]:
    """All of an iterator in one call; nothing where the thread has gone on or ended."""
    reserve.wait()
    try:
        return list(found)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        if not foreign_exceptions.is_ours(error):
            raise
        return []


def _name(kind: type) -> str:
    """The name of a class, if that is no string of another type."""
    name = exact.class_name(kind)
    return name if type(name) is str else "object"


_KEYS: dict[Any, Any] = {dict.get: dict.keys, MappingProxyType.get: MappingProxyType.keys}
"""What gives the keys of what is asked by each of these."""


def _have_plain_keys(spaces: Iterator[Any], keys_of: Any = dict.keys) -> bool:
    """Whether the keys of dictionaries are strings without methods of their own."""
    keys = chain.from_iterable(map(keys_of, spaces))
    return False not in _all(map(operator.is_, map(type, keys), repeat(str)))


def _is_tensor(kind: type) -> bool:
    """Whether a class is one of torch's own."""
    for name, attribute, count in _TENSORS:
        module = sys.modules.get(name)
        if type(module) is ModuleType and vars(module).get(attribute) is kind:
            return len(exact.bases_of(kind)) == count
    return False


def _in_class(kind: type, name: str) -> Any:
    """The attribute of a class with a name, unbound, or `None`."""
    for space in map(_class_dict, exact.bases_of(kind)):
        if False not in map(operator.is_, map(type, space), repeat(str)) and name in space:
            return space[name]
    return None


def _ways(kind: type, name: str) -> list[list[tuple[Any, ...]]]:
    """The steps from an object of a class to its attribute, one way after the other."""
    if kind is type:
        return [[(_class_dict,), (MappingProxyType.get, name, _nothing)]]
    slot, space = _in_class(kind, name), _in_class(kind, "__dict__")
    if type(slot) is MemberDescriptorType:
        return [[(slot.__get__,)]]
    if type(space) not in (GetSetDescriptorType, MemberDescriptorType):
        return []
    if space.__name__ != "__dict__":
        return []
    first, last = (space.__get__,), (dict.get, name, _nothing)
    return [[first, last], *([first, (dict.get, each, _nothing), last] for each in _TABLES)]


def _slots(frame: Iterator[int], number: int) -> Iterator[Any]:
    """A variable of the frame of which this gives the address."""
    ctypes: Any = sys.modules["ctypes"]
    if _HAS_INNER:
        inner = map(operator.add, frame, (_INNER,))
        frame = map(_value, map(ctypes.c_size_t.from_address, inner))
    slots = map(operator.add, frame, (_SLOTS + number * _WORD.size,))
    return map(_value, map(ctypes.py_object.from_address, slots))


def _are_readable() -> bool:
    """Whether ctypes is loaded, and this frame has its variables where it should have them.

    In Python 3.11.0 a frame is still seen while its variables are freed (CPython issue 99729).
    """
    if not hasattr(sys.modules.get("ctypes"), "py_object") or sys.version_info[:3] == (3, 11, 0):
        return False
    mine, address = object(), id(sys._getframe())
    number = _are_readable.__code__.co_varnames.index("mine")
    fd = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    opened = os.fstat(fd)
    try:
        if _HAS_INNER:
            (address,) = _WORD.unpack(os.pread(fd, _WORD.size, address + _INNER))
        slot = os.pread(fd, _WORD.size, address + _SLOTS + number * _WORD.size)
        return _WORD.unpack(slot) == (id(mine),)
    except (OSError, struct.error) as error:
        if not foreign_exceptions.is_ours(error):
            raise
        return False
    finally:
        # The program may have closed it, and opened another file under its number.
        if os.path.samestat(opened, os.fstat(fd)):
            os.close(fd)
