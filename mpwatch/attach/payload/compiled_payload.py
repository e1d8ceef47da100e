"""The code that a target runs, in one file: the program, the hook's modules, and what to do.

Loading the modules from their own files takes some three hundred system calls. Each releases the
GIL, and while other threads compute, it is returned only after each of them has run for 5 ms
(`sys.getswitchinterval`). Besides, a target must not load files by path that another user could
have replaced; this one it reads from a descriptor that it has checked.

For a target of this interpreter's version the modules are compiled here, 0.15 s once for a job. A
target of another version compiles their sources itself. Its own interpreter is not run for that:
it is a program that the target's owner controls, and mpwatch runs no such program.

The file is a marshalled dict, in a version of the format that every supported Python reads:

- `text`, `code`: the program of `program`, as source and marshalled;
- `magic`: the interpreter that the code is compiled for; empty if it is not compiled;
- `modules`: (path, whether it is a package, source or code) by dotted name within the package; the
  package itself has the empty name; marshalled if compiled;
- `action`, `hook_directory`, `name` (of the exchange directory), `version` (of the hook, see
  `wire.sources_version`).

What a target runs first is a text (`bootstrap_text`) that opens its exchange directory and runs
that file. The text names the directory that the observer made, and the process that it was made
for; nothing is found by convention or in the environment. However the path was resolved, the
directory is accepted only if it belongs to the effective user of the process, with whose rights
the code runs, and is closed to others; no directory is if the process has the rights of several
users or groups, so that what one of them can write would run with the rights of another. And the
payload only if it is a regular file of that user, opened within that directory without
following links. Both are checked on open descriptors, so names cannot be swapped between check and
use. Other users than root can therefore not supply any part of the code. It runs on a thread of its
own (`native_call`), in a namespace of its own.
"""

from __future__ import annotations

import functools
import importlib.util
import marshal
import os
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from types import CodeType
from typing import Any

import mpwatch
from mpwatch.hook import strip_docs, wire

PAYLOAD_NAME = "payload"
MAX_PAYLOAD_BYTES = 4 << 20

_BOOTSTRAP = """\
import marshal,posix as p
n=p.O_NOFOLLOW|p.O_CLOEXEC|p.O_NONBLOCK
d=p.open(%(path)a,n|p.O_DIRECTORY)
try:
 u=p.geteuid();s=p.fstat(d)
 if {*p.getresuid()}!={u} or len({*p.getresgid()})>1:raise OSError(1)
 if (p.getpid(),s.st_uid,s.st_mode&63)!=(%(pid)d,u,0):raise OSError(1)
 f=p.open("payload",n,dir_fd=d)
 try:
  s=p.fstat(f);b=b""
  if (s.st_uid,s.st_mode&0o170077)!=(u,0o100000) or s.st_size>%(most)d:raise OSError(1)
  while c:=p.read(f,s.st_size):b+=c
 finally:p.close(f)
 b=marshal.loads(b);t=b["text"]
 import sys
 if b["magic"]==sys.modules["_frozen_importlib_external"].MAGIC_NUMBER:t=marshal.loads(b["code"])
 exec(t,{"__name__":"mpwatch_payload","folder":d,"contents":b})
finally:p.close(d)
"""
_FORMAT = 2
"""Version of the marshal format: Python 2.5 and later."""
_KEPT = 8
NOT_IN_IT = ("run.py", "startup/__init__.py", "startup/sitecustomize.py")
"""Modules that a target does not import."""


def bootstrap_text(directory: str, pid: int) -> bytes:
    """The bootstrap code for one process.

    Args:
        directory: Its exchange directory, as the target names it.
        pid: The process id, as the target sees it: a forked child that inherits a queued call runs
            the same text and must not use its parent's directory.
    """
    filled = _BOOTSTRAP % {"path": directory, "pid": pid, "most": MAX_PAYLOAD_BYTES}
    return filled.encode("ascii")


def installed() -> str:
    """The hook's package in this installation."""
    return os.path.join(os.path.dirname(mpwatch.__file__), "hook")


def payload_for(version: tuple[int, int] | None, action: str, directory: str, name: str) -> bytes:
    """The content of the payload file.

    Args:
        version: Version of the target's Python.
        action: `load` or `unload`.
        directory: The hook's package as the target names it; unused for `unload`.
        name: The exchange directory's name within the runtime directory.

    Raises:
        OSError: The hook's modules could not be read.
    """
    is_same = version == sys.version_info[:2]
    contents: dict[str, Any] = {
        "text": _text(),
        "code": _compiled_program() if is_same else b"",
        "magic": importlib.util.MAGIC_NUMBER if is_same else b"",
        "modules": {},
        "action": action,
        "hook_directory": directory,
        "name": name,
        "version": wire.sources_version(installed()),
    }
    if action == "load":
        contents["modules"] = _compiled(directory) if is_same else sources_for(directory)
    return marshal.dumps(contents, _FORMAT)


@functools.lru_cache(maxsize=_KEPT)
def _compiled(directory: str) -> bytes:
    """The modules compiled for this version, marshalled; made once for all processes of a job."""
    return marshal.dumps(compile_modules(installed(), directory))


@functools.lru_cache(maxsize=1)
def _compiled_program() -> bytes:
    return marshal.dumps(compile(_text(), "<mpwatch payload>", "exec", dont_inherit=True))


@functools.lru_cache(maxsize=1)
def _text() -> str:
    """The source of `program`."""
    with open(os.path.join(os.path.dirname(__file__), "program.py"), encoding="utf-8") as file:
        return file.read()


def sources_for(directory: str) -> dict[str, tuple[str, bool, bytes]]:
    """The sources of all modules that a target imports.

    Args:
        directory: Path of the package in the target's view.
    """
    return {
        name: (f"{directory}/{path}", is_package, content)
        for name, path, is_package, content in _read_modules(installed())
    }


def compile_modules(directory: str, theirs: str) -> dict[str, tuple[str, bool, CodeType | None]]:
    """All modules of the package, compiled, functions without docstrings.

    Otherwise the target removes them, in a tenth of the loading time: see `hook.strip_docs`.

    Args:
        directory: The package.
        theirs: Path of the package in the target's view.

    Raises:
        OSError: It could not be read.
    """
    compiled: dict[str, tuple[str, bool, CodeType | None]] = {}
    for name, path, is_package, content in _read_modules(directory):
        here, there = f"{directory}/{path}", f"{theirs}/{path}"
        if here == there:
            code = SourceFileLoader("hook", here).get_code("hook")  # it may be cached
        else:
            code = compile(content, there, "exec", dont_inherit=True)
        compiled[name] = (there, is_package, code and strip_docs.without_docstrings(code))
    return compiled


def _read_modules(directory: str) -> Iterator[tuple[str, str, bool, bytes]]:
    """Name in the package, path within it, whether it is a package, and source of each module."""
    for path in modules(directory):
        if path in NOT_IN_IT:
            continue
        steps = path[: -len(".py")].split("/")
        is_package = steps[-1] == "__init__"
        with open(f"{directory}/{path}", "rb") as file:
            yield ".".join(steps[:-1] if is_package else steps), path, is_package, file.read()


def modules(directory: str) -> Iterator[str]:
    """Paths of the package's modules within it."""
    for folder, _, names in os.walk(directory):
        for name in sorted(names):
            if name.endswith(".py"):
                yield os.path.relpath(os.path.join(folder, name), directory)
