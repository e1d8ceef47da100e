"""Who is there, without asking what is wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mpwatch.diagnose.catalogue import Rule
from mpwatch.diagnose.engine import MANY, Engine
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.fold import Fold, NothingObserved

from .worlds import MAIN, sample, tree


class Asked:
    """A rule that notes the moments at which it is asked."""

    def __init__(self) -> None:
        self.at_s: list[float] = []

    def __call__(self, snapshot: Snapshot, history: History) -> Iterator[Finding]:
        self.at_s.append(snapshot.at_s)
        return iter(())


def test_a_glance_at_half_a_reading_takes_no_rules_turn() -> None:
    rules = [Asked() for _ in range(5)]
    fold = Fold(Engine([Rule(f"rule-{n}", rule) for n, rule in enumerate(rules)]))
    for at_s in (1.0, 1.2):
        others = [sample(ProcessId(200 + n, 5), at_s, parent=100) for n in range(MANY)]
        fold.apply(tree(at_s, sample(MAIN, at_s), *others))
        assert len(fold.glance().living()) == MANY + 1

    snapshot = fold.snapshot()

    assert [rule.at_s for rule in rules] == [[1.2]] * 5
    assert fold.glance() is snapshot


def test_before_the_first_reading_there_is_nothing_to_glance_at() -> None:
    with pytest.raises(NothingObserved):
        Fold().glance()
