"""Reads pickles of plain values: numbers, texts, lists, tuples and dictionaries, nothing else.

A pickle is a program. `pickle.load` lets it call any function, and even an unpickler that refuses
all classes allocates what a length or an index in the file says (CPython gh-115952). This reader
knows the opcodes of plain values and refuses all others, so it imports and calls nothing, and uses
memory in proportion to the size of the file. Opcodes: `pickletools` of CPython 3.10 to 3.14,
protocols 2 to 5; torch's own pickler writes protocol 2 (torch 2.1 to 2.13, `pickler.cpp`).
"""

from __future__ import annotations

import struct
from typing import TypeAlias

Plain: TypeAlias = (
    "bool | int | float | str | list[Plain] | tuple[Plain, ...] | dict[str | int, Plain] | None"
)

STACK_LIMIT = 1 << 20
"""Values waiting to be put into a list or a dictionary: torch puts in all of a list at once."""
CONTAINERS_LIMIT = 4 << 20
"""Lists, dictionaries and tuples in all, and references kept: each takes one byte of the file and a
hundred of memory. A dump of 2000 collectives with their stacks has 60,000."""
INTEGER_BYTES = 16
"""A longer integer is none of torch's, and its text could be longer than Python allows."""

_CONSTANTS: dict[int, Plain] = {ord("N"): None, 0x88: True, 0x89: False}
_NUMBERS = {
    ord("K"): struct.Struct("<B"),
    ord("M"): struct.Struct("<H"),
    ord("J"): struct.Struct("<i"),
}
_DOUBLE = struct.Struct(">d")
_TEXTS = {
    0x8C: struct.Struct("<B"),
    ord("X"): struct.Struct("<I"),
    0x8D: struct.Struct("<Q"),
}
_PUTS = {ord("q"): struct.Struct("<B"), ord("r"): struct.Struct("<I")}
_GETS = {ord("h"): struct.Struct("<B"), ord("j"): struct.Struct("<I")}
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}
_PROTOCOL, _FRAME, _STOP, _OPENS = 0x80, 0x95, ord("."), ord("(")
_MEMOIZE, _LONG1, _FLOAT = 0x94, 0x8A, ord("G")
_APPEND, _APPENDS, _SETITEM, _SETITEMS = ord("a"), ord("e"), ord("s"), ord("u")
_EMPTY_LIST, _EMPTY_DICT, _EMPTY_TUPLE, _TUPLE = ord("]"), ord("}"), ord(")"), ord("t")


class NotPlain(ValueError):
    """The data is no pickle, is cut short, or holds something other than plain values."""


def load_plain(data: bytes) -> Plain:
    """The value of a pickle of plain values.

    Values of the result may be shared and may contain themselves: a caller follows them only to a
    fixed depth.

    Raises:
        NotPlain: It is not such a pickle.
    """
    try:
        return _Reader(data).read()
    except (struct.error, IndexError, KeyError, UnicodeDecodeError) as error:
        raise NotPlain(f"it is cut short or damaged ({type(error).__name__})") from None


class _Reader:
    """The state of one pickle that is being read."""

    __slots__ = ("_at", "_built", "_data", "_marks", "_memo", "_stack")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._built = 0
        self._stack: list[Plain] = []
        self._marks: list[int] = []
        """Lengths that the stack had at the marks that are not taken back yet."""
        self._memo: dict[int, Plain] = {}

    def read(self) -> Plain:
        """The value on top of the stack at the end of the pickle."""
        data, stack, memo = self._data, self._stack, self._memo
        if data[:1] != b"\x80":
            raise NotPlain("it is not a pickle of protocol 2 to 5")
        while True:
            code = data[self._at]
            self._at += 1
            if code in _GETS:
                stack.append(memo[self._number(_GETS[code])])
            elif code in _PUTS:
                memo[self._number(_PUTS[code])] = stack[-1]
            elif code in _TEXTS:
                stack.append(self._text(self._number(_TEXTS[code])))
            elif code in _NUMBERS:
                stack.append(self._number(_NUMBERS[code]))
            elif code == _FLOAT:
                stack.append(_DOUBLE.unpack_from(data, self._at)[0])
                self._at += _DOUBLE.size
            elif code in _CONSTANTS:
                stack.append(_CONSTANTS[code])
            elif code == _MEMOIZE:
                memo[len(memo)] = stack[-1]
            elif code == _STOP:
                return stack[-1]
            else:
                self._build(code)
            if len(stack) > STACK_LIMIT or len(memo) > CONTAINERS_LIMIT:
                raise NotPlain("it holds more values than a dump of collectives")

    def _build(self, code: int) -> None:
        """The opcodes of containers, and the rare ones."""
        stack = self._stack
        self._built += 1
        if self._built > CONTAINERS_LIMIT:
            raise NotPlain("it holds more values than a dump of collectives")
        if code == _OPENS:
            self._marks.append(len(stack))
        elif code == _EMPTY_LIST:
            stack.append([])
        elif code == _EMPTY_DICT:
            stack.append({})
        elif code == _EMPTY_TUPLE:
            stack.append(())
        elif code in _TUPLES:
            stack.append(tuple(self._taken(len(stack) - _TUPLES[code])))
        elif code == _TUPLE:
            stack.append(tuple(self._taken(self._marks.pop())))
        elif code in (_APPEND, _APPENDS):
            self._extend(self._taken(len(stack) - 1 if code == _APPEND else self._marks.pop()))
        elif code in (_SETITEM, _SETITEMS):
            self._update(self._taken(len(stack) - 2 if code == _SETITEM else self._marks.pop()))
        elif code == _LONG1:
            self._integer()
        elif code == _PROTOCOL:
            self._at += 1
        elif code == _FRAME:
            self._at += 8
        else:
            raise NotPlain(f"it holds something other than plain values (opcode {code:#x})")

    def _number(self, form: struct.Struct) -> int:
        number: int = form.unpack_from(self._data, self._at)[0]
        self._at += form.size
        return number

    def _text(self, size: int) -> str:
        raw = self._data[self._at : self._at + size]
        if len(raw) < size:
            raise NotPlain("it is cut short")
        self._at += size
        return raw.decode("utf-8", "surrogatepass")

    def _integer(self) -> None:
        size = self._data[self._at]
        if size > INTEGER_BYTES:
            raise NotPlain(f"it holds an integer of {size} bytes")
        raw = self._data[self._at + 1 : self._at + 1 + size]
        self._at += 1 + size
        self._stack.append(int.from_bytes(raw, "little", signed=True))

    def _taken(self, start: int) -> list[Plain]:
        """The values from a place of the stack on, which leave it."""
        if start < (self._marks[-1] if self._marks else 0):
            raise NotPlain("it takes values that are not there")
        values = self._stack[start:]
        del self._stack[start:]
        return values

    def _extend(self, values: list[Plain]) -> None:
        target = self._stack[-1]
        if not isinstance(target, list):
            raise NotPlain("it appends to something other than a list")
        target.extend(values)

    def _update(self, values: list[Plain]) -> None:
        target = self._stack[-1]
        if not isinstance(target, dict) or len(values) % 2:
            raise NotPlain("it sets items of something other than a dictionary")
        for key, value in zip(values[::2], values[1::2], strict=True):
            # Of nested tuples as keys, the hash would be computed by a recursion without a limit.
            if not isinstance(key, str | int):
                raise NotPlain("it has a dictionary with keys other than texts and integers")
            target[key] = value
