"""numpy arrays over memory that their tensor no longer uses.

`tensor.numpy()` gives an array that keeps the tensor alive and reads its memory. Sharing the
tensor, by `share_memory_()` or by sending it to a process, moves its storage elsewhere and frees
that memory, but the array still reads it. Such an array can be recognised: its address lies
outside the storage of the tensor that it is a view of.
"""

from __future__ import annotations

import itertools
import sys

from ..safe import foreign_exceptions
from ..state.call_sites import is_of_the_program
from . import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


_object_walk = load("object_walk")
DEPTH: int = _object_walk.DEPTH
walk: Callable[..., Iterator[tuple[str, Any]]] = _object_walk.walk
FRAMES = 32
NEAR = 2
"""Search depth below variables; the arguments of a process are searched as a whole."""
_IS_FUNCTION = 1
"""`co_flags` of code whose variables are not in a dictionary (CO_OPTIMIZED)."""


def note_views(note: Callable[..., None], noted: set[str], attributes: dict[str, Any]) -> None:
    """Note arrays over old memory that a process just started, or the program, can reach.

    Args:
        note: Adds an event with text.
        noted: Paths that were noted before; new ones are added.
        attributes: The attributes of the process before its start. `Process.start` drops the
            arguments, and sending them may have moved a tensor.
    """
    torch = sys.modules["torch"]
    if torch._C._len_torch_function_stack():
        return  # a mode of the program intercepts calls on tensors
    for path, thing in itertools.chain(
        _inside({f".{name}": part for name, part in attributes.items()}, DEPTH), _variables()
    ):
        if type(thing).__name__ != "ndarray" or type(thing).__module__ != "numpy":
            continue
        if path not in noted and is_left_behind(thing, torch.Tensor):
            noted.add(path)
            note(
                "dangling-view",
                path=path[:256],
                shape=list(thing.shape),
                dtype=str(thing.dtype),
                bytes=int(thing.nbytes),
                frames=foreign_exceptions.frames_here(3),
            )


def is_left_behind(array: Any, tensor_type: Any) -> bool:
    """Whether an array is a view of a tensor whose storage has moved."""
    base, kind = array.base, type(array)
    while isinstance(base, kind):
        base = base.base
    if type(base) is not tensor_type or base.device.type != "cpu" or not array.size:
        return False
    storage = base.untyped_storage()
    begin = storage.data_ptr()
    address = array.__array_interface__["data"][0]
    return not begin <= address < begin + storage.nbytes()


def _inside(named: dict[str, Any], depth: int) -> Iterator[tuple[str, Any]]:
    """Named objects, and the objects that they contain, with their paths."""
    for name, value in named.items():
        yield name, value
        for path, part in walk(value, depth):
            yield name + path, part


def _variables() -> Iterator[tuple[str, Any]]:
    """Variables of the program's functions and modules that are running, by name.

    Local variables are read only from Python 3.13 on: before, reading them changes the dictionary
    that `locals()` returned to the program, and keeps them alive.
    """
    frame: Any = sys._getframe(1)
    for _ in range(FRAMES):
        if frame is None:
            return
        code = frame.f_code
        is_program = is_of_the_program(code.co_filename)
        if code.co_name == "_bootstrap" and not is_program:
            return
        is_readable = not code.co_flags & _IS_FUNCTION or sys.version_info >= (3, 13)
        if is_readable and is_program:
            yield from _inside(dict(frame.f_locals), NEAR)
        frame = frame.f_back
