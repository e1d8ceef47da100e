"""Statements that take long for what they do, or copy more each time: why, and what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.describe.frames import frame_words, is_library, own_frames, program_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.source.lines import (
    line_at,
    mark_place,
    mark_words,
    marks,
    places_named,
    source_of,
    stacks_at,
)
from mpwatch.diagnose.analysis.source.loops import loop_around
from mpwatch.diagnose.analysis.source.same_again import told_again
from mpwatch.diagnose.analysis.stack_patterns import user_frame
from mpwatch.model.account import ARCHIVE_TABLE
from mpwatch.model.findings import Finding
from mpwatch.model.samples import Frame
from mpwatch.model.source_code import INNER, Mark, SlowKind, SourceLine, Statement


class Reopened(Struct, frozen=True):
    """A loop over a file that is opened anew in each round of a loop around it."""

    opened: Statement
    """`with open(path) as f:`."""
    opened_in: Frame
    rounds: Statement
    rounds_in: Frame


_OPENS = re.compile(r"^(?:async )?with .*\bopen\(")
_OVER_LINES = re.compile(r"^for .+ in ")


def reopened(index: Index, frames: Sequence[Frame]) -> Reopened | None:
    """The innermost function of the program that goes through a file from its start, in rounds.

    Its caller is in a loop, in which the function is called again.
    """
    own = program_frames(frames)
    for number, frame in enumerate(own):
        line = source_of(index, frame)
        opens = [each for each in line.within if _OPENS.match(each.text)] if line else []
        if line is None or not opens:
            continue
        inside = line.within[line.within.index(opens[-1]) :]
        loop = loop_around(index, own[number + 1 :])
        if loop is not None and any(_OVER_LINES.match(each.text) for each in inside):
            return Reopened(opens[-1], frame, loop[1], loop[0])
    return None


class Copying(Struct, frozen=True):
    """A statement that copies all that was added before, to add to it or to go through it."""

    whole: str
    """`self.track`."""
    words: str
    """`np.concatenate copies all of self.track each time`."""
    is_sure: bool
    """Whether it does so for every type that the variable may have."""
    is_joined: bool = True
    """Whether it joins the parts; it may do anything else with them."""

    @property
    def advice(self) -> str:
        """What to do."""
        if not self.is_joined:
            return (
                f"Keep the result up to date with each part that is added to {self.whole}, or "
                "compute it once at the end."
            )
        return (
            f"Collect the parts in a list, and join them once where {self.whole} is needed as a "
            "whole; or write them into a buffer that is made larger by half when it is full (a "
            "bytearray, an array with room at its end)."
        )


_JOINS = r"(?:concatenate|concat|cat|vstack|hstack|dstack|append|column_stack|row_stack|stack|join)"
_JOINED = re.compile(rf"(?P<call>(?:[\w\"']+\.)*{_JOINS})\((?P<given>.*)")
_GIVEN = re.compile(
    r"(?<![\w.])(?P<call>(?:[\w\"']+\.)*(?!(?:len|append|appendleft|add|extend|insert|isinstance|id)\()\w+)"
    r"\((?P<given>.*)"
)
_ASSIGNS = re.compile(r"(?P<whole>(?:\w+\.)*\w+) (?P<adds>\+?)= (?P<value>.+)")
_MAY_BE_COPIED = "bytes, str or a tuple"


def copying(index: Index, place: str) -> Copying | None:
    """What the statement at a place in words copies each time; `None` if that is not seen.

    `x = np.concatenate([x, part])` and `x = x + part` copy x for each part, and so does
    `x += part` where x cannot be changed; a list that only grows, and that is joined in each round,
    is copied as well. A statement of numbers looks alike, but takes no time.
    """
    line = line_at(index, place)
    text = line.statement.text if line is not None else ""
    joined, found = _JOINED.search(text), _ASSIGNS.match(text)
    whole = found["whole"] if found is not None else ""
    if found is not None and found["adds"]:
        return Copying(whole, f"+= copies all of {whole} if that is {_MAY_BE_COPIED}", False)
    if found is not None and found["value"].startswith(f"{whole} + "):
        words = f"+ copies all of {whole} if that is a list, {_MAY_BE_COPIED}"
        return Copying(whole, words, False)
    if found is not None and joined is not None and _is_part(whole, joined["given"]):
        return Copying(whole, f"{joined['call']} copies all of {whole} each time", True)
    for mark in marks(index, "kept"):
        if joined is not None and _is_part(mark.about, joined["given"]):
            words = f"{joined['call']} copies all of {mark.about} each time, which only grows"
            return Copying(mark.about, words, True)
        is_given = _GIVEN.search(text) if line is not None and mark.file == line.file else None
        if is_given is not None and _is_part(mark.about, is_given["given"]):
            call = is_given["call"]
            words = f"{call} is given all of {mark.about} each time, which only grows"
            return Copying(mark.about, words, False, is_joined=False)
    return None


def _is_part(name: str, expression: str) -> bool:
    """Whether an expression has a name as a whole: not `x.y`, `x[0]` or `x()` for `x`."""
    return re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.(\[])", expression) is not None


class Costly(Struct, frozen=True):
    """A statement that takes long for what it does."""

    words: str
    """`self.rows[i] steps through the deque self.rows from its nearer end`."""
    cause: str
    """Why that takes long, as the rest of a sentence or another one."""
    advice: str


_COPIED = re.compile(r"(?P<on>.+)\.(copy|clone)\(\)|[\w.]+\((?P<given>.+)\)", re.S)
_WALKED = re.compile(r"(deque|list) ([^,]+), (.+)", re.S)


_LONGER = (
    ": the more that is, the longer each access takes, and a container that still fills up makes "
    "the job slower and slower."
)
_DIGESTED = (
    ": all of it is read for each call. Where the digest is the key of a cache, an entry that is "
    "found costs as much as one that is missing, and more than what is kept under the key if that "
    "is made of a small part of a large array.",
    "Make the key of what names the data (an id, a path with its time of modification), or of a "
    "digest that is computed once, where the data is loaded, and kept beside it; leave the large "
    "argument out of the key (ignore= of joblib.Memory), or cut out the part that is used and take "
    "the digest of that. Drop the cache if what it keeps is cheaper than its key. More workers, a "
    "fuller cache or a faster disk do not help.",
)
_SLOW: Mapping[SlowKind, tuple[str, str, str]] = {
    "all-of": (
        "goes through the whole list each time",
        ": the longer the list, the longer each call takes.",
        "Keep the result up to date with each element that is added (a running sum, a heap, a set "
        "beside the list), or compute it once at the end.",
    ),
    "archive": (
        "opens the archive anew each time and reads its table of contents",
        ": for each item that is done once more, and of a zip or tar archive it takes a time that "
        "grows with the number of all its entries, however little is read of it.",
        "Open the archive once in each process and keep it: where it is first used (if "
        "self._archive is None:), in the worker_init_fn of a DataLoader or the initializer of a "
        "Pool, but after the fork, as forked processes that share one open file share its "
        "position. Or read its table once and keep the offsets, or unpack it. More workers, more "
        "prefetching or a faster disk do not help: it is the reading of the table that takes cpu.",
    ),
    "choice": (
        "goes through all weights or elements for each draw",
        ": each call takes a time that grows with their number.",
        "Draw many at once (size=...), keep the cumulative sums and use numpy.searchsorted, or use "
        "numpy.random.default_rng().choice(..., replace=False), which permutes only what it draws.",
    ),
    "collect": (
        "goes through all objects of the process",
        ". Without it, garbage in cycles is collected as soon as enough new objects were made.",
        "Take gc.collect() out of the loop, or call it once in many rounds.",
    ),
    "copy": (
        "copies all of {} each time",
        ": each call takes a time that grows with what is kept, not with the part that is used.",
        "Pick what is used first, and copy only that (rows[index] copies already in numpy and "
        "torch). More workers or cores do not make a copy that is not needed faster.",
    ),
    "dates": (
        "parses each time anew by its pattern, in Python",
        ": that takes some ten times as long as a parser for one fixed form.",
        "Use datetime.fromisoformat() where the form is that of ISO 8601, cut the numbers out of a "
        "fixed form by their place, or parse a whole column at once (pandas.to_datetime(column, "
        "format=...), numpy.datetime64). Keep what was parsed where the same text comes again.",
    ),
    "deepcopy": (
        "copies object by object, in Python",
        ": all that the object refers to is copied, also what does not change.",
        "Copy only what is changed (clone() of a tensor, copy() of a dict), or share what is not.",
    ),
    "digest": (
        "computes a digest of all bytes of its argument each time",
        *_DIGESTED,
    ),
    "elements": (
        "takes single elements of a tensor",
        ": each of them is a tensor of its own, and where that is on the GPU, each comparison or "
        "conversion launches a kernel and waits until it is through, which takes many times as "
        "long as the same with numbers of Python, while the GPU has hardly anything to compute.",
        "Move the tensor to the CPU once before the loop (rows = tensor.tolist(), or .cpu()), or "
        "compute on whole tensors: one comparison gives the mask of all elements. A larger batch, "
        "a faster GPU or torch.compile do not help.",
    ),
    "empty-cache": (
        "waits for the GPU and gives its cached memory back",
        ": the allocations after it have to ask the driver for memory again.",
        "Take empty_cache() out of the loop: memory in the cache is used again without it.",
    ),
    "files": (
        "looks for files in all folders below one, each time",
        ": each call takes a time that grows with the number of files and folders there, also with "
        "those of an environment (.venv), a cache or data that lie below.",
        "Look once and keep the result; look again only after some seconds, in a thread of its "
        "own, or when inotify tells of a change (watchdog, watchfiles). Look only in the folder "
        "that is needed, without those below.",
    ),
    "indented": (
        "writes JSON in Python and not by the encoder in C, as it has an indent",
        ": that takes several times as long for the same data.",
        "Leave out indent= (python -m json.tool shows such a file with one), and call json.dumps() "
        "and one write() in place of json.dump(), which writes in small pieces.",
    ),
    "list-to-array": (
        "converts a list to an array value by value",
        ": each element is looked at and copied by itself.",
        "Fill one array of the final size (numpy.empty, then rows by index), or use numpy.stack "
        "for a list of arrays of one shape. More workers or threads do not help.",
    ),
    "list-to-tensor": (
        "converts a list to a tensor value by value",
        ": of a list of arrays, each number becomes a Python object first.",
        "Make one array first: torch.from_numpy(numpy.stack(list)), or torch.stack for a list of "
        "tensors. More workers or threads do not help.",
    ),
    "metadata": (
        "looks for the files of installed packages and reads them",
        ": each call goes through the folders of sys.path.",
        "Ask once, when the module is imported, and keep the answer.",
    ),
    "rows": (
        "makes a new object of each row of the data frame",
        ": that costs far more than what is done with the row.",
        "Take whole columns (to_numpy()), or itertuples() where rows are needed.",
    ),
    "single-values": (
        "reads one number of a tensor or array a call",
        ": each call costs many times what it reads.",
        "Convert all of it once before the loop (tolist(), numpy()), or compute on whole tensors.",
    ),
    "stack": (
        "finds the file, module and lines of source of every caller",
        ": for each frame of the stack it asks the file system, goes through the loaded modules "
        "and reads lines of source. That takes milliseconds a call, more the deeper the stack is, "
        "and whatever calls it for each item or check pays for it each time.",
        "Where only names or files of callers are needed, go through the frames themselves: "
        "sys._getframe(1), then frame.f_back, with frame.f_code.co_filename or co_name, which "
        "reads no file. Or decide once and keep the answer, or do it only where debugging is "
        "switched on. A faster model, more threads or more clients do not help.",
    ),
}
"""What a slow expression does, why that takes long, and what to do."""


def costly(index: Index, place: str) -> Costly | None:
    """Why the statement at a place in words takes long; `None` if that is not seen."""
    line = line_at(index, place)
    if line is None:
        return None
    first = _rewritten(index, line) or _hashed_by_joblib(index, place)
    if first is not None:
        return first
    copies = copying(index, place)
    again = told_again(index, place) if copies is None or not copies.is_sure else None
    if again is not None:
        return Costly(*again)
    for mark in marks(index, "slow"):
        kind, _, text = mark.about.partition(": ")
        is_here = (
            mark.statement == line.statement
            or (kind == "files" and (mark.function == line.function or _goes_through(mark, line)))
            or (kind == "archive" and mark.statement in line.within and _reads_table(index, place))
        )
        if mark.file == line.file and is_here and text:
            for known, (does, cause, advice) in _SLOW.items():
                if known == kind:
                    copied = _COPIED.fullmatch(text)
                    all_of = (copied["on"] or copied["given"]) if copied is not None else ""
                    given = _given_at(index, place) if kind == "digest" else ""
                    return Costly(f"{text} {does.format(all_of)}", f"{cause}{given}", advice)
    for mark in marks(index, "walks"):
        found = _WALKED.fullmatch(mark.about)
        if found is None or (mark.file, mark.statement) != (line.file, line.statement):
            continue
        kind, name, text = found.groups()
        if text.startswith(f"{name}["):
            return Costly(
                f"{text} steps through the deque {name} from its nearer end",
                _LONGER,
                f"Keep what {name} holds in a list with a position to write at (index modulo its "
                "length) or in arrays made at full size: each element of these is found at once. "
                "A deque is fast at its two ends only.",
            )
        if text.startswith((f"{name}.pop(", f"{name}.insert(")):
            return Costly(
                f"{text} moves all that the list {name} holds by one place",
                _LONGER,
                f"Make {name} a collections.deque: popleft() and appendleft() move nothing.",
            )
        return Costly(
            f"{text} goes through the {kind} {name} until it finds it",
            _LONGER,
            f"Keep a set, or a dict of positions, beside {name}: it is found there at once.",
        )
    pattern = _pattern_at(index, line)
    return None if pattern is None else pattern.cost


_REWRITTEN = re.compile(r"(?P<whole>.+), (?P<adder>\w+), (?P<line>\d+); (?P<where>.+)", re.S)


def _rewritten(index: Index, line: SourceLine) -> Costly | None:
    """What writes all that was collected, for each item that is added to it."""
    for mark in marks(index, "rewrites"):
        found = _REWRITTEN.fullmatch(mark.about)
        if found is None or (mark.file, mark.statement) != (line.file, line.statement):
            continue
        file, whole = mark.file.rpartition("/")[2], found["whole"]
        where = found["where"]
        where = where if where.startswith("each call") else f"each round of the loop at {where}"
        return Costly(
            f"all of {whole} is encoded and written again for each item",
            f". {file}:{found['line']} {found['adder']} adds to {whole}, nothing removes from it, "
            f"and all of it is written in {where}: each item takes longer than the one before, and "
            "all together a time like the square of their number.",
            "Append each item to the file by itself: a line of JSON (open it with mode 'a' and "
            "write json.dumps(item) with a line end), a row (to_csv(mode='a', header=False)), one "
            "pickle after another, or a row of sqlite, and read them one by one at the next start. "
            "Or write all of it only once in some minutes and at the end. To leave out indent= or "
            "to use a faster encoder is a constant factor only: it still becomes slower with each "
            "item. A faster disk, a larger queue or more processes do not help.",
        )
    return None


_CACHE_KEYS = re.compile(r"/joblib/hashing\.py$")
"""Where joblib.Memory computes the key of a call (joblib 0.11 to 1.5)."""


def _hashed_by_joblib(index: Index, place: str) -> Costly | None:
    """A line that calls a function of a joblib.Memory, while its arguments are hashed."""
    found = [inner for inner, _ in stacks_at(index, place)]
    if not found or not all(any(_CACHE_KEYS.search(e.file) for e in inner) for inner in found):
        return None
    return Costly(
        "joblib computes a digest of all arguments of that call each time, to find it in the cache",
        *_DIGESTED,
    )


def _given_at(index: Index, place: str) -> str:
    """The line that calls for a digest, as far as stacks show it, as a sentence.

    Of another file than the place, where there is one; else of the function that calls that.
    """
    found = set()
    for _, own in stacks_at(index, place):
        outer = [each for each in own if each.file != own[0].file] or own[1:]
        line = source_of(index, outer[0]) if outer else None
        if line is not None:
            found.add(f"`{line.statement.text}` at {frame_words(outer[0])}")
    if len(found) != 1:
        return ""
    return f" What is hashed comes from the call {found.pop()}."


@derived
def _reads_table(index: Index, place: str) -> bool:
    """Whether a process reads the table of an archive at a line, as getmember() of a tar does."""
    return any(
        each.what == ARCHIVE_TABLE and each.place == place
        for account in index.snapshot.account.processes.values()
        if account.uncounted
        for bucket in account.main.buckets
        for each in bucket.tally.seen
    )


def _goes_through(mark: Mark, line: SourceLine) -> bool:
    """Whether a comprehension at a line uses what a statement has given to a variable."""
    given = re.match(r"(\w+) = ", mark.statement.text)
    if given is None or line.function not in INNER:
        return False
    return re.search(rf"\b{given[1]}\b", line.statement.text) is not None


_USES_PATTERN = re.compile(
    r"\b([\w.]+)\.(sub|subn|search|match|fullmatch|findall|finditer|split)\("
)


_NAMES_PATTERN = re.compile(r"[\w.]+\s*(?::[^=]+)?= ")


class SlowPattern(Struct, frozen=True):
    """A regular expression that may take long, at a line that uses it."""

    text: str
    place: str
    """`line 5`."""
    is_square: bool = False
    """Whether it is a search from each place of a run; else it can match in many ways."""

    @property
    def words(self) -> str:
        """What it does."""
        what = (
            "can take a time like the square of the length of a run of characters"
            if self.is_square
            else "can match the same text in many ways"
        )
        return f"the regular expression {self.text} of {self.place} {what}"

    @property
    def cost(self) -> Costly:
        """Why a line takes long at which it is used again and again."""
        if self.is_square:
            return Costly(
                self.words,
                f". {_SQUARE}",
                f"{self.advice} More workers, cores or another chunksize do not help.",
            )
        return Costly(
            self.words,
            ". Where two of its repeats can take the same characters, each beginning and each way "
            "to divide a text is tried before it is given up: the time grows with the square of "
            "the length of a text without such a place, or faster: a long word, such as an encoded "
            "file, takes seconds, and with some patterns one text (a tag that is never closed) "
            "takes for ever.",
            f"{self.advice} Or pass over very long words before. More workers, cores or another "
            "chunksize do not help.",
        )

    @property
    def reason(self) -> str:
        """Why it may take long, in a sentence."""
        if self.is_square:
            return _SQUARE
        return (
            "Where one part of a text begins like a match and then does not end like one, each way "
            "to divide it is tried, and for some patterns each further character doubles the time."
        )

    @property
    def advice(self) -> str:
        """How to write it otherwise."""
        if self.is_square:
            return (
                f"Make {self.text} linear: let it begin only where a run begins, by a look behind "
                "((?<![ \\t])[ \\t]+$ in place of [ \\t]+$), bound its first repeat ({1,100}), or "
                "use methods of str (rstrip() of each line, partition())."
            )
        return (
            f"Let the repeats of {self.text} exclude each other ([^\\s@]+@[^\\s@]+ in place of "
            "\\S+@\\S+), or bound them ({1,64})."
        )

    @property
    def stuck(self) -> Costly:
        """The same in words for a line that has not come back."""
        reason = f": {self.reason[:1].lower()}{self.reason[1:]}"
        if self.is_square:
            return Costly(
                self.words,
                f"{reason} Most likely one text with such a run is being searched. {_HOLDS_GIL}",
                f"{self.advice} Or pass over texts with such runs before. More workers, another "
                "chunksize or a longer timeout do not help.",
            )
        return Costly(
            self.words,
            f"{reason} Most likely one text of that kind is being matched, and that does not end "
            f"in any useful time. {_HOLDS_GIL}",
            f"{self.advice} Or use a parser in place of the pattern; an atomic group (?>...) or a "
            "possessive repeat *+ (Python 3.11) never tries again. Where texts come from outside, "
            "match them in a process that can be ended at a time limit. More workers, another "
            "chunksize or a longer timeout do not help.",
        )


_SQUARE = (
    "It begins with a repeat without an end, and a search tries it from each place: where a text "
    "has a long run of what that takes (blanks, one long word) and does not go on there as the "
    "pattern needs, the rest of the run is gone through from each place in it, which for 100,000 "
    "characters is 5,000,000,000 steps."
)
_HOLDS_GIL = (
    "re holds the GIL meanwhile: no other thread of the process runs, and a timeout of a thread "
    "does not end it."
)


def _pattern_at(index: Index, line: SourceLine, *, is_named: bool = False) -> SlowPattern | None:
    """A regular expression that may take long, at a line that uses one.

    Of several in the file, the one whose name the line has; else the first that has no name, unless
    it has to be named at the line. One that can match in many ways comes first.
    """
    if found := _used_at(index, line, "uses-wide-pattern"):
        return found
    used = _USES_PATTERN.search(line.statement.text)
    written = [each for each in marks(index, "wide-pattern") if used and each.file == line.file]
    name = re.escape(used[1].rpartition(".")[2]) if used is not None else ""
    for each in written:
        is_it = re.match(rf"(?:\w+\.)*{name}\s*[:=]", each.statement.text)
        if is_it or each.statement == line.statement:
            return SlowPattern(each.about, f"line {each.statement.line}")
    if found := _used_at(index, line, "quadratic-pattern"):
        return found
    # A variable may go through patterns of a list or a dict; one of another name is another one.
    listed = [each for each in written if not _NAMES_PATTERN.match(each.statement.text)]
    is_of_text = used is not None and used[2] == "split"  # a method of str as well
    if not listed or is_of_text or is_named:
        return None
    return SlowPattern(listed[0].about, f"line {listed[0].statement.line}")


def _used_at(
    index: Index, line: SourceLine, kind: Literal["uses-wide-pattern", "quadratic-pattern"]
) -> SlowPattern | None:
    """What a variable of a line can be, or the pattern that is written there."""
    found = [
        each.about.partition(", ")
        for each in marks(index, kind)
        if (each.file, each.function) == (line.file, line.function)
        or (each.file == line.file and line.function in INNER)
        if line.statement.line <= each.statement.line <= max(line.line, line.statement.line)
    ]
    if not found:
        return None
    places = dict.fromkeys(each[0] for each in found)  # `5`, and `rules.py:5` elsewhere
    words = (each if ":" in each else f"line {each}" for each in places)
    return SlowPattern(found[0][2], " and ".join(words), kind == "quadratic-pattern")


_IN_RE = re.compile(r"/re(?:/__init__)?\.py$")
"""The file of `re` in stacks; the matching itself is native code, which is called at its lines."""


def slow_pattern(index: Index, stack: Sequence[Frame]) -> SlowPattern | None:
    """The regular expression that a thread matches and that may take long; `None` for no such one.

    The thread has to be at the line itself, or in a function of `re` that the line calls: at the
    same line it may as well be in another function of a library.
    """
    frames, frame = own_frames(stack), user_frame(stack)
    within = frames[:2] if frames and _IN_RE.search(frames[0].file) else frames[:1]
    if frame is None or is_library(within[-1]):
        return None
    line = source_of(index, frame)
    return _pattern_at(index, line, is_named=True) if line is not None else None


def only_slow_pattern(index: Index) -> tuple[Mark, SlowPattern] | None:
    """The only line of the program that uses one that may take long; `None` for none or several."""
    found = [*marks(index, "uses-wide-pattern"), *marks(index, "quadratic-pattern")]
    if len({(each.file, each.statement) for each in found}) != 1 or marks(index, "wide-pattern"):
        return None
    place, _, text = found[0].about.partition(", ")
    place = place if ":" in place else f"line {place}"
    return found[0], SlowPattern(text, place, found[0].kind == "quadratic-pattern")


_COSTS_OF_COPIES = frozenset(("page-fault-cost", "bottleneck-process"))
"""Rules about memory that is given anew, and about items that take ever longer: numbers and arrays
that are changed in place cost neither."""


def _past_cache(index: Index, place: str) -> Mark | None:
    """The one call of the function at a place that passes over the cache for its results."""
    line = line_at(index, place)
    found = [
        mark
        for mark in (marks(index, "past-cache") if line is not None else ())
        if line is not None
        and (mark.file, mark.about.partition(", ")[0]) == (line.file, line.function)
    ]
    return found[0] if len(found) == 1 else None


def with_copies(index: Index, finding: Finding) -> Finding:
    """A finding about a line that takes time, with what it copies or goes through each time.

    Or with the call of its function that passes over the cache for the results.
    """
    for place in dict.fromkeys(places_named((finding.summary,))):
        if (past := _past_cache(index, place)) is not None:
            name, _, cached = past.about.partition(", ")
            return replace(
                finding,
                summary=(
                    f"{finding.summary}, called past the cache of {cached}() by {past.function}()"
                ),
                cause=(
                    f"{mark_words(past)} calls {name}() itself and computes its result anew each "
                    f"time, while {cached}() keeps the results for arguments that were there "
                    f"before. {finding.cause}"
                ),
                advice=(
                    f"Call {cached}() in place of {name}() at {mark_place(past)} where the same "
                    f"arguments come again. {finding.advice}"
                ),
            )
        slow = costly(index, place)
        if slow is not None and slow.words in finding.summary:
            return finding
        if slow is not None:
            return replace(
                finding,
                summary=f"{finding.summary}: {slow.words}",
                cause=f"At that line, {slow.words}{slow.cause} {finding.cause}",
                advice=f"{slow.advice} {finding.advice}",
            )
        found = copying(index, place)
        if found is None or not (found.is_sure or finding.rule in _COSTS_OF_COPIES):
            continue
        return replace(
            finding,
            summary=f"{finding.summary}: {found.words}",
            cause=(
                f"{'' if found.is_sure else 'Likely: '}{found.words}. The longer that is, the "
                "longer takes each part that is added, and all of them together take a time like "
                f"the square of their number. {finding.cause}"
            ),
            advice=f"{found.advice} {finding.advice}",
        )
    return finding
