"""Commands from PATH that are Python scripts: which interpreter runs them.

Installers write three forms: `#!/path/to/python`, `#!/usr/bin/env python3`, and, where the path is
too long or has spaces, `#!/bin/sh` with a second line that begins `'''exec'` (pip's distlib, uv).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil

_HEAD_BYTES = 4096
_PYTHON = re.compile(r"python(\d+(\.\d+)?t?)?$")


def interpreter(path: str) -> list[str] | None:
    """The interpreter and its options that a script names; `None` if it is not a Python script."""
    try:
        with open(path, "rb") as file:
            first, second, *_ = [*file.read(_HEAD_BYTES).split(b"\n"), b"", b""]
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    words = _words(first[2:])
    if words and os.path.basename(words[0]) == "sh" and second.startswith(b"'''exec'"):
        # '''exec' "/path/to/python" "$0" "$@"
        words = [word for word in _words(second[len(b"'''exec'") :]) if not word.startswith("$")]
    elif words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if word not in ("-S", "--split-string")]
        found = shutil.which(words[0]) if words else None
        words = [found, *words[1:]] if found else []
    if not words or not _PYTHON.match(os.path.basename(words[0])):
        return None
    return words if os.access(words[0], os.X_OK) else None


def _words(line: bytes) -> list[str]:
    try:
        return shlex.split(os.fsdecode(line))
    except ValueError:
        return []
