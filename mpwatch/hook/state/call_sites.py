"""The lines of the program that allocate shared memory: a sample by bytes, noted as `call-site`.

A DataLoader's worker allocates the memory in its main thread, in the collate function, and pickles
it in a feeder thread whose stack has no line of the program. So a storage that was sampled when it
was allocated is remembered by its address until it is shared, when its inode becomes known.
"""

from __future__ import annotations

import collections
import functools
import os
import sys

from ..safe import foreign_exceptions
from ..safe.exact import class_name, code_of, full_name, in_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..safe.unpatched import System

EVERY_BYTES = 1 << 20
"""One storage is noted for about this many bytes shared."""
FIRST = 8
"""This many storages are noted first, whatever their size."""
APART_NS = 250_000_000
BURST_NS = 2_000_000_000
"""On average four notes a second at most, eight at once."""
IN_VAIN_NS = 10_000_000
"""At most a hundred stack walks a second that find no line of the program: each takes 10 us."""
_REMEMBERED = 256
_FRAMES = 64


class CallSites:
    """Samples storages when they are put into shared memory."""

    __slots__ = ("_next_ns", "_note", "_system", "_taken", "_usual", "left", "places")

    def __init__(self, system: System, note: Callable[..., None]) -> None:
        self._system = system
        self._note = note
        self.left = 0
        """Bytes until the next storage is sampled; the wrappers in `points.sharing` count, too."""
        self._taken = 0
        self._next_ns = 0
        self.places: collections.OrderedDict[int, str] = collections.OrderedDict()
        """Lines of storages that were allocated and not shared yet, by address of the storage."""
        self._usual: str | None = None

    def made(self, storage: Any) -> None:
        """Sample a storage that this thread has just put into shared memory.

        Never raises, as `shared` and `will_be_shared` do not.
        """
        try:
            # Counted inline: this runs for each batch.
            self.left -= storage.nbytes()
            if self.left <= 0 and self._is_time():
                self._remember(storage, self._spend(place_here() or self._usual))
        except BaseException as error:
            if not foreign_exceptions.is_ours(error):
                raise

    def will_be_shared(self, tensor: Any) -> None:
        """Sample a tensor that this thread puts into a queue, which another thread pickles."""
        try:
            storage = tensor.untyped_storage()
            if storage._cdata in self.places:
                return
            self.left -= storage.nbytes()
            if self.left <= 0 and self._is_time():
                self._remember(storage, self._spend(place_here()))
        except BaseException as error:
            if not foreign_exceptions.is_ours(error):
                raise

    def shared(self, storage: Any, was_shared: bool, size: int, cache_key: Any) -> None:
        """Note the line of a storage that is being pickled, if it is in the sample."""
        try:
            site = self.places.pop(storage._cdata, None) if self.places else None
            if site is None:
                # A storage that was already shared had its turn where it was allocated.
                if was_shared:
                    return
                self.left -= size
                if self.left > 0 or not self._is_time():
                    return
                site = self._spend(place_here() or self._usual)
            if site is not None:
                inode, device = self._identity(cache_key)
                self._note("call-site", inode=inode, device=device, site=site[:128], bytes=size)
        except BaseException as error:
            if not foreign_exceptions.is_ours(error):
                raise

    def begin_worker(self, dataset: Any, collate: Any) -> None:
        """Remember the code that fills batches, for stacks without a line of the program."""
        parts = (collate, in_class(dataset, "__getitem__"), in_class(dataset, "__iter__"))
        definitions = (definition(part) for part in parts)
        self._usual = next(filter(None, definitions), f"dataset {class_name(type(dataset))}")

    def _is_time(self) -> bool:
        """Whether another note is allowed; a race allows one too many at most."""
        return self._system.monotonic_ns() > self._next_ns

    def _spend(self, site: str | None) -> str | None:
        """Count a sampled storage; one without a known line uses little of the allowance."""
        self.left = EVERY_BYTES
        now_ns = self._system.monotonic_ns()
        if site is None:
            self._next_ns = max(self._next_ns, now_ns + IN_VAIN_NS)
            return None
        self._taken += 1
        if self._taken < FIRST:
            self.left = 0
        self._next_ns = max(self._next_ns, now_ns - BURST_NS) + APART_NS
        return site

    def _remember(self, storage: Any, site: str | None) -> None:
        if site is not None:
            self.places[storage._cdata] = site
            if len(self.places) > _REMEMBERED:
                self.places.popitem(last=False)

    def _identity(self, cache_key: Any) -> tuple[int, int]:
        """Inode and device of a segment, out of a key of SharedCache."""
        if type(cache_key) is tuple:
            return cache_key
        name = os.fsdecode(cache_key).lstrip("/")
        status = self._system.os.stat(f"/dev/shm/{name}")
        return status.st_ino, status.st_dev


def place_here() -> str | None:
    """File and line of the innermost frame of the program, or `None`.

    Frames below a child's own entry are not examined: under fork they are its parent's. `None` also
    where an audit hook refuses to have frames read.
    """
    place, _ = foreign_exceptions.asked(_place_from, foreign_exceptions.caller())
    return None if place is None else str(place)


def _place_from(frame: Any) -> str | None:
    for _ in range(_FRAMES):
        if frame is None:
            return None
        if is_of_the_program(frame.f_code.co_filename):
            return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        # After the test above: functions of the program may have these names too.
        if frame.f_code.co_name in ("_worker_loop", "_bootstrap"):
            return None
        frame = frame.f_back
    return None


def definition(function: Any) -> str | None:
    """File, line and name of a function of the program, or `None` for a library's."""
    code = code_of(function)
    if code is None or not is_of_the_program(code.co_filename):
        return None
    _, name = full_name(function)
    return f"{os.path.basename(code.co_filename)}:{code.co_firstlineno} {name}"


@functools.lru_cache(maxsize=128)
def is_of_the_program(path: str) -> bool:
    """Whether a file belongs neither to mpwatch, torch nor the standard library.

    Remembered for the files seen last: a frame then takes 0.1 us of a walk, not 2.
    """
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    if torch is not None and path.startswith(f"{os.path.dirname(torch)}/"):
        return False
    if path.startswith((f"{os.path.dirname(os.path.dirname(__file__))}/", "<frozen")):
        return False
    is_library = path.startswith(f"{os.path.dirname(os.__file__)}/")
    return not is_library or "/site-packages/" in path or "/dist-packages/" in path
