"""Source files of the lines that stacks name. They are parsed, never run.

A file of a job that hangs may be on a file system that hangs, so `SourceReads` reads on a thread of
its own, for which the loop of an observer does not wait.

Their text is hostile like all text of a job, and is cleaned here. Paths are those that the process
has, so they are opened below `/proc/PID/root`.
"""

from __future__ import annotations

import ast
import os
import queue
import re
import stat
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from mpwatch.describe.frames import is_library
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame, StacksTaken
from mpwatch.model.sanitize import clean
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.source_code import (
    LINES_LIMIT,
    DroppedResult,
    EndlessLoop,
    Mark,
    MarkKind,
    Skip,
    SourceLine,
    SourceRead,
    Statement,
)

FILE_BYTES: Final = 256 << 10
"""A longer file is not read: it is generated, and takes long to parse."""
FILES: Final = 64
NODES: Final = 60_000
"""A file of more syntax nodes is not used: 256 KiB of ordinary code have fewer."""
QUOTE_LIMIT: Final = 100
"""Characters of a quoted statement."""
ROWS: Final = 8
"""Lines of a quoted statement."""
NESTED: Final = 8
"""Statements kept around a line, and before it."""
DROPPED: Final = 16
"""Calls kept of one file."""
SHOWN: Final = 3
MARKS: Final = 24
"""Marks kept of one file."""
IMPORTED: Final = 32
"""Files that are read because another file imports them; the others are for lines of stacks."""
SKIPS: Final = 4
"""Kept of one function."""
CHANGED_S: Final = 2.0
"""Clocks of file systems are coarse."""
INNER: Final = frozenset(("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>"))
_POLL_S: Final = 0.01
STARTS_TASK: Final = frozenset(("submit", "apply_async", "map_async", "starmap_async"))


class _Module(NamedTuple):
    rows: tuple[str, ...]
    tree: ast.Module


class SourceCode:
    """Reads files of one job, each once, and at most `FILES` of them. Used by one thread."""

    def __init__(self) -> None:
        self._modules: dict[str, tuple[_Module | None, float]] = {}
        """Each file that was asked for, with the time of its last change."""
        self._marked: set[str] = set()

    def dropped(self, process: ProcessId, file: str, since_s: float) -> tuple[DroppedResult, ...]:
        """The calls of a file that start a task and drop its result; see `line`."""
        module = self._module(process, file, since_s)
        return () if module is None else tuple(sorted(_dropped(file, module)))[:DROPPED]

    def marks(self, process: ProcessId, file: str, since_s: float) -> tuple[Mark, ...]:
        """The marks of a file, and of the files beside it that it imports; of each file once.

        A line that takes no time is on no stack, so its file is found by its import. See `line`.
        """
        found: list[Mark] = []
        waiting = [file]
        while waiting:
            path = waiting.pop(0)
            is_more = path != file and path not in self._modules
            if path in self._marked or (is_more and len(self._modules) >= IMPORTED):
                continue
            self._marked.add(path)
            module = self._module(process, path, since_s)
            if module is not None:
                found += sorted(_marks(path, module), key=lambda mark: mark.statement.line)[:MARKS]
                waiting += _imported(path, module.tree)
        return tuple(found)

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
        starts = [place for place, node in enumerate(path) if isinstance(node, _FUNCTIONS)]
        first = starts[-1] + 1 if starts else 0
        if not _is_of(frame.function, path[starts[-1]] if starts else None):
            return None
        inside = path[first:]
        if not inside:
            return None
        return SourceLine(
            frame.file,
            frame.line,
            frame.function,
            _quoted(module, inside[-1]),
            tuple(_around(module, inside))[-NESTED:],
            tuple(_before(module, path[first - 1] if first else module.tree, inside))[-NESTED:],
            tuple(_ends(module, inside))[:NESTED],
            _endless(module, inside),
            tuple(islice(_skips(module, path[first - 1] if first else module.tree), SKIPS)),
        )

    def _module(self, process: ProcessId, file: str, since_s: float) -> _Module | None:
        if file not in self._modules:
            if len(self._modules) >= FILES:
                return None
            self._modules[file] = _read(process, file)
        module, changed_s = self._modules[file]
        return None if changed_s > since_s + CHANGED_S else module


def _read(process: ProcessId, file: str) -> tuple[_Module | None, float]:
    """A file, parsed, and when it was changed; `None` if it is not readable or no Python."""
    if not file.startswith("/") or not file.endswith(".py") or "\0" in file:
        return None, 0.0
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        owner = os.stat(f"/proc/{process.pid}").st_uid
        with open(os.open(f"/proc/{process.pid}/root{file}", flags), "rb") as opened:
            status = os.fstat(opened.fileno())
            if not _may_be_quoted(status, owner):
                return None, 0.0
            raw = opened.read(FILE_BYTES + 1)
        if len(raw) > FILE_BYTES:  # it grows
            return None, 0.0
        text = raw.decode()
        with warnings.catch_warnings():  # the file's own, which its author has seen
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None, 0.0
    if sum(1 for _ in ast.walk(tree)) > NODES:
        return None, 0.0
    return _Module(tuple(text.splitlines()), tree), status.st_mtime


def _may_be_quoted(status: os.stat_result, owner: int) -> bool:
    """Whether it is a file that also the owner of the process may read.

    Root reads all, and the name of a file is what the process says: it must not make root show what
    the process could not read itself.
    """
    is_readable = owner in (0, status.st_uid) or bool(status.st_mode & stat.S_IROTH)
    return stat.S_ISREG(status.st_mode) and status.st_size <= FILE_BYTES and is_readable


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_LOOPS = (ast.For, ast.While, ast.AsyncFor)
_BRANCHES = (ast.If, ast.ExceptHandler, ast.match_case)
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def _children(node: ast.AST) -> Iterator[tuple[str, ast.stmt | ast.ExceptHandler | ast.match_case]]:
    for block in _BLOCKS:
        for child in getattr(node, block, ()):
            if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                yield block, child


def _last_line(node: ast.AST) -> int:
    return getattr(node, "end_lineno", None) or _first_line(node)


def _first_line(node: ast.AST) -> int:
    if isinstance(node, ast.match_case):
        return node.pattern.lineno
    return getattr(node, "lineno", 0)


def _path_to(tree: ast.Module, line: int) -> list[ast.AST]:
    """The statements that contain a line, outermost first."""
    path: list[ast.AST] = []
    node: ast.AST = tree
    while True:
        inner = next(
            (child for _, child in _children(node) if _contains(child, line)),
            None,
        )
        if inner is None:
            return path
        path.append(inner)
        node = inner


def _contains(node: ast.AST, line: int) -> bool:
    if isinstance(node, ast.match_case):
        return _first_line(node) <= line <= max(_last_line(each) for each in node.body)
    return _first_line(node) <= line <= _last_line(node)


def _is_of(function: str, innermost: ast.AST | None) -> bool:
    """Whether a line in this function may be what a stack calls by that name."""
    if function in INNER:
        return True
    if innermost is None:
        return function == "<module>"
    return isinstance(innermost, _FUNCTIONS) and innermost.name == function


def _around(module: _Module, inside: Sequence[ast.AST]) -> Iterator[Statement]:
    """Headers of the compound statements around the last one; `else of if ...:` for that branch."""
    for node, inner in zip(inside, [*inside[1:], None], strict=True):
        if inner is None or isinstance(node, ast.Try | ast.ClassDef):
            continue
        header = _quoted(module, node)
        is_else = inner in getattr(node, "orelse", ())
        if is_else and isinstance(node, ast.If):
            yield Statement(header.line, f"else of {header.text}")
        elif not is_else:
            yield header


def _before(module: _Module, function: ast.AST, inside: Sequence[ast.AST]) -> Iterator[Statement]:
    """The conditions under which the last statement is not reached, of the blocks that it is in."""
    outer = function
    for node in inside:
        block = next((name for name, child in _children(outer) if child is node), None)
        for name, child in _children(outer):
            if child is node:
                break
            if name == block and isinstance(child, ast.If) and _leaves(child.body):
                yield _condition(module, child)
        outer = node


def _ends(module: _Module, inside: Sequence[ast.AST]) -> Iterator[Statement]:
    """The conditions that end the innermost loop around the last statement, but for those on it."""
    loops = [node for node in inside[:-1] if isinstance(node, _LOOPS)]
    waiting: list[ast.AST] = list(loops[-1].body) if loops else []
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef, *_LOOPS)):
            continue
        if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Break | ast.Return):
            yield _condition(module, node)
        waiting += [child for _, child in _children(node)]


_EXCHANGES = re.compile(
    "accept|acquire|all_gather|all_reduce|backward|barrier|broadcast|put|put_nowait|recv|recv_bytes"
    "|select|send|send_bytes|sendall|sleep|step"
)
_EXCHANGES_BARE = frozenset(("get", "get_nowait", "join", "poll", "result", "wait"))
"""Such a call without an argument that is no number; `record.get("text")` is of a dict."""


def _endless(module: _Module, inside: Sequence[ast.AST]) -> EndlessLoop | None:
    """The innermost `while True` around the last statement."""
    loops = [each for each in inside[:-1] if isinstance(each, ast.While) and _is_true(each.test)]
    if not loops:
        return None
    loop = loops[-1]
    ends: list[Statement] = []
    is_left = False
    gives = given_in = None
    for node, parents in _within(loop.body):
        is_break = isinstance(node, ast.Break) and not any(isinstance(p, _LOOPS) for p in parents)
        if is_break or isinstance(node, ast.Return):
            around = parents[-1] if parents else None
            is_alone = isinstance(around, ast.If) and node is around.body[-1]
            if isinstance(around, ast.If) and is_alone and len(ends) < NESTED:
                ends.append(_condition(module, around))
            is_left |= not is_alone
        elif isinstance(node, ast.Raise):
            is_left = True
        elif gives is None and any(isinstance(e, ast.Yield | ast.YieldFrom) for e in _parts(node)):
            gives = _quoted(module, node)
            given_in = _quoted(module, parents[-1]) if parents else None
    calls = [each for each in ast.walk(loop) if isinstance(each, ast.Call)]
    is_exchange = any(map(_exchanges, calls))
    return EndlessLoop(_quoted(module, loop), tuple(ends), is_left, gives, given_in, is_exchange)


def _is_true(test: ast.expr) -> bool:
    return isinstance(test, ast.Constant) and bool(test.value)


def _within(
    body: Sequence[ast.AST], parents: tuple[ast.AST, ...] = ()
) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    """The statements of a block and of those in it, in order, with the statements around each."""
    for node in body:
        yield node, parents
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            yield from _within([child for _, child in _children(node)], (*parents, node))


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """The expressions of a statement, without those of the statements in it."""
    waiting = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    while waiting:
        part = waiting.pop()
        yield part
        if not isinstance(part, ast.Lambda):
            waiting += [each for each in ast.iter_child_nodes(part) if isinstance(each, ast.expr)]


def _exchanges(call: ast.Call) -> bool:
    name = _last_name(call.func)
    is_bare = all(
        isinstance(each, ast.Constant) and isinstance(each.value, int | float) for each in call.args
    )
    return _EXCHANGES.fullmatch(name) is not None or (name in _EXCHANGES_BARE and is_bare)


_TAKES = re.compile(r"^(get|recv|acquire|take|pop|borrow|checkout|claim|lease|reserve)")
_GIVES = re.compile(r"^(put|send|release|give|free|push|recycle|restore|return_)")
_OF_ITSELF = {"get": ("task_done",), "acquire": ("release",), "claim": ("release",)}
_LOCKS = re.compile(r"acquire|(?<![ncb])lock$|claim|^enter|^begin|^start|^reserve")
_UNLOCKS = re.compile(r"^(release|unlock|free|remove|finish|done|end|close|unlink)")
_REMOVES = frozenset(("remove", "unlink", "rmdir"))


class _Taken(NamedTuple):
    """What one statement takes."""

    names: frozenset[str]
    """Variables that it binds to what it took."""
    receiver: str
    """What it was taken from: `self.free`."""
    returns: tuple[str, ...]
    """Methods of the receiver that give it back."""


def _skips(module: _Module, function: ast.AST) -> Iterator[Skip]:
    """The ways through a function past the statement that gives back what it took."""
    own = [node for _, node in _children(function)]
    for node, _ in _within(own):
        blocks = [getattr(node, name, []) for name in _BLOCKS]
        for block in (*blocks, own) if node is own[0] else blocks:
            for place, each in enumerate(block):
                if isinstance(each, ast.stmt):
                    around = node if isinstance(node, ast.Try) and block is node.body else None
                    yield from _skips_after(module, each, block[place + 1 :], around)
        if isinstance(node, ast.If):
            yield from _error_between(module, node, _lock_taken(node.test), node.body)


def _skips_after(
    module: _Module, node: ast.stmt, rest: Sequence[ast.AST], around: ast.Try | None
) -> Iterator[Skip]:
    """The ways past the statement of a block that gives back what an earlier one took.

    Args:
        module: The file.
        node: The earlier statement.
        rest: The later ones of its block.
        around: The `try` of which that is the body.
    """
    taken = _taken(node)
    if taken is not None:
        for number, later in enumerate(rest):
            back = next((each for each, _ in _within([later]) if _gives(each, taken)), None)
            if back is not None:
                yield from _left_between(module, node, rest[: number + 1], taken, back)
                handlers = around.handlers if around is not None else []
                for handler in handlers:
                    if _goes_on_without(handler, around, taken, back):
                        yield _skip(module, node, handler, None, back)
                break
    if isinstance(node, ast.Assign | ast.Expr):
        yield from _error_between(module, node, _lock_taken(node.value), rest)


def _left_between(
    module: _Module, node: ast.stmt, rest: Sequence[ast.AST], taken: _Taken, back: ast.AST
) -> Iterator[Skip]:
    """The statements that leave before something is given back."""
    for each, parents in _within(rest):
        finals = [p for p in parents if isinstance(p, ast.Try) and p.finalbody]
        if any(_gives(e, taken) for final in finals for e, _ in _within(final.finalbody)):
            continue
        is_left = (isinstance(each, ast.Return) and not _names(each) & taken.names) or (
            isinstance(each, ast.Continue | ast.Break)
            and not any(isinstance(p, _LOOPS) for p in parents)
        )
        around = next((p for p in reversed(parents) if isinstance(p, _BRANCHES)), None)
        is_before = _first_line(each) < _first_line(back)
        if is_left and is_before and around is not None and not _is_message(around, taken):
            if not any(_gives(e, taken) for e, _ in _within(_block_of(around, each))):
                yield _skip(module, node, each, around, back)
        elif isinstance(each, ast.ExceptHandler) and _goes_on_without(
            each, parents[-1] if parents else None, taken, back
        ):
            yield _skip(module, node, each, None, back)


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _is_message(around: ast.AST, taken: _Taken) -> bool:
    """Whether a condition asks what the thing taken is: a message that says to end, or nothing."""
    test = around.test if isinstance(around, ast.If) else None
    if isinstance(test, ast.UnaryOp):
        test = test.operand
    asked = test.left if isinstance(test, ast.Compare) else test
    return isinstance(asked, ast.Name) and asked.id in taken.names


def _goes_on_without(
    handler: ast.ExceptHandler, tried: ast.AST | None, taken: _Taken, back: ast.AST
) -> bool:
    """Whether an exception skips the statement that gives back, and its handler goes on."""
    if not isinstance(tried, ast.Try) or back not in [each for each, _ in _within(tried.body)]:
        return False
    does = [each for each, _ in _within([*handler.body, *tried.finalbody])]
    return not any(isinstance(each, ast.Raise) or _gives(each, taken) for each in does)


def _block_of(around: ast.AST, node: ast.AST) -> Sequence[ast.AST]:
    """The block of a compound statement that contains a statement."""
    for name in _BLOCKS:
        block: list[ast.AST] = getattr(around, name, [])
        if any(each is node for each, _ in _within(block)):
            return block
    return ()


def _error_between(
    module: _Module, node: ast.stmt, lock: str | None, rest: Sequence[ast.AST]
) -> Iterator[Skip]:
    """A call between taking a lock and releasing it whose exception skips the release."""
    if lock is None:
        return
    for number, later in enumerate(rest):
        if isinstance(later, ast.Expr) and _unlocks(later.value, lock):
            calls = [e for e in rest[:number] if _calls_something(e)]
            if calls:
                yield Skip(
                    _quoted(module, node),
                    _quoted(module, calls[0]),
                    None,
                    _quoted(module, later),
                    by_error=True,
                )
            return


def _calls_something(node: ast.AST) -> bool:
    """Whether a statement calls what may raise; logging does not."""
    found = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    names = {_receiver(each).rpartition(".")[2] for each in found}
    return (
        bool(found) and not isinstance(node, ast.Try) and not names <= {"log", "logger", "logging"}
    )


def _skip(
    module: _Module, node: ast.stmt, leaves: ast.AST, around: ast.AST | None, back: ast.AST
) -> Skip:
    under = None if around is None else _quoted(module, around)
    return Skip(_quoted(module, node), _quoted(module, leaves), under, _quoted(module, back))


def _taken(node: ast.stmt) -> _Taken | None:
    """What an assignment or a call takes; `None` for others."""
    call = node.value if isinstance(node, ast.Assign | ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    if not _TAKES.match(call.func.attr):
        return None
    targets = node.targets if isinstance(node, ast.Assign) else []
    names = {name for target in targets for name in _names(target)}
    returns = _OF_ITSELF.get(call.func.attr, ())
    return _Taken(frozenset(names), _receiver(call), returns)


def _gives(node: ast.AST, taken: _Taken) -> bool:
    """Whether a statement gives back what was taken."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr in taken.returns and _receiver(call) == taken.receiver:
        return True
    items = [e for arg in call.args for e in (arg.elts if isinstance(arg, ast.Tuple) else [arg])]
    passed = {each.id for each in items if isinstance(each, ast.Name)}
    return _GIVES.match(call.func.attr) is not None and not taken.names.isdisjoint(passed)


def _receiver(call: ast.Call) -> str:
    """`self.free` of `self.free.put(slot)`."""
    return ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _lock_taken(value: ast.expr | None) -> str | None:
    """What a call takes a lock from, empty for a file that it makes; `None` for other calls."""
    call = value.operand if isinstance(value, ast.UnaryOp) else value
    if not isinstance(call, ast.Call):
        return None
    names = {_last_name(each) for each in ast.walk(call) if isinstance(each, ast.expr)}
    if "O_EXCL" in names or _last_name(call.func) == "mkdir":
        return ""
    is_method = isinstance(call.func, ast.Attribute) and _LOCKS.search(call.func.attr)
    return _receiver(call) if is_method else None


def _unlocks(value: ast.expr, lock: str) -> bool:
    """Whether a call releases a lock, or removes a file where the lock is one."""
    if not isinstance(value, ast.Call):
        return False
    name = _last_name(value.func)
    if not lock:
        return name in _REMOVES
    return _UNLOCKS.match(name) is not None and _receiver(value) == lock


def _condition(module: _Module, node: ast.If) -> Statement:
    """`if step > 9: break`, with the statement that leaves."""
    header, last = _quoted(module, node), _quoted(module, node.body[-1])
    return Statement(header.line, clean(f"{header.text} {last.text}", QUOTE_LIMIT))


def _leaves(body: Sequence[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], _LEAVES)


def _quoted(module: _Module, node: ast.AST) -> Statement:
    """A statement in one line; of a compound one its header."""
    first, last = _first_line(node), _last_line(node)
    body = getattr(node, "body", None)
    rows = list(module.rows[first - 1 : first + ROWS - 1])
    if isinstance(body, list) and body:
        last = _first_line(body[0]) - 1
        if last < first:  # `if done: break`
            rows[0] = rows[0].encode()[: body[0].col_offset].decode()
            last = first
    rows = [row.partition("  #")[0] for row in rows[: last - first + 1]]
    return Statement(first, clean(" ".join(" ".join(rows).split()), QUOTE_LIMIT))


def _dropped(file: str, module: _Module) -> Iterator[DroppedResult]:
    executors = set(_executors(module.tree))
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
            continue
        call = node.value
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in STARTS_TASK:
            continue
        if call.func.attr == "submit" and _last_name(call.func.value) not in executors:
            continue  # other classes have a method of that name, too
        if not any(keyword.arg in (None, "error_callback") for keyword in call.keywords):
            yield DroppedResult(file, node.lineno, call.func.attr, _quoted(module, node))


def _executors(tree: ast.Module) -> Iterator[str]:
    """Names and attributes that the file binds to a new `...Executor(...)`."""
    for node in ast.walk(tree):
        made: list[tuple[ast.expr, ast.expr | None]] = []
        if isinstance(node, ast.Assign):
            made = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.AnnAssign):
            made = [(node.target, node.value)]
        elif isinstance(node, ast.With | ast.AsyncWith):
            made = [
                (each.optional_vars, each.context_expr)
                for each in node.items
                if each.optional_vars is not None
            ]
        for target, value in made:
            if isinstance(value, ast.Call) and _last_name(value.func).endswith("Executor"):
                yield _last_name(target)


def _last_name(node: ast.expr) -> str:
    """`pool` of `self.pool`; empty for what is no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


class _Request(NamedTuple):
    process: ProcessId
    frame: Frame
    since_s: float


class SourceReads:
    """Reads each line once."""

    def __init__(self, report: Callable[[SourceRead], None]) -> None:
        """Make it; the thread starts with the first request.

        Args:
            report: Called on the thread with what was read.
        """
        self._report = report
        self._code = SourceCode()
        self._known: set[tuple[str, int, str]] = set()
        self._new: list[tuple[ProcessId, Frame]] = []
        self._requests: queue.SimpleQueue[list[_Request] | None] = queue.SimpleQueue()
        self._files: set[str] = set()
        self._under_way = 0
        self._done = 0
        self._has_started = False

    def received(self, taken: StacksTaken) -> None:
        """Note the lines of new stacks."""
        for stack in taken.stacks:
            for frame in stack.frames:
                key = (frame.file, frame.line, frame.function)
                if key in self._known or len(self._known) >= LINES_LIMIT or is_library(frame):
                    continue
                self._known.add(key)
                self._new.append((taken.process, frame._replace(locals=())))

    def start_due(self, snapshot: Snapshot) -> None:
        """Begin to read the lines that were noted."""
        if not self._new:
            return
        requests = list(_with_start(snapshot, self._new))
        self._new = []
        self._under_way += 1
        self._requests.put(requests)
        if not self._has_started:
            self._has_started = True
            threading.Thread(target=self._run, name="mpwatch-source", daemon=True).start()

    def wait(self, limit_s: float) -> None:
        """Wait until everything requested was reported, at most this long."""
        end_s = time.monotonic() + limit_s
        while self._done < self._under_way and time.monotonic() < end_s:
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """End after the lines at hand, without waiting for that."""
        self._requests.put(None)

    def _run(self) -> None:
        while (requests := self._requests.get()) is not None:
            try:
                self._report(self._read(requests))
            finally:
                self._done += 1

    def _read(self, requests: list[_Request]) -> SourceRead:
        lines: list[SourceLine] = []
        dropped: list[DroppedResult] = []
        marks: list[Mark] = []
        for process, frame, since_s in requests:
            line = self._code.line(process, frame, since_s)
            if line is not None:
                lines.append(line)
            if frame.file not in self._files:
                self._files.add(frame.file)
                dropped += self._code.dropped(process, frame.file, since_s)
                marks += self._code.marks(process, frame.file, since_s)
        return SourceRead(time.monotonic(), tuple(lines), tuple(dropped), tuple(marks))


def _with_start(snapshot: Snapshot, frames: list[tuple[ProcessId, Frame]]) -> Iterator[_Request]:
    for process, frame in frames:
        known = snapshot.get(process)
        started_s = known.sample.born_wall_s if known is not None else None
        if started_s is not None:
            yield _Request(process, frame, started_s)


def _imported(file: str, tree: ast.Module) -> Iterator[str]:
    """The files beside a file that it may import, as far as their names are written in it."""
    folder = file.rpartition("/")[0]
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level <= 1:
            inside = [each.name for each in node.names]
            names = [node.module] if node.module else inside
            if node.module:
                names += [f"{node.module}.{each}" for each in inside]
        for name in names:
            yield f"{folder}/{name.replace('.', '/')}.py"


def _marks(file: str, module: _Module) -> Iterator[Mark]:
    """Statements that can be the reason for what is observed, in no order."""
    bounded = set(_bounded(module.tree))
    uses_arrays = not _roots(module.tree).isdisjoint(("torch", "numpy"))
    for function in (module.tree, *(n for n in ast.walk(module.tree) if isinstance(n, _FUNCTIONS))):
        name = function.name if isinstance(function, _FUNCTIONS) else "<module>"
        nodes = list(_own_nodes(function))
        found = [
            *_calls_marked(nodes),
            *(_views(nodes) if uses_arrays else ()),
            *_memo_fills(nodes, bounded),
            *_backoffs(module.tree, function, nodes),
        ]
        if isinstance(function, _FUNCTIONS):
            for each in function.decorator_list:
                if _is_unbounded_cache(each):
                    text = clean(f"@{ast.unparse(each)}", QUOTE_LIMIT)
                    yield Mark("cache", file, name, name, Statement(each.lineno, text))
                elif _last_name(each) in NO_GRAD or (
                    isinstance(each, ast.Call) and _last_name(each.func) in NO_GRAD
                ):
                    found.append(("no-grad", "", each))
        for kind, about, node in found:
            if kind == "cache" and (used := _decorated(module.tree, function)):
                about = f"{about} (for {', '.join(used[:SHOWN])})"
            yield Mark(kind, file, name, clean(about, QUOTE_LIMIT), _quoted(module, node))


def _decorated(tree: ast.Module, function: ast.AST) -> list[str]:
    """The functions of a file whose decorator is what contains a function, a class or another."""
    outer = {
        each.name
        for each in ast.walk(tree)
        if isinstance(each, (*_FUNCTIONS, ast.ClassDef)) and function in ast.walk(each)
    }
    return [
        each.name
        for each in ast.walk(tree)
        if isinstance(each, _FUNCTIONS) and outer.intersection(map(_last_name, each.decorator_list))
    ]


_Found: TypeAlias = tuple[MarkKind, str, ast.AST]
NO_GRAD: Final = frozenset(("no_grad", "inference_mode"))
_ADDS: Final = frozenset(("append", "appendleft", "add", "insert", "extend", "setdefault"))
_DROPS: Final = frozenset(("pop", "popitem", "popleft", "clear", "remove", "discard"))


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The syntax of a function, without that of functions defined in it."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _FUNCTIONS):
            waiting += ast.iter_child_nodes(node)


def _roots(tree: ast.Module) -> set[str]:
    """The first names of the modules that a file imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def _calls_marked(nodes: Sequence[ast.AST]) -> Iterator[_Found]:
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        name = _last_name(node.func)
        is_zero = bool(node.args) and getattr(node.args[-1], "value", None) == 0
        if name in NO_GRAD:
            yield "no-grad", "", node
        elif name == "backward" and isinstance(node.func, ast.Attribute):
            yield "backward", "", node
        elif name in ("alarm", "setitimer") and node.args and not is_zero:
            yield "alarm", _left_before_cancelled(nodes, node, name), node
        elif name in ("put", "put_nowait") and isinstance(node.func, ast.Attribute) and node.args:
            yield "put", ast.unparse(node.func.value), node


def _left_before_cancelled(nodes: Sequence[ast.AST], timer: ast.Call, name: str) -> str:
    """The lines of the `return` statements that leave a function with its timer set, as `39, 45`.

    They stand between the call that sets it and the first one that cancels it. Empty if there are
    none, if nothing here cancels it, or if a `finally` does.
    """
    calls = [n for n in nodes if isinstance(n, ast.Call) and _last_name(n.func) == name and n.args]
    ends = [n.lineno for n in calls if getattr(n.args[-1], "value", None) == 0]
    in_finally = {
        line
        for node in nodes
        if isinstance(node, ast.Try)
        for each in node.finalbody
        for line in range(each.lineno, _last_line(each) + 1)
    }
    later = [line for line in ends if line > timer.lineno]
    if not later or not in_finally.isdisjoint(ends):
        return ""
    leaves = (n.lineno for n in nodes if isinstance(n, ast.Return))
    return ", ".join(str(line) for line in sorted(leaves) if timer.lineno < line < min(later))


def _views(nodes: Iterable[ast.AST]) -> Iterator[_Found]:
    """Elements and slices of something that are put into a container."""
    for node in nodes:
        kept: list[ast.expr] = []
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            if isinstance(call.func, ast.Attribute) and call.func.attr in _ADDS:
                kept = [*call.args]
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            kept = [node.value]
        while kept:
            each = kept.pop()
            if isinstance(each, ast.Tuple | ast.List):
                kept += each.elts
            elif isinstance(each, ast.Dict):
                kept += each.values
            elif isinstance(each, ast.Subscript) and not (
                isinstance(each.slice, ast.Constant) and isinstance(each.slice.value, str)
            ):
                yield "view", ast.unparse(each), node


def _is_unbounded_cache(decorator: ast.expr) -> bool:
    """`@cache` of functools, or its `@lru_cache(maxsize=None)`."""
    if not isinstance(decorator, ast.Call):
        return ast.unparse(decorator) in ("cache", "functools.cache")
    if _last_name(decorator.func) != "lru_cache":
        return False
    sizes = [each.value for each in decorator.keywords if each.arg == "maxsize"]
    return any(
        isinstance(each, ast.Constant) and each.value is None
        for each in (*decorator.args[:1], *sizes)
    )


def _bounded(tree: ast.Module) -> Iterator[str]:
    """Containers from which a file removes something, or of which it asks the length."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _DROPS:
                yield ast.unparse(node.func.value)
        elif isinstance(node, ast.Call) and _last_name(node.func) == "len" and node.args:
            yield ast.unparse(node.args[0])
        elif isinstance(node, ast.Delete):
            for each in node.targets:
                yield ast.unparse(each.value if isinstance(each, ast.Subscript) else each)


def _memo_fills(nodes: Sequence[ast.AST], bounded: set[str]) -> Iterator[_Found]:
    """`self.items[key] = make(key)` in a function that looks for the key in it before."""
    looked: dict[str, set[str]] = defaultdict(set)
    for node in nodes:
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            looked[ast.unparse(node.comparators[0])].add(ast.unparse(node.left))
        elif (
            isinstance(node, ast.Call) and _last_name(node.func) == "get" and len(node.args) == 1
        ) and isinstance(node.func, ast.Attribute):
            looked[ast.unparse(node.func.value)].add(ast.unparse(node.args[0]))
    for node in nodes:
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Constant):
                name = ast.unparse(target.value)
                if name not in bounded and ast.unparse(target.slice) in looked[name]:
                    yield "cache", name, node


def _backoffs(tree: ast.Module, function: ast.AST, nodes: Sequence[ast.AST]) -> Iterator[_Found]:
    """Statements that make the next sleep longer where none in the file sets it back.

    An attribute is set back by any other assignment outside of `__init__`. A name is set back by
    one in a loop, and by leaving the function.
    """
    slept = {
        ast.unparse(part)
        for node in nodes
        if isinstance(node, ast.Call) and _last_name(node.func) == "sleep" and node.args
        for part in _slept(node.args[0])
    }
    grows = [(name, node) for node in nodes for name in _grown(node) if name in slept]
    for name, node in grows:
        is_attribute = "." in name
        places = [n for n in ast.walk(tree) if isinstance(n, _FUNCTIONS)]
        others = (
            [part for each in places if each.name != "__init__" for part in _own_nodes(each)]
            if is_attribute
            else [part for each in nodes if isinstance(each, _LOOPS) for part in _own_nodes(each)]
        )
        leaves = not is_attribute and any(isinstance(n, ast.Return | ast.Break) for n in others)
        is_module = not isinstance(function, _FUNCTIONS) and is_attribute
        if not leaves and not is_module and not any(_sets(each, name) for each in others):
            yield "backoff", name, node


def _slept(time: ast.expr) -> Sequence[ast.expr]:
    """The variables that a sleep lasts as long as: `x`, `min(x, limit)`, and not `x - now`."""
    if isinstance(time, ast.Call) and _last_name(time.func) in ("min", "max"):
        return time.args
    return [time]


_LOOPS = (ast.For, ast.While, ast.AsyncFor)


def _grown(node: ast.AST) -> Iterator[str]:
    """The variable that a statement makes larger by its own value: `x = min(2 * x, limit)`."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult | ast.Add | ast.LShift):
        yield ast.unparse(node.target)
    elif isinstance(node, ast.Assign) and len(node.targets) == 1:
        name = ast.unparse(node.targets[0])
        values = [ast.unparse(n) for n in ast.walk(node.value) if isinstance(n, ast.expr)]
        if name in values and any(
            isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult | ast.Add | ast.Pow)
            for n in ast.walk(node.value)
        ):
            yield name


def _sets(node: ast.AST, name: str) -> bool:
    """Whether a statement gives a variable a value that does not depend on its own."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    parts = [
        part for each in targets for part in (each.elts if isinstance(each, ast.Tuple) else [each])
    ]
    if name not in map(ast.unparse, parts):
        return False
    return name not in (ast.unparse(n) for n in ast.walk(node.value) if isinstance(n, ast.expr))
