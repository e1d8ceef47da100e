from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mpwatch.hook.session import Session
from mpwatch.hook.state.queue_sampling import EVERY, MEMBERS

pytestmark = pytest.mark.xdist_group("torch")


def puts(session: Session, item: Any) -> int:
    """The number of puts of tensors that are counted after a sampled one."""
    session.items.examine(item)
    return sum(row["puts"] for row in session.items.show() or ())


@pytest.mark.parametrize("kind", [list, tuple, lambda rows: dict(enumerate(rows))])
def test_only_the_first_members_of_an_item_are_examined(
    session: Session, kind: Any, torch: Any
) -> None:
    assert puts(session, kind([0] * MEMBERS + [torch.ones(1)])) == 0


def test_a_tensor_among_the_first_members_is_counted_for_all_puts_it_stands_for(
    session: Session, torch: Any
) -> None:
    assert puts(session, [0] * (MEMBERS - 1) + [torch.ones(1)]) == EVERY


def test_no_method_of_the_program_is_called(session: Session, torch: Any) -> None:
    class Rows(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            raise AssertionError("somebody looks")

    class Named(dict[str, Any]):
        def values(self) -> Any:
            raise AssertionError("somebody looks")

    assert puts(session, Rows([torch.ones(1)])) == EVERY
    assert puts(session, Named(tensor=torch.ones(1))) == 2 * EVERY
