"""mpwatch as bytes for a node where it is not installed: its agent, and what that needs.

The archive holds compiled modules, so that a node need not compile 250 of them for each agent, the
extension module of msgspec, and py-spy. So it fits only the minor version of Python and the kind of
processor that it was made on; `mpwatch.nodes.launchers.ray_actor` refuses others.
"""

from __future__ import annotations

import importlib.util
import io
import marshal
import os
import zipfile
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader

from mpwatch.collect.process.py_spy import find_py_spy

PACKAGES = ("mpwatch", "msgspec")
MODULES = ("pynvml",)
"""Left out where they are not installed: the agent does without."""
LEFT_OUT = frozenset(("mpwatch.demo", "mpwatch.tui", "mpwatch.attach"))
"""Parts of mpwatch that no agent imports."""
AS_SOURCE = ("mpwatch.hook",)
"""The version of a hook is a hash of its sources (`mpwatch.hook.wire.sources_version`)."""
EXTENSIONS = (".so",)
_UNCHECKED_HASH = (1).to_bytes(4, "little")
"""The flags of a compiled module that is never compared with its source (PEP 552)."""


def archive() -> bytes:
    """A zip of the modules that an agent needs, and of `bin/py-spy` where it is installed.

    Raises:
        OSError: A file cannot be read.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, data in _contents():
            file.writestr(name, data)
    return buffer.getvalue()


def _contents() -> Iterator[tuple[str, bytes]]:
    """Names within the archive, with their bytes."""
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            yield from _of_package(package, folder)
    for module in MODULES:
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.origin is not None:
            yield f"{module}.pyc", _compiled(spec.origin, module)
    py_spy = find_py_spy()
    if py_spy is not None:
        yield "bin/py-spy", _read(py_spy)


def _of_package(package: str, top: str) -> Iterator[tuple[str, bytes]]:
    for folder, folders, files in os.walk(top):
        inner = os.path.relpath(folder, top)
        path = package if inner == "." else f"{package}/{inner}"
        module = path.replace("/", ".")
        folders[:] = [
            each for each in folders if each != "__pycache__" and f"{module}.{each}" not in LEFT_OUT
        ]
        is_source = module.startswith(AS_SOURCE)
        for each in files:
            name = os.path.join(folder, each)
            if each.endswith(".py") and not is_source:
                yield f"{path}/{each}c", _compiled(name, f"{module}.{each.removesuffix('.py')}")
            elif each.endswith((".py", *EXTENSIONS)):
                yield f"{path}/{each}", _read(name)


def _compiled(path: str, module: str) -> bytes:
    """A module as the bytes of a `.pyc` that needs no source."""
    code = SourceFileLoader(module, path).get_code(module)
    return importlib.util.MAGIC_NUMBER + _UNCHECKED_HASH + bytes(8) + marshal.dumps(code)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
