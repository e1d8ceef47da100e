from __future__ import annotations

import pytest

from mpwatch.diagnose.rules.distributed import store_port_in_use
from mpwatch.model.findings import Severity
from mpwatch.model.host import PortOwner
from mpwatch.model.samples import FdLink
from mpwatch.model.snapshot import Process, Snapshot
from tests.builders.snapshots import MAIN, fds, found, log, main, only, process, snapshot_of

STRANGER = PortOwner(4000, 900, "python old.py", 1, is_orphan=True)
MEETS = {"MASTER_PORT": "4000", "MASTER_ADDR": "localhost"}


def sockets(*addresses: str) -> list[FdLink]:
    return [FdLink(3, "socket", "socket:[7]", 7, True, None, None, each) for each in addresses]


def meeting(*addresses: str, **environment: str) -> Process:
    return main(environment={**MEETS, **environment}, fds=fds(9, links=sockets(*addresses)))


def test_a_port_that_an_orphan_holds_is_named_before_the_job_fails() -> None:
    finding = only(store_port_in_use.check, snapshot_of(meeting(), port_owners=(STRANGER,)))

    assert finding.severity is Severity.WARNING
    assert "process 900, whose parent has exited, has it: python old.py" in finding.evidence


def test_the_error_is_reported_with_the_owner_of_the_port() -> None:
    words = "The server socket has failed to listen on any local network address. port: 4000"
    job = snapshot_of(meeting(), port_owners=(STRANGER,), log=(log("exception", MAIN, words),))

    assert "process 900" in only(store_port_in_use.check, job).summary


def test_a_port_held_by_another_process_of_the_job_is_reported_as_such() -> None:
    words = "The server socket has failed to listen on any local network address. port: 4000"
    other = process(300, "spawned", fds=fds(9, links=sockets("tcp listens on *:4000")))
    job = snapshot_of(meeting(), other, log=(log("exception", MAIN, words),))

    assert "spawned 300 (300) has it" in only(store_port_in_use.check, job).summary


def test_the_cause_names_the_owner_and_offers_an_orphan_only_where_one_was_seen() -> None:
    orphan = only(store_port_in_use.check, snapshot_of(meeting(), port_owners=(STRANGER,)))
    other_job = STRANGER._replace(parent_pid=800, is_orphan=False)
    job = only(store_port_in_use.check, snapshot_of(meeting(), port_owners=(other_job,)))

    assert "Process 900, whose parent has exited," in orphan.cause
    assert "stop process 900" in orphan.advice
    assert "Process 900 outside of this job" in job.cause
    assert "orphan" not in job.cause
    assert "stop process" not in job.advice


def test_a_child_of_process_1_is_not_said_to_have_lost_its_parent() -> None:
    service = STRANGER._replace(is_orphan=False)

    finding = only(store_port_in_use.check, snapshot_of(meeting(), port_owners=(service,)))

    assert "parent has exited" not in str(finding)
    assert "stop process" not in finding.advice


def test_the_cause_says_that_the_owner_of_the_port_is_unknown() -> None:
    words = "The server socket has failed to listen on any local network address. port: 4000"
    job = snapshot_of(meeting(), port_owners=(), log=(log("exception", MAIN, words),))

    assert "Which process is not known" in only(store_port_in_use.check, job).cause


@pytest.mark.parametrize(
    "job",
    [
        snapshot_of(meeting(), port_owners=()),
        snapshot_of(meeting(), port_owners=None),
        snapshot_of(meeting(), port_owners=(STRANGER._replace(pid=MAIN),)),
        snapshot_of(meeting(), port_owners=(STRANGER._replace(port=29500),)),
        snapshot_of(meeting("tcp 127.0.0.1:5 > 127.0.0.1:4000"), port_owners=(STRANGER,)),
        snapshot_of(meeting(RANK="1"), port_owners=(STRANGER,)),
        snapshot_of(meeting(MASTER_ADDR="node7"), port_owners=(STRANGER,)),
        snapshot_of(main(environment=MEETS, fds=fds(9)), port_owners=(STRANGER,)),
    ],
    ids=[
        "nobody listens",
        "not known who listens",
        "the job itself listens",
        "on another port",
        "they have met",
        "it is not the one to listen",
        "they meet elsewhere",
        "whether they have met was not read",
    ],
)
def test_a_port_the_job_may_have_met_on_is_quiet(job: Snapshot) -> None:
    assert found(store_port_in_use.check, job) == []
