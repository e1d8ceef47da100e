"""Source files of the lines that stacks name. They are parsed, never run.

A file of a job that hangs may be on a file system that hangs, so `observe.sources.on_demand` reads
on a thread of its own, for which the loop of an observer does not wait.

Their text is hostile like all text of a job, and is cleaned here. Paths are those that the process
has, so they are opened below `/proc/PID/root`.
"""

from __future__ import annotations

import ast
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from mpwatch.collect.process.foreign_files import open_as_owner
from mpwatch.collect.source.ambiguous_patterns import FileNames
from mpwatch.collect.source.call_graph import Program, program_of
from mpwatch.collect.source.coroutines import coroutines_in
from mpwatch.collect.source.growth.holders import growing_in
from mpwatch.collect.source.growth.kept import ARRAYS, ReturnedSlice, returned_slices_of
from mpwatch.collect.source.growth.kept_references import (
    handed_to_unrun_loops,
    kept_exceptions,
    named_loggers,
    raised_again,
    registrations,
    replaced_parameters,
    unclosed,
)
from mpwatch.collect.source.growth.made_files import made_files
from mpwatch.collect.source.growth.never_closed import never_closed
from mpwatch.collect.source.handing_over import admissions
from mpwatch.collect.source.lines.cache_keys import key_origins
from mpwatch.collect.source.lines.control_flow import (
    NESTED,
    asked,
    caught,
    clean_ups,
    cleared,
    connects,
    dropped,
    endless,
    guarded,
    headers_around,
    held,
    leaving_before,
    locks,
    may_send,
    skips,
    until,
    until_exits,
)
from mpwatch.collect.source.lines.deciding import ClassOfProgram, added_to, deciders
from mpwatch.collect.source.lines.endings import ENDINGS, endings
from mpwatch.collect.source.lines.idle_rounds import idle_round
from mpwatch.collect.source.lines.origins import OriginSearch, origins_in
from mpwatch.collect.source.lines.retries import retried
from mpwatch.collect.source.marks import marks
from mpwatch.collect.source.repetition import Call, Repeatable, calls_of, repeated
from mpwatch.collect.source.same_again import same_again
from mpwatch.collect.source.saved_parts import Part, returned_parts_of
from mpwatch.collect.source.slow_statements import find_rewrites, tensors_in
from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    LOOPS,
    ParsedFile,
    children,
    condition,
    every_node,
    first_line,
    imported_roots,
    last_line,
    of_file,
    quoted,
)
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.source_code import (
    INNER,
    LINES_LIMIT,
    Again,
    Coroutines,
    DroppedResult,
    Holder,
    LoopEnd,
    Mark,
    Origin,
    SourceLine,
    Statement,
)

FILE_BYTES: Final = 256 << 10
"""A longer file is not read: it is generated, and takes long to parse."""
FILES: Final = 64
NODES: Final = 60_000
"""A file of more syntax nodes is not used: 256 KiB of ordinary code have fewer.

The marks of one function of 56,000 nodes, put together from the statements of 400 programs, take
3.2 s of cpu, those of one of 8,000 nodes 0.3 s: some questions compare loops with each other.
"""
DEPTH: Final = 200
"""A file with deeper syntax is not used: functions that follow it call themselves."""
DROPPED: Final = 16
"""Calls kept of one file."""
MARKS: Final = 96
"""Marks kept of one file."""
MARKS_OF_KIND: Final = 24
"""Marks of one kind kept of one file: a long file takes hundreds of items out of queues."""
IMPORTED: Final = 32
"""Files that are read because another file imports them; the others are for lines of stacks."""
TRIED: Final = 256
"""Names of files that are tried: most imports are of installed packages."""
SKIPS: Final = 4
"""Kept of one function."""
LOCKS: Final = 6
"""Statements that take a lock, kept of one function."""
CHANGED_S: Final = 2.0
"""Clocks of file systems are coarse."""


class _TooLong(Exception):
    """A file is over one of the limits `FILE_BYTES`, `NODES` and `DEPTH`."""


class SourceCode:
    """Reads files of one job, each once, and at most `FILES` of them. Used by one thread."""

    def __init__(self) -> None:
        self._modules: dict[str, tuple[ParsedFile | None, float]] = {}
        """Each file that was asked for, with the time of its last change."""
        self._too_long: list[str] = []
        """Files over a limit that were not told yet."""
        self._marked: set[str] = set()
        self._names: dict[str, FileNames] = {}
        """Of the files that were marked: others may import them."""
        self._searched = 0
        """Files in which containers were looked for."""
        self._awaited = 0
        """Files in which waits of coroutines were looked for."""
        self._looked_through = 0
        """Files in which statements were looked for that do the same again."""
        self._walks: tuple[Again, ...] = ()
        self._program: Program | None = None
        self._program_files = 0
        """Files of which that is made."""
        self._origins: OriginSearch | None = None
        self._asked: dict[tuple[int, int], ast.AST] = {}
        """Functions, and lines in them, whose origins are to be looked for; each is asked once."""
        self._told: set[tuple[int, int]] = set()
        self._unrepeated: list[Repeatable] = []
        """Those that no loop of the files which were read repeats: another file may."""
        self._caches: list[Mark] = []
        """Those of which it is not known where their keys come from: another file may tell."""
        self._calls: defaultdict[str, list[Call]] = defaultdict(list)
        self._left: set[Mark] = set()
        """What was told as never closed."""

    def dropped(self, process: ProcessId, file: str, since_s: float) -> tuple[DroppedResult, ...]:
        """The calls of a file that start a task and drop its result; see `line`."""
        module = self._module(process, file, since_s)
        return () if module is None else tuple(sorted(dropped(file, module)))[:DROPPED]

    def marks(self, process: ProcessId, file: str, since_s: float) -> tuple[Mark, ...]:
        """The marks of a file, and of the files beside it that it imports; of each file once.

        A line that takes no time is on no stack, so its file is found by its import. See `line`.
        """
        found: list[Mark] = []
        waiting = [file]
        modules: list[tuple[str, ParsedFile]] = []
        links: dict[str, list[tuple[str, str]]] = {}
        while waiting:
            path = waiting.pop(0)
            is_more = path != file and path not in self._modules
            if path in self._marked or (is_more and self._is_full()):
                continue
            self._marked.add(path)
            module = self._module(process, path, since_s)
            if module is not None:
                modules.append((path, module))
                self._names[path] = FileNames(module.tree, path)
                links[path] = list(_imported(path, module.tree))
                waiting += [each for _, each in links[path]]
        elsewhere = self._returned_slices() if modules else {}
        parts = self._returned_parts() if modules else {}
        for path, imported in links.items():
            self._names[path].imports = {
                name: self._names[each] for name, each in reversed(imported) if each in self._names
            }
        for path, module in modules:
            found += _first_of_each(marks(path, module, elsewhere, self._names[path], parts))
            found += islice(named_loggers(path, module), MARKS_OF_KIND)
            found += islice(made_files(path, module), MARKS_OF_KIND)
            self._unrepeated += islice(registrations(path, module), MARKS_OF_KIND)
            self._unrepeated += islice(handed_to_unrun_loops(path, module), MARKS_OF_KIND)
            self._unrepeated += islice(kept_exceptions(path, module), MARKS_OF_KIND)
            self._unrepeated += islice(raised_again(path, module), MARKS_OF_KIND)
            self._unrepeated += islice(replaced_parameters(path, module), MARKS_OF_KIND)
            self._unrepeated += islice(unclosed(path, module), MARKS_OF_KIND)
            self._unrepeated += islice(find_rewrites(path, module), MARKS_OF_KIND)
            self._unrepeated += islice(admissions(path, module), MARKS_OF_KIND)
            for call in calls_of(path, module):
                self._calls[call.name].append(call)
        self._caches += (each for each in found if each.kind == "cache")
        for cache in list(self._caches) if modules else ():
            if origins := key_origins(cache, self._parsed()):
                self._caches.remove(cache)
                found += origins
        if modules and self._unrepeated:
            pairs = list(repeated(self._unrepeated, self._calls))
            found += (mark for _, mark in pairs)
            told = [each for each, _ in pairs]
            self._unrepeated = [each for each in self._unrepeated if each not in told]
        found += self._never_closed() if modules else ()
        return tuple(found)

    def _never_closed(self) -> Iterator[Mark]:
        """What loops make and nothing closes, of all files: another one may close it or repeat it.

        So it is told once its loop is known, and the files that were read then have no such call.
        """
        for _, mark in islice(
            repeated(never_closed([*self._parsed()]), self._calls), MARKS_OF_KIND
        ):
            if mark not in self._left:
                self._left.add(mark)
                yield mark

    def holders(self) -> tuple[Holder, ...] | None:
        """The containers that grow in the files that were read, `None` where there is no new one.

        What removes from one may be in a file that is read later, so all files are looked at anew,
        once there are a quarter more: for 100,000 nodes of syntax that takes 0.4 s of cpu with few
        classes, and 5 s with 400 of them.
        """
        program = self._current_program()
        if self._searched == self._program_files:
            return None
        self._searched = self._program_files
        found, self._walks = ((), ()) if program is None else growing_in(program)
        return found

    def again(self) -> tuple[Again, ...] | None:
        """What the files that were read do again in each round; `None` as for `holders`.

        After `holders`, which finds what goes through all of these.
        """
        program = self._current_program()
        if self._looked_through == self._program_files:
            return None
        self._looked_through = self._program_files
        return () if program is None else (*same_again(program), *self._walks)

    def coroutines(self) -> Coroutines | None:
        """What the files that were read show of waits of coroutines, `None` where none is new."""
        program = self._current_program()
        if self._awaited == self._program_files:
            return None
        self._awaited = self._program_files
        if program is None or self._origins is None:
            return Coroutines()
        return coroutines_in(program, self._origins.elsewhere)

    def _current_program(self) -> Program | None:
        """The program of the files that were read, made anew once there are a quarter more."""
        files = list(self._parsed())
        if len(files) >= self._program_files + max(1, self._program_files // 4):
            self._program_files = len(files)
            self._program = program_of(files)
            self._origins = None if self._program is None else origins_in(self._program)
        return self._program

    def origins(self) -> tuple[Origin, ...]:
        """Where the values come from that decide at the lines which were read; of each line once.

        After all lines of a stack: what calls a function may be in the file of another one.
        """
        self._current_program()
        found: list[Origin] = []
        if self._origins is None:
            return ()
        wanted: defaultdict[int, list[int]] = defaultdict(list)
        nodes: dict[int, ast.AST] = {}
        for (key, line), function in list(self._asked.items()):
            if self._origins.has(function):
                wanted[key].append(line)
                nodes[key] = function
                del self._asked[key, line]
        for key, lines in wanted.items():
            found += self._origins.of(nodes[key], lines)
        return tuple(found)

    def _ask(self, function: ast.AST, statements: Iterable[Statement]) -> None:
        for each in statements:
            key = id(function), each.line
            if key not in self._told and len(self._told) < LINES_LIMIT:
                self._told.add(key)
                self._asked[key] = function

    def _ask_of(self, function: ast.AST, line: SourceLine) -> None:
        """Note the statements that decide at a line, and where its wait would end."""
        loops = [each.header for each in line.ends_around]
        ends = [each.condition for each in line.ends_around]
        deciders = [each.statement for each in line.deciders]
        around = (*line.within, *line.after, *line.ends, *loops, *ends)
        self._ask(function, (line.statement, *around, *deciders))
        for ending in line.ended_by:
            where, _ = self._modules.get(ending.file, (None, 0.0))
            path = _path_to(where.tree, ending.statement.line) if where is not None else []
            functions = [each for each in path if isinstance(each, FUNCTIONS)]
            if where is not None:
                conditions = [each for each in (ending.under, ending.after) if each is not None]
                self._ask(functions[-1] if functions else where.tree, conditions)

    def line(self, process: ProcessId, frame: Frame, since_s: float) -> SourceLine | None:
        """The statement that a frame is at.

        Args:
            process: Whose frame it is.
            frame: A frame of a file of the program.
            since_s: When the process was started, seconds of the wall clock; a file that was
                changed later has other lines.

        Returns:
            `None` if the file cannot be read, was changed, or has no such function at that line.
        """
        module = self._module(process, frame.file, since_s)
        if module is None or not 0 < frame.line <= len(module.rows):
            return None
        path = _path_to(module.tree, frame.line)
        starts = [place for place, node in enumerate(path) if isinstance(node, FUNCTIONS)]
        first = starts[-1] + 1 if starts else 0
        if not _is_of(frame.function, path[starts[-1]] if starts else None):
            return None
        inside = path[first:]
        if not inside:
            return None
        function = path[first - 1] if first else module.tree
        found = SourceLine(
            frame.file,
            frame.line,
            frame.function,
            quoted(module, inside[-1]),
            tuple(headers_around(module, inside))[-NESTED:],
            tuple(leaving_before(module, function, inside))[-NESTED:],
            tuple(_ends(module, inside))[:NESTED],
            endless(module, inside),
            tuple(islice(skips(module, function), SKIPS)),
            first_line(function),
            tuple(islice(locks(module, function), LOCKS)),
            may_send(module, function, frame.line),
            tuple(islice(held(module, function, inside), LOCKS)),
            until_exits(module, inside),
            connects(module, inside),
            tuple(islice(guarded(module, function, inside), NESTED)),
            cleared(module, function, inside),
            tuple(deciders(module, function, inside, [each for _, each in self._parsed()])),
            tuple(added_to(frame.file, module, function, self._class_of)),
            until(module, inside),
            asked(module, function, inside),
            tuple(islice(endings(frame.file, function, inside, self._parsed()), ENDINGS)),
            tuple(islice(_ends_around(module, inside), NESTED)),
            isinstance(function, ast.AsyncFunctionDef),
            idle_round(frame.file, module, function, inside, self._parsed()),
            retried(frame.file, module, function, inside, self._parsed()),
            tuple(clean_ups(module, inside)),
            tuple(islice(caught(module, inside), NESTED)),
        )
        self._ask_of(function, found)
        return found

    def too_long(self) -> list[str]:
        """The files over a limit, of which nothing is known; each is told once."""
        found, self._too_long = self._too_long, []
        return found

    def _parsed(self) -> Iterator[tuple[str, ParsedFile]]:
        """The files that were read so far."""
        for path, (module, _) in self._modules.items():
            if module is not None:
                yield path, module

    def _class_of(self, name: str) -> ClassOfProgram | None:
        """The class of this name, if the files that were read have exactly one."""
        found: ClassOfProgram | None = None
        for file, (module, _) in self._modules.items():
            for node in module.tree.body if module is not None else ():
                if isinstance(node, ast.ClassDef) and node.name == name:
                    if found is not None or module is None:
                        return None
                    found = ClassOfProgram(file, module, node)
        return found

    def _returned_slices(self) -> dict[str, ReturnedSlice]:
        """The functions that return a slice, of names that only one of the files read has."""
        found: dict[str, ReturnedSlice] = {}
        twice: set[str] = set()
        for path, (module, _) in self._modules.items():
            if module is None or ARRAYS.isdisjoint(imported_roots(module.tree)):
                continue
            for name, each in returned_slices_of(module.tree).items():
                twice |= {name} & found.keys()
                found[name] = each._replace(file=path.rpartition("/")[2])
        return {name: each for name, each in found.items() if name not in twice}

    def _returned_parts(self) -> dict[str, Part]:
        """The functions that return a part of a tensor, of names that only one file has."""
        found: dict[str, Part] = {}
        twice: set[str] = set()
        for path, (module, _) in self._modules.items():
            if module is None or "torch" not in imported_roots(module.tree):
                continue
            for name, each in of_file(module.tree, _parts_in).items():
                twice |= {name} & found.keys()
                found[name] = each._replace(made=f"{path.rpartition('/')[2]}:{each.made}")
        return {name: each for name, each in found.items() if name not in twice}

    def _is_full(self) -> bool:
        """Whether no more files are read only because another one imports them."""
        found = sum(module is not None for module, _ in self._modules.values())
        return found >= IMPORTED or len(self._modules) >= TRIED

    def _module(self, process: ProcessId, file: str, since_s: float) -> ParsedFile | None:
        if file not in self._modules:
            if sum(module is not None for module, _ in self._modules.values()) >= FILES:
                return None
            try:
                self._modules[file] = _read(process, file)
            except _TooLong:
                self._too_long.append(file)
                self._modules[file] = None, 0.0
        module, changed_s = self._modules[file]
        return None if changed_s > since_s + CHANGED_S else module


def _first_of_each(found: Iterable[Mark]) -> list[Mark]:
    """The first `MARKS_OF_KIND` marks of each kind in a file, and at most `MARKS`."""
    counts: Counter[str] = Counter()
    kept: list[Mark] = []
    for mark in sorted(found, key=lambda mark: mark.statement.line):
        counts[mark.kind] += 1
        if counts[mark.kind] <= MARKS_OF_KIND:
            kept.append(mark)
    return kept[:MARKS]


def _read(process: ProcessId, file: str) -> tuple[ParsedFile | None, float]:
    """A file, parsed, and when it was changed; `None` if it is not readable or no Python.

    Raises:
        _TooLong: It is over a limit.
    """
    if not file.startswith("/") or not file.endswith(".py") or "\0" in file:
        return None, 0.0
    try:
        descriptor, status = open_as_owner(process.pid, file, f"/proc/{process.pid}/root")
        with open(descriptor, "rb") as opened:
            raw = opened.read(FILE_BYTES + 1)
        if len(raw) > FILE_BYTES:
            raise _TooLong
        text = raw.decode()
        with warnings.catch_warnings():  # the file's own, which its author has seen
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None, 0.0
    if not _is_ordinary(tree):
        raise _TooLong
    return ParsedFile(tuple(text.splitlines()), tree), status.st_mtime


def _is_ordinary(tree: ast.Module) -> bool:
    """Whether a file has at most `NODES` syntax nodes, and none deeper than `DEPTH`."""
    waiting: list[tuple[ast.AST, int]] = [(tree, 0)]
    count = 0
    while waiting:
        node, depth = waiting.pop()
        count += 1
        if count > NODES or depth > DEPTH:
            return False
        waiting += [(child, depth + 1) for child in ast.iter_child_nodes(node)]
    return True


def _path_to(tree: ast.Module, line: int) -> list[ast.AST]:
    """The statements that contain a line, outermost first."""
    path: list[ast.AST] = []
    node: ast.AST = tree
    while True:
        inner = next(
            (child for _, child in children(node) if _contains(child, line)),
            None,
        )
        if inner is None:
            return path
        path.append(inner)
        node = inner


def _contains(node: ast.AST, line: int) -> bool:
    if isinstance(node, ast.match_case):
        return first_line(node) <= line <= max(last_line(each) for each in node.body)
    return first_line(node) <= line <= last_line(node)


def _is_of(function: str, innermost: ast.AST | None) -> bool:
    """Whether a line in this function may be what a stack calls by that name."""
    if function in INNER:
        return True
    if innermost is None:
        return function == "<module>"
    return isinstance(innermost, FUNCTIONS) and innermost.name == function


def _ends(module: ParsedFile, inside: Sequence[ast.AST]) -> Iterator[Statement]:
    """The conditions that end the innermost loop around the last statement, but for those on it."""
    loops = [node for node in inside[:-1] if isinstance(node, LOOPS)]
    return _ends_of(module, loops[-1]) if loops else iter(())


def _ends_around(module: ParsedFile, inside: Sequence[ast.AST]) -> Iterator[LoopEnd]:
    """The conditions that end the loops around that one, and those, innermost first."""
    loops = [node for node in inside[:-1] if isinstance(node, LOOPS)]
    for loop in loops[-2::-1]:
        header = quoted(module, loop)
        yield from (LoopEnd(header, each) for each in _ends_of(module, loop))


def _ends_of(module: ParsedFile, loop: ast.For | ast.While | ast.AsyncFor) -> Iterator[Statement]:
    """The conditions in a loop that end it, but for those in loops within."""
    waiting: list[ast.AST] = list(loop.body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, (*FUNCTIONS, ast.ClassDef, *LOOPS)):
            continue
        if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Break | ast.Return):
            yield condition(module, node)
        waiting += [child for _, child in children(node)]


def _imported(file: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The modules that a file imports, as written, each with the files of the program it may be.

    They are beside it; or, where it is in a package, below the folder that contains the package.
    """
    folder = file.rpartition("/")[0]
    above, _, own = folder.rpartition("/")
    for node in every_node(tree):
        names: list[str] = []
        level = node.level if isinstance(node, ast.ImportFrom) else 0
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and level <= 2:
            inside = [each.name for each in node.names]
            names = [node.module] if node.module else inside
            if node.module:
                names += [f"{node.module}.{each}" for each in inside]
        for name in names:
            is_above = level == 2 or (level == 0 and name.partition(".")[0] == own)
            path = f"{above if is_above else folder}/{name.replace('.', '/')}"
            dots = "." * level
            yield f"{dots}{name}", f"{path}.py"
            yield f"{dots}{name}", f"{path}/__init__.py"


def _parts_in(tree: ast.Module) -> Mapping[str, Part]:
    """See `returned_parts_of`."""
    return returned_parts_of(tree, of_file(tree, tensors_in))
