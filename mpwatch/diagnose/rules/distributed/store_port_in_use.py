"""The port of the rendezvous is taken."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.pipes import listening_at
from mpwatch.diagnose.analysis.process_queries import called, called_if_known
from mpwatch.diagnose.known_errors import evidence_of, tagged
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.host import PortOwner
from mpwatch.model.snapshot import Process, Snapshot

RULE = "store-port-in-use"
_PORT = re.compile(r"port:? (\d{1,5})\b")
_LOCAL = ("", "localhost", "127.0.0.1", "::1", "0.0.0.0")


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for an error of the hook, else for a port that another process has."""
    entries = list(tagged(index.snapshot, RULE))
    for entry in entries:
        process = index.snapshot.get(entry.process)
        name = called_if_known(process)
        evidence = evidence_of(entry)
        port = _PORT.search("\n".join((entry.words, *evidence)))
        number = None if port is None else int(port[1])
        owners = list(_owners(index.snapshot, number))
        yield Finding(
            rule=RULE,
            severity=Severity.CRITICAL,
            process=entry.process,
            summary=f"{name} cannot listen on its rendezvous port: {(*owners, _OTHER)[0]}",
            evidence=(*evidence, *owners),
            cause=_cause(index.snapshot, number),
            advice=_advice(index.snapshot, number),
        )
    if not entries:
        yield from _seen_from_outside(index.snapshot)


def _owners(snapshot: Snapshot, port: int | None) -> Iterator[str]:
    """The processes that have a port, in words; those outside of the job first."""
    own = {process.pid for process in snapshot.processes}
    for owner in snapshot.host.port_owners or ():
        if owner.port == port and owner.pid not in own:
            yield _words(owner)
    for process in snapshot.living():
        if port is not None and str(port) in listening_at(process):
            yield f"{called(process)} has it"


def _words(owner: PortOwner) -> str:
    """One owner outside of the job."""
    orphan = ", whose parent has exited," if owner.is_orphan else ""
    return f"process {owner.pid}{orphan} has it: {owner.command}"


def _seen_from_outside(snapshot: Snapshot) -> Iterator[Finding]:
    """A port that the job names on this machine, and that a process outside of it listens on.

    A job with a connection to that port uses it as its rendezvous: the observed processes are then
    only a part of the job.
    """
    own = {process.pid for process in snapshot.processes}
    for owner in snapshot.host.port_owners or ():
        naming = [p for p in snapshot.processes if _names(p, owner.port)]
        if not naming or owner.pid in own or any(_uses(p, owner.port) for p in snapshot.living()):
            continue
        yield Finding(
            rule=RULE,
            severity=Severity.WARNING,
            process=naming[0].process,
            subject=str(owner.port),
            summary=(
                f"{called(naming[0])} is to meet its ranks on port {owner.port}, which a process "
                f"outside of this job holds: {owner.pid}"
            ),
            evidence=(
                f"MASTER_PORT={owner.port} in the environment of {called(naming[0])}",
                _words(owner),
                "no process of the job has a connection to it",
            ),
            cause=_cause(snapshot, owner.port),
            advice=_advice(snapshot, owner.port),
        )


def _names(process: Process, port: int) -> bool:
    """Whether a process was told to listen at this port of this machine, as the first rank is."""
    environment = process.sample.environment
    return (
        environment.get("MASTER_PORT") == str(port)
        and environment.get("MASTER_ADDR", "") in _LOCAL
        and environment.get("RANK", "0") == "0"
    )


def _uses(process: Process, port: int) -> bool:
    """Whether a process listens on a port or has a connection to it, or may have: unread links."""
    links = None if process.sample.fds is None else process.sample.fds.links
    if links is None:
        return process.sample.is_python
    return any((link.address or "").endswith(f":{port}") for link in links)


_OTHER = "another process has it"
_CAUSE_UNKNOWN = (
    "A process on this host already listens on the port. Which process is not known; typical are "
    "another job with the same port (torchrun's default is 29500) and an orphan of an earlier job."
)
_FREE_PORT = "Start with --standalone or --rdzv-endpoint=localhost:0, which choose a free port"


def _cause(snapshot: Snapshot, port: int | None) -> str:
    """Name the process that holds the port where it was read, else say that it is not known."""
    outside = _outside_owner(snapshot, port)
    if outside is not None:
        state = ", whose parent has exited," if outside.is_orphan else ""
        return f"Process {outside.pid}{state} outside of this job already listens on port {port}."
    for process in snapshot.living():
        if port is not None and str(port) in listening_at(process):
            return f"{called(process)}, a process of this job, already listens on port {port}."
    return _CAUSE_UNKNOWN


def _advice(snapshot: Snapshot, port: int | None) -> str:
    """Advise to stop an owner only where that owner was seen to be an orphan."""
    outside = _outside_owner(snapshot, port)
    if outside is not None and outside.is_orphan:
        return f"{_FREE_PORT}; or stop process {outside.pid} if its job is over."
    return f"{_FREE_PORT}."


def _outside_owner(snapshot: Snapshot, port: int | None) -> PortOwner | None:
    """Return the process outside of the job that listens on a port, if one was read."""
    own = {process.pid for process in snapshot.processes}
    owners = snapshot.host.port_owners or ()
    return next((o for o in owners if o.port == port and o.pid not in own), None)
