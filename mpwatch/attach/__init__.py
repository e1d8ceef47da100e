"""Ways to get the hook into a running process, and out again."""

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
