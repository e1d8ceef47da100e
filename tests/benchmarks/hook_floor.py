"""The least that listening can cost: the hook's own points, with wrappers that do nothing.

Every wrapper in Python costs its program a frame and the passing on of arguments, whatever it is
for. `Floor` sets such wrappers where the hook sets its own, so that both can be measured by turns.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class Floor:
    """Wrappers that only call the original, at the points that the hook would set here."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        # The undo of a wrapper that is just being set is kept with the session.
        self._session: Any = SimpleNamespace(patcher=SimpleNamespace(prepared=None))

    def install(self) -> int:
        """Set them.

        Returns:
            How many there are.
        """
        from mpwatch.hook.lifecycle.patcher import Attribute, attribute
        from mpwatch.hook.points import TABLE

        for row in TABLE:
            module = sys.modules.get(row.module)
            install = row.install
            if module is None or not isinstance(install, Attribute):
                continue  # it replaces more than one attribute
            try:
                self._undo.append(attribute(install.path, _empty)(module, self._session))
            except LookupError:
                continue  # this version of torch does not have it
        self._wrap_pickling()
        return len(self._undo)

    def uninstall(self) -> None:
        """Remove them, the last first."""
        while self._undo:
            self._undo.pop()()

    def _wrap_pickling(self) -> None:
        """Do the same for torch's entries in the table of pickling, which the hook replaces too."""
        reductions: Any = sys.modules.get("torch.multiprocessing.reductions")
        if reductions is None:
            return
        pickler: Any = sys.modules["multiprocessing.reduction"].ForkingPickler
        original = reductions.reduce_storage
        ours = _empty(original, None)
        for kind, reduce in tuple(pickler._extra_reducers.items()):
            if reduce is original:
                pickler.register(kind, ours)
                self._undo.append(functools.partial(pickler.register, kind, original))


def _empty(original: Callable[..., Any], _: Any) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    return call
