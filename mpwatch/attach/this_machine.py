"""The processor architecture of this machine."""

from __future__ import annotations

import os

from mpwatch.attach.aarch64 import Aarch64
from mpwatch.attach.machine import Machine
from mpwatch.attach.outcome import Refused
from mpwatch.attach.x86_64 import X8664


def this_machine() -> Machine:
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
