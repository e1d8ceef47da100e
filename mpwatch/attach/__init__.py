"""Ways to attach the hook to a running process, and to detach it.

Names are imported when they are first used: the tracer (see `tracer`) starts with few modules.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpwatch.attach.attach_session import AttachSession
    from mpwatch.attach.bring import bring_in
    from mpwatch.attach.injection_log import InjectionLog
    from mpwatch.attach.leave import detach
    from mpwatch.attach.outcome import Attached, Detached
    from mpwatch.attach.plan import plan_injection
    from mpwatch.attach.tree import bring_in_tree, detach_tree

__all__ = [
    "AttachSession",
    "Attached",
    "Detached",
    "InjectionLog",
    "bring_in",
    "bring_in_tree",
    "detach",
    "detach_tree",
    "plan_injection",
]

_MODULES = {
    "AttachSession": "attach_session",
    "Attached": "outcome",
    "Detached": "outcome",
    "InjectionLog": "injection_log",
    "bring_in": "bring",
    "bring_in_tree": "tree",
    "detach": "leave",
    "detach_tree": "tree",
    "plan_injection": "plan",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(name)
    return getattr(importlib.import_module(f"mpwatch.attach.{_MODULES[name]}"), name)
