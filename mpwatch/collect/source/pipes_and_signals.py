"""Statements about signals, and those by which a pipe or socket fails or waits.

Python reads from a pipe or socket as much as there is, and gives out of that what was asked for.
poll() and select() see only what is still in the kernel. The default action of SIGPIPE ends the
process that writes. What is written to a program stays in a buffer until it is flushed, and of a
message that is sent in two parts the second may wait for the answer to the first (Nagle).

Signals are those that a program sends, asks for or sets timers with, and the exit statuses that it
takes.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from signal import Signals
from types import MappingProxyType
from typing import Final, NamedTuple

from mpwatch.collect.source.growth.kept import container_of
from mpwatch.collect.source.lines.leaves import reads_clock
from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    LOOPS,
    ORDERS,
    QUOTE_LIMIT,
    Found,
    ParsedFile,
    are_apart,
    before,
    bindings,
    calls_in,
    children,
    every_node,
    expression_text,
    first_line,
    functions_in,
    imported_roots,
    is_inside,
    last_line,
    last_name,
    of_file,
    own_nodes,
    quoted,
    receiver_of,
    within,
)
from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import RAISE_OF

_WAITING: Final = frozenset(("asyncio", "multiprocessing", "select", "selectors"))
"""Modules whose functions wait for descriptors."""
_STREAMS: Final = frozenset(("stderr", "stdin", "stdout"))
_BUFFERED: Final = frozenset(("BufferedReader", "TextIOWrapper", "fdopen", "makefile", "popen"))
"""What makes a file object with a buffer of its own."""
_WRAPS: Final = frozenset(("fileno", *_BUFFERED))
"""Calls after which the same descriptor has another name."""
_DRAINED: Final = frozenset(("O_NONBLOCK", "peek", "set_blocking", "setblocking"))
"""Names in a file that may look at what is in the buffer, or read until nothing is left."""


class BufferedFiles(NamedTuple):
    """What a file of the program waits for and also reads through a buffer."""

    waited: Mapping[str, int]
    """Each such file object, see `_key`, and the line that waits for it or registers it."""
    aliases: Mapping[str, ast.expr]


def buffered_files(tree: ast.Module) -> BufferedFiles:
    """The file objects for whose descriptors statements of a file wait."""
    if _WAITING.isdisjoint(imported_roots(tree)):
        return BufferedFiles({}, {})
    names = {last_name(n) for n in every_node(tree) if isinstance(n, ast.Name | ast.Attribute)}
    if not _DRAINED.isdisjoint(names):
        return BufferedFiles({}, {})
    aliases = {
        _name(target): node.value
        for node in every_node(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name | ast.Attribute)
    }
    plain = _without_buffer(tree)
    waited: dict[str, int] = {}
    for call in (node for node in every_node(tree) if isinstance(node, ast.Call)):
        for each in _waited_for(call, aliases):
            key = _key(each, aliases)
            if key and key.rpartition(".")[0] not in plain:
                waited.setdefault(key, call.lineno)
    return BufferedFiles(waited, aliases)


def find_buffered_reads(
    function: ast.AST, nodes: Sequence[ast.AST], files: BufferedFiles
) -> Iterator[Found]:
    """`process.stdout.readline()`, where the file waits for `process.stdout` by poll().

    Args:
        function: A function, or the file.
        nodes: Its own syntax.
        files: What the file waits for.
    """
    ready = _given_out(function) if files.waited else frozenset()
    for node in nodes if files.waited else ():
        read = _read_from(node)
        if read is None:
            continue
        name = expression_text(read)
        key = _key(read, files.aliases)
        if key not in files.waited and (name in ready or name.endswith(".fileobj")):
            key = next(iter(files.waited))
        is_known = _is_buffered(read, files.aliases) or name in ready or name.endswith(".fileobj")
        if key in files.waited and is_known:
            yield "buffered-read", f"{name}, {files.waited[key]}", node


def _without_buffer(tree: ast.Module) -> frozenset[str]:
    """Programs that are started with bufsize=0 and exchange bytes: their files have no buffer."""
    found: set[str] = set()
    for node in every_node(tree):
        call = node.value if isinstance(node, ast.Assign) else None
        if not isinstance(node, ast.Assign) or not isinstance(call, ast.Call):
            continue
        given = {each.arg: each.value for each in call.keywords}
        is_text = any(
            each in given for each in ("encoding", "errors", "text", "universal_newlines")
        )
        if getattr(given.get("bufsize"), "value", None) == 0 and not is_text:
            found.update(_name(target) for target in node.targets)
    return frozenset(found)


def _waited_for(call: ast.Call, aliases: Mapping[str, ast.expr]) -> Iterator[ast.expr]:
    """What a call registers or waits for: `poller.register(f)`, `select.select([f], [], [])`."""
    name = last_name(call.func)
    if not call.args or receiver_of(call) == "atexit":
        return
    first = call.args[0]
    if name in ("add_reader", "register"):
        yield first
    elif name in ("select", "wait"):
        listed = aliases.get(_name(first), first)
        yield from listed.elts if isinstance(listed, ast.List | ast.Tuple | ast.Set) else ()


def _read_from(node: ast.AST) -> ast.expr | None:
    """What a piece of syntax reads a part of, so that more may be left in a buffer.

    read() reads to the end, and read1() passes on what one system call has given.
    """
    if isinstance(node, ast.For):
        leaves = any(
            isinstance(each, ast.Break | ast.Return)
            for part in node.body
            for each in own_nodes(part)
        ) or any(isinstance(each, ast.Break | ast.Return) for each in node.body)
        return node.iter if leaves and isinstance(node.iter, ast.Name | ast.Attribute) else None
    if not isinstance(node, ast.Call):
        return None
    name = last_name(node.func)
    if name == "next" and isinstance(node.func, ast.Name) and node.args:
        return node.args[0]
    if name == "input" and isinstance(node.func, ast.Name):
        return ast.Attribute(ast.Name("sys", ast.Load()), "stdin", ast.Load())
    if not isinstance(node.func, ast.Attribute):
        return None
    is_part = name == "readline" or (name == "read" and len(node.args) == 1)
    return node.func.value if is_part else None


def _is_buffered(read: ast.expr, aliases: Mapping[str, ast.expr]) -> bool:
    """Whether it is a file object with a buffer, as far as its name or its making shows."""
    for _ in range(len(aliases) + 1):
        if isinstance(read, ast.Call):
            return last_name(read.func) in _BUFFERED
        if last_name(read) in _STREAMS:
            return True
        made = aliases.get(_name(read))
        if made is None or made is read:
            return False
        read = made
    return False


def _given_out(function: ast.AST) -> frozenset[str]:
    """The variables of a function that a call of select() has set: those that are ready."""
    found: set[str] = set()
    for node in own_nodes(function):
        if isinstance(node, ast.Assign) and _is_select(node.value):
            target = node.targets[0]
            first = target.elts[0] if isinstance(target, ast.Tuple) else target
            found.add(expression_text(first))
    each_of: set[str] = set()
    for node in own_nodes(function) if isinstance(function, (*FUNCTIONS, ast.Module)) else ():
        if isinstance(node, LOOPS) and not isinstance(node, ast.While):
            is_it = expression_text(node.iter) in found or any(map(_is_select, ast.walk(node.iter)))
            if is_it and isinstance(node.target, ast.Name):
                each_of.add(node.target.id)
    return frozenset(each_of)


def _is_select(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript):
        node = node.value
    return isinstance(node, ast.Call) and expression_text(node.func) in (
        "connection.wait",
        "multiprocessing.connection.wait",
        "select",
        "select.select",
    )


def _name(node: ast.AST) -> str:
    """A variable by the last part of its name, and an output by that of its program as well."""
    text = expression_text(node) if isinstance(node, ast.Name | ast.Attribute) else ""
    parts = text.split(".")
    return ".".join(parts[-2:]) if parts[-1] in _STREAMS else parts[-1]


def _key(node: ast.expr, aliases: Mapping[str, ast.expr]) -> str:
    """What several names of one descriptor have in common: `proc.stdout` of `out.fileno()`."""
    for _ in range(len(aliases) + 1):
        if isinstance(node, ast.Call) and last_name(node.func) in _WRAPS:
            is_method = last_name(node.func) in ("fileno", "makefile")
            inner = node.func.value if isinstance(node.func, ast.Attribute) and is_method else None
            inner = inner or (node.args[0] if node.args else None)
            if inner is None:
                return ""
            node = inner
            continue
        if isinstance(node, ast.Attribute) and node.attr == "buffer":
            node = node.value
            continue
        made = aliases.get(_name(node))
        is_alias = isinstance(made, ast.Name | ast.Attribute) or (
            isinstance(made, ast.Call) and last_name(made.func) in _WRAPS
        )
        if made is None or not is_alias or made is node:
            break
        node = made
    return _name(node)


_SIGNAL: Final = "SIGPIPE"
_OF_ALL: Final = frozenset(("NSIG", "Signals", "valid_signals"))
"""Names in an expression that gives the numbers of all signals."""


def find_default_sigpipe(
    nodes: Sequence[ast.AST], assigned: Mapping[str, ast.expr]
) -> Iterator[Found]:
    """`signal.signal(signal.SIGPIPE, signal.SIG_DFL)`, also in a loop over several signals.

    Args:
        nodes: The syntax of a function, or of the file.
        assigned: What the file gives to its variables and attributes.
    """
    loops = [each for each in nodes if isinstance(each, ast.For)]
    for call in (each for each in nodes if isinstance(each, ast.Call)):
        if last_name(call.func) not in ("signal", "sigaction") or len(call.args) != 2:
            continue
        which, action = call.args
        if last_name(action) != "SIG_DFL":
            continue
        if last_name(which) == _SIGNAL:
            yield "default-sigpipe", "", call
            continue
        for loop in loops:
            names = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
            is_its = names & {n.id for n in ast.walk(which) if isinstance(n, ast.Name)}
            is_around = any(call is part for part in ast.walk(loop))
            if is_its and is_around and not _leaves_out(loop) and _has(loop.iter, assigned):
                yield "default-sigpipe", "", call
                break


def _has(signals: ast.expr, assigned: Mapping[str, ast.expr]) -> bool:
    """Whether SIGPIPE is among the signals of an expression, or they are all."""
    for _ in range(len(assigned)):
        made = assigned.get(expression_text(signals))
        if made is None or made is signals:
            break
        signals = made
    parts = list(ast.walk(signals))
    if any(isinstance(each, ast.BinOp) and isinstance(each.op, ast.Sub) for each in parts):
        return False  # a set without some of them
    if any(_is_sigpipe(each) for part in parts for each in _conditions(part)):
        return False
    if any(_is_sigpipe(each) for each in parts):
        return True
    names = {last_name(n) for n in parts if isinstance(n, ast.Name | ast.Attribute)}
    return not _OF_ALL.isdisjoint(names)


def _conditions(node: ast.AST) -> Iterator[ast.AST]:
    """What the conditions of a comprehension are made of."""
    for each in node.ifs if isinstance(node, ast.comprehension) else ():
        yield from ast.walk(each)


def _leaves_out(loop: ast.For) -> bool:
    """Whether a loop has a condition on SIGPIPE."""
    return any(
        _is_sigpipe(part)
        for each in loop.body
        for node in ast.walk(each)
        if isinstance(node, ast.If)
        for part in ast.walk(node.test)
    )


def _is_sigpipe(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return node.value == _SIGNAL
    return isinstance(node, ast.Name | ast.Attribute) and last_name(node) == _SIGNAL


def _flushes_input(tree: ast.Module) -> bool:
    """Whether a file flushes what it writes to the input of other programs, or has no buffer."""
    for call in (node for node in every_node(tree) if isinstance(node, ast.Call)):
        if last_name(call.func) in ("flush", "communicate", "drain", "reconfigure"):
            return True
        for each in call.keywords:
            value = getattr(each.value, "value", None)
            if each.arg in ("flush", "line_buffering", "write_through") and value is not False:
                return True
            if each.arg == "bufsize" and expression_text(each.value) != "-1":
                return True
    return False


def find_unflushed(module: ParsedFile, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """What is written to the input of another program, in a file that flushes none of it."""
    closed = {
        receiver_of(each)
        for each in nodes
        if isinstance(each, ast.Call) and last_name(each.func) == "close"
    }
    found = [each for each in _writes_to_input(nodes) if each[1] not in closed]
    if found and not of_file(module.tree, _flushes_input):
        yield from found


def _writes_to_input(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`process.stdin.write(line)`, or `print(line, file=process.stdin)`."""
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        name, to = last_name(node.func), receiver_of(node)
        if name == "print":
            to = next((expression_text(e.value) for e in node.keywords if e.arg == "file"), "")
        if name in ("print", "write", "writelines") and to.endswith(".stdin") and to != "sys.stdin":
            yield "unflushed", to, node


def find_prompts(module: ParsedFile, function: ast.AST) -> Iterator[Found]:
    """`input("Overwrite? ")`, and `readline()` of standard input after half a line was written."""
    statements = [node for _, node in children(function)]
    for node, parents in within(statements):
        for call in _own_calls(node):
            if _reads_input(call):
                if call.args and isinstance(call.func, ast.Name):
                    if not _ends_line(call.args[0]):
                        yield "prompts", "", node
                    continue
                written = _last_output(function, (*parents, node))
                if written is not None:
                    header = quoted(module, written)
                    yield "prompts", f"{header.text} in line {header.line}", node


def _own_calls(node: ast.AST) -> Iterator[ast.Call]:
    """The calls in a simple statement, or in the header of a compound one."""
    parts: Sequence[ast.AST] = [node]
    if hasattr(node, "body"):
        parts = [each for name in ("test", "iter") if (each := getattr(node, name, None))]
    for each in parts:
        yield from calls_in(each)


def _reads_input(call: ast.Call) -> bool:
    """Whether it reads one line of standard input: `input()`, `sys.stdin.readline()`."""
    if isinstance(call.func, ast.Name):
        return call.func.id == "input"
    return expression_text(call.func) in ("sys.stdin.readline", "stdin.readline")


def _last_output(function: ast.AST, inside: Sequence[ast.AST]) -> ast.stmt | None:
    """The statement that has written last before a line, if that was no whole line."""
    found: ast.stmt | None = None
    for each in before(function, inside):
        call = each.value if isinstance(each, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(each, ast.stmt):
            continue
        name, to = last_name(call.func), receiver_of(call)
        if name == "print" and isinstance(call.func, ast.Name):
            end = next((e.value for e in call.keywords if e.arg == "end"), None)
            is_file = any(e.arg == "file" and not _is_output(e.value) for e in call.keywords)
            if not is_file:
                found = None if end is None or _ends_line(end) else each
        elif name == "write" and to.rpartition(".")[2] in ("stdout", "stderr"):
            found = None if not call.args or _ends_line(call.args[0]) else each
    return found


def _is_output(node: ast.expr) -> bool:
    return last_name(node) in ("stdout", "stderr")


def _ends_line(text: ast.expr) -> bool:
    """Whether a text ends a line, or is not known to end otherwise."""
    last = text.values[-1] if isinstance(text, ast.JoinedStr) and text.values else text
    value = getattr(last, "value", None)
    return not isinstance(value, str) or value.endswith("\n")


def find_two_writes(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`self.end_headers()` and `self.wfile.write(body)`, or two calls of `sock.sendall`."""
    calls = sorted((each for each in nodes if isinstance(each, ast.Call)), key=first_line)
    before: ast.Call | None = None
    for call in calls:
        name = last_name(call.func)
        is_body = name == "write" and container_of(receiver_of(call)) == "wfile"
        if (
            before is not None
            and not are_apart(nodes, before, call)
            and (is_body or _loops_around(nodes, before) == _loops_around(nodes, call))
            and (
                (is_body and last_name(before.func) == "end_headers")
                or (name in _SENDS and _is_next_part(before, call))
            )
        ):
            yield "two-writes", "", call
            return
        # Only sockets have sendall().
        is_send = name == "sendall" or (name == "send" and _is_socket(receiver_of(call)))
        if name == "end_headers" or is_send:
            before = call


def _loops_around(nodes: Sequence[ast.AST], call: ast.Call) -> list[int]:
    """The lines of the loops around a call: what is sent before a loop is no part of a message."""
    loops = [each for each in nodes if isinstance(each, LOOPS)]
    return [each.lineno for each in loops if is_inside(call, each)]


def _is_next_part(before: ast.Call, call: ast.Call) -> bool:
    """Whether a call sends more to the same, and not the same again, as a second attempt does."""
    sent, more = (list(map(expression_text, each.args)) for each in (before, call))
    return receiver_of(before) == receiver_of(call) and sent != more


_SENDS: Final = frozenset(("send", "sendall"))


def _is_socket(name: str) -> bool:
    """Whether a name is that of a socket, as far as it shows."""
    return re.search(r"sock|peer", name, re.IGNORECASE) is not None


# --- signals -------------------------------------------------------------------------------------


def reaps_any(call: ast.Call, name: str) -> bool:
    """`os.waitpid(-1, ...)`, `os.wait()`, `signal.signal(signal.SIGCHLD, signal.SIG_IGN)`."""
    receiver = receiver_of(call)
    if name == "waitpid" and call.args:
        return expression_text(call.args[0]) == "-1"
    if name in ("wait", "wait3"):
        return receiver == "os"
    if name == "signal" and len(call.args) == 2:
        return [last_name(each) for each in call.args] in (["SIGCHLD", "SIG_IGN"],)
    return False


def find_kills(module: ParsedFile, function: ast.AST) -> Iterator[Found]:
    """`os.kill(pid, signal.SIGKILL)`, `process.kill()` and the like, with the condition for it."""
    for node, parents in within([child for _, child in children(function)]):
        call = node.value if isinstance(node, ast.Expr) else None
        if not isinstance(call, ast.Call):
            continue
        name, last = last_name(call.func), call.args[-1] if call.args else None
        is_it = last is not None and (
            last_name(last) == "SIGKILL" or getattr(last, "value", None) == Signals.SIGKILL
        )
        is_itself = bool(call.args) and "getpid" in expression_text(call.args[0])
        is_sent = is_it and name in ("kill", "killpg", "send_signal") and not is_itself
        is_own = name == "kill" and not call.args and isinstance(call.func, ast.Attribute)
        if is_sent or is_own:
            calls = list(_around_calls(module, function))
            for each in (calls, *_late_calls(module, function)):
                yield "kills", _about_kill(module, function, each[::-1], parents), node


def _about_kill(
    module: ParsedFile, function: ast.AST, calls: Sequence[_Call], parents: Sequence[ast.AST]
) -> str:
    """What `Mark.about` says of a kill that calls lead to, the outermost first."""
    above = [*(each for call in calls for each in call.around), *parents]
    under = next((each for each in reversed(above) if isinstance(each, ast.If)), None)
    header = quoted(module, under) if under is not None else None
    lines = ", ".join(str(each.lineno) for each in above if isinstance(each, LOOPS))
    names = ", ".join((*(call.function for call in calls), getattr(function, "name", "")))
    about = f"{lines}; {names}; "
    if header is not None:  # shortened here, so that its line is not cut off
        line = f" in line {header.line}"
        left = max(_LEAST_SHOWN, QUOTE_LIMIT - len(about) - len(line))
        about += f"{clean(header.text, left)}{line}"
    return about


def find_terminations(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`self.workers[i].terminate()`, but not of what `subprocess.Popen` has made in this function.

    Args:
        nodes: The syntax of a function, or of the file.
    """
    programs = {
        expression_text(target)
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        if last_name(node.value.func) == "Popen"
        for target in node.targets
    }
    for call in nodes:
        if not isinstance(call, ast.Call) or call.args or call.keywords:
            continue
        receiver = receiver_of(call)
        if last_name(call.func) == "terminate" and receiver and receiver not in programs:
            yield "terminates", receiver, call


_OPENS: Final = frozenset(
    (
        "ConnectionPool",
        "Elasticsearch",
        "HTTPConnection",
        "HTTPSConnection",
        "MongoClient",
        "Redis",
        "SimpleConnectionPool",
        "StrictRedis",
        "ThreadedConnectionPool",
        "connect",
        "create_connection",
        "create_engine",
        "create_pool",
        "insecure_channel",
        "open_connection",
    )
)
_OPENS_OF: Final = MappingProxyType({"Client": "httpx", "Session": "requests", "from_url": "redis"})
"""What opens connections in one library, by common names."""
_IN_FILES: Final = frozenset(("aiosqlite", "duckdb", "sqlite3"))
"""Libraries whose connections are to a file."""
_IS_SOCKET: Final = re.compile(r"sock|conn|client", re.IGNORECASE)


def find_connections(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`self.db = psycopg2.connect(...)`, and `self.sock.connect(address)`."""
    for node in nodes:
        for target, value in bindings(node):
            call = value.value if isinstance(value, ast.Await) else value
            if isinstance(call, ast.Call) and _opens(call):
                yield "opens-connection", _opening(expression_text(target), call), node
        made = node.value if isinstance(node, ast.Expr) else None
        if isinstance(made, ast.Call) and last_name(made.func) == "connect" and made.args:
            receiver = receiver_of(made)
            if _IS_SOCKET.search(receiver.rpartition(".")[2]):
                yield "opens-connection", _opening(receiver, made), node


def _opens(call: ast.Call) -> bool:
    name = last_name(call.func)
    if name not in _OPENS and name not in _OPENS_OF:
        return False
    receiver = receiver_of(call).rpartition(".")[2]
    return receiver == _OPENS_OF[name] if name in _OPENS_OF else receiver not in _IN_FILES


def _opening(variable: str, call: ast.Call) -> str:
    return f"{variable}, {expression_text(call.func)}"


_ENDS_UNHANDLED: Final = frozenset(("SIGHUP", "SIGUSR1", "SIGUSR2"))


def find_signals(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`os.kill(child.pid, signal.SIGUSR1)` and `process.send_signal(signal.SIGHUP)`."""
    for call in nodes:
        if not isinstance(call, ast.Call) or not call.args:
            continue
        signal, name = last_name(call.args[-1]), last_name(call.func)
        is_to_itself = "getpid" in expression_text(call.args[0])
        count = {"kill": 2, "killpg": 2, "send_signal": 1}.get(name)
        if signal in _ENDS_UNHANDLED and len(call.args) == count and not is_to_itself:
            yield "sends-signal", signal, call


_LEAST_SHOWN: Final = 24
"""Characters of a condition."""


class _Call(NamedTuple):
    """A call of a function in its file."""

    function: str
    """That makes the call."""
    around: Sequence[ast.AST]
    """The statements around it, outermost first."""


_CALLS: Final = 4
"""Calls that are followed, one above the other, and of one function."""


def _late_calls(module: ParsedFile, function: ast.AST) -> Iterator[list[_Call]]:
    """Of several calls of a function those under a comparison of how long something took.

    Each with the calls that lead to it.
    """
    name = function.name if isinstance(function, FUNCTIONS) else ""
    found = of_file(module.tree, _calls_by_name).get(name, ())
    for caller, around in found if 1 < len(found) <= _CALLS else ():
        under = next((each for each in reversed(around) if isinstance(each, ast.If)), None)
        if under is not None and _compares_a_time(under.test, caller):
            here = _Call(getattr(caller, "name", ""), around)
            yield [here, *_around_calls(module, caller)]


def _compares_a_time(test: ast.expr, function: ast.AST) -> bool:
    """`now - last_seen > limit`, where `now` is what a clock says."""
    names = {
        last_name(target)
        for node in own_nodes(function)
        for target, value in bindings(node)
        if reads_clock(value)
    }
    return any(
        isinstance(each, ast.Compare)
        and isinstance(each.ops[0], ORDERS)
        and any(
            isinstance(side, ast.BinOp)
            and isinstance(side.op, ast.Sub)
            and (reads_clock(side.left) or last_name(side.left) in names)
            for side in (each.left, *each.comparators)
        )
        for each in ast.walk(test)
    )


_LOOPS: Final = 32
"""Loops of a function in which a time may be noted, that are looked at."""
_ENDS: Final = frozenset(("kill", "killpg", "send_signal", "terminate"))


def find_silence(tree: ast.Module, function: ast.AST, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """`self.seen[name] = now`, and `if now - self.seen[name] > TTL:` in a file that ends others.

    Args:
        tree: The file.
        function: The function, or the file.
        nodes: Its syntax.
    """
    bound = {
        last_name(target): value
        for node in nodes
        for target, value in bindings(node)
        if isinstance(target, ast.Name)
    }
    clocks = {name for name, value in bound.items() if reads_clock(value)}
    known = {**bound, **dict(_elements(nodes))}
    loops = [each for each in nodes if isinstance(each, LOOPS)][:_LOOPS]
    way = "async " if isinstance(function, ast.AsyncFunctionDef) else ""
    for node in nodes:
        for target, value in bindings(node):
            is_time = reads_clock(value) or (isinstance(value, ast.Name) and value.id in clocks)
            if is_time and isinstance(target, ast.Attribute | ast.Subscript):
                again = "again" if any(is_inside(node, each) for each in loops) else "once"
                yield "notes-time", f"{_noted(target)}, {way}{again}", node
        if isinstance(node, ast.If) and of_file(tree, _ends_others):
            for name, limit in _silences(node.test, clocks, known):
                yield "judges-silence", f"{name}, {last_line(node.body[-1])}, {limit}", node


def _ends_others(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Call) and last_name(node.func) in _ENDS for node in every_node(tree)
    )


def _silences(
    test: ast.expr, clocks: Container[str], bound: Mapping[str, ast.expr]
) -> Iterator[tuple[str, str]]:
    """What was noted, and the limit, of each comparison of the time since then with a limit."""
    for each in ast.walk(test):
        if not isinstance(each, ast.Compare) or not isinstance(each.ops[0], ast.Gt | ast.GtE):
            continue
        since, limit = each.left, each.comparators[0]
        if isinstance(since, ast.Name):
            since = bound.get(since.id, since)
        if not isinstance(since, ast.BinOp) or not isinstance(since.op, ast.Sub):
            continue
        if not reads_clock(since.left) and last_name(since.left) not in clocks:
            continue
        noted = since.right
        if isinstance(noted, ast.Name):
            noted = bound.get(noted.id, noted)
        if (name := _noted(noted)) and not isinstance(noted, ast.Name):
            yield name, expression_text(limit)


def _elements(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """The variables of loops over a mapping: `for name, seen in seen_at.items():`."""
    for node in nodes:
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
            over = node.iter
            if last_name(over.func) in ("items", "values") and isinstance(over.func, ast.Attribute):
                target = node.target.elts[-1] if isinstance(node.target, ast.Tuple) else node.target
                if isinstance(target, ast.Name):
                    yield target.id, over.func.value


def _noted(node: ast.expr) -> str:
    """`seen` of `self.seen[name]`, `beat` of `beat.value`, `seen` of `self.seen.get(name, 0)`."""
    if isinstance(node, ast.Call) and last_name(node.func) == "get":
        return receiver_of(node).rpartition(".")[2]
    while isinstance(node, ast.Subscript) or (
        isinstance(node, ast.Attribute) and node.attr == "value"
    ):
        node = node.value
    return last_name(node) if isinstance(node, ast.Attribute | ast.Name) else ""


def _around_calls(module: ParsedFile, function: ast.AST) -> Iterator[_Call]:
    """The only call of a function, that of its caller, and so on."""
    calls = of_file(module.tree, _calls_by_name)
    for _ in range(_CALLS):
        if not isinstance(function, FUNCTIONS):
            return
        found = calls.get(function.name, ())
        if len(found) != 1:
            return
        function, around = found[0]
        yield _Call(getattr(function, "name", ""), around)


def _calls_by_name(
    tree: ast.AST,
) -> Mapping[str, Sequence[tuple[ast.AST, Sequence[ast.AST]]]]:
    """The calls that are statements of functions: each with its function, and what is around it."""
    found: defaultdict[str, list[tuple[ast.AST, Sequence[ast.AST]]]] = defaultdict(list)
    for function in functions_in(tree):
        for node, parents in within([child for _, child in children(function)]):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                found[last_name(node.value.func)].append((function, parents))
    return found


def is_death_signal(call: ast.Call) -> bool:
    """`libc.prctl(PR_SET_PDEATHSIG, ...)`, which is 1 (prctl(2))."""
    first = call.args[0] if call.args else None
    return first is not None and (
        last_name(first).endswith("PDEATHSIG") or getattr(first, "value", None) == 1
    )


def left_before_cancelled(nodes: Sequence[ast.AST], timer: ast.Call, name: str) -> str:
    """The lines of the `return` statements that leave a function with its timer set, as `39, 45`.

    They stand between the call that sets it and the first one that cancels it. Without one, the
    first call in between, whose exception leaves it set: `raise of 21`. Empty if nothing here
    cancels it, or if a `finally` does.
    """
    calls = [n for n in nodes if isinstance(n, ast.Call) and last_name(n.func) == name and n.args]
    return left_before(
        nodes, timer, [n.lineno for n in calls if getattr(n.args[-1], "value", None) == 0]
    )


def left_before(nodes: Sequence[ast.AST], begin: ast.Call, ends: Sequence[int]) -> str:
    """As `left_before_cancelled`, of a call whose effect the statements at some lines end."""
    in_finally = {
        line
        for node in nodes
        if isinstance(node, ast.Try)
        for each in node.finalbody
        for line in range(each.lineno, last_line(each) + 1)
    }
    later = [line for line in ends if line > begin.lineno]
    if not later or not in_finally.isdisjoint(ends):
        return ""
    leaves = [n.lineno for n in nodes if isinstance(n, ast.Return)]
    left = ", ".join(str(line) for line in sorted(leaves) if begin.lineno < line < min(later))
    guarded = (
        n.lineno
        for n in nodes
        if isinstance(n, ast.Call) and last_line(begin) < n.lineno < min(later)
    )
    return left or next((f"{RAISE_OF}{line}" for line in guarded), "")
