"""Ways to attach the hook to a running process, and to detach it.

Names are imported when they are first used: the tracer (see `tracer`) starts with few modules.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpwatch.attach.bring import bring_in
    from mpwatch.attach.leave import detach
    from mpwatch.attach.outcome import Attached, Detached
    from mpwatch.attach.tree import bring_in_tree, detach_tree

__all__ = ["Attached", "Detached", "bring_in", "bring_in_tree", "detach", "detach_tree"]

_MODULES = {
    "Attached": "outcome",
    "Detached": "outcome",
    "bring_in": "bring",
    "bring_in_tree": "tree",
    "detach": "leave",
    "detach_tree": "tree",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(name)
    return getattr(importlib.import_module(f"mpwatch.attach.{_MODULES[name]}"), name)
