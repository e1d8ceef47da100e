"""Containers that a process adds to again and again, as its source and its stacks show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from mpwatch.describe.frames import frame_words, program_frames
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.shares import unreturned
from mpwatch.diagnose.analysis.source_code import Kept
from mpwatch.diagnose.analysis.stack_patterns import main_thread
from mpwatch.diagnose.analysis.values import at_rest, grown
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Holder, LetGo, RoundOf, Statement

SHOWN = 3
"""Containers, or classes of containers, that are named."""
NAMES_SHOWN = 3
"""Containers of one class that are named."""
_OF_LOADER = ("__call__", "__getitem__", "__iter__", "__next__")
"""What DataLoader calls of a data set; and functions whose names begin with `collate`."""
_SERVERS = ("/asyncio/", "/http/server.py", "/socketserver.py", "/uvicorn/", "/aiohttp/")
_BY_KEY = re.compile(r"\.pop\((?![-\d)])|^del .*\[(?![-\d:])[^:]*\]$")
_BY_HOW: Mapping[str, int] = {"end": 0, "passed": 1, "under": 2, "later": 3, "slower": 4}


class Held(NamedTuple):
    """A container that a process adds to, or several of one class."""

    holders: tuple[Holder, ...]
    round: RoundOf | None
    """The loop that the process is in; `None` where a library calls what adds."""
    let_go: LetGo | None
    """What removes from the first of them."""

    @property
    def first(self) -> Holder:
        """The one that most likely matters."""
        return self.holders[0]

    @property
    def names(self) -> str:
        """`self.trials`, `self.Ps, self.Vs and 2 more`; with their class."""
        found = [each.name for each in self.holders[:NAMES_SHOWN]]
        more = len(self.holders) - len(found)
        last = f"{more} more" if more else found.pop() if len(found) > 1 else ""
        names = f"{', '.join(found)} and {last}" if last else found[0]
        return f"{names} of {self.first.owner}" if self.first.owner else names

    @property
    def rank(self) -> tuple[bool, int, int, bool]:
        """What is named first, lowest first."""
        how = _BY_HOW.get(self.let_go.how, 0) if self.let_go is not None else 0
        return self.first.is_renewed, how, -self.first.size, self.first.is_asked

    @property
    def is_sure(self) -> bool:
        """Whether it outlives what the process does, and nothing is known to empty it."""
        is_kept = self.let_go is None or self.let_go.how in ("end", "passed", "under")
        return (is_kept or self.is_taken_by_key) and not self.first.is_renewed

    @property
    def is_taken_by_key(self) -> bool:
        """Whether another loop takes single entries out: for some it is never reached."""
        gone = self.let_go
        return (
            gone is not None
            and gone.how == "slower"
            and _BY_KEY.search(gone.statement.text) is not None
        )


def held(index: Index, process: Process, only: Literal["opens"] | None = None) -> list[Held]:
    """The containers that a process adds to again and again, what most likely matters first.

    Only those in loops that its stacks are in. Of those that were measured, only what grows.
    """
    holders = [h for h in index.snapshot.holders if only is None or h.opens]
    found = [each for h in holders if (each := _held(index, process, h))]
    measured = {(e.added.file, e.added.statement.line) for e in grown(index, process.process)}
    still = at_rest(index, process.process)
    found = [each for each in found if _place(each.first) not in still]
    if any(_place(each.first) in measured for each in found):
        found = [each for each in found if _place(each.first) in measured]
    return _likely(_together(sorted(found, key=lambda each: each.rank)))


def _place(holder: Holder) -> tuple[str, int]:
    return holder.file, holder.statement.line


def _likely(found: Sequence[Held]) -> list[Held]:
    """Without those that are much less likely than the first."""
    if not found:
        return []
    is_renewed, how, size, _ = found[0].rank
    return [
        each
        for each in found
        if each.rank[0] == is_renewed
        and each.is_sure == found[0].is_sure
        and (each.rank[1] < how or each.rank[2] == size)
    ][:SHOWN]


def _together(found: Iterable[Held]) -> list[Held]:
    """Those of one class that are added to in the same function, as one."""
    groups: dict[tuple[str, str, str, str], Held] = {}
    for number, each in enumerate(found):
        holder, how = each.first, each.let_go.how if each.let_go is not None else ""
        own = holder.function if holder.owner else str(number)
        key = (holder.file, holder.owner, own, how)
        of = groups.get(key)
        groups[key] = each if of is None else of._replace(holders=(*of.holders, holder))
    return list(groups.values())


def _held(index: Index, process: Process, holder: Holder) -> Held | None:
    """A container, if the process is in a loop that adds to it."""
    at_work = [each for each in holder.rounds if _is_in(index, process, each)]
    kept = [each for each in at_work if each.let_go is None or each.let_go.how != "emptied"]
    if kept:
        outermost = kept[-1]
        is_emptied = at_work[-1] is not outermost
        if is_emptied and not _stays_in(index, process, outermost):
            return None
        return Held((holder,), outermost, outermost.let_go)
    if at_work or not holder.outside or not _is_called(process, holder):
        return None
    if holder.rounds:
        gone = holder.rounds[0].let_go  # of the nearest loop
        is_emptied = gone is not None and gone.how == "emptied"
        return None if holder.is_renewed or is_emptied else Held((holder,), None, gone)
    return Held((holder,), None, holder.let_go)


def _is_in(index: Index, process: Process, found: RoundOf) -> bool:
    """Whether a stack of a process is in a loop; a coroutine that waits is on none."""
    stacks = [each.stack for each in process.threads]
    if found.is_async:
        return any("/asyncio/" in each.file for stack in stacks for each in stack)
    frames = [frame for stack in stacks for frame in program_frames(stack)]
    return any(_is_at(each, found) for each in (*frames, *unreturned(index, process)))


def _is_at(frame: Frame, found: RoundOf) -> bool:
    is_of = frame.function == found.function and frame.file == found.file
    return is_of and (frame.line == 0 or found.first <= frame.line <= found.last)


def _stays_in(index: Index, process: Process, found: RoundOf) -> bool:
    """Whether the main thread has not left the function of a loop for a while."""
    return any(_is_at(each, found) for each in unreturned(index, process))


def _is_called(process: Process, holder: Holder) -> bool:
    """Whether a process runs what calls a function from outside of the program."""
    frames = [frame for each in process.threads for frame in each.stack]
    if any(each.file == holder.outside_file for each in frames):
        return True
    name = holder.outside
    if process.role == "loader-worker":
        return name in _OF_LOADER or name.startswith("collate")
    is_server = any(part in each.file for part in _SERVERS for each in frames)
    main = main_thread(process)
    own = program_frames(main.stack) if main is not None else []
    folder = holder.file.rpartition("/")[0]
    return is_server and any(each.file.rpartition("/")[0] == folder for each in own)


def kept_in(index: Index, process: Process, only: Literal["opens"] | None = None) -> Kept | None:
    """What keeps the memory of a process: containers that its source shows to be added to.

    Args:
        index: The snapshot.
        process: Whose growth it is.
        only: `opens` for containers of what has a descriptor.

    Returns:
        `None` where no container is found that outlives what adds to it.
    """
    return kept_by(held(index, process, only))


def kept_by(holding: Sequence[Held]) -> Kept | None:
    """`kept_in` of containers that `held` has found."""
    found = [each for each in holding if each.is_sure]
    if not found:
        return None
    first = found[0]
    is_open = _is_open(first)
    others = [each for each in found[1:] if is_open or not _is_open(each)]
    how_sure = "Possible: " if is_open else "Most likely "
    cause = f"{how_sure}{adds_words(first)}, and {removes_words(first)}."
    if is_open:
        cause += " If it is reached in each round, something else is kept."
    if others:
        cause += f" It can also be that {'; or that '.join(adds_words(each) for each in others)}."
    if EXCEPTION_AT_END.search(first.first.statement.text):
        cause += KEEPS_FRAMES
    elif first.first.is_asked and first.let_go is None:
        cause += (
            " It looks there first and adds one entry for each new key, so that the growth ends "
            "only if no new keys come."
        )
    shown = [first, *others] if others else []
    evidence = "; ".join(f"{each.names}: {removes_words(each)}" for each in shown)
    return Kept(evidence, cause, _advice(first))


def _is_open(each: Held) -> bool:
    """Whether a condition, of which nothing is known, decides if it is emptied."""
    return each.let_go is not None and each.let_go.how == "under"


def _advice(each: Held) -> str:
    """What to do about a container."""
    gone, last = each.let_go, each.first.name.rpartition(".")[2]
    if gone is not None and (gone.how in ("passed", "under") or each.is_taken_by_key):
        return (
            f"Remove the entry of {last} on every way out: take it out before that check, or in a "
            "`finally` clause, also for what fails, is aborted, or comes too late; or bound it by "
            "number or age. gc.collect() or new workers do not help: it refers to all of it."
        )
    if gone is not None and gone.how == "end":
        return (
            f"Call {gone.function}() in each round, or remove each entry of {last} once it was "
            "used. gc.collect() does not help: it refers to all of it."
        )
    return (
        f"Remove each entry of {last} once it was used, or keep only what is needed later of it "
        "(numbers, the best one, a path in place of arrays, tensors, results); or bound it "
        "(collections.deque(maxlen=...), drop the oldest). gc.collect() does not help: it refers "
        "to all of it."
    )


EXCEPTION_AT_END = re.compile(r"(?:[=(,]\s*|\b)(?:e|err|error|ex|exc|exception)\)?$", re.IGNORECASE)
"""The statement that adds ends with what a program calls an exception."""
KEEPS_FRAMES = (
    " If that is an exception: it keeps its traceback, and with that all local variables of the "
    "functions that it came through (rows, tables, tensors). Keep its text, "
    "traceback.format_exception(...), or error.with_traceback(None) in place of it."
)


# --- words ---------------------------------------------------------------------------------------


def adds_words(each: Held) -> str:
    """What adds to it, in which loop."""
    holder = each.first
    adds = _at(holder.statement, holder.file, holder.function)
    more = len(each.holders) - 1
    adds += f" and {more} more line{'s' * (more > 1)}" if more else ""
    verb = "add" if more else "adds"
    return f"{adds} {verb} to {each.names} {_where(each)}"


def _where(each: Held) -> str:
    """In which loop, or when."""
    found = each.round
    if found is None:
        return f"each time that {each.first.outside}() is called"
    file = found.file.rpartition("/")[2]
    by = [name for name in found.by if name != each.first.function]
    via = f" by way of {' and '.join(f'{name}()' for name in by)}" if by else ""
    header = f"`{found.header.text}` at {file}:{found.first} {found.function}"
    return f"in each round of {header}{via}"


def removes_words(each: Held) -> str:
    """What removes from it, as a clause that begins with what adds."""
    gone, is_one = each.let_go, len(each.holders) == 1
    it = "it" if is_one else "them"
    if gone is None:
        return f"nothing in the program removes anything from {it}"
    at = _at(gone.statement, gone.file, gone.function)
    if gone.past is not None:
        past = _at(gone.past, gone.past_file, gone.past_in)
        if gone.how == "passed":
            return (
                f"what removes from {it}, {at}, is not reached where {past} leaves before: such "
                "entries stay"
            )
        return f"whether what removes from {it} is reached, {at}, depends on {past}"
    if gone.how == "end":
        return f"only {at} removes from {it}, which no loop of the program reaches"
    if gone.how == "later":
        return f"{at} empties {it} only after that loop"
    if each.is_taken_by_key:
        return (
            f"only {at} removes one, in another loop: an entry stays for which that is not "
            "reached, because no answer comes for it, or what waits for one has given up (a time "
            "limit, an exception, a client that has left)"
        )
    return f"what removes from {it}, {at}, does so less often"


def _at(statement: Statement, file: str, function: str) -> str:
    frame = Frame(function, file, statement.line)
    return f"`{statement.text}` at {frame_words(frame)}"
