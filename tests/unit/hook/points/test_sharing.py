from __future__ import annotations

from typing import Any

import pytest

from mpwatch.hook import wire
from mpwatch.hook.points import sharing
from mpwatch.hook.session import Session

pytestmark = pytest.mark.xdist_group("torch")


def rows(session: Session) -> list[tuple[int, int, int]]:
    """Kind, flags and key of all records."""
    data, _ = session.ring.slice_of(0, session.ring.handed_out())
    return [(row[2], row[3], row[7]) for row in wire.RECORD.iter_unpack(data)]


def test_a_storage_is_shared_also_while_the_cache_is_not_wrapped(
    session: Session, torch: Any
) -> None:
    """So it is where a thread shares as the hook comes or goes, or where a torch has no such point.

    A storage without its key is recorded like one of no bytes, which is never looked for.
    """
    from torch.multiprocessing import reductions

    share = sharing.make_reducer(reductions.reduce_storage, session)
    storage = torch.ones(4).untyped_storage()

    rebuild, (kind, _, size) = share(storage)

    assert (rebuild, kind, size) == (reductions.rebuild_storage_fd, type(storage), 16)
    assert rows(session) == [(wire.SHARE, wire.FLAG_EMPTY, 0)]


@pytest.mark.parametrize("reduced", [(), (len,), (len, None), (len, ()), "a text"])
def test_any_result_of_torch_is_passed_on(session: Session, reduced: Any, torch: Any) -> None:
    share = sharing.make_reducer(lambda storage: reduced, session)

    assert share(torch.ones(4).untyped_storage()) is reduced


@pytest.mark.usefixtures("torch")
def test_a_cache_key_of_another_form_is_ignored(session: Session) -> None:
    kept: dict[Any, Any] = {}
    put = sharing.wrap_setitem(
        lambda cache, key, reference: cache.__setitem__(key, reference), session
    )
    find = sharing.wrap_storage_from_cache(lambda cls, key: kept.get(key), session)

    for key in ((), (1,), ("a", "b"), 7, None, b"name", (b"handle", 0)):
        assert find(object, key) is None
        put(kept, key, "no reference")
        assert find(object, key) == "no reference"
