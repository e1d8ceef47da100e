"""Lookups of a snapshot."""

from __future__ import annotations

import pickle

from msgspec.structs import replace

from tests.builders.snapshots import exited, main, pid, process, snapshot_of


def test_living_are_the_processes_that_have_not_ended() -> None:
    snapshot = snapshot_of(main(), process(2), replace(process(3), ended=exited(3)))

    assert [each.pid for each in snapshot.living()] == [main().pid, 2]
    assert snapshot.living() is snapshot.living()


def test_a_changed_copy_has_lookups_of_its_own() -> None:
    snapshot = snapshot_of(main(), process(2))
    later = replace(snapshot, processes=(main(),))

    assert [each.pid for each in later.living()] == [main().pid]
    assert later.get(pid(2)) is None
    assert snapshot.get(pid(2)) is not None


def test_of_two_processes_with_one_identity_the_first_is_found() -> None:
    first, second = process(2), replace(process(2), label="another")
    snapshot = snapshot_of(main(), first, second)

    assert snapshot.get(pid(2)) is first
    assert snapshot.get(pid(77)) is None
    assert snapshot.get(None) is None


def test_equal_snapshots_are_equal_after_pickling() -> None:
    snapshot = snapshot_of(main(), process(2))

    copy = pickle.loads(pickle.dumps(snapshot))

    assert copy == snapshot
    assert copy.living() == snapshot.living()
    assert "_by_id" not in repr(snapshot)
