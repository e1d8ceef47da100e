"""A process that keeps a lock on a file while it waits for one that needs this lock."""

from __future__ import annotations

from mpwatch.describe.frames import frame_words
from mpwatch.diagnose.analysis.process_queries import called, family_head, label_stem
from mpwatch.diagnose.analysis.stack_patterns import user_frame
from mpwatch.diagnose.analysis.waits.cases import Case, Mechanism, Member
from mpwatch.diagnose.analysis.waits.file_locks import LOCK_ON, is_database
from mpwatch.model.snapshot import Process, Thread


def kept_file_lock(case: Case) -> Mechanism | None:
    """A cycle in which one process waits for a lock on a file that the next one holds."""
    members = case.members
    for each, after in zip(members, (*members[1:], *members[:1]), strict=True):
        is_held = each.edge.what.startswith(LOCK_ON) and len(members) > 1
        if is_held and after.process.process in each.edge.providers:
            return _kept(case, each, after)
    return None


def _kept(case: Case, needs: Member, holder: Member) -> Mechanism:
    """Why the holder does not release the lock, and where it most likely took it."""
    path = needs.edge.what.removeprefix(LOCK_ON)
    who, other = called(holder.process), called(needs.process)
    at, needed_at = _at(holder.thread), _at(needs.thread)
    same = _same_code(case, needs, holder)
    begun = _at(same[1]) if same is not None else ""
    is_data = is_database(case.index, path)
    cause = (
        f"{who} holds the lock on {path} while it waits{at}. {other} needs that lock{needed_at} "
        "before it can do what would end that wait, so neither continues."
    )
    if is_data:
        cause += (
            " A statement that writes begins a transaction of SQLite, and Python's sqlite3 keeps "
            "it, with the lock, until commit() or rollback() is called."
        )
    if same is not None and begun:
        cause += (
            f" {called(same[0])}, which runs the same code as {who}, waits for this lock{begun}: "
            f"likely {who} took it there."
        )
    took = begun or f" where {who} last {'wrote to the database' if is_data else 'took it'}"
    release = (
        f"Commit right after the statement{took} (commit(), or with connection:), "
        if is_data
        else f"Release the lock that is taken{took} (in a with or finally block), "
    )
    return Mechanism(
        cause=cause,
        advice=(
            f"{release}before {who} waits{at}. Nothing that another process has to answer belongs "
            "between taking a lock and releasing it."
        ),
        headline=(
            f"{who} holds the lock on {path} while it waits{at}, and {other} waits for that lock"
            f"{needed_at}."
        ),
    )


def _same_code(case: Case, needs: Member, holder: Member) -> tuple[Process, Thread] | None:
    """Another process that runs the same as the holder, and waits for the same lock."""
    head = family_head(case.index, holder.process)
    by_id = {each.process: each for each in case.index.snapshot.living()}
    for edge in case.waits.edges:
        process = by_id.get(edge.waiter)
        if process is None or edge.what != needs.edge.what or process == holder.process:
            continue
        is_alike = label_stem(process) == label_stem(holder.process)
        if is_alike and family_head(case.index, process) == head:
            thread = next((each for each in process.threads if each.tid == edge.tid), None)
            return None if thread is None else (process, thread)
    return None


def _at(thread: Thread | None) -> str:
    """The line of the program at which a thread is: ` at store.py:30 start`."""
    frame = user_frame(thread.stack) if thread is not None else None
    return "" if frame is None else f" at {frame_words(frame)}"
