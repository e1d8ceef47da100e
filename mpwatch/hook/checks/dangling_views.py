"""numpy arrays that look at memory a tensor has left.

`tensor.numpy()` gives an array that keeps the tensor alive and reads its memory. Sharing the
tensor, by `share_memory_()` or by sending it to a process, moves its storage elsewhere and frees
that memory, and the array goes on reading there. Such an array gives itself away: its address lies
outside the storage of the tensor that it is a view of.
"""

from __future__ import annotations

import itertools
import sys

from ..safe import foreign_exceptions
from .call_sites import is_of_the_program
from .object_walk import DEPTH, walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..session import Session

FRAMES = 32
NOTED = 16
NEAR = 2
"""How deep variables are looked into; what a process is handed is looked through as a whole."""
_IS_FUNCTION = 1
"""`co_flags` of code whose variables are no dictionary (CO_OPTIMIZED)."""


class DanglingViews:
    """Looks for such arrays once a tensor that had a view was moved."""

    __slots__ = ("_is_suspected", "_noted", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._is_suspected = False
        self._noted: set[str] = set()

    def suspect(self, storage: Any) -> None:
        """Take notice of a storage that is about to be shared; never raises.

        torch fixes the size of one that numpy looks at (`tensor_numpy.cpp`), or that came from it.
        It tells from some version between 2.2 and 2.5 on; before, any may be looked at.
        """
        try:
            if not self._is_suspected and not storage.is_shared():
                is_resizable = getattr(storage, "resizable", None)
                self._is_suspected = is_resizable is None or not is_resizable()
        except Exception as error:
            if not foreign_exceptions.is_ours(error):
                raise

    def look(self, luggage: dict[str, Any]) -> None:
        """Note arrays left behind that are within reach of a process just started; never raises.

        Args:
            luggage: The attributes it had before. `Process.start` drops its arguments, and to be
                handed over may have been what moved a tensor.
        """
        if not self._is_suspected or len(self._noted) >= NOTED:
            return
        try:
            self._look(luggage)
        except Exception as error:
            if not foreign_exceptions.is_ours(error):
                raise

    def _look(self, luggage: dict[str, Any]) -> None:
        torch = sys.modules["torch"]
        if torch._C._len_torch_function_stack():
            return  # the program listens to what is done with tensors
        for path, thing in itertools.chain(
            _inside({f".{name}": part for name, part in luggage.items()}, DEPTH), _variables()
        ):
            if type(thing).__name__ != "ndarray" or type(thing).__module__ != "numpy":
                continue
            if path not in self._noted and is_left_behind(thing, torch.Tensor):
                self._noted.add(path)
                self._session.note(
                    "dangling-view",
                    path=path[:256],
                    shape=list(thing.shape),
                    dtype=str(thing.dtype),
                    bytes=int(thing.nbytes),
                    frames=foreign_exceptions.frames_here(3),
                )


def is_left_behind(array: Any, tensor_type: Any) -> bool:
    """Whether an array is a view of a tensor whose storage is elsewhere by now."""
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
    """Things with a name, and what is within their reach."""
    for name, value in named.items():
        yield name, value
        for path, part in walk(value, depth):
            yield name + path, part


def _variables() -> Iterator[tuple[str, Any]]:
    """Variables of the program's functions and modules that are running, by name.

    Those of functions only from Python 3.13 on: before, to read them is to change what `locals()`
    returned to the program, and to keep them alive.
    """
    frame: Any = sys._getframe(1)
    for _ in range(FRAMES):
        if frame is None or frame.f_code.co_name == "_bootstrap":
            return
        code = frame.f_code
        is_readable = not code.co_flags & _IS_FUNCTION or sys.version_info >= (3, 13)
        if is_readable and is_of_the_program(code.co_filename):
            yield from _inside(dict(frame.f_locals), NEAR)
        frame = frame.f_back
