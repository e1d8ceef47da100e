"""The rows of a node's summary, from the newest snapshots of its jobs. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from mpwatch.collect.job.roles import whole_number
from mpwatch.collect.process.identify import PREFIXES
from mpwatch.describe.findings import problems_of, unresolved
from mpwatch.describe.frames import RAY_WORKER_FILE, waits_for_ray_call
from mpwatch.describe.processes import names_text, process_state, unique_names
from mpwatch.diagnose.analysis.distributed.flight_recorder import (
    is_recorder_due,
    number_of,
    recorded,
)
from mpwatch.diagnose.analysis.distributed.ranks import (
    called_at,
    has_group,
    in_collective,
    is_joining,
    is_rank,
    place_of,
    unmoved_s,
)
from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.stack_merge import merged_stacks
from mpwatch.diagnose.analysis.stack_patterns import has_stacks, main_thread
from mpwatch.model.collectives import Recorded
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.host import FileSystemSample, HostSample
from mpwatch.model.ids import ProcessId, Role
from mpwatch.model.progress import ProgressSource
from mpwatch.model.samples import Channel, Ended, FdLink, channel_of
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import bytes_text, numbers_text
from mpwatch.model.waits import WaitEdge
from mpwatch.nodes.agent.rank_waits import RankWaits, WaitSample, wait_sample
from mpwatch.nodes.agent.rights import stackless_words
from mpwatch.nodes.wire.messages import Sections, size_bytes
from mpwatch.nodes.wire.summary import (
    IN_RAY_GET,
    IN_RAY_TASK,
    IN_RAY_WAITING,
    MIXED,
    NOT_SET,
    FindingRow,
    NodeRow,
    RankRow,
    SocketRow,
    row_of,
    text_of_group,
)
from mpwatch.observe.sources.on_demand import servers

RANKS_LIMIT = 256
FINDINGS_LIMIT = 20
STACKS_LIMIT = 4
WORDS_LIMIT = 160
"""Characters of each text of a row."""
SUMMARY_LIMIT = 300
"""Characters of a finding's summary."""
MOVED_S = 2.0
"""Readings show since when a process has not moved to about a second: a smaller difference is none.
Otherwise the time would be sent again each second."""
HELD_S = 3.0
"""A process that made no progress is said to make some after so long only. One of its threads may
wait for a free core at a reading, which looks like work: often so on a loaded machine."""
RUNNING_S = 10.0
"""Interval at which a text is sent of which only a duration changes: it would be sent each second,
in place of what is new."""
_DURATION = re.compile(r"\b\d+(?:\.\d+)? (?:us|ms|s|min|h|d)\b")
"""As `mpwatch.model.units.seconds_text` writes them."""
FRESH_S = 3.0
"""A stack of a process that moves is out of date after this long."""
_RSS_UNIT = 64 << 20

USUAL_UNIT_S = 5
"""In steps of this, the length of usual waits is sent: a wait this short is no standstill."""
STACK_TICK_S = 5.0
PROCESSES_ENOUGH = 32_768
"""A limit of so many processes and threads is as good as none. The kernel's own differs a little
between equal machines: it comes from the size of the memory."""
_OWN_ACTOR = "ray::MpwatchNode"
_RAY_GETS = frozenset(("get", "get_objects", "wait"))
"""Functions of `RAY_WORKER_FILE` in which ray.get and ray.wait wait (Ray 2.60)."""

COMPARED = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "CUDA_LAUNCH_BLOCKING",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "NCCL_P2P_DISABLE",
    "NCCL_SHM_DISABLE",
    "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "TORCH_NCCL_BLOCKING_WAIT",
    "WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)
"""Variables that ranks of one job have in common, of those that are read by name."""
_PREFIXES = tuple(prefix.decode() for prefix in PREFIXES)
_OWN = frozenset(("CUDA_VISIBLE_DEVICES", "TORCH_WORKER_SERVER_SOCKET"))
_OWN_END = "_FILE"
"""Variables that each rank or node has for itself, and how others of these end."""
ENVIRONMENT_BYTES = 4000
"""Most of the variables of a node: a summary has room for them, and torchrun sets a handful."""


_STEPS = (
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)
"""Variables with the number and the count of the tasks that srun(1), mpirun(1) of Open MPI, and
those of MPICH and Intel MPI start. The script of a batch job has SLURM_PROCID as well, without the
count of a step."""
_MAY_JOIN = frozenset(("main", "spawned", "ray-worker"))
"""Roles of processes that are ranks where they have the threads of a process group."""
_BY_MULTIPROCESSING: Mapping[Role, str] = {
    "spawned": "start method",
    "loader-worker": "start method of loader workers",
}
"""What is compared of them, by role: ranks of torchrun have no start method of their own."""
_STARTED_AS_RANKS = frozenset(("rank", "spawned", "forkserver"))
SOCKETS_LIMIT = 64
"""Most rows of connections of a node, besides those that main threads wait for: they are sent once,
and gloo connects each rank with each other one."""
SOCKETS_OF_PROCESS = 4
"""Of a process, of those connections of which no other one has the same local end."""
REMOTES_OF_ROW = 64
"""Most connections with the same local end in one row, which then has about 1 kB."""
_TCP, _TO = "tcp ", " > "


class _Quiet(NamedTuple):
    """A process that makes no progress; monotonic seconds."""

    since_s: float
    seen_s: float
    """The last reading at which it made none."""
    place: str | None = None
    """The collective that it was in then."""


class _Texts:
    """Texts by key; one of which only durations have changed stays for `RUNNING_S`."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, str, float]] = {}
        self._kept: dict[str, tuple[str, str, float]] = {}

    def steady(self, key: str, text: str, now_s: float) -> str:
        """The text, or the one before."""
        plain = _DURATION.sub("", text)
        before = self._known.get(key)
        if before is None or before[1] != plain or now_s - before[2] >= RUNNING_S:
            before = (text, plain, now_s)
        self._kept[key] = before
        return before[0]

    def forget_others(self) -> None:
        """Forget the texts that were not asked for since the last call."""
        self._known, self._kept = self._kept, {}


class Rows:
    """Makes the rows of a node, reading after reading.

    It remembers since when each process has made no progress, so that an unchanged time stays the
    same value, and how much of its time each rank has waited for the others.
    """

    def __init__(self, wait_sample: Callable[[int, int], WaitSample | None] = wait_sample) -> None:
        """Make it.

        Args:
            wait_sample: What a thread of a process does now.
        """
        self._wait_sample = wait_sample
        self._texts = _Texts()
        self._quiet: dict[str, _Quiet] = {}
        self._first_s: dict[str, float] = {}
        """When each process was read first."""
        self._waits: dict[str, RankWaits] = {}

    def sections(
        self,
        snapshots: Sequence[Snapshot],
        facts: Mapping[str, str] = {},
        unread: str = "",
    ) -> Sections:
        """All rows as they are now.

        Args:
            snapshots: The newest snapshot of each job of the node.
            facts: More values to compare between nodes, by name.
            unread: Which processes could not be found, in one sentence.
        """
        ranks: dict[str, RankRow] = {}
        findings: list[tuple[Finding, FindingRow]] = []
        for snapshot in snapshots:
            index = Index(snapshot)
            for row in self._rank_rows(index):
                if len(ranks) < RANKS_LIMIT:
                    ranks[_key(row[0])] = row[1]
            index.drop_derived()
            names = unique_names(snapshot)
            for each in unresolved(snapshot):
                label = names.get(each.process, "") if each.process is not None else ""
                findings.append((each, self._finding_row(each, label, snapshot.at_s)))
        self._quiet = {key: quiet for key, quiet in self._quiet.items() if key in ranks}
        self._first_s = {key: first_s for key, first_s in self._first_s.items() if key in ranks}
        self._waits = {key: waits for key, waits in self._waits.items() if key in ranks}
        self._texts.forget_others()
        findings.sort(key=lambda pair: -pair[0].severity)
        node = node_row(snapshots, facts, unread)
        return {
            "node": {"": row_of(node)},
            "findings": {
                _finding_key(each): row_of(msgspec.structs.replace(row, order=order))
                for order, (each, row) in enumerate(findings[:FINDINGS_LIMIT])
            },
            "ranks": {key: row_of(row) for key, row in ranks.items()},
            "sockets": {key: row_of(row) for key, row in socket_rows(snapshots).items()},
        }

    def sample(self) -> None:
        """Sample what each rank does; to be called at random moments."""
        for waits in self._waits.values():
            if waits.thread is None:
                continue
            sample = self._wait_sample(*waits.thread)
            if sample is not None:
                waits.add(sample)

    def _rank_rows(self, index: Index) -> Iterator[tuple[ProcessId, RankRow]]:
        """The ranks of a job; without any, the busy workers of Ray, or else its root."""
        snapshot = index.snapshot
        processes = [each for each in snapshot.processes if is_rank(each) or is_member(each)]
        processes = processes or [each for each in snapshot.processes if is_busy_ray_worker(each)]
        if not processes:
            processes = [each for each in snapshot.processes if each.process == snapshot.root]
        waits: dict[ProcessId, list[WaitEdge]] = {}
        for edge in snapshot.waits.edges:
            waits.setdefault(edge.waiter, []).append(edge)
        worst = _worst(snapshot)
        have_servers = {process.process for process, _ in servers(snapshot)}
        progress: dict[ProcessId | None, list[ProgressSource]] = {}
        for source in snapshot.progress:
            progress.setdefault(source.process, []).append(source)
        for process in processes:
            known = self._waits.setdefault(_key(process.process), RankWaits())
            known.see(process, snapshot, progress.get(process.process, ()))
            quiet_at_s = self._quiet_since(process, index)
            edges = waits.get(process.process, ())
            row = _rank_row(process, index, edges, worst, quiet_at_s, known)
            key = _key(process.process)
            doing = self._texts.steady(key, row.doing, snapshot.at_s)
            first_s = self._first_s.setdefault(key, snapshot.at_s)
            yield (
                process.process,
                msgspec.structs.replace(
                    row,
                    doing=doing,
                    is_recorder_due=is_recorder_due(
                        process, has_server=process.process in have_servers
                    ),
                    is_since_watched=quiet_at_s is not None and abs(quiet_at_s - first_s) < MOVED_S,
                ),
            )

    def _finding_row(self, finding: Finding, label: str, at_s: float) -> FindingRow:
        eta_s = finding.eta_s
        summary = _cut(finding.summary, SUMMARY_LIMIT)
        return FindingRow(
            rule=finding.rule,
            severity=finding.severity.word,
            summary=self._texts.steady(_finding_key(finding), summary, at_s),
            pid=finding.process.pid if finding.process is not None else None,
            label=_cut(label),
            eta_s=None if eta_s is None or eta_s > 1e9 else round(eta_s / 10) * 10,
        )

    def _quiet_since(self, process: Process, index: Index) -> float | None:
        """Since when the process has made no progress, in monotonic seconds; `None` if it does."""
        key, now_s = _key(process.process), index.snapshot.at_s
        quiet = None if process.is_gone else unmoved_s(process, index)
        known = self._quiet.get(key)
        if not quiet:
            if known is None:
                return None
            has_left = known.place is not None and _is_elsewhere(process)
            if process.is_gone or has_left or now_s - known.seen_s > HELD_S:
                del self._quiet[key]
                return None
            return known.since_s
        since_s = now_s - quiet
        if known is not None and abs(known.since_s - since_s) < MOVED_S:
            since_s = known.since_s
        self._quiet[key] = _Quiet(round(since_s, 1), now_s, in_collective(process))
        return self._quiet[key].since_s


def _is_elsewhere(process: Process) -> bool:
    """Whether a process is known to be in no collective."""
    thread = main_thread(process)
    return thread is not None and bool(thread.stack) and in_collective(process) is None


def is_member(process: Process) -> bool:
    """Whether a process has a process group or joins one, whatever has started it."""
    if process.role not in _MAY_JOIN or process.is_gone:
        return False
    return has_group(process) or is_joining(process)


def is_busy_ray_worker(process: Process) -> bool:
    """Whether a living worker of Ray runs a task or holds an actor that is not an agent's."""
    title = process.sample.cmdline[0] if process.sample.cmdline else ""
    is_busy = title.startswith("ray::") and title != "ray::IDLE"
    is_own = title.startswith(_OWN_ACTOR)
    return process.role == "ray-worker" and not process.is_gone and is_busy and not is_own


def node_row(snapshots: Sequence[Snapshot], facts: Mapping[str, str], unread: str) -> NodeRow:
    """The node as a whole."""
    # Of a job whose main process was killed, each worker may be a root with the others beside it.
    found = {each.process: each for snapshot in snapshots for each in snapshot.living()}
    living = list(found.values())
    if not snapshots:
        state = "no-job"
    elif all(snapshot.mode == "ended" for snapshot in snapshots):
        state = "ended"
    else:
        state = "watching"
    problems = [words for snapshot in snapshots for words in problems_of(snapshot)]
    rss = sum(each.sample.memory.rss_bytes or 0 for each in living if each.sample.memory)
    return NodeRow(
        state=state,
        processes=len(living),
        counts=dict(Counter(process.role for process in living)),
        cpu_percent=_tens(sum(process.cpu_percent or 0.0 for process in living)),
        rss_bytes=rss // _RSS_UNIT * _RSS_UNIT,
        memory_percent=_largest(
            pair for each in snapshots if (pair := _memory(each.host)) is not None
        ),
        shm_percent=_used_percent(next((s.host.shm for s in snapshots), None)),
        fds_percent=_largest(
            (each.sample.fds.used, each.sample.fds.soft_limit) for each in living if each.sample.fds
        ),
        maps_percent=_largest(
            (each.sample.maps.used, each.sample.maps.limit) for each in living if each.sample.maps
        ),
        hooks=sum(process.hook.state == "ready" for process in living),
        facts={**_facts(snapshots), **facts},
        environment=_variables(snapshots),
        problems=tuple(_cut(words) for words in dict.fromkeys(problems))[:5],
        unread=_cut(unread or stackless_words(snapshots), SUMMARY_LIMIT),
        stacks=_stacks(living),
    )


def _stacks(processes: Iterable[Process]) -> tuple[str, ...]:
    """What comparable processes do, merged: `ranks: 8 of 8 in all_reduce`."""
    found = merged_stacks(processes, least=2)
    sentences = [f"{name}: {merged.sentence}" for name, merged in found]
    return tuple(map(_cut, sentences[:STACKS_LIMIT]))


def _rank_row(
    process: Process,
    index: Index,
    waits: Iterable[WaitEdge],
    worst: Mapping[ProcessId, Severity],
    quiet_at_s: float | None,
    known: RankWaits,
) -> RankRow:
    environment = _environment(process, index.snapshot)
    usual_wait_s, usual_s = _usual_s(process, index.snapshot)
    record = _record(process)
    rank, world_size = _place_in_job(process, environment, index.snapshot)
    has_stack = _has_current_stack(process, index, quiet_at_s)
    place = None
    if has_stack:
        for_s = 0.0 if quiet_at_s is None else index.snapshot.at_s - quiet_at_s
        place = place_of(process, index, for_s)
        place = place or ("init_process_group" if is_joining(process) else None)
    if place is None and rank is None:
        place = _place_in_ray(process, index)
    return RankRow(
        pid=process.pid,
        label=_cut(process.label),
        rank=rank,
        world_size=world_size,
        job=_job(environment),
        state="idle" if place == IN_RAY_WAITING else process_state(process, waits),
        doing=_cut(process.doing),
        place=place,
        line=_cut(called_at(process)) if has_stack else "",
        has_stack=has_stack,
        is_ended=process.is_gone,
        ended=_cut(process.ended.words) if process.ended is not None else "",
        has_failed=process.ended is not None and _has_failed(process.ended),
        group=_cut(record.group) if record else "",
        number=record.number if record else None,
        operation=_cut(record.operation) if record else "",
        shape=_cut(f"{record.types} {record.sizes}".strip()) if record else "",
        is_unfinished=record.is_unfinished if record else False,
        batch=_batch(process, index.snapshot),
        cpu_percent=_tens(process.cpu_percent),
        severity=worst[process.process].word if process.process in worst else "",
        is_ray_worker=process.role == "ray-worker",
        root=index.snapshot.root.pid,
        quiet_at_s=quiet_at_s,
        waits_percent=known.percent,
        waits=known.waits,
        has_enough_waits=known.has_enough,
        usual_wait_s=usual_wait_s,
        usual_s=usual_s,
        works_at=_cut(known.line),
        step_ms=known.step_ms,
        step_of=known.step_of,
        chain=_chain(process, index.snapshot) if place is None and quiet_at_s is not None else "",
        group_ranks=text_of_group(record.ranks) if record and record.ranks else "",
    )


def _chain(process: Process, snapshot: Snapshot) -> str:
    """The wait chain of a process; where it leads to no other process, what it waits for."""
    own = ""
    for chain in snapshot.waits.chains:
        places = [
            place for place, each in enumerate(chain.links) if each.process == process.process
        ]
        links = chain.links[places[0] :] if places else ()
        if len({each.process for each in links}) > 1:
            return _cut(msgspec.structs.replace(chain, links=links).sentence)
        if len(links) == 1 and links[0].tid == process.pid:
            own = own or links[0].words.removesuffix(f", {called_at(process)}")
    return _cut(own)


def _usual_s(process: Process, snapshot: Snapshot) -> tuple[int | None, int | None]:
    """How long it has waited twice at least, and waited or worked; `None` if that was short."""
    habit = snapshot.habits.get(process.process)
    if habit is None:
        return None, None
    return _in_units(habit.usual_wait_s(snapshot.at_s)), _in_units(habit.usual_s(snapshot.at_s))


def _in_units(seconds: float) -> int | None:
    units = math.ceil(seconds / USUAL_UNIT_S)
    return USUAL_UNIT_S * units if units > 1 else None


def _place_in_ray(process: Process, index: Index) -> str | None:
    """What a process of a Ray cluster is in; `None` if it is none, or if that is not known."""
    thread = main_thread(process)
    if process.is_gone or thread is None:
        return None
    is_worker, stack = process.role == "ray-worker", thread.stack
    if is_worker and waits_for_ray_call(stack):
        return IN_RAY_WAITING
    # Taking a stack costs the process a tick of cpu, which looks like a move after the stack.
    age_s, quiet = thread.stack_age_s or 0.0, quiet_s(process, index) or 0.0
    is_current = bool(stack) and age_s <= quiet + STACK_TICK_S
    if is_current and any(
        frame.file.endswith(RAY_WORKER_FILE) and frame.function in _RAY_GETS for frame in stack
    ):
        return IN_RAY_GET
    # A title `ray::Trainer.step` says that a method runs; `ray::Trainer` may be a task or an actor.
    is_called = "." in (process.sample.cmdline[0] if process.sample.cmdline else "")
    return IN_RAY_TASK if is_worker and (is_called or is_current) else None


def _environment(process: Process, snapshot: Snapshot) -> Mapping[str, str]:
    """The environment of a process; of a first rank that has none of a rank, that of another.

    Such a program is numbered by the ranks that it starts (see `collect.job.roles`), which have
    WORLD_SIZE and MASTER_ADDR in their environment.
    """
    own = process.sample.environment
    if process.role != "main" or process.sample.rank is None or "WORLD_SIZE" in own:
        return own
    others = (each for each in snapshot.processes if each.parent == process.process)
    return next((each.sample.environment for each in others if each.role == "rank"), own)


def _place_in_job(
    process: Process, environment: Mapping[str, str], snapshot: Snapshot
) -> tuple[int | None, int | None]:
    """Number of a rank and number of all ranks, each `None` if unknown.

    By RANK, which torchrun, accelerate and DeepSpeed set, or by torch's recorder. Without them by
    the number of the task, for programs that let Slurm or MPI start their ranks (Lightning with
    SLURMEnvironment or MPIEnvironment): there a task is a rank unless it starts ranks itself.
    """
    number, world_size = number_of(process), whole_number(environment.get("WORLD_SIZE"))
    if number is not None or process.role != "main":
        return number, world_size
    for name, count in _STEPS:
        task, tasks = (whole_number(environment.get(each)) for each in (name, count))
        if task is not None and tasks is not None and task < tasks and tasks > 1:
            starts_ranks = any(
                each.parent == process.process and each.role in _STARTED_AS_RANKS
                for each in snapshot.processes
            )
            return (None, world_size) if starts_ranks else (task, tasks)
    return None, world_size


def _has_current_stack(process: Process, index: Index, quiet_at_s: float | None) -> bool:
    """Whether the last stack of the main thread is of now: just taken, or not moved since."""
    thread = main_thread(process)
    if process.is_gone or thread is None or not has_stacks(process):
        return False
    age_s = thread.stack_age_s or 0.0
    quiet = 0.0 if quiet_at_s is None else index.snapshot.at_s - quiet_at_s
    return age_s <= max(FRESH_S, quiet)


def _has_failed(ended: Ended) -> bool:
    return ended.signal is not None or ended.exit_code not in (0, None)


def _record(process: Process) -> Recorded | None:
    """The collective that torch has recorded last; one that is not finished first."""
    found = sorted(recorded(process), key=lambda each: not each.is_unfinished)
    return found[0] if found else None


def _job(environment: Mapping[str, str]) -> str:
    """What all ranks of one job have in common."""
    address = environment.get("MASTER_ADDR")
    if address:
        return _cut(f"{address}:{environment.get('MASTER_PORT', '')}")
    return _cut(environment.get("TORCHELASTIC_RUN_ID") or environment.get("SLURM_JOB_ID") or "")


def _batch(process: Process, snapshot: Snapshot) -> int | None:
    """Batches that the DataLoaders of a process have delivered; `None` without any."""
    loaders = [each for each in snapshot.loaders if each.process == process.process]
    return sum(each.next_task or 0 for each in loaders) if loaders else None


class _Values:
    """The values of facts, each with the processes that have it."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, list[Process]]] = {}

    def add(self, name: str, value: object, process: Process) -> None:
        """Add the value of one process; one that is unknown says nothing."""
        if value is not None and value != "":
            values = self._found.setdefault(name, {})
            values.setdefault(str(value), []).append(process)

    def agreed(self, *, are_mixed_told: bool) -> dict[str, str]:
        """Values by fact; those on which processes disagree with who has which, or not at all."""
        return {
            name: _cut(_mixed(values) if len(values) > 1 else next(iter(values)))
            for name, values in self._found.items()
            if len(values) == 1 or are_mixed_told
        }


def _mixed(values: Mapping[str, Sequence[Process]]) -> str:
    """`mixed: 1024 (ranks 0-2), 512 (rank 3)`."""
    parts = []
    for value, processes in sorted(values.items(), key=lambda item: -len(item[1])):
        numbers = [number for each in processes if (number := number_of(each)) is not None]
        ranks = f"rank{'s' if len(numbers) > 1 else ''} {numbers_text(numbers)}"
        is_known = len(numbers) == len(processes)
        parts.append(f"{value} ({ranks if is_known else names_text(p.label for p in processes)})")
    return MIXED + ", ".join(parts)


def _facts(snapshots: Sequence[Snapshot]) -> dict[str, str]:
    """Values that are the same on all nodes of a job.

    Those of the ranks here, if they are of one job; of several jobs only what is the same for all.
    """
    host, started, found = _Values(), _Values(), _Values()
    ranks = _ranks(snapshots)
    for snapshot in snapshots:
        # Another job of the node may be in a container, with a /dev/shm of its own.
        for process in _ranks((snapshot,)) if ranks else snapshot.processes[:1]:
            shm = snapshot.host.shm
            host.add("max_map_count", snapshot.host.max_map_count, process)
            host.add("/dev/shm", None if shm is None else bytes_text(shm.total_bytes), process)
        for process in snapshot.living():
            if process.role in _BY_MULTIPROCESSING:
                name = _BY_MULTIPROCESSING[process.role]
                started.add(name, process.sample.start_method, process)
    roots = [each for s in snapshots for each in s.living() if each.process == s.root]
    for process in ranks or roots:
        found.add("python", process.sample.python_version or process.hook.python, process)
        found.add("torch", process.hook.torch, process)
        started.add("start method", process.start_method, process)
        if process.sample.fds is not None:
            found.add("open files limit", process.sample.fds.soft_limit, process)
        for name, limit in process.sample.limits.items():
            found.add(f"{name} limit", _limit_words(name, limit), process)
    for process in ranks:
        for name in COMPARED:
            found.add(name, process.sample.environment.get(name, NOT_SET), process)
    is_one_job = len({_job(each.sample.environment) for each in ranks}) == 1
    return {
        **host.agreed(are_mixed_told=False),
        **started.agreed(are_mixed_told=False),
        **found.agreed(are_mixed_told=is_one_job),
    }


def _variables(snapshots: Sequence[Snapshot]) -> dict[str, str] | None:
    """Variables that are compared besides `COMPARED`; see `NodeRow.environment`."""
    ranks = _ranks(snapshots)
    if len({_job(each.sample.environment) for each in ranks}) != 1:
        return None
    names = {
        name
        for each in ranks
        for name in each.sample.environment
        if name.startswith(_PREFIXES) and not name.endswith(_OWN_END)
    }
    found = _Values()
    for name in sorted(names.difference(COMPARED, _OWN)):
        for process in ranks:
            found.add(name, process.sample.environment.get(name, NOT_SET) or "empty", process)
    values = found.agreed(are_mixed_told=True)
    return values if size_bytes(values) <= ENVIRONMENT_BYTES else None


def _ranks(snapshots: Sequence[Snapshot]) -> list[Process]:
    """The living ranks, each once."""
    found = {p.process: p for snapshot in snapshots for p in snapshot.living() if is_rank(p)}
    return list(found.values())


def _limit_words(name: str, limit: int | None) -> str:
    if name == "processes":
        is_enough = limit is None or limit >= PROCESSES_ENOUGH
        return f"{PROCESSES_ENOUGH} or more" if is_enough else str(limit)
    if limit is None:
        return "unlimited"
    return f"{limit} s" if name == "cpu time" else bytes_text(limit)


def _finding_key(finding: Finding) -> str:
    process = "" if finding.process is None else _key(finding.process)
    return f"{finding.rule} {process} {finding.tid or ''} {_cut(finding.subject)}"


def _worst(snapshot: Snapshot) -> dict[ProcessId, Severity]:
    worst: dict[ProcessId, Severity] = {}
    for finding in unresolved(snapshot):
        if finding.process is not None:
            before = worst.get(finding.process, finding.severity)
            worst[finding.process] = max(finding.severity, before)
    return worst


def _key(process: ProcessId) -> str:
    return f"{process.pid}.{process.start_ticks}"


def _used_percent(found: FileSystemSample | None) -> int | None:
    if found is None or not found.total_bytes:
        return None
    return round(100 * (found.total_bytes - found.free_bytes) / found.total_bytes)


def _memory(host: HostSample) -> tuple[int, int] | None:
    """Used bytes and their limit, `None` if unknown: of the cgroup, else of the machine."""
    group = host.cgroup
    if group is not None and group.memory_limit_bytes and group.memory_bytes is not None:
        return group.memory_bytes, group.memory_limit_bytes
    total, available = host.memory_total_bytes, host.memory_available_bytes
    return None if not total or available is None else (total - available, total)


def _largest(pairs: Iterable[tuple[int, int | None]]) -> int | None:
    """The largest share of a limit, in percent."""
    return max((round(100 * used / limit) for used, limit in pairs if limit), default=None)


def _tens(percent: float | None) -> int | None:
    return None if percent is None else round(percent / 10) * 10


def _cut(text: str, limit: int = WORDS_LIMIT) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def socket_rows(snapshots: Sequence[Snapshot]) -> dict[str, SocketRow]:
    """The ends by key, those that a main thread waits to read from first.

    The other end of each is held by no process of these jobs.
    """
    ends = [
        (process, link)
        for snapshot in snapshots
        for process in snapshot.living()
        for link in _connections(process)
    ]
    if not ends:
        return {}
    held = {link.inode for _, link in ends}
    awaited: dict[str, SocketRow] = {}
    same_end: dict[tuple[int, str], list[SocketRow]] = {}
    for process, link in ends:
        if link.peer not in held:
            row = _socket_row(process, link)
            if row.is_awaited:
                awaited[_socket_key(row)] = row
            else:
                same_end.setdefault((row.pid, row.local), []).append(row)
    shared = [row for rows in same_end.values() if len(rows) > 1 for row in _joined(rows)]
    counts: Counter[int] = Counter()
    single: list[tuple[int, SocketRow]] = []
    for (pid, _), rows in same_end.items():
        if len(rows) == 1 and counts[pid] < SOCKETS_OF_PROCESS:
            single.append((counts[pid], rows[0]))
            counts[pid] += 1
    # One of each process before the second one of any.
    single.sort(key=lambda each: each[0])
    others = [*shared, *(row for _, row in single)][:SOCKETS_LIMIT]
    return {**awaited, **{_socket_key(row): row for row in others}}


def _joined(rows: Sequence[SocketRow]) -> Iterator[SocketRow]:
    """Connections with the same local end, such as those that one listener has accepted."""
    for start in range(0, len(rows), REMOTES_OF_ROW):
        part = rows[start : start + REMOTES_OF_ROW]
        remotes = " ".join(row.remote for row in part)
        yield msgspec.structs.replace(part[0], remote=remotes)


def _connections(process: Process) -> Iterator[FdLink]:
    for link in process.sample.links:
        if link.address is not None and link.address.startswith(_TCP) and _TO in link.address:
            yield link


def _socket_row(process: Process, link: FdLink) -> SocketRow:
    local, _, remote = (link.address or "").removeprefix(_TCP).partition(_TO)
    is_awaited = link.channel is not None and _awaited(process) == link.channel
    return SocketRow(process.pid, _cut(process.label), local, remote, is_awaited)


def _socket_key(row: SocketRow) -> str:
    return f"{row.pid} {row.local} {row.remote.partition(' ')[0]}"


def _awaited(process: Process) -> Channel | None:
    """The pipe or socket, and nothing else, that the main thread waits to read from."""
    thread = main_thread(process)
    wait = thread.waits_on if thread is not None else None
    if wait is None or wait.kind not in ("socket-read", "poll") or len(wait.targets) != 1:
        return None
    return channel_of(wait.targets[0])
