"""Search of an object, such as the arguments of a process, without running the program's code.

Containers and objects are read through the methods of `dict`, `list` and `object` themselves, so
neither an overridden method nor a property is called. The search is bounded.
"""

from __future__ import annotations

import functools
import itertools
import sys
from types import MethodType

from ..safe.exact import attributes, class_name, is_a, module_of_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

SAMPLE = 64
"""Members of a container that are examined; the others are taken to be like them."""
NODES = 4000
DEPTH = 10
_CLOSED = frozenset(
    (
        "_io",
        "_multiprocessing",
        "_thread",
        "_weakref",
        "asyncio",
        "ctypes",
        "logging",
        "multiprocessing",
        "numpy",
        "socket",
        "threading",
        "types",
        "weakref",
    )
)
"""Packages whose objects are not searched."""
_OF_MODULES = ("_parameters", "_buffers", "_modules")


def parts(thing: Any, *, is_first: bool = False) -> list[tuple[str, Any]]:
    """Members of a container or attributes of an object, with the step that leads to each.

    Args:
        thing: The object.
        is_first: Search it whatever its type, as a Process of multiprocessing.
    """
    kind = type(thing)
    if is_a(thing, dict):
        items = list(itertools.islice(dict.items(thing), SAMPLE))
        return [(f"[{_key(key)}]", part) for key, part in items]
    if is_a(thing, list):
        return _numbered(list.__getitem__(thing, slice(SAMPLE)))
    if is_a(thing, tuple):
        return _numbered(tuple.__getitem__(thing, slice(SAMPLE)))
    for base in (set, frozenset):
        if is_a(thing, base):
            return [("{}", part) for part in itertools.islice(base.__iter__(thing), SAMPLE)]
    if is_a(thing, type) or kind is type(sys) or is_tensor(thing):
        return []
    if kind is functools.partial:
        return [(".func", thing.func), (".args", thing.args), (".keywords", thing.keywords)]
    if kind is MethodType:
        return [(".__self__", thing.__self__)]
    if module_of_class(kind).partition(".")[0] in _CLOSED and not is_first:
        return []
    return [(f".{name}", part) for name, part in _attributes(thing)]


def size(thing: Any) -> int:
    """Number of all members of a container."""
    for base in (dict, list, tuple, set, frozenset):
        if is_a(thing, base):
            return base.__len__(thing)
    return 0


def is_tensor(thing: Any) -> bool:
    """Whether an object is a torch tensor, of any subclass."""
    return _is_of(thing, "torch", "Tensor")


def is_module(thing: Any) -> bool:
    """Whether an object is a `torch.nn.Module`."""
    return _is_of(thing, "torch.nn", "Module")


def _is_of(thing: Any, module: str, name: str) -> bool:
    """Whether an object's type derives from a class of a module, if that module is loaded."""
    base = getattr(sys.modules.get(module), name, None)
    return base is not None and is_a(thing, base)


def walk(thing: Any, depth: int = DEPTH) -> Iterator[tuple[str, Any]]:
    """All objects inside one, with their paths, nearest first; without `thing` itself."""
    seen = {id(thing)}
    level = [("", thing)]
    for _ in range(depth):
        below = []
        for path, whole in level:
            for step, part in parts(whole, is_first=whole is thing):
                if id(part) in seen or part is None or type(part) in (int, str, float, bool, bytes):
                    continue
                if len(seen) >= NODES:
                    return
                seen.add(id(part))
                below.append((path + step, part))
                yield path + step, part
        level = below


def heaviest(thing: Any) -> tuple[str, int]:
    """Path of the innermost part that holds nearly all tensors, and about how many it holds."""
    rows = _tensor_counts(thing, is_first=True)
    total = sum(row[0] for row in rows)
    path, weight = "", total
    while rows:
        most, step, part = max(rows, key=lambda row: row[0])
        if most < 0.9 * total or not total or is_tensor(part):
            break
        path, weight = path + step, most
        rows = _tensor_counts(part) if path.count(".") + path.count("[") < DEPTH else []
    return path, weight


def _tensor_counts(thing: Any, *, is_first: bool = False) -> list[tuple[int, str, Any]]:
    """The parts of an object with the number of tensors in each."""
    some = parts(thing, is_first=is_first)
    return [(_tensors_in(part, DEPTH, [NODES]), step, part) for step, part in some]


def _tensors_in(thing: Any, depth: int, left: list[int]) -> int:
    """About how many tensors an object holds; members not examined count like the others."""
    if is_tensor(thing):
        return 1
    left[0] -= 1
    if depth == 0 or left[0] <= 0:
        return 0
    some = parts(thing)
    found = sum(_tensors_in(part, depth - 1, left) for _, part in some)
    members = size(thing)
    return found * members // len(some) if some and members > len(some) else found


def _attributes(thing: Any) -> list[tuple[str, Any]]:
    names = attributes(thing)
    rows = [row for row in names.items() if type(row[0]) is str]
    if is_module(thing):
        # Parameters and parts of a module lie in dictionaries of their own.
        for name in _OF_MODULES:
            rows += list(names.get(name, {}).items())
        rows = [row for row in rows if row[0] not in _OF_MODULES]
    return rows


def _numbered(members: Any) -> list[tuple[str, Any]]:
    return [(f"[{index}]", part) for index, part in enumerate(members)]


def _key(key: Any) -> str:
    """A key as in source code; of another than a plain value, its class: no `__repr__` is run."""
    return repr(key)[:64] if type(key) in (str, int, bytes, bool) else f"<{class_name(type(key))}>"
