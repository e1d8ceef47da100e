"""Payload and hook compiled for a target, in one piece that takes little to load there.

From their own files its modules take some three hundred system calls. Each lets go of the GIL, and
where other threads compute it comes back only when each of them has had its turn of 5 ms
(`sys.getswitchinterval`). Where bytecode cannot be kept (PYTHONDONTWRITEBYTECODE, an installation
that others may not write to) every process of a job would compile all of it as well, 0.15 s each.
Both together are several seconds in a program with busy threads.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading

from mpwatch.attach import hook_copy, packing, their_python
from mpwatch.attach.outcome import Refused
from mpwatch.attach.target import Target

WITHIN_S = 10.0
AT_MOST_BYTES = 4 << 20
_KEPT = 8

_packed: dict[tuple[str, str, int], bytes | None] = {}
"""What was packed by the target's interpreter, by its path, the hook's and the user."""
_packing = threading.Lock()


def compiled_for(target: Target, version: tuple[int, int] | None, directory: str) -> bytes | None:
    """Payload and modules as `packing.pack` packs them, made once for all processes of a job.

    This interpreter packs for its own version. For another one the target's own does, as it will
    for `sys.remote_exec`; where that cannot be run the target loads the modules from their files.

    Args:
        target: For whom.
        version: Of its Python.
        directory: The hook's package as the target calls it.
    """
    if version == sys.version_info[:2]:
        return _pack_here(directory)
    with _packing:
        key = (target.exe, directory, target.uid)
        if key not in _packed:
            while len(_packed) >= _KEPT:
                del _packed[next(iter(_packed))]
            _packed[key] = _have_packed(target, directory)
        return _packed[key]


@functools.lru_cache(maxsize=_KEPT)
def _pack_here(directory: str) -> bytes:
    return packing.pack(hook_copy.installed(), directory, _text("payload.py"))


def _have_packed(target: Target, directory: str) -> bytes | None:
    """What the target's interpreter makes of it, a process of its own."""
    try:
        their_python.check(target)
        done = their_python.run(
            target, _text("packing.py"), directory, _text("payload.py"), within_s=WITHIN_S
        )
    except (Refused, OSError, subprocess.TimeoutExpired):
        return None
    is_sound = done.returncode == 0 and 0 < len(done.stdout) <= AT_MOST_BYTES
    return done.stdout if is_sound else None


@functools.lru_cache(maxsize=2)
def _text(name: str) -> str:
    """A file that lies beside this one."""
    path = os.path.join(os.path.dirname(__file__), name)
    with open(path, encoding="utf-8") as file:
        return file.read()
