"""Signals that a program sends, asks for or sets timers with, and exit statuses that it takes."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from signal import Signals
from typing import Final, NamedTuple

from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    LOOPS,
    QUOTE_LIMIT,
    Found,
    ParsedFile,
    children,
    expression_text,
    functions_in,
    last_line,
    last_name,
    quoted,
    receiver_of,
    within,
)
from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import RAISE_OF


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
            calls = list(_around_calls(module, function))[::-1]
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
            yield "kills", about, node


_LEAST_SHOWN: Final = 24
"""Characters of a condition."""


class _OnlyCall(NamedTuple):
    """The one call of a function in its file."""

    function: str
    """That makes the call."""
    around: Sequence[ast.AST]
    """The statements around it, outermost first."""


_CALLS: Final = 4
"""Calls that are followed, one above the other."""


def _around_calls(module: ParsedFile, function: ast.AST) -> Iterator[_OnlyCall]:
    """The only call of a function, that of its caller, and so on."""
    functions = functions_in(module.tree)
    for _ in range(_CALLS):
        if not isinstance(function, FUNCTIONS):
            return
        found = [
            (other, parents)
            for other in functions
            for node, parents in within([child for _, child in children(other)])
            if isinstance(node, ast.Expr) and isinstance(call := node.value, ast.Call)
            if last_name(call.func) == function.name
        ]
        if len(found) != 1:
            return
        function, around = found[0]
        yield _OnlyCall(getattr(function, "name", ""), around)


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
    ends = [n.lineno for n in calls if getattr(n.args[-1], "value", None) == 0]
    in_finally = {
        line
        for node in nodes
        if isinstance(node, ast.Try)
        for each in node.finalbody
        for line in range(each.lineno, last_line(each) + 1)
    }
    later = [line for line in ends if line > timer.lineno]
    if not later or not in_finally.isdisjoint(ends):
        return ""
    leaves = [n.lineno for n in nodes if isinstance(n, ast.Return)]
    left = ", ".join(str(line) for line in sorted(leaves) if timer.lineno < line < min(later))
    guarded = (
        n.lineno for n in nodes if isinstance(n, ast.Call) and timer.lineno < n.lineno < min(later)
    )
    return left or next((f"{RAISE_OF}{line}" for line in guarded), "")
