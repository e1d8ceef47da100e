"""What each child of multiprocessing runs, and its number among those that run the same.

A child runs the function that its `Process` object was made with (its target), or the `run` method
of a subclass. The hook reports it; without a hook, it is the frame next to those of
`multiprocessing.process` at the outer end of the main thread's stack. So environment workers of
any library, collectors and actors have names of their own without a list of libraries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from mpwatch.describe.frames import HOOK_PART, own_frames
from mpwatch.model.cmdline import python_program
from mpwatch.model.ids import ProcessId, Role
from mpwatch.model.samples import Frame
from mpwatch.model.sanitize import clean
from mpwatch.observe.state.process_table import ProcessRecord

NAME_CHARACTERS = 60
GROUP_LIMIT = 512
"""Children with the same target of one parent that are remembered: a pool may replace its workers
for days."""

_USUAL_NAME = re.compile(r"\w*(Process\w*|PoolWorker|Manager)-[\d:]+")
"""Names that multiprocessing gives by class and number (`BaseProcess.__init__`, CPython 3.10 to
3.15), also to classes that a library derives and calls `Process` and something (torchrl 0.14:
`_ProcessNoWarnSpawn`). Others were chosen by the program, if they are not those of its classes."""
_DEPTH_LIMIT = 16
_MAIN_MODULES = ("__main__", "__mp_main__")


class Known(Struct, frozen=True):
    """Targets of multiprocessing's and torch's own, by the last part of the module's name."""

    name: str
    role: Role | None = None


_ENDING = ("/multiprocessing/util.py", "/threading.py", "/traceback.py")
"""Files of functions that `BaseProcess._bootstrap` calls after the target has returned or raised,
Python 3.10 to 3.15."""
_RANK = "rank"
_KNOWN: Mapping[tuple[str, str], Known] = {
    ("spawn", "_wrap"): Known(_RANK),  # torch.multiprocessing.spawn
    ("pool", "worker"): Known("pool worker", "pool-worker"),
    ("process", "_process_worker"): Known("pool worker", "pool-worker"),  # ProcessPoolExecutor
    ("process_executor", "_process_worker"): Known("pool worker", "pool-worker"),  # loky
    ("managers", "_run_server"): Known("manager"),
}
_LOADER_WORKER = ("worker", "_worker_loop")
"""torch.utils.data._utils.worker: has a role and a number of its own."""


class ChildTarget(Struct, frozen=True):
    """What a child runs."""

    name: str
    role: Role | None = None
    """The role that follows from it, if any."""
    is_unique: bool = False
    """The program has named the process itself."""

    @property
    def is_rank(self) -> bool:
        """Whether `torch.multiprocessing.spawn` started it, which numbers its ranks from 0."""
        return self.name == _RANK

    def label(self, number: int | None) -> str:
        """The label of a process: `rank 1`, `subproc_vec_env._worker 3`, `evaluate`."""
        return self.name if number is None or self.is_unique else f"{self.name} {number}"


def target_of_stack(
    frames: Sequence[Frame], script: str, class_name: str = ""
) -> ChildTarget | None:
    """The target by the stack of the main thread; `None` if that does not show it.

    Args:
        frames: Of the stack, innermost first.
        script: Name of the job's script; empty if it has none.
        class_name: The class whose `run` method is the target; empty if that is not known.
    """
    outer = list(own_frames(frames))[::-1]
    if not outer or outer[0].function != "_bootstrap":
        return None
    library = outer[0].file
    own = [frame for frame in outer[1:] if HOOK_PART not in frame.file]
    # A subclass may call the method that it overrides, which runs the target.
    ways = (n for n, each in enumerate(own[:3]) if (each.function, each.file) == ("run", library))
    del own[: next(ways, -1) + 1]
    if not own or own[0].file == library or own[0].file.endswith(_ENDING):
        return None  # it starts or ends
    frame = own[0]
    file = frame.file.rpartition("/")[2]
    # The `run` of a subclass: its name alone says nothing, that of the class does.
    is_run = frame.function == "run"
    name = class_name if is_run and class_name else frame.function
    is_main = file == script and name != "run"
    return _target("__main__" if is_main else file.removesuffix(".py"), name)


def target_by_description(description: object) -> ChildTarget | None:
    """The target by the hook's report, see `wire.HELLO`; `None` if there is none."""
    if not isinstance(description, Mapping):
        return None
    target, name = description.get("target"), description.get("name")
    if not isinstance(target, str) or not target:
        return None
    *around, function = target.split(".")
    # Without classes and functions that the target is defined in.
    while around and (around[-1] == "<locals>" or around[-1].lstrip("_")[:1].isupper()):
        del around[-1 - (around[-1] == "<locals>") :]
    found = _target(around[-1] if around else "", function)
    if found is None or found.role is not None or not isinstance(name, str) or not name:
        return found
    if _USUAL_NAME.fullmatch(name) or name.rpartition("-")[0] == function:
        return found
    return ChildTarget(clean(name, NAME_CHARACTERS), is_unique=True)


def _target(module: str, function: str) -> ChildTarget | None:
    if (module, function) == _LOADER_WORKER:
        return None
    known = _KNOWN.get((module, function))
    if known is not None:
        return ChildTarget(known.name, known.role)
    name = function if module in _MAIN_MODULES or not module else f"{module}.{function}"
    return ChildTarget(clean(name, NAME_CHARACTERS))


_Group: TypeAlias = tuple[ProcessId | None, str]
"""Children with this parent and a target of this name."""
Task: TypeAlias = tuple[ChildTarget, int | None]
"""What a child runs, and its number among those that run the same."""


class TargetTable:
    """The targets and numbers of a job's processes."""

    def __init__(self) -> None:
        self._targets: dict[ProcessId, ChildTarget] = {}
        self._searched: dict[ProcessId, object] = {}
        """The last stack or description by the parent that did not show the target."""
        self._groups: dict[_Group, list[ProcessId]] = {}
        self._group_of: dict[ProcessId, _Group] = {}
        self._numbers: dict[ProcessId, int | None] = {}

    def get(self, process: ProcessId) -> Task | None:
        """The target of a process and its number; `None` while the target is not known."""
        target = self._targets.get(process)
        return None if target is None else (target, self._numbers.get(process))

    def update(
        self,
        records: Mapping[ProcessId, ProcessRecord],
        description_of: Callable[[ProcessId], object],
    ) -> list[ProcessId]:
        """Look for targets that are not known yet.

        Args:
            records: All processes of the job.
            description_of: What the hook of a process has reported of its start, `None` if nothing.

        Returns:
            The processes whose label has changed.
        """
        grown: dict[_Group, None] = {}
        for process, record in records.items():
            if not _may_have_target(record) or record.ended is not None or process in self._targets:
                continue
            target = self._search(process, records, description_of(process))
            if target is not None:
                self._targets[process] = target
                self._searched.pop(process, None)
                self._join(process, target, records)
                grown[record.original_parent, target.name] = None
                grown[record.original_parent, _RANK] = None
        return [each for key in grown if key in self._groups for each in self._number(key, records)]

    def forget(self, process: ProcessId) -> None:
        """Drop a process that is no longer shown, and its group once all of that are dropped."""
        self._targets.pop(process, None)
        self._searched.pop(process, None)
        self._numbers.pop(process, None)
        group = self._group_of.pop(process, None)
        members = self._groups.get(group, ()) if group is not None else ()
        if group is not None and not any(each in self._group_of for each in reversed(members)):
            self._groups.pop(group, None)

    def _search(
        self, process: ProcessId, records: Mapping[ProcessId, ProcessRecord], description: object
    ) -> ChildTarget | None:
        record = records[process]
        stack = record.stacks.get(process.pid)
        evidence = description or (stack.frames if stack is not None else None)
        if evidence is None or self._searched.get(process) is evidence:
            return None
        self._searched[process] = evidence
        found = target_by_description(description)
        if found is None and stack is not None:
            found = target_of_stack(stack.frames, _script(record, records), stack.target_class)
        return found

    def _join(
        self, process: ProcessId, target: ChildTarget, records: Mapping[ProcessId, ProcessRecord]
    ) -> None:
        """Add a process to those with the same parent and target.

        Once all of them have ended, the next ones are numbered from 0 again.
        """
        key = records[process].original_parent, target.name
        group = [each for each in self._groups.get(key, ()) if each in records]
        if all(records[each].ended is not None for each in group):
            group = []
        self._groups[key] = _newest(sorted((*group, process), key=_start), records)
        self._group_of[process] = key

    def _number(
        self, key: _Group, records: Mapping[ProcessId, ProcessRecord]
    ) -> Iterator[ProcessId]:
        """Number a group by start; yields the processes that are new or numbered anew.

        The number of a rank is a fact of the job. It is left out where older ranks may not be
        counted: while an older child of the same parent may be a rank as well, and where the
        parent, and with it what else it has started, is not known.
        """
        parent, name = key
        has_parent = parent in records
        group, is_rank = self._groups[key], name == _RANK
        certain_before = min(
            (
                _start(process)
                for process, record in records.items()
                if is_rank
                and record.original_parent == parent
                and record.sample.role == "spawned"
                and process not in self._targets
            ),
            default=None,
        )
        for number, each in enumerate(group):
            new = number if is_rank or len(group) > 1 else None
            if is_rank and not has_parent:
                new = None
            if certain_before is not None and _start(each) > certain_before:
                new = None
            if each not in self._numbers or self._numbers[each] != new:
                self._numbers[each] = new
                yield each


def _may_have_target(record: ProcessRecord) -> bool:
    """Whether it is a child; workers of loky are programs of their own, with the role `other`."""
    sample = record.sample
    return sample.role == "spawned" or (sample.role == "other" and sample.is_python)


def _start(process: ProcessId) -> tuple[int, int]:
    """The order of starts."""
    return process.start_ticks, process.pid


def _script(record: ProcessRecord, records: Mapping[ProcessId, ProcessRecord]) -> str:
    """The script that a process belongs to: its own, or that of the next ancestor with one."""
    for _ in range(_DEPTH_LIMIT):
        program = python_program(record.sample.cmdline)
        if program.kind == "script" and record.sample.is_python:
            return program.name
        above = records.get(record.original_parent) if record.original_parent else None
        if above is None:
            break
        record = above
    return ""


def _newest(group: list[ProcessId], records: Mapping[ProcessId, ProcessRecord]) -> list[ProcessId]:
    """A group within `GROUP_LIMIT`: the oldest that have ended go first."""
    too_many = len(group) - GROUP_LIMIT
    ended: Iterable[ProcessId] = (each for each in group if records[each].ended is not None)
    dropped = {each for _, each in zip(range(too_many), ended, strict=False)}
    return [each for each in group if each not in dropped]
