"""Names of the program's own objects are exact strings: they get into messages and births."""

from __future__ import annotations

import pickle

from mpwatch.hook.safe.exact import class_name, full_name


class Text(str):
    """A string of the program, which a process that has not loaded it cannot unpickle."""

    __slots__ = ()


class Dataset:
    """Has a name of the program's own making, as `functools.wraps` and decorators set them."""


def load() -> None:
    """As above."""


Dataset.__qualname__ = Text("Pictures")
load.__qualname__ = Text("load_pictures")


def test_names_that_a_program_has_set_are_given_as_exact_strings() -> None:
    names = [class_name(Dataset), full_name(Dataset)[1], full_name(load)[1]]

    assert names == ["Pictures", "Pictures", "load_pictures"]
    assert {type(each) for each in names} == {str}
    assert b"Text" not in pickle.dumps(names)
