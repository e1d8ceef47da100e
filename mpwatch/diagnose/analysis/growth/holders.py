"""Containers that a process adds to again and again, as its source and its stacks show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from mpwatch.describe.frames import frame_words, program_frames
from mpwatch.diagnose.analysis.growth.graphs_and_cycles import Kept
from mpwatch.diagnose.analysis.growth.growing import SHOWN, Explanation, Growing
from mpwatch.diagnose.analysis.growth.registrations import EXCEPTION_KEEPS, exception_advice
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.source.lines import mark_words, marks, source_of
from mpwatch.diagnose.analysis.source.loops import loop_around
from mpwatch.diagnose.analysis.stack_patterns import functions_of, main_thread
from mpwatch.diagnose.analysis.throughput.shares import shares, unreturned
from mpwatch.diagnose.analysis.values import Grown, at_rest, grown
from mpwatch.diagnose.analysis.waits.servers import serves_a_store
from mpwatch.model.account import Share
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import (
    AddedTo,
    Holder,
    LeftHow,
    LeftWaiting,
    LetGo,
    Mark,
    RoundOf,
    Statement,
)
from mpwatch.model.units import bytes_text

NAMES_SHOWN = 3
"""Containers of one class that are named."""
SEEN_PART = 0.1
"""Of its time, in a loop of a coroutine: more than a loop takes that only starts something."""
_OF_LOADER = ("__call__", "__getitem__", "__iter__", "__next__")
"""What DataLoader calls of a data set; and functions whose names begin with `collate`."""
_SERVERS = ("/asyncio/", "/http/server.py", "/socketserver.py", "/uvicorn/", "/aiohttp/")
_BY_KEY = re.compile(r"\.pop\((?![-\d)])|^del .*\[(?![-\d:])[^:]*\]$")
_BY_HOW: Mapping[str, int] = {
    "end": 0,
    "listed": 0,
    "passed": 1,
    "under": 2,
    "later": 3,
    "slower": 4,
    "answered": 5,
    "keyed": 6,
}


class Held(NamedTuple):
    """A container that a process adds to, or several of one class."""

    holders: tuple[Holder, ...]
    round: RoundOf | None
    """The loop that the process is in; `None` where a library calls what adds."""
    let_go: LetGo | None
    """What removes from the first of them."""
    is_measured: bool = False
    """Whether it was measured to grow."""

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
        is_kept = self.let_go is None or self.let_go.how in ("end", "listed", "passed", "under")
        if self.let_go is not None and self.let_go.how == "answered":
            is_kept = self.is_measured or self.first.given_up is not None
        is_kept = is_kept or self.is_by_other_key
        return (is_kept or self.is_taken_by_key) and not self.first.is_renewed

    @property
    def is_by_other_key(self) -> bool:
        """Whether what removes asks for another key than those that are added."""
        return self.let_go is not None and self.let_go.how == "keyed"

    @property
    def is_taken_by_key(self) -> bool:
        """Whether another loop takes single entries out: for some it is never reached."""
        gone = self.let_go
        return (
            gone is not None
            and gone.how == "slower"
            and _BY_KEY.search(gone.statement.text) is not None
        )


@derived
def held(
    index: Index, identity: ProcessId, only: Literal["opens"] | None = None
) -> tuple[Held, ...]:
    """The containers that a process adds to again and again, what most likely matters first.

    Only those in loops that its stacks are in. Of those that were measured, only what grows.
    """
    process = index.snapshot.get(identity)
    holders = [h for h in index.snapshot.holders if only is None or h.opens]
    if process is None or not holders:
        return ()
    found = [each for h in holders if (each := _held(index, process, h))]
    measured = {(e.added.file, e.added.statement.line) for e in grown(index, identity)}
    still = at_rest(index, identity)
    found = [each for each in found if _place(each.first) not in still]
    if any(_place(each.first) in measured for each in found):
        found = [
            each._replace(is_measured=True) for each in found if _place(each.first) in measured
        ]
    return tuple(_likely(_together(sorted(found, key=lambda each: each.rank))))


def not_at_work(index: Index, process: Process) -> frozenset[tuple[str, int]]:
    """The statements that add to a container in loops which a process is not in, by file and line.

    It has left them, or has never been in them. None where no stack of it is known.
    """
    if not any(each.stack for each in process.threads):
        return frozenset()
    return frozenset(
        _place(each) for each in index.snapshot.holders if _held(index, process, each) is None
    )


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
    writers = _writers(index, process, holder) if holder.store else (process,)
    at_work = [e for e in holder.rounds if any(_is_in(index, each, e) for each in writers)]
    kept = [each for each in at_work if each.let_go is None or each.let_go.how != "emptied"]
    if kept:
        outermost = kept[-1]
        is_emptied = at_work[-1] is not outermost
        if is_emptied and not _stays_in(index, process, outermost):
            return None
        # What keeps tasks is not emptied in any of them: the nearest says most.
        told = kept[0] if holder.left_waiting is not None else outermost
        return Held((holder,), told, told.let_go)
    if at_work or not holder.outside or not _is_called(process, holder):
        return None
    if holder.rounds:
        gone = holder.rounds[0].let_go  # of the nearest loop
        is_emptied = gone is not None and gone.how == "emptied"
        return None if holder.is_renewed or is_emptied else Held((holder,), None, gone)
    return Held((holder,), None, holder.let_go)


def _writers(index: Index, process: Process, holder: Holder) -> Sequence[Process]:
    """The processes that may write the keys of a store that take memory of a process.

    The keys of a TCPStore are in the process that runs its server, whoever has written them; those
    of a HashStore in its own process, and those of a FileStore in each one that reads them. What is
    below a PrefixStore of an unknown store is most often a TCPStore.
    """
    if holder.store in _IN_SERVER:
        return index.snapshot.living() if serves_a_store(process) else ()
    return index.snapshot.living() if holder.store == "FileStore" else (process,)


_IN_SERVER = ("PrefixStore", "TCPStore")


def _is_in(index: Index, process: Process, found: RoundOf) -> bool:
    """Whether a stack of a process is in a loop; a coroutine that waits is on none."""
    if found.is_async:
        return _runs_loop(process)
    frames = [frame for each in process.threads for frame in program_frames(each.stack)]
    main = main_thread(process)
    now = functions_of(main.stack if main is not None else ())  # its line tells where it is
    lasting = [e for e in unreturned(index, process) if (e.file, e.function) not in now]
    if any(_is_at(each, found) for each in (*frames, *lasting)):
        return True
    return _runs_loop(process) and any(_was_at(each, found) for each in shares(index, process))


def _runs_loop(process: Process) -> bool:
    """Whether a thread is in an event loop of asyncio."""
    return any("/asyncio/" in each.file for thread in process.threads for each in thread.stack)


def _was_at(share: Share, found: RoundOf) -> bool:
    """Whether a main thread was at a line of a loop for a good part of the last minute."""
    where, _, function = share.activity.place.partition(" ")
    file, _, line = where.rpartition(":")
    is_of = function == found.function and found.file.endswith(f"/{file}")
    is_of = is_of and share.share >= SEEN_PART
    return is_of and line.isdigit() and found.first < int(line) <= found.last


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
    return kept_by(held(index, process.process, only))


def kept_by(holding: Sequence[Held]) -> Kept | None:
    """`kept_in` of containers that `held` has found."""
    found = [each for each in holding if each.is_sure]
    if not found:
        return None
    first = found[0]
    if (left := first.first.left_waiting) is not None:
        return _left_waiting(first, left)
    is_open = _is_open(first)
    is_answered = first.let_go is not None and first.let_go.how == "answered"
    others = [each for each in found[1:] if is_open or not _is_open(each)]
    how_sure = "Possible: " if is_open else "Most likely "
    cause = f"{how_sure}{adds_words(first)}, and {removes_words(first)}."
    if is_answered:
        cause += " If each of them is answered, something else is kept." * is_open
    elif is_open and first.is_by_other_key:
        cause += " If both are the same there, something else is kept."
    elif is_open:
        cause += " If it is reached in each round, something else is kept."
    if others:
        cause += f" It can also be that {'; or that '.join(adds_words(each) for each in others)}."
    if first.first.store:
        cause += _IN_STORES.get(first.first.store, _IN_A_STORE)
    elif EXCEPTION_AT_END.search(first.first.statement.text):
        cause += KEEPS_FRAMES
    elif first.first.is_asked and first.let_go is None and first.first.looked_up is None:
        cause += (
            " It looks there first and adds one entry for each new key, so that the growth ends "
            "only if no new keys come."
        )
    shown = [first, *others] if others else []
    evidence = "; ".join(f"{each.names}: {removes_words(each)}" for each in shown)
    return Kept(evidence, cause, _advice(first))


def _left_waiting(each: Held, left: LeftWaiting) -> Kept:
    """Tasks that nothing awaits or cancels, and that wait for an event of the program."""
    event, last = each.names, each.first.name.rpartition(".")[2]
    waits = _at(left.statement, left.file, left.function)
    there = f"{each.first.function}()" if each.round is None else "the rounds of that loop"
    here = there if each.round is None else "these rounds"
    how_sure = "It can be that" if left.is_set else "Most likely"
    return Kept(
        f"{left.made} waits at {waits} for {event}, which nothing in {here} sets",
        f"{how_sure} {adds_words(each)}. It waits at {waits} until {event} is set, and nothing in "
        f"{there} sets it. Each of them stays with its coroutine and its future, "
        f"which the waiters of that event refer to{_WITH_IT[left.how]}.",
        f"{_CANCEL[left.how].format(made=left.made)} Or make one task of {left.made} for each "
        f"object that has {last}, when that object is made, and wait for it beside the others "
        "each time. A time limit does not cancel it; nor does gc.collect() help, or less data for "
        "each call: the event refers to all of them.",
    )


_WITH_IT: Mapping[LeftHow, str] = {
    "as_completed": (
        ", and with what as_completed() keeps for those that are not done (its queue, and the "
        "results in it)"
    ),
    "wait": "",
    "task": "",
}
_CANCEL: Mapping[LeftHow, str] = {
    "as_completed": (
        "Wait by `done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)` "
        "for tasks made by asyncio.create_task(), and cancel() each of the pending ones, in a "
        "`finally` clause."
    ),
    "wait": "cancel() each of the pending tasks once the wait has returned, in a `finally` clause.",
    "task": "Keep the task, and cancel() it once it is not needed any more, in a `finally` clause.",
}


def _is_open(each: Held) -> bool:
    """Whether a condition, of which nothing is known, decides if it is emptied, or an answer."""
    gone = each.let_go
    if gone is None or each.is_measured:
        return gone is not None and gone.how == "under"
    return gone.how in ("answered", "under") or (gone.how == "keyed" and gone.past is None)


def _send_always(message: str, under: Statement, last: str) -> str:
    """What to do where only a message that is not always sent removes an entry."""
    return (
        f"Send {message} on every way out, also where `{under.text}` does not hold, or remove the "
        f"entry of {last} otherwise there; and drop entries that were not used for some time, as "
        "what is to send it may die. gc.collect() or new workers do not help: it refers to all of "
        "it."
    )


def _delete_keys(store: str) -> str:
    """What to do about a store of torch.distributed that gets ever new keys."""
    return (
        f"Call {store}.delete_key(key) for each key that no reader needs any more, such as those "
        "of the version before the last one, or write to a fixed number of keys in turn. "
        "gc.collect(), del, detach() or a smaller queue do not help: no object of Python keeps "
        "it. To write less often, or less, only makes it slower."
    )


def _advice(each: Held) -> str:
    """What to do about a container."""
    gone, last = each.let_go, each.first.name.rpartition(".")[2]
    if each.first.store:
        return _delete_keys(last)
    if (looked := each.first.looked_up) is not None:
        set_back = ", or set default_factory to None once it is filled" * (
            looked.kind == "defaultdict"
        )
        return (
            f"Look keys up in {last} with get(key, default), one default for all, or ask `key in "
            f"{last}` first{set_back}: only [] adds what is missing. Or bound it by number. A "
            "smaller queue, gc.collect(), torch.no_grad() or new workers do not help: it refers to "
            "all of the entries."
        )
    if gone is not None and gone.how == "answered":
        given_up = each.first.given_up
        where = ""
        if given_up is not None:
            frame = Frame(given_up.function, given_up.file, given_up.statement.line)
            where = f" ({frame_words(frame)})"
        return (
            f"Remove the entry of {last} also where the program gives it up{where}: after a time "
            f"limit, an error, or when its owner leaves; or drop entries of {last} that are older "
            "than a limit, and keep in them only what the answer needs. Add none while the other "
            "side does not answer. If the other side answers again, only new entries are removed, "
            "the old ones stay. gc.collect() or smaller entries do not end it: it refers to all "
            "of them."
        )
    if gone is not None and gone.made is not None:
        return _send_always(gone.message, gone.made, last)
    if gone is not None and (gone.how in ("passed", "under") or each.is_taken_by_key):
        return (
            f"Remove the entry of {last} on every way out: take it out before that check, or in a "
            "`finally` clause, also for what fails, is aborted, or comes too late; or bound it by "
            "number or age. gc.collect() or new workers do not help: it refers to all of it."
        )
    if gone is not None and gone.how == "keyed":
        stored, by = gone.keys
        file = gone.file.rpartition("/")[2]
        return (
            f"Remove the entry by the key that it was added under, {stored}: hand that to "
            f"{gone.function}() (functools.partial, or an argument of its own) in place of {by}; "
            f"and let a missing key be an error there ({last}.pop(key) without a default, no "
            f"suppressed KeyError), so that {file}:{gone.statement.line} does not pass over it. "
            "Fewer at a time, a smaller queue or gc.collect() do not help: it refers to all of "
            "them."
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


_IN_A_STORE = (
    " A store of torch.distributed keeps each key with its value until delete_key(), in native "
    "memory, where no object of Python is to be found."
)
_IN_STORES: Mapping[str, str] = {
    "TCPStore": (
        " The server of a TCPStore keeps each key with its value until delete_key(). It is a "
        "thread of this process (made with is_master=True, or that of rank 0), so that native "
        "memory of this process rises, whoever writes the keys, and no object of Python is to be "
        "found."
    ),
    "FileStore": (
        " A FileStore only appends to its file, and each process that uses it keeps all keys with "
        "their values in native memory until delete_key(), where no object of Python is to be "
        "found."
    ),
}
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
    if (looked := holder.looked_up) is not None:
        file = looked.file.rpartition("/")[2]
        also = f" (as does line {', '.join(map(str, looked.others))})" if looked.others else ""
        kind = "" if looked.kind == "defaultdict" else " with __missing__()"
        return (
            f"{adds}{also} looks up keys in {each.names}, a "
            f"{looked.kind}{kind} ({file}:{looked.made}), {_where(each)}: each key that is not "
            "there yet gets an entry, which stays"
        )
    if holder.store:
        return (
            f"{adds} writes ever new keys of {each.names}, kept by a {holder.store}, {_where(each)}"
        )
    if (left := holder.left_waiting) is not None:
        return f"{adds} {_LEAVES[left.how]} {left.made} {_where(each)}"
    more = len(each.holders) - 1
    adds += f" and {more} more line{'s' * (more > 1)}" if more else ""
    verb = "add" if more else "adds"
    return f"{adds} {verb} to {each.names} {_where(each)}"


_LEAVES: Mapping[LeftHow, str] = {
    "as_completed": "goes on after the first, and neither awaits nor cancels the task of",
    "wait": "goes on after the first, and neither awaits nor cancels the task of",
    "task": "neither keeps nor cancels the task of",
}


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
    if gone is None and each.first.store:
        return f"nothing in the program deletes a key of {it} (delete_key)"
    if gone is None:
        return f"nothing in the program removes anything from {it}"
    at = _at(gone.statement, gone.file, gone.function)
    if gone.how == "answered":
        return f"only {at} removes one, by the key of an answer that has come: {_unanswered(each)}"
    if gone.how == "keyed":
        return f"what removes from {it}, {at}, {_missed(gone)}"
    if gone.past is not None:
        past = _at(gone.past, gone.past_file, gone.past_in)
        if gone.how == "listed":
            return (
                f"what removes from {it}, {at}, takes only the keys that {gone.keys[0]} holds, "
                f"which {past} adds: an entry for a key that was only looked up is not among them"
            )
        if gone.how == "passed":
            return (
                f"what removes from {it}, {at}, is not reached where {past} leaves before: such "
                "entries stay"
            )
        made = ""
        if gone.made is not None:
            under = _at(gone.made, gone.made_file, gone.made_in)
            made = f", and {gone.message} is made only under {under}"
        return f"whether what removes from {it} is reached, {at}, depends on {past}{made}"
    if gone.how == "end":
        return f"only {at} removes from {it}, which no loop of the program reaches"
    if gone.how == "later":
        return f"{at} empties {it} only after that loop"
    if each.is_taken_by_key:
        return (
            f"only {at} removes one, in another loop: an entry for which that is not reached "
            "stays, because no answer comes for it, or what waits for one has given up (a time "
            "limit, an exception, a client that has left)"
        )
    return f"what removes from {it}, {at}, does so less often"


def _missed(gone: LetGo) -> str:
    """Why what removes does not find the entry."""
    stored, by = gone.keys
    asks = f"asks for {by}, and the entries are added under {stored}"
    if gone.past is not None:
        past = _at(gone.past, gone.past_file, gone.past_in)
        return (
            f"{asks}: {past} gives it that name, {stored} with more text, so that the two are "
            "never the same. It finds no entry, which is passed over without an error, and all of "
            "them stay"
        )
    return (
        f"{asks}: where these differ it finds no entry, which is passed over without an error, "
        "and the entry stays"
    )


def _unanswered(each: Held) -> str:
    """Which entries stay, of a container from which answers remove."""
    gone, given_up = each.let_go, each.first.given_up
    left_out = ""
    if gone is not None and gone.past is not None:
        left_out = f", or is left out by {_at(gone.past, gone.past_file, gone.past_in)},"
    stays = f"an entry whose answer never comes{left_out} stays"
    if given_up is not None:
        what = _at(given_up.statement, given_up.file, given_up.function)
        stays += f"; where the program gives one up, at {what}, it is left in there"
    return stays


def _at(statement: Statement, file: str, function: str) -> str:
    frame = Frame(function, file, statement.line)
    return f"`{statement.text}` at {frame_words(frame)}"


def measured_container(
    index: Index, found: Growing, hits: Sequence[Grown], explained: Explanation
) -> Explanation:
    """Memory that a container keeps which was measured to grow, or a carried graph."""
    first = hits[0]
    name, added = first.added.name, first.added
    file = added.file.rpartition("/")[2]
    place = f"`{added.statement.text}` at {file}:{added.statement.line} {added.function}"
    evidence = (*explained.evidence, *(each.words for each in hits[:SHOWN]))
    if added.is_carried:
        return Explanation(
            "private memory",
            evidence,
            f"{first.words}. {place} computes it from its own value before, with the graph of "
            "that: so the graph of every round since the start stays, with all that was kept for a "
            "backward pass.",
            f"Cut {name} off from its graph in each round ({name}.detach(), of each tensor of a "
            "tuple), or compute it under torch.no_grad() where nothing is trained by it. eval(), "
            "gc.collect() or smaller batches do not help: the graph is referred to.",
        )
    each_bytes = found.growth.per_s / first.per_s
    if (bounded := _bound_of(index, added)) is not None:
        return _of_bounded(first, place, each_bytes, bounded, evidence)
    removes = _removes(added)
    others = [f"`{each.added.name}`" for each in hits[1:SHOWN]]
    more = f" {' and '.join(others)} {'grows' if len(others) == 1 else 'grow'} as well." * bool(
        others
    )
    graph = " That graph keeps all activations of its batch." * bool(first.value.has_graph)
    caught = [
        mark
        for mark in marks(index, "keeps-exception")
        if (mark.file, mark.statement.line) == (added.file, added.statement.line)
    ]
    graph += (
        EXCEPTION_KEEPS
        if caught
        else KEEPS_FRAMES * bool(EXCEPTION_AT_END.search(added.statement.text))
    )
    bound = " With a maxlen, that ends when it is full." * (first.value.type == "deque")
    return Explanation(
        "private memory",
        evidence,
        f"{first.words}: {place} adds to it, and {removes}.{graph}{bound} The memory that is "
        f"gained is {bytes_text(each_bytes)} for each of these entries.{more}",
        (
            f"Add .detach() or .item() of it at {file}:{added.statement.line}, or compute it under "
            f"torch.no_grad(), and remove from {name} what is not needed any more. "
            if first.value.has_graph
            else f"{exception_advice(caught[0])} Or remove each entry from {name} once it was "
            "used. "
            if caught
            else _remove_advice(added)
        )
        + f"gc.collect() or new workers do not help: {name} refers to all of it.",
    )


def _bound_of(index: Index, added: AddedTo) -> Mark | None:
    """Where a container is emptied under a comparison of sizes or numbers, in the same file."""
    name = added.name.rpartition(".")[2]
    found = [each for each in marks(index, "bounded") if each.file == added.file]
    return next((each for each in found if each.about.rpartition(".")[2] == name), None)


def _of_bounded(
    first: Grown, place: str, each_bytes: float, bound: Mark, evidence: tuple[str, ...]
) -> Explanation:
    """Memory of a container that is filled up to a bound."""
    name = first.added.name
    return Explanation(
        "private memory",
        evidence,
        f"{first.words}: {place} adds to it. It has a bound: {mark_words(bound)} is where entries "
        "are removed. Until that is reached it fills, as a replay memory or a cache does, and "
        f"then the growth ends. The memory that is gained is {bytes_text(each_bytes)} for each of "
        "these entries.",
        f"Nothing, if as many entries as the bound of {name} allows fit into memory at this size; "
        "otherwise lower the bound, or keep less of each entry (a smaller dtype, compressed).",
        is_shown=False,
    )


def _removes(added: AddedTo) -> str:
    """What removes entries of a container, as a clause."""
    file, by = added.file.rpartition("/")[2], added.removed_by
    if by is not None:
        return (
            f"only `{by.text}` at {file}:{by.line} {added.removed_in} removes one. An entry "
            "for which that is not reached stays: no caller asks for it, or the one that did has "
            "given up before (an exception, a time limit, a client that has left)"
        )
    if added.is_emptied:
        return f"what its class removes from {added.name} is less than that"
    return "nothing there removes any"


def _remove_advice(added: AddedTo) -> str:
    if added.removed_by is not None:
        return (
            "Remove the entry also where its owner gives up (a `finally` clause, an abort that "
            f"deletes it and drops what comes later), or bound {added.name} by number or age. "
        )
    return (
        f"Remove each entry from {added.name} once it was used, or what is large in it (a result "
        "that was fetched, tensors of a batch, of which numbers suffice); or bound it "
        "(collections.deque(maxlen=...), a cache with a limit). "
    )


def container_in_source(index: Index, process: Process, seen: Sequence[str]) -> Explanation | None:
    """Containers of the program that outlive the loop which adds to them."""
    found = held(index, process.process)
    kept = kept_by(found)
    if kept is None:
        return None
    evidence = (*seen, kept.evidence) if kept.evidence else tuple(seen)
    cause, advice = kept.cause, kept.advice
    text = found[0].first.statement.text
    is_torch = process.sample.torch_loaded and process.role != "loader-worker"
    if is_torch and _may_be_graph(text) and may_have_graphs(index, process):
        cause += (
            " If that is a tensor that a model has computed, it also keeps the autograd graph of "
            "its batch with all activations: no detach() or item() is in that statement."
        )
        advice += NO_GRAPHS
    return Explanation("private memory", evidence, cause, advice, is_shown=False)


_COMPUTED = re.compile(
    r"(?<![A-Za-z])(?:loss|logits?|pred\w*|outputs?|scores?|log_?probs?|hidden|actions?)\b"
)
_CUT_OFF = re.compile(r"\.(?:detach|item|numpy|tolist|data)\b|\bfloat\(")


def _may_be_graph(text: str) -> bool:
    """Whether a statement adds what has the name of a result of a model, with its graph."""
    return _COMPUTED.search(text) is not None and _CUT_OFF.search(text) is None


def adds_itself(index: Index, process: Process, thread: Thread) -> bool:
    """Whether a thread is in a loop that adds to a container which nothing empties."""
    functions = functions_of(thread.stack)
    return any(
        each.is_sure
        and each.round is not None
        and (each.first.file, each.round.function) in functions
        for each in held(index, process.process)
    )


def kept_to_end(index: Index, process: Process | None, site: str = "") -> Kept | None:
    """A container that only the end of its object empties, as the source shows.

    Args:
        index: The snapshot.
        process: Whose growth it is.
        site: The line that allocates, `parallel.py:30`, where that is known; what is kept is kept
            by its file then.

    Returns:
        `None` where there is none, or several.
    """
    found = marks(index, "kept-to-end")
    if site:
        file = site.partition(":")[0]
        found = [each for each in found if each.file.rpartition("/")[2] == file]
    if len(found) != 1:
        return None
    mark = found[0]
    container, _, empties = mark.about.partition(", ")
    opened = _opened_around(index, process) if process is not None else ""
    until = f", which {opened} comes to only after its loop" if opened else ""
    likely = "" if site else "Most likely "
    cause = (
        f"{mark_words(mark)} stores in {container} what it is given or has made, and "
        f"that is emptied only in {empties}{until}. Until then each entry keeps all that it "
        "refers to."
    )
    return Kept(
        f"{container} is emptied only in {empties}",
        f"{likely}{cause}",
        f"Take the entry out of {container} as soon as it was used: at the end of each call or "
        "round, or let it go by itself (weakref.WeakValueDictionary). Or end and make the object "
        "anew every few rounds. Restarting workers or gc.collect() does not help: the container "
        "refers to all of it.",
    )


def _opened_around(index: Index, process: Process) -> str:
    """The `with` statement around the loop that the main thread is in; empty for none."""
    thread = main_thread(process)
    found = loop_around(index, thread.stack) if thread is not None else None
    if thread is None or found is None:
        return ""
    line = source_of(index, found[0])
    before = line.within[: line.within.index(found[1])] if line is not None else ()
    opens = [each for each in before if each.text.startswith("with ")]
    return f"`{opens[-1].text}` of line {opens[-1].line}" if opens else ""


def may_have_graphs(index: Index, process: Process) -> bool:
    """Whether the source that is known does not speak against autograd graphs that are kept."""
    return bool(marks(index, "backward")) or not marks(index, "no-grad", process)


NO_GRAPHS = (
    " Of losses and outputs keep .item() or .detach(), and evaluate under torch.no_grad(): a "
    "tensor that is kept with its graph keeps all activations of its batch."
)
