"""Snapshots as bytes: what arrives equals what was sent, and hostile bytes do no harm."""

from __future__ import annotations

import random
import zlib
from array import array
from typing import Any

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace

from mpwatch.model.account import Account, Activity, ProcessAccount, ThreadAccount
from mpwatch.model.snapshot import LogEntry, Snapshot, Trends
from mpwatch.nodes.wire import view_codec
from mpwatch.nodes.wire.view_codec import NotASnapshot, SnapshotDecoder, SnapshotEncoder
from tests.builders.screen_job import MAIN, NOW_S
from tests.tui.scripted import ended_job, gpu_job, loader_job, without_hook


def plain(value: object) -> Any:
    """A value whose sequences are all of one type."""
    if isinstance(value, array):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    return value


def account() -> Account:
    """The time of one thread, as the rules have it."""
    thread = ThreadAccount(MAIN.pid, "main", Activity("computing", place="train.py:5"), 1.0, 1, 5)
    thread = thread.counted(NOW_S, 7, 9, 100)._replace(basis=("not", "sent"))
    return Account(MAIN, 1.0, NOW_S, 7, {MAIN: ProcessAccount(MAIN, NOW_S, 7, (thread,), (9,))})


def jobs() -> list[Snapshot]:
    trends = Trends(array("d", [1.0, 2.0]), fds=(3.0, None))
    full = loader_job()
    main = replace(full.processes[0], trends=trends)
    full = replace(full, processes=(main, *full.processes[1:]))
    later = (full, gpu_job(), without_hook(), ended_job(), full)
    return [full, *(replace(each, account=account()) for each in later)]


def test_each_snapshot_arrives_as_it_was_sent() -> None:
    encoder, decoder = SnapshotEncoder(), SnapshotDecoder()
    for sent in jobs():
        received = decoder.snapshot(encoder.change(sent))
        expected, found = plain(sent), plain(received)
        for each in expected["account"]["processes"].values():
            for thread in each["uncounted"]:
                thread[8] = []  # the basis of an account stays on its node
        assert found == expected


def test_a_change_has_only_what_has_changed() -> None:
    encoder, decoder = SnapshotEncoder(), SnapshotDecoder()
    job = loader_job()
    whole = encoder.change(job)
    decoder.snapshot(whole)
    entry = LogEntry(99, NOW_S, 1.75e9, "exception", MAIN, "a batch was lost")
    later = replace(job, at_s=NOW_S + 1, log=(*job.log[1:], entry), processes=job.processes[:-1])
    change = encoder.change(later)
    received = decoder.snapshot(change)

    assert plain(received) == plain(later)
    assert len(change) < len(whole) / 4
    assert len(encoder.change(replace(later, at_s=NOW_S + 2))) < 200


def test_text_of_a_node_is_sanitized_wherever_it_is() -> None:
    job = loader_job()
    evil = "\x1b]0;x\x07\x1b[2Jrm\u202e\n"
    main = job.processes[0]
    sample = replace(main.sample, environment={evil: evil}, cmdline=(evil, "x" * 10_000))
    entry = LogEntry(1, NOW_S, 0.0, evil, MAIN, evil, {evil: [evil, {"deep": evil}]})
    job = replace(
        job,
        processes=(replace(main, sample=sample, gauges={"queue": evil}), *job.processes[1:]),
        log=(entry,),
        problems=(evil,),
    )
    received = SnapshotDecoder().snapshot(SnapshotEncoder().change(job))
    text = repr(plain(received))

    assert "\\x1b" not in text
    assert "\\u202e" not in text
    assert "\\n" not in text
    assert "rm\ufffd" in text
    assert "x" * 5000 not in text


def packed(**change: object) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(change))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"rm -rf /",
        zlib.compress(b"")[:-2],
        zlib.compress(b"\x00" * (view_codec.INFLATED_LIMIT_BYTES + 1)),
        packed(),
        packed(fields={"at_s": "late"}),
        packed(fields=[1, 2]),
        packed(order=[[1, 2]]),
        packed(processes=[[[1, 2], {"label": "x"}, {}]]),
        packed(log={"keys": [5]}),
        packed(fields={"problems": [[[["deep"]]]]}),
    ],
    ids=str,
)
def test_what_is_no_change_is_refused(data: bytes) -> None:
    with pytest.raises(NotASnapshot):
        SnapshotDecoder().snapshot(data)


def test_a_change_that_memory_cannot_hold_is_refused() -> None:
    lists = b"\x90" * (view_codec.CONTAINERS_LIMIT + 1)
    with pytest.raises(NotASnapshot, match="too many parts"):
        SnapshotDecoder().snapshot(zlib.compress(lists))


def test_what_a_node_makes_a_head_keep_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_codec, "KEPT_LIMIT_BYTES", 100_000)
    job = loader_job()
    encoder, decoder = SnapshotEncoder(), SnapshotDecoder()
    decoder.snapshot(encoder.change(job))
    entries = tuple(LogEntry(n, NOW_S, 0.0, "note", None, "x" * 100) for n in range(1000))
    for start in range(0, 1000, 100):  # what has been dropped is not counted
        decoder.snapshot(encoder.change(replace(job, log=entries[start : start + 100])))
    with pytest.raises(NotASnapshot, match="larger than can be kept"):
        decoder.snapshot(encoder.change(replace(job, log=entries)))


def test_a_field_of_a_later_version_is_left_out() -> None:
    data = SnapshotEncoder().change(loader_job())
    change = msgspec.msgpack.decode(zlib.decompress(data))
    change["fields"]["weather"] = "fine"
    change["tides"] = {}
    received = SnapshotDecoder().snapshot(zlib.compress(msgspec.msgpack.encode(change)))

    assert plain(received) == plain(loader_job())


@pytest.mark.slow
def test_damaged_changes_are_a_snapshot_or_refused() -> None:
    raw = zlib.decompress(SnapshotEncoder().change(loader_job()))
    generator = random.Random(5)
    outcomes = set()
    for _ in range(300):
        damaged = bytearray(raw)
        for _ in range(generator.choice((1, 2, 8))):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        try:
            SnapshotDecoder().snapshot(zlib.compress(bytes(damaged), 1))
            outcomes.add("read")
        except NotASnapshot:
            outcomes.add("refused")

    assert outcomes == {"read", "refused"}
