"""Values of names in the program: which of them findings ask for, and what they tell."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from mpwatch.describe.frames import frame_words, program_frames
from mpwatch.diagnose.analysis.distributed.ranks import passed_root, rank_groups
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.process_queries import all_called
from mpwatch.diagnose.analysis.source.branches import is_on_rank
from mpwatch.diagnose.analysis.source.lines import mark_words, marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import functions_of, main_thread, own_threads
from mpwatch.model.findings import Finding
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame, FrameValues, NameValue, WantedFrame
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import AddedTo, Decider

OF_RANKS = frozenset(("collective-mismatch", "rank-stuck-in-collective"))
OF_CYCLES = frozenset(("standing-still",))
"""Only where it is about ranks: those all in one collective are a cycle, too."""
OF_GROWTH = frozenset(("steady-growth", "persistent-workers-leak", "copy-on-write-growth"))
OF_LOOPS = frozenset(("no-progress",))
RANKS = 16
"""Ranks of a job that are asked."""
NEW_S = 60.0
"""Older values are not compared."""
THREADS = 8
"""Threads of a process that grows."""
MODULES = 3
"""Modules whose global containers are asked for."""
_MODULE = "<module>"
FRAMES_LIMIT = 8
"""Frames of a process that are asked for at a time."""
NAMES_LIMIT = 16
"""Names of a frame."""


def wanted_values(
    index: Index, findings: Sequence[Finding]
) -> Mapping[ProcessId, tuple[WantedFrame, ...]]:
    """The names whose values would decide between the causes of present findings.

    Args:
        index: The snapshot.
        findings: Its findings; those that are resolved ask for nothing.
    """
    found: dict[ProcessId, tuple[WantedFrame, ...]] = {}
    for finding in findings:
        if finding.resolved_s is not None or finding.process is None:
            continue
        concerned = [finding.process, *finding.others]
        if finding.rule in OF_RANKS:
            groups = [ranks for ranks in rank_groups(index) if _has(ranks, finding.process)]
            concerned += [rank.process for ranks in groups for rank in ranks[:RANKS]]
        elif finding.rule in OF_CYCLES:
            groups = [ranks for ranks in rank_groups(index) if _has(ranks, finding.process)]
            concerned = [rank.process for ranks in groups for rank in ranks[:RANKS]]
        elif finding.rule in OF_LOOPS:
            chains = index.snapshot.waits.chains
            ends = [each.links for each in chains if each.links[0].process == finding.process]
            concerned += [each for links in ends if (each := links[-1].process) is not None]
        elif finding.rule not in OF_GROWTH:
            continue
        for each in dict.fromkeys(concerned):
            process = index.snapshot.get(each)
            if process is None or process.is_gone or each in found:
                continue
            # From outside no length is known, nor an attribute.
            if finding.rule not in OF_GROWTH or process.hook.state == "ready":
                frames = _wanted_of(index, process, finding.rule in OF_GROWTH)
                if frames:
                    found[each] = frames
    return found


def _has(ranks: Sequence[Process], process: ProcessId) -> bool:
    return any(rank.process == process for rank in ranks)


def _wanted_of(index: Index, process: Process, is_growth: bool) -> tuple[WantedFrame, ...]:
    """The frames of a process, outermost first, with names that decide or that are added to."""
    main = main_thread(process)
    threads = own_threads(index, process)[:THREADS] if is_growth else [main] if main else []
    found = []
    for thread in threads:
        for frame in program_frames(thread.stack)[::-1]:
            line = source_of(index, frame)
            if line is None:
                continue
            names: Iterator[str] = (each.name for each in line.added)
            if not is_growth:
                names = (name for each in line.deciders for name in (*each.counts, *each.names))
                root = passed_root(line.statement.text)
                first = [root.name] if root is not None and root.name else []
                names = itertools.chain(first, names, _bounds_beside(index, line.deciders))
            kept = tuple(dict.fromkeys(names))[:NAMES_LIMIT]
            if kept:
                found.append(WantedFrame(thread.tid, frame.file, frame.function, kept))
    more = _registries(index) if is_growth else []
    frames = list(dict.fromkeys(found))[: FRAMES_LIMIT - len(more)]
    return (*frames, *more)


def _bounds_beside(index: Index, found: Sequence[Decider]) -> Iterator[str]:
    """Names for the bounds of containers, of the objects from which the conditions of loops read.

    `self.config.window` beside `self.config.least`, where a deque is made with `config.window`.
    """
    bounds = {each.about.rpartition(".")[2] for each in marks(index, "bounded")}
    for each in found:
        for name in each.names if _is_while(each) else ():
            owner = name.rpartition(".")[0]
            yield from (f"{owner}.{b}" for b in sorted(bounds) if owner and b.isidentifier())


def _registries(index: Index) -> list[WantedFrame]:
    """The containers that modules of the program have once and functions add to.

    Such a function may take no time, so that no stack shows it.
    """
    names: defaultdict[str, list[str]] = defaultdict(list)
    for mark in marks(index, "registry"):
        names[mark.file].append(mark.about)
    return [
        WantedFrame(0, file, _MODULE, tuple(dict.fromkeys(found))[:NAMES_LIMIT])
        for file, found in list(names.items())[:MODULES]
    ]


# --- ranks ---------------------------------------------------------------------------------------


class Difference(Struct, frozen=True):
    """A name that decides what ranks do next, with another value on some of them."""

    evidence: str
    cause: str
    advice: str


@derived
def _newest(index: Index) -> Mapping[tuple[ProcessId, str, str], FrameValues]:
    """The last values in each function of each process, oldest readings first."""
    return {
        (read.process, frame.file, frame.function): frame
        for read in index.snapshot.values
        for frame in read.frames
        if index.snapshot.at_s - read.at_s <= NEW_S
    }


def difference(index: Index, ranks: Sequence[Process]) -> Difference | None:
    """What differs between ranks that wait for each other, and decides where they are.

    Compared are the functions in which all of them are. A counter has to differ by more than one
    round, and a condition on it to lead to the line of one of them; of other names a condition has
    to be met by some of them only.
    """
    stacks = _stacks(ranks)
    for frames, deciders in _shared(index, ranks):
        lines = [each.line for each in frames]
        for decider in deciders:
            if (begun := _begun_apart(index, ranks, frames, decider)) is not None:
                return begun
            for name in dict.fromkeys((*decider.counts, *decider.names)):
                known = _values(index, ranks, frames[0], name)
                if not known:
                    continue
                if name in decider.counts and not _is_setting(name):
                    apart = _apart(known)
                    if apart == 1:
                        return None  # one of them is a round ahead: no other counter compares
                    if apart > 1 and (by := _decided_by(index, stacks, name)) is not None:
                        return _of_counter(index, ranks, known, name, by)
                elif not _parts(decider, lines) or name.endswith(_MODE) or name in decider.starts:
                    continue
                elif _is_loop(decider) and _has_other_length(known):
                    return _of_length(ranks, known, name, frames[0], decider)
                elif not _is_loop(decider) and _differ(known):
                    return _of_condition(ranks, known, name, frames[0], decider)
    return None


def _begun_apart(
    index: Index, ranks: Sequence[Process], frames: Sequence[Frame], decider: Decider
) -> Difference | None:
    """A loop over a range that does not begin with the same number on all ranks.

    As many rounds from another number on are rounds over a part of each: the last number has to be
    the same, as far as it is read, or a setting.
    """
    if any(each.line < decider.statement.line for each in frames):
        return None
    for name in decider.starts:
        known = _values(index, ranks, frames[0], name)
        if not known or not _apart(known):
            continue
        for other in decider.names:
            last = _values(index, ranks, frames[0], other)
            is_same = len({(each.number, each.length) for each in last}) == 1
            if other not in decider.starts and not is_same and (last or not _is_setting(other)):
                return None
        return _of_start(index, ranks, known, name, _By(frames[0], decider))
    return None


def _is_setting(name: str) -> bool:
    return _SETTING.search(name) is not None


_SETTING = re.compile(r"\b(?:args|opts?|cfg|conf|config|hparams|flags|settings)\b", re.IGNORECASE)


def _of_start(
    index: Index, ranks: Sequence[Process], values: Sequence[NameValue], name: str, by: _By
) -> Difference:
    shown = f"{name} is {by_value(ranks, values)}"
    last = name.rpartition(".")[2]
    restored = [
        each for each in marks(index, "restores-start") if each.about.rpartition(".")[2] == last
    ]
    words = (
        f" {mark_words(restored[0])} sets it by what that rank has found or loaded itself, and "
        "shares that with no other rank."
        if restored
        else ""
    )
    return Difference(
        shown,
        f"{by.words} does not begin with the same number on all ranks: {shown}.{words} So they are "
        "in different rounds at the same time, those that are ahead come to a collective of "
        "another round, and the ranks do not meet.",
        BEGIN_ALIKE,
    )


BEGIN_ALIKE = (
    "Let all ranks begin with the same one: let each tell which saved states it has "
    "(all_gather_object), and load the newest that all of them have, for which several have to be "
    "kept; or let one rank read it and broadcast it (broadcast_object_list). A barrier after "
    "saving only makes it rarer, as a job can be ended while some ranks still save; a complete "
    "file on each rank or a longer timeout does not help."
)


def _stacks(ranks: Sequence[Process]) -> list[list[Frame]]:
    return [program_frames(main.stack)[::-1] if (main := main_thread(r)) else [] for r in ranks]


def _shared(
    index: Index, ranks: Sequence[Process]
) -> Iterator[tuple[Sequence[Frame], Sequence[Decider]]]:
    """The frames of the functions in which all of some ranks are, outermost first.

    Each with the conditions and loops of its function, but for those on the rank.
    """
    for frames in zip(*_stacks(ranks), strict=False):
        if len(functions_of(frames)) > 1:
            break
        source = [source_of(index, each) for each in frames]
        found = dict.fromkeys(each for line in source if line is not None for each in line.deciders)
        yield frames, [each for each in found if not is_on_rank(each.statement.text)]


def _key(process: Process, frame: Frame) -> tuple[ProcessId, str, str]:
    return process.process, frame.file, frame.function


def _values(index: Index, ranks: Sequence[Process], frame: Frame, name: str) -> Sequence[NameValue]:
    """The value of a name at each rank; empty where it is not known of all, or is the rank."""
    frames = [_newest(index).get(_key(rank, frame)) for rank in ranks]
    found = [each.get(name) if each is not None else None for each in frames]
    known = [each for each in found if each is not None]
    return known if len(known) == len(ranks) and not is_on_rank(name) else ()


def whole_numbers(
    index: Index, ranks: Sequence[Process], frame: Frame, name: str
) -> Sequence[NameValue]:
    """What a name is at each rank, as whole numbers; empty where that is not known of all.

    It may be the rank itself, which differs by design unless all pass it as one rank to a call.
    """
    frames = [_newest(index).get(_key(rank, frame)) for rank in ranks]
    found = [each.get(name) if each is not None else None for each in frames]
    known = [each for each in found if each is not None and type(each.number) is int]
    return known if len(known) == len(ranks) else ()


def _apart(values: Sequence[NameValue]) -> int:
    """By how much counters differ; 0 where one is no int."""
    numbers = [each.number for each in values]
    whole = [each for each in numbers if type(each) is int]
    return max(whole) - min(whole) if len(whole) == len(numbers) else 0


def _differ(values: Sequence[NameValue]) -> bool:
    """Whether values differ as no two rounds do by themselves: None, True or False, or empty."""
    kinds = {each.type == "NoneType" for each in values}
    flags = {each.number for each in values if each.type == "bool"}
    is_empty = {each.length == 0 for each in values if each.length is not None}
    return len(kinds) > 1 or len(flags) > 1 or len(is_empty) > 1


_MODE = ".training"
"""Of a module of torch: that one rank trains while another one does not follows from something."""


def _is_loop(decider: Decider) -> bool:
    return decider.statement.text.startswith(("for ", "while ", "async for "))


def _has_other_length(values: Sequence[NameValue]) -> bool:
    """Whether what limits a loop, a whole number or a container, is not the same for all."""
    limits = [each.length if each.length is not None else each.number for each in values]
    whole = [each for each in limits if type(each) is int]
    return len(whole) == len(limits) and len(set(whole)) > 1


def _parts(decider: Decider, lines: Sequence[int]) -> bool:
    """Whether some ranks are in the block of a condition, or at it, and others behind it."""
    inside = [decider.statement.line < line <= decider.last for line in lines]
    return any(inside) and not all(inside)


class _By(Struct, frozen=True):
    """A condition on a counter, and where it is."""

    frame: Frame
    decider: Decider

    @property
    def words(self) -> str:
        """``` `if step % every:` at callbacks.py:73 on_step_end ```."""
        file = self.frame.file.rpartition("/")[2]
        line = self.decider.statement.line
        return f"`{self.decider.statement.text}` at {file}:{line} {self.frame.function}"


def _decided_by(index: Index, stacks: Sequence[Sequence[Frame]], name: str) -> _By | None:
    """The condition on a counter that one of some threads has met to get to its line."""
    last = name.rpartition(".")[2]
    for stack in stacks:
        for frame in reversed(stack):
            line = source_of(index, frame)
            for each in reversed(line.deciders if line is not None else ()):
                if not each.statement.text.startswith(("if ", "elif ")):
                    continue
                is_past = each.leaves and each.last < frame.line
                is_inside = each.statement.line < frame.line <= each.last
                if (is_past or is_inside) and last in [n.rpartition(".")[2] for n in each.names]:
                    return _By(frame, each)
    return None


def _of_counter(
    index: Index, ranks: Sequence[Process], values: Sequence[NameValue], name: str, by: _By
) -> Difference:
    shown, alone = by_value(ranks, values), marks(index, "resumes-alone")
    begun = "it was restored or set differently on them, as where one has found no saved state"
    if len(alone) == 1:
        begun = (
            f"most likely each has resumed a state that it found itself ({mark_words(alone[0])}), "
            "and they did not find the same"
        )
    return Difference(
        f"{name} is {shown}",
        f"{name} is {shown}, and {by.words} decides by it: so the ranks do not get to the same "
        "collective in the same round. All of them add to it alike in each round, so that they "
        f"have begun with different values: {begun}; or some have left out rounds.",
        f"Let all ranks begin with the same {name}: let one rank read what was saved and broadcast "
        "it (broadcast_object_list), or let all agree that each has found its own (all_reduce of a "
        "flag with MIN) before any of them uses it, and begin anew otherwise. A barrier or a "
        "longer timeout does not help: the values still differ.",
    )


def _of_condition(
    ranks: Sequence[Process],
    values: Sequence[NameValue],
    name: str,
    frame: Frame,
    decider: Decider,
) -> Difference:
    shown, by = by_value(ranks, values), _By(frame, decider)
    return Difference(
        f"{name} is {shown}",
        f"The ranks take different branches at {by.words}: {name} is {shown}. Each of them has "
        "found or computed it by itself, so only some of them run what that condition leads to, "
        "and the collectives in it.",
        f"Let all ranks decide alike: find {name} on one rank and broadcast it "
        "(broadcast_object_list, or an all_reduce of a flag) before that condition; and if it "
        "depends on files, let all ranks see the same ones, written before a barrier. Where only "
        "some ranks are meant to meet it, call no collective below it. A longer timeout does not "
        "help.",
    )


def _of_length(
    ranks: Sequence[Process],
    values: Sequence[NameValue],
    name: str,
    frame: Frame,
    decider: Decider,
) -> Difference:
    shown, by = by_value(ranks, values), _By(frame, decider)
    return Difference(
        f"{name} is {shown}",
        f"{by.words} does not have as many rounds on all ranks: {name} is {shown}. Those with "
        "fewer rounds have left it, and the others wait in it for them.",
        f"Let that loop have the same number of rounds on all ranks: agree on the least {name} "
        "(all_reduce with MIN), drop what is left over or pad (drop_last, DistributedSampler), or "
        "use the Join context of DistributedDataParallel. A longer timeout does not help.",
    )


def by_value(ranks: Sequence[Process], values: Sequence[NameValue]) -> str:
    """`300 at rank 0 (17) and rank 2 (19), 50 at rank 1 (18)`."""
    groups: defaultdict[str, list[Process]] = defaultdict(list)
    for rank, value in zip(ranks, values, strict=True):
        groups[value_words(value)].append(rank)
    return ", ".join(f"{words} at {all_called(group)}" for words, group in groups.items())


def value_words(value: NameValue) -> str:
    """`50`, `None`, `a list of 3`, `a Tensor`."""
    if value.type == "NoneType":
        return "None"
    if value.number is not None:
        return f"{value.number:.6g}" if type(value.number) is float else f"{value.number}"
    if value.type in ("nan", "inf", "-inf"):
        return value.type
    article = "an" if value.type[:1].lower() in "aeiou" else "a"
    if value.length is not None and value.type not in ("str", "bytes"):
        return (
            f"{article} {value.type} of {value.length}"
            if value.length
            else f"an empty {value.type}"
        )
    return f"{article} {value.type}"


def same_round(index: Index, ranks: Sequence[Process]) -> str:
    """The counter by which ranks are in the same round of a loop, `step is 49`; empty if unknown.

    Of the innermost loop that all of them are in, of those whose counters were read.
    """
    found = ""
    for frames, deciders in _shared(index, ranks):
        lines = [each.line for each in frames]
        for decider in deciders:
            is_inside = all(decider.statement.line <= n <= decider.last for n in lines)
            if _is_loop(decider) and is_inside:
                for name in decider.counts:
                    known = _values(index, ranks, frames[0], name)
                    if known and type(known[0].number) is int:
                        if len({each.number for each in known}) > 1:
                            return ""
                        found = f"{name} is {known[0].number}"
    return found


# --- loops ---------------------------------------------------------------------------------------


def loop_values(index: Index, process: Process) -> str:
    """The condition of the loop that a process is in, with its values; empty where not known.

    ``` `while self.done < self.total:` of line 57: self.done is 3, self.total is 4 ```.
    """
    loop, values = _loop_of(index, process)
    if loop is None or values is None:
        return ""
    found = [values.get(name) for name in loop.names]
    known = [f"{each.name} is {value_words(each)}" for each in found if each is not None]
    header = loop.statement
    return f"`{header.text}` of line {header.line}: {', '.join(known)}" if known else ""


def _loop_of(index: Index, process: Process) -> tuple[Decider | None, FrameValues | None]:
    """The `while` loop that a process is in, and the last values of its function."""
    main = main_thread(process)
    for frame in program_frames(main.stack) if main is not None else []:
        line = source_of(index, frame)
        for each in reversed(line.deciders if line is not None else ()):
            if _is_while(each) and each.statement.line <= frame.line <= each.last:
                return each, _newest(index).get(_key(process, frame))
    return None, None


def _is_while(decider: Decider) -> bool:
    return decider.statement.text.startswith("while ")


def awaited_number(index: Index, process: Process) -> float | None:
    """The only number in the condition of the loop that a process is in; `None` if not known."""
    loop, values = _loop_of(index, process)
    if loop is None or values is None:
        return None
    found = [each for name in loop.names if (each := values.get(name)) is not None]
    numbers = [each.number for each in found if type(each.number) in (int, float)]
    return numbers[0] if len(numbers) == 1 else None


def number_beside(index: Index, process: Process, name: str) -> float | None:
    """The number of this name in an object from which the condition of a loop reads.

    Args:
        index: The snapshot.
        process: Whose loop it is.
        name: `config.window`, of which the last part counts.
    """
    loop, values = _loop_of(index, process)
    for each in loop.names if loop is not None and values is not None and name else ():
        beside = f"{each.rpartition('.')[0]}.{name.rpartition('.')[2]}"
        value = values.get(beside) if values is not None else None
        if value is not None and type(value.number) in (int, float):
            return value.number
    return None


def readings_of(
    index: Index, process: ProcessId, frame: Frame, name: str
) -> list[tuple[float, NameValue]]:
    """All that was read of a name in a function of a process, with the times, oldest first."""
    return [
        (read.at_s, value)
        for read in index.snapshot.values
        for each in (read.frames if read.process == process else ())
        if (each.file, each.function) == (frame.file, frame.function)
        and (value := each.get(name)) is not None
    ]


# --- growth --------------------------------------------------------------------------------------

SPAN_S = 8.0
"""Lengths are compared over so long, at least."""
READINGS = 3
LEAST = 3
"""Elements that a container has gained then."""


class Grown(Struct, frozen=True):
    """A container that grows, or an attribute whose autograd graph goes on from round to round."""

    added: AddedTo
    value: NameValue
    """The last."""
    per_s: float
    """Elements a second; 0 for no container."""

    @property
    def words(self) -> str:
        """``` `self.tasks` (dict, orchestrator.py:48 add) has 5,021 entries, +30/s ```."""
        added = self.added
        place = frame_words(Frame(added.function, added.file, added.statement.line))
        name = f"`{added.name}` ({self.value.type}, {place})"
        if self.added.is_carried:
            return f"{name} carries an autograd graph at each of the last readings"
        graph = ", the last of them a tensor with its autograd graph" * bool(self.value.has_graph)
        return f"{name} has {self.value.length:,} entries, {self.pace} more{graph}"

    @property
    def pace(self) -> str:
        """`30 a second`, `12 a minute`."""
        if self.per_s >= 1:
            return f"{self.per_s:.0f} a second"
        return f"{60 * self.per_s:.0f} a minute"


def grown(index: Index, process: ProcessId) -> tuple[Grown, ...]:
    """What has grown in a process while its lengths were read, what most likely matters first."""
    return tuple(each for each in _series(index, process).values() if each is not None)


def at_rest(index: Index, process: ProcessId) -> frozenset[tuple[str, int]]:
    """The statements, by file and line, of what was read for as long and has not grown."""
    return frozenset(place for place, each in _series(index, process).items() if each is None)


@derived
def _series(index: Index, process: ProcessId) -> Mapping[tuple[str, int], Grown | None]:
    """What statements add to, as far as its lengths were read for long enough; `None` at rest."""
    series: defaultdict[tuple[str, str, str], list[tuple[float, NameValue]]] = defaultdict(list)
    for read in index.snapshot.values:
        for frame in read.frames if read.process == process else ():
            for value in frame.values:
                series[frame.file, frame.function, value.name].append((read.at_s, value))
    names = {
        (line.file, line.function, each.name): each
        for line in index.snapshot.source
        for each in line.added
    }
    names |= {
        (mark.file, _MODULE, mark.about): AddedTo(
            mark.about, mark.file, mark.function, mark.statement, is_emptied=False
        )
        for mark in reversed(marks(index, "registry"))
    }
    found: dict[tuple[str, int], Grown | None] = {}
    for key, points in series.items():
        span_s = points[-1][0] - points[0][0]
        if key in names and len(points) >= READINGS and span_s >= SPAN_S:
            added = names[key]
            place = added.file, added.statement.line
            found[place] = found.get(place) or _grown(added, points)
    return dict(sorted(found.items(), key=lambda item: _order(item[1])))


def _order(grown: Grown | None) -> tuple[bool, bool, float]:
    """Those with a graph first, then what nothing removes from, then what grows fastest."""
    if grown is None:
        return True, True, 0.0
    return not grown.value.has_graph, grown.added.is_emptied, -grown.per_s


def _grown(added: AddedTo, points: Sequence[tuple[float, NameValue]]) -> Grown | None:
    """The growth of what was read at these moments; `None` without one."""
    span_s = points[-1][0] - points[0][0]
    if added.is_carried:
        is_carried = all(value.has_graph for _, value in points[-READINGS:])
        return Grown(added, points[-1][1], 0.0) if is_carried else None
    lengths = [value.length for _, value in points]
    known = [each for each in lengths if each is not None]
    if len(known) < len(points):
        return None
    is_rising = known == sorted(known) and known[-1] > known[-2]
    if points[-1][1].type in ("str", "bytes") or not is_rising or known[-1] - known[0] < LEAST:
        return None
    return Grown(added, points[-1][1], (known[-1] - known[0]) / span_s)
