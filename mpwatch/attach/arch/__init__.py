"""The processor architecture of this machine."""

from __future__ import annotations

import os

from mpwatch.attach.arch.aarch64 import Aarch64
from mpwatch.attach.arch.machine import Machine
from mpwatch.attach.arch.x86_64 import X8664
from mpwatch.attach.outcomes import Refused


def machine_here() -> Machine:
    """The architecture of this machine.

    Raises:
        Refused: It is not supported.
    """
    name = os.uname().machine
    if name == "x86_64":
        return X8664()
    if name in ("aarch64", "arm64"):
        return Aarch64()
    raise Refused(f"a pending call cannot be queued on {name} processors")
