"""Names of processes in findings, and which process started which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from mpwatch.describe.processes import full_name
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.model.history import first_at, values_of
from mpwatch.model.ids import ProcessId, Role
from mpwatch.model.snapshot import Loader, Process, Snapshot, Thread

WORK_ROLES: frozenset[Role] = frozenset({"loader-worker", "pool-worker", "spawned", "rank"})
"""Roles of children that run the user's code."""
SERVICE_ROLES: frozenset[Role] = frozenset({"forkserver", "resource-tracker", "shm-manager"})
"""Helpers of multiprocessing and torch, idle most of the time."""
ONE_START_S = 5.0
"""A loader starts its workers one after the other, and needs longer between two of them only to
pickle a large dataset."""


def called(process: Process) -> str:
    """Label and pid: `worker 3 (41829)`."""
    return full_name(process)


def called_if_known(process: Process | None) -> str:
    """Label and pid; `a process of the job` for one that the snapshot does not have."""
    return "a process of the job" if process is None else called(process)


def all_called(processes: Iterable[Process], limit: int = 4) -> str:
    """The names of several processes: `worker 0 (12), worker 1 (13) and 5 more`."""
    names = [called(process) for process in processes]
    if len(names) <= limit:
        return " and ".join(filter(None, (", ".join(names[:-1]), names[-1] if names else "")))
    return f"{', '.join(names[:limit])} and {len(names) - limit} more"


def counted(count: float, noun: str, plural: str = "") -> str:
    """A number of things: `1 worker`, `3 processes`."""
    return f"{count:.0f} {noun if round(count) == 1 else plural or noun + 's'}"


@derived
def _by_pid(index: Index) -> Mapping[int, ProcessId]:
    """The identity of each pid."""
    return {process.pid: process.process for process in reversed(index.snapshot.processes)}


def family_head(index: Index, process: Process) -> Process | None:
    """The process whose code started this one: its parent, past a forkserver in between.

    Of a rank it is what started its wrapper, a shell or a program that has the rank's number too.
    """
    head = _past_forkserver(
        index, process.parent or process.original_parent or _sampled_parent(index, process)
    )
    while process.role == "rank" and head is not None and _wraps(head, process):
        head = index.snapshot.get(head.parent) if head.parent is not None else None
    return head


def _wraps(process: Process, rank: Process) -> bool:
    """Whether a process that is no rank itself has the number that a rank below it has."""
    number = rank.sample.environment.get("RANK")
    is_other = process.role in ("launcher", "other")
    return is_other and number is not None and process.sample.environment.get("RANK") == number


def _sampled_parent(index: Index, process: Process) -> ProcessId | None:
    """The parent by the pid in the last sample, if it is one of the processes observed."""
    return _by_pid(index).get(process.sample.parent_pid)


def _past_forkserver(index: Index, parent_id: ProcessId | None) -> Process | None:
    """The process itself, or its own parent where it is a forkserver."""
    if parent_id is None:
        return None
    parent = index.snapshot.get(parent_id)
    if parent is not None and parent.role == "forkserver":
        before = parent.parent or parent.original_parent
        return index.snapshot.get(before) or parent
    return parent


def orphaned_before(index: Index) -> list[Process]:
    """Processes of multiprocessing whose parent had exited before the job was first read.

    Asked of a job whose root is one: what is started by multiprocessing begins as a child of a
    Python process, below which it would have been found (`Snapshot.part_of`). Its siblings are
    those that the tree has found beside it.
    """
    snapshot = index.snapshot
    root = snapshot.get(snapshot.root)
    if snapshot.part_of is not None or root is None or not _was_left(root):
        return []
    return [root, *(each for each in snapshot.living() if each is not root and _was_left(each))]


def _was_left(process: Process) -> bool:
    """Whether a process was started by multiprocessing, and no parent of it was ever seen."""
    sample = process.sample
    if process.is_gone or process.parent is not None or process.original_parent is not None:
        return False
    if sample.parent_pid < 1 or sample.state == "Z" or process.role in SERVICE_ROLES:
        return False  # a parent that is shown as 0 is in another pid namespace
    if process.role in WORK_ROLES and sample.start_method is not None:
        return True
    thread = process.threads[0] if process.threads else None
    outermost = thread.stack[-1] if thread is not None and thread.stack else None
    return (
        outermost is not None
        and outermost.function == "_bootstrap"
        and outermost.file.endswith("/multiprocessing/process.py")
    )


def children_started_by(index: Index, process: Process) -> Iterator[Process]:
    """Its children, including those started by its forkserver, exited and orphaned ones."""
    return iter(_children_by_head(index).get(process.process, ()))


@derived
def _children_by_head(index: Index) -> Mapping[ProcessId, Sequence[Process]]:
    """The processes that each process started."""
    started: dict[ProcessId, list[Process]] = {}
    for process in index.snapshot.processes:
        head = family_head(index, process)
        if head is not None and head.process != process.process:
            started.setdefault(head.process, []).append(process)
    return started


def is_sibling(index: Index, one: Process, other: Process) -> bool:
    """Whether two processes run the same function, started by the same process."""
    if one.process == other.process or one.role != other.role or one.role == "main":
        return False
    if label_stem(one) != label_stem(other):
        return False
    return family_head(index, one) == family_head(index, other)


YOUNG_S = 60.0
"""A younger process may still be starting: a child of spawn imports torch, on a loaded machine for
longer than elsewhere, and 64 workers started by spawn take half a minute."""
TRACED_S = 3.0
"""A stop of a process for its stacks is shorter than this, and not the program's own time."""


def is_stopped(state: str, thread: Thread | None) -> bool:
    """Whether a signal or a tracer has stopped a thread, and not py-spy for taking its stack.

    Args:
        state: Of the thread, or of its process.
        thread: The thread; `None` if its times are not known.
    """
    for_s = thread.waits_s if thread is not None else None
    return state == "T" or (state == "t" and (for_s is None or for_s >= TRACED_S))


def is_manager(process: Process) -> bool:
    """Whether a process is the server of a `multiprocessing.Manager`."""
    return process.label == "manager" or any(
        frame.function.endswith("serve_forever") and frame.file.endswith("/managers.py")
        for thread in process.threads[:1]
        for frame in thread.stack
    )


def label_stem(process: Process) -> str:
    """The label of a process without its number: `worker` of `worker 3`."""
    return process.label.rstrip("0123456789 ")


@derived
def loader_owners(index: Index) -> tuple[tuple[Process, tuple[Process, ...]], ...]:
    """Each living process with living DataLoader workers, and these workers."""
    owned: dict[ProcessId, list[Process]] = {}
    for worker in index.snapshot.processes:
        if worker.role != "loader-worker" or worker.is_gone:
            continue
        head = family_head(index, worker)
        if head is not None and not head.is_gone:
            owned.setdefault(head.process, []).append(worker)
    return tuple(
        (process, tuple(owned[process.process]))
        for process in index.snapshot.processes
        if process.process in owned
    )


@derived
def workers_of_loaders(
    index: Index,
) -> tuple[tuple[Process, Loader | None, tuple[Process, ...]], ...]:
    """The living workers of each DataLoader, with the process that reads them.

    A process may have several loaders, whose batches have nothing in common. Without the hook,
    workers that were started within `ONE_START_S` of each other are those of one loader.
    """
    found: list[tuple[Process, Loader | None, tuple[Process, ...]]] = []
    for owner, workers in loader_owners(index):
        groups: defaultdict[int | None, list[Process]] = defaultdict(list)
        for worker in workers:
            groups[worker.loader.loader if worker.loader is not None else None].append(worker)
        loaders = {x.key: x for x in index.snapshot.loaders if x.process == owner.process}
        for key, group in groups.items():
            parts = [group] if key is not None else _by_start(group)
            loader = loaders.get(key) if key is not None else None
            if key is None and len(parts) == len(loaders) == 1:
                loader = next(iter(loaders.values()))
            found += [(owner, loader, tuple(part)) for part in parts]
    return tuple(found)


def _by_start(workers: Sequence[Process]) -> list[list[Process]]:
    """Workers in groups that were started at about the same time."""
    groups: list[list[Process]] = []
    last_s = float("-inf")
    for worker in sorted(workers, key=lambda each: each.sample.born_wall_s or 0.0):
        born_s = worker.sample.born_wall_s or 0.0
        if born_s - last_s > ONE_START_S:
            groups.append([])
        groups[-1].append(worker)
        last_s = born_s
    return groups


@derived
def started_workers(index: Index) -> Sequence[tuple[Process, Sequence[Process]]]:
    """Each living process and the DataLoader workers it started, those that ended included.

    Workers that spawn or forkserver started are named `spawned` until they have imported. A set of
    which no sample found a worker after that counts if its parent waited for a batch meanwhile.
    """
    found: dict[ProcessId, list[Process]] = {}
    for each in index.snapshot.processes:
        head = family_head(index, each)
        if head is None or head.is_gone:
            continue
        if each.role == "loader-worker" or _is_starting(each):
            found.setdefault(head.process, []).append(each)
    owners = []
    for process in index.snapshot.processes:
        sets = generations(found.get(process.process, ()))
        known = [each for group in sets if _are_workers(index, process, group) for each in group]
        if known:
            owners.append((process, known))
    return owners


def _is_starting(process: Process) -> bool:
    """Whether a child may be a DataLoader worker that still imports: it is named after that."""
    return (
        process.role == "spawned"
        and process.start_method in ("spawn", "forkserver")
        and process.label.startswith("spawned")
    )


def _are_workers(index: Index, owner: Process, group: Sequence[Process]) -> bool:
    """Whether children that were started together are the workers of a DataLoader.

    One of them is known as such, or their parent waited for a batch for most of their life.
    """
    if any(each.role == "loader-worker" for each in group):
        return True
    snapshot = index.snapshot
    born_s = group[0].sample.born_wall_s
    if born_s is None:
        return False
    ends = [snapshot.at_s if each.ended is None else each.ended.at_s for each in group]
    polls = index.history.of(owner.process, "loader_wait")
    since = first_at(polls, snapshot.at_s - (snapshot.wall_s - born_s))
    lived = values_of(polls)[since : first_at(polls, max(ends))]
    return bool(lived) and sum(lived) > len(lived) / 2


def of_role(snapshot: Snapshot, *roles: Role) -> Iterator[Process]:
    """The living processes of some roles."""
    return (p for p in snapshot.processes if p.role in roles and not p.is_gone)


def age_s(snapshot: Snapshot, process: Process) -> float | None:
    """Seconds since it started; `None` if unknown."""
    started_s = process.sample.born_wall_s
    return None if started_s is None else max(0.0, snapshot.wall_s - started_s)


GAP_TICKS = 200
"""Two seconds: the workers of one iterator start back to back, also with spawn."""
SET_GAP_TICKS = 3000
"""Half a minute: a worker with the next number. With spawn its start waits until the one before has
read the data set, after its imports, if that is larger than a pipe."""


def generations(workers: Iterable[Process]) -> list[tuple[Process, ...]]:
    """Workers grouped by start time, the oldest group first; `start_ticks` are 1/100 s."""
    groups: list[list[Process]] = []
    for worker in sorted(workers, key=lambda each: each.process.start_ticks):
        last = groups[-1][-1] if groups else None
        if last is None or worker.process.start_ticks - last.process.start_ticks > _gap_ticks(
            last, worker
        ):
            groups.append([worker])
        else:
            groups[-1].append(worker)
    return [tuple(group) for group in groups]


def _gap_ticks(last: Process, worker: Process) -> int:
    """How much later a worker may have started than the last one of its set."""
    one, other = last.sample.worker_id, worker.sample.worker_id
    is_next = one is not None and other == one + 1
    return SET_GAP_TICKS if is_next else GAP_TICKS
