from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from mpwatch.diagnose.rules.transport import fd_exhaustion_producer as producer
from mpwatch.diagnose.rules.transport import fd_exhaustion_receiver as receiver
from mpwatch.diagnose.rules.transport import producer_exits_before_get
from mpwatch.model.findings import Severity
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Hook, Process
from tests.builders.snapshots import (
    MAIN,
    exited,
    fds,
    found,
    history,
    line,
    log,
    main,
    maps,
    only,
    process,
    snapshot_of,
    thread,
    uses,
)


def hoarder(used: int = 642, torch: int = 600, **keywords: Any) -> Process:
    return main(
        fds=fds(used, torch=torch),
        maps=maps(1600, torch=torch),
        segments=uses(40, creator=200),
        **keywords,
    )


def sender(used: int = 700, torch: int = 650, mapped: int = 1) -> Process:
    return process(
        300,
        "spawned",
        fds=fds(used, torch=torch),
        maps=maps(1000, torch=mapped),
        segments=uses(3, creator=300),
        threads=[
            thread(
                301,
                name="QueueFeederThread",
                waits=WaitedOn("pipe-write", "write", queued_bytes=65_000),
            )
        ],
    )


def test_a_receiver_whose_mappings_were_read_earlier_is_no_sender() -> None:
    late = main(fds=fds(117, limit=128, torch=108), maps=maps(400, torch=60))
    own = replace(late, sample=replace(late.sample, segments=uses(108, creator=200)))

    assert found(producer.check, snapshot_of(own, process(200))) == []
    assert len(found(receiver.check, snapshot_of(own, process(200)))) == 1


def test_received_tensors_kept_are_named_before_the_limit_with_the_time_left() -> None:
    past = history({(MAIN, "torch_fds"): line(600, per_s=24)})

    finding = only(receiver.check, snapshot_of(hoarder(), process(200)), past)

    assert finding.severity is Severity.CRITICAL
    assert finding.eta_s is not None
    assert 15 < finding.eta_s < 17
    assert "limit of 1024 fds in 16 s" in finding.summary
    assert any("40 by loader-worker 200 (200)" in each for each in finding.evidence)
    assert "hook" in finding.advice


def test_a_receiver_with_the_hook_is_not_advised_to_attach_it() -> None:
    past = history({(MAIN, "torch_fds"): line(600, per_s=24)})

    finding = only(receiver.check, snapshot_of(hoarder(hook=Hook("ready"))), past)

    assert "hook" not in finding.advice


def test_a_full_table_is_critical_without_any_history() -> None:
    finding = only(receiver.check, snapshot_of(hoarder(1020, 980)))

    assert finding.severity is Severity.CRITICAL
    assert finding.eta_s is None


def test_a_nearly_full_table_that_does_not_grow_is_a_warning() -> None:
    assert only(receiver.check, snapshot_of(hoarder(950, 900))).severity is Severity.WARNING


def test_a_prefetch_plateau_is_quiet() -> None:
    past = history({(MAIN, "torch_fds"): line(600)})

    assert found(receiver.check, snapshot_of(hoarder()), past) == []


def test_the_first_seconds_of_a_job_are_quiet() -> None:
    past = history({(MAIN, "torch_fds"): line(600, per_s=200, seconds=3, step_s=0.5)})

    assert found(receiver.check, snapshot_of(hoarder()), past) == []


def test_a_leak_of_other_descriptors_has_another_rule() -> None:
    job = snapshot_of(main(fds=fds(1020, file=900, torch=20), maps=maps(900, torch=20)))

    assert found(receiver.check, job) == []
    assert found(producer.check, job) == []


def test_a_process_whose_descriptors_could_not_be_read_is_quiet() -> None:
    assert found(receiver.check, snapshot_of(main(), process(200))) == []
    assert found(producer.check, snapshot_of(main(), process(200))) == []


def test_an_unlimited_table_cannot_be_exhausted() -> None:
    job = snapshot_of(main(fds=fds(9000, None, torch=8000), maps=maps(9000, torch=8000)))

    assert found(receiver.check, job) == []


def test_a_sender_is_no_receiver_and_the_other_way_round() -> None:
    assert found(receiver.check, snapshot_of(main(), sender(1020, 980))) == []
    assert found(producer.check, snapshot_of(hoarder(1020, 980))) == []


def test_tensors_sent_and_not_received_are_named_before_the_limit() -> None:
    past = history({(300, "torch_fds"): line(650, per_s=5)})

    finding = only(producer.check, snapshot_of(main(), sender()), past)

    assert finding.severity is Severity.WARNING
    assert "limit of 1024 fds in 65 s" in finding.summary
    assert any("about 649 sent, not received" in each for each in finding.evidence)
    assert any("65000 unread bytes" in each for each in finding.evidence)
    assert "maxsize" in finding.advice


def test_a_rise_beyond_the_capacity_of_a_pipe_is_reported_with_that_reservation() -> None:
    past = history({(300, "torch_fds"): line(300, per_s=20)})

    finding = only(producer.check, snapshot_of(main(), sender(350, 300)), past)

    assert finding.eta_s is not None
    assert finding.eta_s < 40
    assert finding.severity is Severity.WARNING
    assert any("a pipe holds about 190 messages" in each for each in finding.evidence)
    near = only(producer.check, snapshot_of(main(), sender(1000, 950)), past)
    assert near.severity is Severity.CRITICAL


def test_a_rise_within_the_capacity_of_a_pipe_keeps_its_severity() -> None:
    past = history({(300, "torch_fds"): line(100, per_s=5)})
    narrow = process(
        300,
        "spawned",
        fds=fds(120, 160, torch=100),
        maps=maps(1000, torch=1),
        segments=uses(3, creator=300),
    )

    finding = only(producer.check, snapshot_of(main(), narrow), past)

    assert finding.severity is Severity.CRITICAL
    assert not any("a pipe holds" in each for each in finding.evidence)


def test_a_sender_that_keeps_its_own_tensors_is_named_with_that_cause() -> None:
    finding = only(producer.check, snapshot_of(main(), sender(1020, 980, mapped=980)))

    assert "it made and keeps" in finding.summary
    assert "keeps the ones it made" in finding.cause


def test_a_bounded_queue_is_quiet() -> None:
    past = history({(300, "torch_fds"): line(650)})

    assert found(producer.check, snapshot_of(main(), sender()), past) == []


def test_a_sender_without_readable_mappings_is_judged_by_what_it_made() -> None:
    own = process(300, "spawned", fds=fds(1020, torch=980), segments=uses(9, creator=300))

    assert only(producer.check, snapshot_of(main(), own)).process == own.process


def test_descriptors_are_counted_by_segment_where_kinds_are_unknown() -> None:
    held = uses(990, creator=200)
    job = snapshot_of(main(fds=fds(1010), maps=maps(1800, torch=990), segments=held))

    assert only(receiver.check, job).severity is Severity.CRITICAL


def test_a_receiver_that_failed_for_want_of_descriptors_is_named_after_its_end() -> None:
    dead = main(fds=fds(61, 64, torch=50), ended=exited(MAIN, exit_code=1))
    failed = log("receive-failed", MAIN, "received 0 items of ancdata")
    sender_gone = process(200, "spawned", ended=exited(200, exit_code=0))
    job = snapshot_of(dead, sender_gone, log=(failed,))

    finding = only(receiver.check, job)

    assert finding.severity is Severity.CRITICAL
    assert "61 of 64 descriptors" in finding.evidence[-1]
    assert found(producer_exits_before_get.check, job) == []


def test_a_receiver_that_failed_and_lives_is_named_once() -> None:
    failed = log("receive-failed", MAIN, "received 0 items of ancdata")

    finding = only(receiver.check, snapshot_of(hoarder(1020, 990), process(200), log=(failed,)))

    assert any("ancdata" in each for each in finding.evidence)
