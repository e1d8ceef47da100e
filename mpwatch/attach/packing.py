"""Packs the payload and the hook's modules into one piece: run by whichever Python will load them.

It needs nothing but the standard library of Python 3.10 or later, because its text is also run by
interpreters that know nothing of mpwatch: `python -I -S -c TEXT DIRECTORY PAYLOAD`, where the last
is the payload's text.

The piece begins with the interpreter's magic number, the length of the marshalled payload in 4
bytes, and that payload. The modules follow, marshalled as one.
"""

from __future__ import annotations

import importlib.util
import marshal
import os
import sys
from importlib.machinery import SourceFileLoader
from types import CodeType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

NOT_IN_IT = ("run.py",)
"""What a target does not import."""
_IS_FUNCTION = 1
_HAS_DOCSTRING = 0x4000000 if sys.version_info >= (3, 14) else 0
"""Flags of code (CO_OPTIMIZED, CO_HAS_DOCSTRING). Before 3.14 the first constant of each function
with a name is its docstring, or `None`."""


def pack(directory: str, theirs: str, payload: str) -> bytes:
    """The payload and all modules of the hook's package, compiled, functions without docstrings.

    A target drops those anyway, which takes it a tenth of its time: see `leanness`.

    Args:
        directory: The package.
        theirs: Where the target believes it to be.
        payload: The text of the program that will load it there.

    Returns:
        The piece. Its modules are, by the name of each in the package, with dots, and of the
        package itself an empty one: path, whether it is a package, and code.

    Raises:
        OSError: It could not be read.
    """
    packed: dict[str, tuple[str, bool, CodeType | None]] = {}
    for path in modules(directory):
        if path in NOT_IN_IT:
            continue
        steps = path[: -len(".py")].split("/")
        is_package = steps[-1] == "__init__"
        here, there = f"{directory}/{path}", f"{theirs}/{path}"
        if here == there:
            code = SourceFileLoader("hook", here).get_code("hook")
        else:
            with open(here, "rb") as file:
                code = compile(file.read(), there, "exec", dont_inherit=True)
        code = code and _without_docstrings(code)
        packed[".".join(steps[:-1] if is_package else steps)] = (there, is_package, code)
    program = marshal.dumps(compile(payload, "<mpwatch payload>", "exec", dont_inherit=True))
    head = importlib.util.MAGIC_NUMBER + len(program).to_bytes(4, "little")
    return head + program + marshal.dumps(packed)


def _without_docstrings(code: CodeType) -> CodeType:
    """The same code; its functions, and those within them, have none."""
    constants = [
        _without_docstrings(each) if isinstance(each, CodeType) else each for each in code.co_consts
    ]
    is_function = code.co_flags & _IS_FUNCTION and not code.co_name.startswith("<")
    can_have_one = code.co_flags & _HAS_DOCSTRING == _HAS_DOCSTRING
    if is_function and can_have_one and constants and isinstance(constants[0], str):
        constants[0] = None
    return code.replace(co_consts=tuple(constants))


def modules(directory: str) -> Iterator[str]:
    """Paths of the package's modules within it, one level of packages deep."""
    for folder, _, names in os.walk(directory):
        for name in sorted(names):
            if name.endswith(".py"):
                yield os.path.relpath(os.path.join(folder, name), directory)


if __name__ == "__main__":
    sys.stdout.buffer.write(pack(sys.argv[1], sys.argv[1], sys.argv[2]))
