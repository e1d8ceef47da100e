"""What each process of a torch job is for: pure functions over readings.

RoleFacts used, checked against CPython 3.10 to 3.14 and torch 2.1 to 2.13:

- multiprocessing starts its helpers as `python -c "from multiprocessing.MODULE import ..."`.
  Children of a forkserver are forks of it and keep its command line; only the parent differs.
- A fork child has its parent's command line; a flag of the kernel says whether it has executed
  anything since the fork.
- torch names the threads of a DataLoader worker `pt_data_worker` (2.7 and later); the main thread's
  name is the process's.
- inductor compiles in `torch/_inductor/compile_worker/__main__.py` and in forks of that.
- Ray's processes have titles (Ray 2.60): a worker `ray::IDLE`, `ray::FUNCTION` or
  `ray::CLASS.METHOD`; services of a node `ray::DashboardAgent` and the like. A worker that has no
  title yet runs `ray/_private/workers/default_worker.py`.
- A wrapper (a shell script, the shell of a step of srun, a program that runs another one) has the
  RANK of the rank below it. Which program of such a chain takes part in collectives shows in the
  threads of its process group, and before in the library of torch that it has loaded.
- torchrun gives its children RANK and LOCAL_RANK; everything below them inherits both. Lightning's
  first rank on each node starts the others there with LOCAL_RANK and NODE_RANK (lightning 2.6,
  `_SubprocessScriptLauncher`); the number of each is NODE_RANK times their count and LOCAL_RANK.
  It sets the same variables in itself, where they can be read from its memory only.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from mpwatch.model.cmdline import is_launcher, python_program
from mpwatch.model.ids import ProcessId, Role

WORKER_NAME = "pt_data_worker"
SHM_MANAGER = "torch_shm_manager"
_HELPER = re.compile(
    r"from [\w.]*\b(?:multiprocessing|multiprocess|loky\.backend)"
    r"\.(forkserver|spawn|resource_tracker) import (?:spawn_)?main\b"
)
"""The code of processes of multiprocessing, of its copy with dill (multiprocess), and of loky."""
_COMPILE_WORKER = "torch/_inductor/compile_worker/"
RAY_TITLE = "ray::"
_RAY_WORKER = "/ray/_private/workers/"
_RAY_SERVICES = re.compile(
    r"ray::(?:Dashboard|RuntimeEnvAgent|(?:IDLE|SPILL|RESTORE|DELETE)_\w+Worker\b)"
)


class RoleFacts(NamedTuple):
    """What the role of a process is derived from."""

    process: ProcessId
    parent: ProcessId | None
    """The parent within the job, remembered from before it was orphaned."""
    name: str
    cmdline: tuple[str, ...]
    is_python: bool
    environment: Mapping[str, str] = MappingProxyType({})
    is_fork: bool = False
    """Whether it has executed nothing since it was forked."""
    has_torch: bool = False
    """Whether it is known to have loaded torch; of programs with one of `NUMBERS` only."""
    has_group: bool = False
    """The same of the threads of a process group."""


class RoleAssignment(NamedTuple):
    """What a process is in the job."""

    role: Role
    start_method: str | None = None
    """fork, spawn or forkserver, where multiprocessing started it."""
    rank: int | None = None
    worker_id: int | None = None


def assign(
    facts: Sequence[RoleFacts],
    wrappers: Container[ProcessId] = frozenset(),
    numbers: Mapping[ProcessId, int] = MappingProxyType({}),
) -> dict[ProcessId, RoleAssignment]:
    """Assign a role to every process of a job.

    Args:
        facts: The job, parents before children, the root first.
        wrappers: Programs that were seen to have run a rank: they are none themselves, also once
            that has ended.
        numbers: Of ranks that were known by the others, also once these have ended.
    """
    known = {fact.process: fact for fact in facts}
    roles: dict[ProcessId, RoleAssignment] = {}
    for fact in facts:
        above = known.get(fact.parent) if fact.parent is not None else None
        role_above = roles.get(above.process) if above is not None else None
        role = _role(fact, above, role_above, fact is facts[0])
        if role.role == "main" and above is not None:
            started_by = python_above(fact, known)
            if started_by is not None and _has_rank_of_its_own(fact, started_by):
                role = RoleAssignment("rank")
            elif started_by is not None and roles[started_by.process].role in _STARTS_TOOLS:
                role = RoleAssignment("other")
        number = whole_number(fact.environment.get("RANK"))
        if number is None and role.role == "rank" and _node(fact.environment) == 0:
            number = whole_number(fact.environment.get("LOCAL_RANK"))
        is_program = fact.is_python or role.role != "other"
        roles[fact.process] = role._replace(rank=number if is_program else None)
    starts_all = {f.parent for f in facts if f.environment.get("LOCAL_RANK") == "0"}
    before = [(p, n) for p, n in numbers.items() if p in roles and p not in starts_all]
    for process, number in (*before, *_numbered_from_the_first(known, roles)):
        roles[process] = roles[process]._replace(rank=number)
    for process, is_rank in list(_wrapped(known, roles, wrappers)):
        role = roles[process]
        roles[process] = role._replace(role="rank") if is_rank else RoleAssignment("launcher")
    return roles


NUMBERS = frozenset(("RANK", "LOCAL_RANK"))
"""Variables that number ranks."""
_PROGRAMS: frozenset[Role] = frozenset(("main", "rank", "other"))


def _wrapped(
    known: Mapping[ProcessId, RoleFacts],
    roles: Mapping[ProcessId, RoleAssignment],
    wrappers: Container[ProcessId],
) -> Iterator[tuple[ProcessId, bool]]:
    """Programs that run a rank for which they have its number, and that rank with `True`.

    The first program of a chain is the rank, as long as only that or none has loaded torch, or
    joined a process group: what a rank runs itself inherits its number as well.
    """
    chains: defaultdict[ProcessId, list[ProcessId]] = defaultdict(list)
    first_of: dict[ProcessId, ProcessId] = {}
    for process, fact in known.items():
        if (
            not fact.is_python
            or roles[process].rank is None
            or roles[process].role not in _PROGRAMS
        ):
            continue
        above = python_above(fact, known)
        first = first_of.get(above.process) if above is not None else None
        if first is None or roles[first].rank != roles[process].rank:
            first = process
        first_of[process] = first
        chains[first].append(process)
    for chain in chains.values():
        # One that was taken for a wrapper because it had not joined a group yet is none.
        known_wrappers = {e for e in chain if e in wrappers and not known[e].has_group}
        left = [each for each in chain if each not in known_wrappers]
        rank = max(left, key=lambda each: _signs(known[each]), default=None)
        run_it = set(_all_above(known[rank], known)) if rank is not None else set()
        if rank is not None and rank != chain[0]:
            yield rank, True
        yield from ((each, False) for each in chain if each in known_wrappers or each in run_it)


def _signs(fact: RoleFacts) -> tuple[bool, bool]:
    """What shows that a program takes part in collectives, the surest sign first."""
    return fact.has_group, fact.has_torch


def _all_above(fact: RoleFacts, known: Mapping[ProcessId, RoleFacts]) -> Iterator[ProcessId]:
    """All Python processes above one."""
    above = python_above(fact, known)
    while above is not None:
        yield above.process
        above = python_above(above, known)


def python_above(fact: RoleFacts, known: Mapping[ProcessId, RoleFacts]) -> RoleFacts | None:
    """The nearest Python process above one, past shells and the like; `None` without one."""
    above = known.get(fact.parent) if fact.parent is not None else None
    while above is not None and not above.is_python:
        above = known.get(above.parent) if above.parent is not None else None
    return above


def _numbered_from_the_first(
    known: Mapping[ProcessId, RoleFacts], roles: Mapping[ProcessId, RoleAssignment]
) -> Iterator[tuple[ProcessId, int]]:
    """Ranks that get their number by a program that is the first one itself and starts the others.

    On a later node of several, all of them; on the first one the others have it in LOCAL_RANK.
    """
    started: defaultdict[ProcessId, dict[ProcessId, int]] = defaultdict(dict)
    for fact in known.values():
        local = whole_number(fact.environment.get("LOCAL_RANK"))
        is_rank = roles[fact.process].role == "rank" and "RANK" not in fact.environment
        if is_rank and fact.parent is not None and fact.parent in roles and local is not None:
            started[fact.parent][fact.process] = local
    for process, others in started.items():
        role, locals_ = roles[process], set(others.values())
        if role.role != "main" or role.rank is not None or 1 not in locals_ or 0 in locals_:
            continue
        first = first_number(locals_, known[next(reversed(others))].environment)
        if first is not None:
            yield process, first
            yield from ((each, first + local) for each, local in others.items())


def first_number(locals_: Collection[int], environment: Mapping[str, str]) -> int | None:
    """The number of the first rank of a node; `None` if that cannot be known.

    Args:
        locals_: The numbers on the node of all others.
        environment: Of any rank of the node.
    """
    node, count = _node(environment), len(locals_) + 1
    if node == 0:
        return 0
    world_size = whole_number(environment.get("WORLD_SIZE")) or 0
    if node is None or set(locals_) != set(range(1, count)) or world_size % count:
        return None
    return node * count if (node + 1) * count <= world_size else None


def _node(environment: Mapping[str, str]) -> int | None:
    """The number of the node; 0 if the environment has none, `None` if it is no number."""
    return whole_number(environment.get("NODE_RANK", "0"))


_STARTS_TOOLS: frozenset[Role] = frozenset(("main", "rank", "spawned"))
"""What such a process starts by way of a shell, raylet or the like is a subprocess of a program."""


def _role(
    fact: RoleFacts, parent: RoleFacts | None, parent_role: RoleAssignment | None, is_root: bool
) -> RoleAssignment:
    """The role of one process, given that of its parent."""
    if _base(fact.cmdline) == SHM_MANAGER or fact.name == SHM_MANAGER[:15]:
        return RoleAssignment("shm-manager")
    if not fact.cmdline and parent is not None and parent.is_python:
        return _zombie_role(fact, parent_role)
    if not fact.is_python:
        return RoleAssignment("other")
    if is_ray_worker(fact.cmdline) and not fact.is_fork:
        return RoleAssignment("ray-worker")
    if fact.cmdline and fact.cmdline[0].startswith(RAY_TITLE) and not fact.is_fork:
        return RoleAssignment("other")
    helper = _helper(fact.cmdline)
    if helper == "resource_tracker":
        return RoleAssignment("resource-tracker")
    if helper == "forkserver":
        if parent is None or _helper(parent.cmdline) != "forkserver":
            return _worker_or(fact, "forkserver", None)
        # What the server has started may itself fork.
        is_servers = parent_role is None or parent_role.role == "forkserver"
        return _worker_or(fact, "spawned", "forkserver" if is_servers else "fork")
    if any(_COMPILE_WORKER in argument for argument in fact.cmdline[:3]):
        return RoleAssignment("compile-worker")
    if helper == "spawn":
        return _worker_or(fact, "spawned", "fork" if fact.is_fork else "spawn")
    if fact.name == WORKER_NAME:
        return RoleAssignment("loader-worker", "fork")
    is_rank = parent is not None and parent.is_python and _has_rank_of_its_own(fact, parent)
    # A program that starts itself as the other ranks gives them its own command line.
    if parent is not None and fact.cmdline and fact.cmdline == parent.cmdline and not is_rank:
        return RoleAssignment("spawned", "fork")
    if fact.is_fork and parent_role is not None and parent_role.role == "ray-worker":
        return RoleAssignment("spawned", "fork")  # the title of its parent has changed since
    if is_launcher(fact.cmdline):
        return RoleAssignment("launcher")
    if is_rank:
        return RoleAssignment("rank")
    return RoleAssignment(_own_program(fact, parent_role, is_root))


def _has_rank_of_its_own(fact: RoleFacts, parent: RoleFacts) -> bool:
    """Whether a program was started as a rank, by a launcher of any kind.

    What merely inherits the environment of a rank has the number of its parent.
    """
    name = "RANK" if "RANK" in fact.environment else "LOCAL_RANK"
    return fact.environment.get(name) not in (None, parent.environment.get(name))


def _zombie_role(fact: RoleFacts, parent_role: RoleAssignment | None) -> RoleAssignment:
    """The role of a process that was a zombie when first seen: only its name and flags are left."""
    is_servers = parent_role is not None and parent_role.role == "forkserver"
    method = ("forkserver" if is_servers else "fork") if fact.is_fork else "spawn"
    if fact.name == WORKER_NAME:
        return RoleAssignment("loader-worker", method)
    return RoleAssignment("spawned", method) if fact.is_fork else RoleAssignment("other")


def _worker_or(fact: RoleFacts, otherwise: Role, method: str | None) -> RoleAssignment:
    """A DataLoader worker if it is called so; its server or another child if not."""
    if fact.name == WORKER_NAME:
        return RoleAssignment("loader-worker", method or "forkserver")
    return RoleAssignment(otherwise, method)


def _own_program(fact: RoleFacts, parent_role: RoleAssignment | None, is_root: bool) -> Role:
    """The role of a Python program that multiprocessing did not start."""
    if parent_role is None:
        # An orphan, or its parent exited before it was seen: a daemon of the program.
        return "main" if is_root else "rank" if "RANK" in fact.environment else "other"
    if parent_role.role == "launcher":
        return "rank" if "RANK" in fact.environment else "main"
    # Below a shell or another wrapper the first Python is the program; below Python it is a tool.
    return "main" if parent_role == RoleAssignment("other", rank=parent_role.rank) else "other"


def is_started_within_job(child: RoleFacts, parent: RoleFacts) -> bool:
    """Whether a process was started by another process of its job, and not as a job of its own.

    A shell, a terminal multiplexer, a scheduler or a notebook starts jobs by exec, and gives them
    no rank.
    """
    if is_launcher(parent.cmdline):
        return True
    if not parent.is_python:
        return False
    is_helpers = is_helper(child.name, child.cmdline)
    return child.is_fork or is_helpers or _has_rank_of_its_own(child, parent)


def is_wrapper_of_rank(child: RoleFacts, parent: RoleFacts) -> bool:
    """Whether a program that is no Python, such as a shell, was started as the rank itself."""
    rank = child.environment.get("RANK")
    return rank is not None and not parent.is_python and parent.environment.get("RANK") == rank


def _helper(cmdline: Sequence[str]) -> str:
    """The module of multiprocessing that a process was started to run; empty if it is none."""
    program = python_program(cmdline)
    found = _HELPER.match(program.text.lstrip()) if program.kind == "code" else None
    return found.group(1) if found is not None else ""


def is_ray_worker(cmdline: Sequence[str]) -> bool:
    """Whether this is a process of Ray that runs tasks, or waits for one."""
    if not cmdline:
        return False
    if cmdline[0].startswith(RAY_TITLE):
        return _RAY_SERVICES.match(cmdline[0]) is None
    program = python_program(cmdline)
    return program.kind == "script" and _RAY_WORKER in program.text


def is_helper(name: str, cmdline: Sequence[str]) -> bool:
    """Whether this can only belong to a multiprocessing job, wherever it is in the tree."""
    return bool(_helper(cmdline)) or _base(cmdline) == SHM_MANAGER or name == WORKER_NAME


def number_workers(workers: Iterable[ProcessId], ticks_per_s: int = 100) -> dict[ProcessId, int]:
    """Number the DataLoader workers of one parent, exited ones included, by start time.

    Workers of one loader are started back to back; a pause many times longer than the usual one
    begins another loader (validation, next epoch), which counts from 0 again. A guess: the hook
    reports the numbers themselves.
    """
    ordered = sorted(workers, key=lambda process: (process.start_ticks, process.pid))
    numbers: dict[ProcessId, int] = {}
    number, previous_ticks, longest_gap = 0, 0, ticks_per_s // 10
    for process in ordered:
        gap = process.start_ticks - previous_ticks
        if numbers and gap > max(2 * ticks_per_s, 10 * longest_gap):
            number, longest_gap = 0, ticks_per_s // 10
        elif numbers:
            longest_gap = max(longest_gap, gap)
        numbers[process] = number
        number, previous_ticks = number + 1, process.start_ticks
    return numbers


class WorkerNumbers:
    """The numbers of all DataLoader workers, kept while any worker of the same loader lives."""

    def __init__(self, ticks_per_s: int = 100) -> None:
        self._ticks_per_s = ticks_per_s
        self._by_parent: dict[ProcessId, dict[ProcessId, int]] = {}

    def update(
        self, workers: Collection[tuple[ProcessId, ProcessId]], living: Container[ProcessId]
    ) -> dict[ProcessId, int]:
        """Number living workers, given with their parents; no number of an exited one is reused."""
        found: dict[ProcessId, int] = {}
        new: dict[ProcessId, list[ProcessId]] = {}
        for worker, parent in workers:
            number = self._by_parent.get(parent, {}).get(worker)
            if number is None:
                new.setdefault(parent, []).append(worker)
            else:
                found[worker] = number
        for parent, started in new.items():
            known = self._without_dead_loaders(self._by_parent.get(parent, {}), living)
            numbers = number_workers([*known, *started], self._ticks_per_s)
            self._by_parent[parent] = numbers
            found.update((worker, numbers[worker]) for worker in numbers if worker in living)
        for parent in self._by_parent.keys() - {parent for _, parent in workers}:
            del self._by_parent[parent]
        return found

    @staticmethod
    def _without_dead_loaders(
        numbers: dict[ProcessId, int], living: Container[ProcessId]
    ) -> list[ProcessId]:
        """The workers of loaders with a living worker: the next epoch counts from 0 again."""
        loaders: list[list[ProcessId]] = []
        for worker, number in numbers.items():
            if number == 0:
                loaders.append([])
            loaders[-1].append(worker)
        return [
            worker for loader in loaders if any(w in living for w in loader) for worker in loader
        ]


def _base(cmdline: Sequence[str]) -> str:
    """Base name of the first argument."""
    return cmdline[0].rsplit("/", 1)[-1] if cmdline else ""


def whole_number(text: str | None) -> int | None:
    """A count or rank from the environment; `None` for what is none."""
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None
