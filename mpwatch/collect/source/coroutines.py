"""Waits of coroutines, which are on no stack: what would end them, and what thread or task that is.

A coroutine that waits for an Event, a Queue or a Future of asyncio goes on when its loop calls what
`set()`, `put_nowait()` or `set_result()` has scheduled. These do not wake the loop up: only
`call_soon_threadsafe()` writes to the socket at which it waits (CPython 3.10 to 3.14). In another
thread they are seen when something else begins a round of the loop.

The exception of a task is raised where the task is awaited. Until then the task has ended, and
nobody knows. Objects are followed through variables, attributes and arguments to what makes them.
"""

from __future__ import annotations

import ast
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from mpwatch.collect.source.call_graph import (
    Class,
    Function,
    Program,
    Site,
    TooMuchToFollow,
    assignments,
    expressions_of,
)
from mpwatch.collect.source.lines.run_elsewhere import RunElsewhere, Start
from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    LOOPS,
    QUOTE_LIMIT,
    argument_of,
    expression_text,
    first_line,
    imported_roots,
    last_line,
    last_name,
    parameters,
    quoted,
    receiver_of,
)
from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import Coroutines, UnreadHow, UnreadTask, UnsafeWake

FOUND: Final = 16
"""Statements of each kind that are kept of one program."""
_STEPS: Final = 200_000
"""Expressions of one program that are followed or looked at again; those of asyncio are 3,600."""
_DEPTH: Final = 5
"""Names that are followed, one to the other."""
_CALLERS: Final = 8
"""Calls of a function whose arguments are looked at, and classes that have an attribute."""
_MAKES: Final[Mapping[str, str]] = {
    "Condition": "Condition",
    "Event": "Event",
    "Future": "Future",
    "LifoQueue": "Queue",
    "PriorityQueue": "Queue",
    "Queue": "Queue",
    "create_task": "Task",
    "ensure_future": "Task",
    "get_event_loop": "loop",
    "get_running_loop": "loop",
    "new_event_loop": "loop",
}
"""Functions and classes of asyncio, and the kind of object that each makes."""
_OF_LOOP: Final[Mapping[str, str]] = {"create_future": "Future"}
"""The same for methods that only a loop of asyncio has."""
_TYPES: Final[Mapping[str, str]] = {
    **{name: kind for name, kind in _MAKES.items() if name[0].isupper()},
    "AbstractEventLoop": "loop",
    "Task": "Task",
}
"""Classes of asyncio, as annotations name them."""
_COMPLETES: Final[Mapping[str, frozenset[str]]] = {
    "Condition": frozenset(("notify", "notify_all")),
    "Event": frozenset(("set",)),
    "Future": frozenset(("cancel", "set_exception", "set_result")),
    "Queue": frozenset(("get_nowait", "put_nowait", "task_done")),
    "Task": frozenset(("cancel",)),
    "loop": frozenset(("call_at", "call_later", "call_soon", "create_task", "stop")),
}
"""Methods that schedule something in a loop and do not wake it up, by the kind of object."""
_RESULTS: Final = frozenset(("set_exception", "set_result"))
_WAKES: Final = frozenset(("call_soon_threadsafe", "run_coroutine_threadsafe"))
_TO_LOOP: Final = _WAKES | {"call_at", "call_later", "call_soon", "create_task", "ensure_future"}
"""Calls that have a loop run what they are given."""
_RUNS_LOOP: Final = frozenset(("run", "run_until_complete"))
_WAKES_AT_END: Final = frozenset(("run_in_executor", "to_thread", "wrap_future"))
"""In a statement that starts a function: the loop is woken up when that returns."""
_ENDS: Final[Mapping[str, frozenset[str]]] = {
    "await": frozenset(("cancel", "set_exception", "set_result")),
    "get": frozenset(("put", "put_nowait")),
    "join": frozenset(("task_done",)),
    "put": frozenset(("get", "get_nowait")),
    "wait": frozenset(("notify", "notify_all", "set")),
}
"""What ends the wait in a method that is awaited, or that of a future."""
_WAYS: Final = frozenset(_ENDS).union(*_ENDS.values(), *_COMPLETES.values())
_TASKS: Final = frozenset(("create_task", "ensure_future"))
_GROUPS: Final = frozenset(("TaskGroup", "create_task_group", "open_nursery"))
_HARMLESS: Final = frozenset(
    (
        *("add", "append", "cancel", "cancelled", "clear", "discard", "done", "extend"),
        *("get_name", "remove", "set_name"),
    )
)
"""Methods of a task, or of a container of tasks, that do not read how a task has ended."""


class _Object(NamedTuple):
    """Something of asyncio that the program makes, or names by an annotation."""

    kind: str
    node: ast.expr
    function: Function


class _Act(NamedTuple):
    """A statement that waits for such an object, or ends the waits of others."""

    way: str
    of: ast.expr
    is_awaited: bool
    function: Function
    statement: ast.AST
    parents: tuple[ast.AST, ...]
    objects: Mapping[int, _Object]


class _Read(NamedTuple):
    """How a program learns that a task has ended."""

    how: UnreadHow
    statement: ast.AST | None


def coroutines_in(program: Program, elsewhere: RunElsewhere) -> Coroutines:
    """What the source of a program shows of waits of coroutines; nothing without asyncio."""
    trees = {id(each.module.tree): each.module.tree for each in program.functions}
    if not any("asyncio" in imported_roots(tree) for tree in trees.values()):
        return Coroutines()
    try:
        search = _Search(program, elsewhere, _Steps())
        return Coroutines(
            tuple(islice(search.unsafe(), FOUND)), tuple(islice(search.unread(), FOUND))
        )
    except TooMuchToFollow:
        return Coroutines()


class _Steps:
    """Counts what is looked at, and knows what contains each expression of a statement."""

    def __init__(self) -> None:
        self._left = _STEPS
        self._parents: dict[int, Mapping[int, ast.AST]] = {}

    def spend(self, steps: int = 1) -> None:
        """Count some steps.

        Raises:
            TooMuchToFollow: They were more than `_STEPS`.
        """
        self._left -= steps
        if self._left < 0:
            raise TooMuchToFollow

    def parents_in(self, statement: ast.AST) -> Mapping[int, ast.AST]:
        """What contains each expression of a statement, but for the statement itself."""
        found = self._parents.get(id(statement))
        if found is None:
            found = self._parents[id(statement)] = {
                id(inner): node
                for node in expressions_of(statement)
                for inner in ast.iter_child_nodes(node)
            }
        return found


class _Objects:
    """Finds what the expressions of a program refer to, of what asyncio has."""

    def __init__(self, program: Program, steps: _Steps) -> None:
        self._program = program
        self._steps = steps
        self._files = {e.file: e for e in program.functions if isinstance(e.node, ast.Module)}
        self._setters: dict[int, Function] = {
            id(value): function
            for function in program.functions
            for statement, _ in function.statements
            for target, value in assignments(statement)
            if isinstance(target, ast.Attribute)
        }
        """The function that gives a value to an attribute, by that value."""

    def of(self, value: ast.expr, function: Function, depth: int = 0) -> dict[int, _Object]:
        """The objects that an expression may be, by what makes them; empty if any is not known."""
        self._steps.spend()
        if depth > _DEPTH:
            return {}
        if isinstance(value, ast.Call):
            kind = self._made(value, function)
            return {id(value): _Object(kind, value, function)} if kind else {}
        if isinstance(value, ast.Name):
            return self._of_variable(value.id, function, depth + 1)
        if isinstance(value, ast.Attribute):
            return self._of_attribute(value, function, depth + 1)
        return {}

    def _made(self, call: ast.Call, function: Function) -> str:
        """The kind of object of asyncio that a call makes; empty for others."""
        name = last_name(call.func)
        if isinstance(call.func, ast.Attribute) and name in _OF_LOOP:
            return _OF_LOOP[name]
        return _MAKES.get(self._in_asyncio(call.func, function), "")

    def _in_asyncio(self, named: ast.expr, function: Function) -> str:
        """The name of what asyncio has and an expression names; empty for others."""
        if isinstance(named, ast.Attribute) and isinstance(named.value, ast.Name):
            module = self._program.imported_from(function, named.value.id, is_module=True)
            return named.attr if module == "asyncio" else ""
        if not isinstance(named, ast.Name):
            return ""
        is_from = self._program.imported_from(function, named.id) == "asyncio"
        return self._program.imported_from(function, named.id, is_module=True) if is_from else ""

    def _of_all(
        self, values: Sequence[tuple[ast.expr, Function]], depth: int
    ) -> dict[int, _Object]:
        found: dict[int, _Object] = {}
        for value, function in values[:_CALLERS]:
            if isinstance(value, ast.Constant) and value.value is None:
                continue
            made = self.of(value, function, depth)
            if not made:
                return {}
            found |= made
        return found

    def _of_variable(self, name: str, function: Function, depth: int) -> dict[int, _Object]:
        at: Function | None = function
        while at is not None:
            if name in at.assigned and name not in at.not_own:
                return self._of_all([(each, at) for each in at.assigned[name]], depth)
            if isinstance(at.node, FUNCTIONS) and name in parameters(at.node):
                return self._of_parameter(name, at, depth)
            at = at.outer
        whole = self._files.get(function.file)
        values = self._program.globals.get((function.file, name), [])
        return {} if whole is None else self._of_all([(each, whole) for each in values], depth)

    def _of_parameter(self, name: str, function: Function, depth: int) -> dict[int, _Object]:
        node = function.node
        for each in (*node.args.args, *node.args.kwonlyargs) if isinstance(node, FUNCTIONS) else ():
            named = each.annotation if each.arg == name else None
            if named is not None and (kind := self._annotated(named, function)):
                found = self._given(name, function, depth)
                return found or {id(named): _Object(kind, named, function)}
        return self._given(name, function, depth)

    def _given(self, name: str, function: Function, depth: int) -> dict[int, _Object]:
        """What all calls of a function give to one of its parameters."""
        place = function.arguments.index(name) if name in function.arguments else -1
        given: list[tuple[ast.expr, Function]] = []
        for site in function.callers[:_CALLERS]:
            self._steps.spend(1 + len(self._steps.parents_in(site.statement)))
            value = (
                argument_of(site.call, name, place)
                if site.call is not None
                else _handed(site, place)
            )
            if value is None:
                return {}
            given.append((value, site.caller))
        return self._of_all(given, depth)

    def _of_attribute(
        self, value: ast.Attribute, function: Function, depth: int
    ) -> dict[int, _Object]:
        owner = self._program.class_of(value.value, function)
        owners: Sequence[Class] = self._program.having.get(value.attr, ())[:_CALLERS]
        if owner is not None:
            owners = [*self._program.family(owner), *self._program.with_derived(owner)]
        whole = self._files.get(function.file)
        values = {
            id(each): (each, setter)
            for of in owners
            for each in of.values.get(value.attr, ())
            if (setter := self._setters.get(id(each), whole)) is not None
        }
        return self._of_all(list(values.values()), depth)

    def _annotated(self, annotation: ast.expr, function: Function) -> str:
        """`Queue` of `asyncio.Queue[int]`; empty for others."""
        inner = annotation.value if isinstance(annotation, ast.Subscript) else annotation
        return _TYPES.get(self._in_asyncio(inner, function), "")


class _Search:
    """Goes through the waits of the coroutines of one program."""

    def __init__(self, program: Program, elsewhere: RunElsewhere, steps: _Steps) -> None:
        self._program = program
        self._steps = steps
        self._threads = _run_in_threads(program, elsewhere, steps)
        self._objects = _Objects(program, steps)
        self._acts: list[_Act] = []
        self._makers = {"Future": 0, "other": 0}
        for function in program.functions:
            for statement, parents in function.statements:
                if not isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                    self._acts += self._acts_of(function, statement, parents)
        self._acts_on: defaultdict[int, list[_Act]] = defaultdict(list)
        """By the object."""
        for act in self._acts:
            for each in act.objects:
                self._acts_on[each].append(act)
        self._awaits = [each for each in self._acts if each.is_awaited and each.way in _ENDS]
        self._uses: defaultdict[str, list[tuple[Function, ast.AST]]] = defaultdict(list)
        """The statements that read a variable or an attribute."""
        self._wakes: dict[int, bool] = {}
        """Whether a function wakes a loop up, as far as it was asked."""

    def _acts_of(
        self, function: Function, statement: ast.AST, parents: tuple[ast.AST, ...]
    ) -> Iterator[_Act]:
        for node, is_awaited in _run_at_once(statement):
            if isinstance(node, ast.Call):
                name = last_name(node.func)
                if name in ("Future", "create_future"):
                    is_asyncio = bool(self._objects.of(node, function))
                    self._makers["Future" if is_asyncio else "other"] += 1
                of = node.func.value if isinstance(node.func, ast.Attribute) else None
                if of is not None and name in _WAYS:
                    objects = self._objects.of(of, function)
                    yield _Act(name, of, is_awaited, function, statement, parents, objects)
            elif isinstance(node, ast.Name | ast.Attribute) and is_awaited:
                objects = self._objects.of(node, function)
                yield _Act("await", node, True, function, statement, parents, objects)

    # --- in another thread --------------------------------------------------------------------

    def unsafe(self) -> Iterator[UnsafeWake]:
        """The statements of other threads that schedule something and do not wake the loop up."""
        for act in self._acts:
            start = self._threads.get(id(act.function))
            if start is None or self._wakes_a_loop(act.function):
                continue
            kinds = {each.kind for each in act.objects.values()}
            kind = kinds.pop() if len(kinds) == 1 else ""
            # Results are set of futures that the program makes itself, all of them by asyncio.
            if act.way in _RESULTS and not act.objects:
                is_one = self._makers["Future"] and not self._makers["other"]
                kind = "Future" if is_one else ""
            if act.is_awaited or act.way not in _COMPLETES.get(kind, ()):
                continue
            if not act.objects:
                yield _unsafe(act, kind, start, None, None)
                continue
            made = next(iter(act.objects.values()))
            waits = [each for each in self._on_same(act) if each.is_awaited and each.way in _ENDS]
            users = [made.function, *(each.function for each in waits)]
            is_own = any(self._threads.get(id(each)) is start for each in users)
            if not is_own and (waits or kind in ("Task", "loop")):
                yield _unsafe(act, kind, start, made, waits[0] if waits else None)

    def _wakes_a_loop(self, function: Function) -> bool:
        """Whether a function, or one that it calls, also does what wakes a loop up, or runs one."""
        of = [function, *(each.called for each in function.calls if each.call is not None)]
        self._steps.spend(len(of))
        for each in {id(known): known for known in of}.values():
            known = self._wakes.get(id(each))
            if known is None:
                known = self._wakes[id(each)] = _wakes_a_loop(each)
            if known:
                return True
        return False

    # --- tasks that nobody reads --------------------------------------------------------------

    def unread(self) -> Iterator[UnreadTask]:
        """The tasks that alone would end a wait, and whose exceptions nothing reads meanwhile."""
        for wait in self._awaits:
            if id(wait.function) in self._threads or (wait.way == "put" and _has_room(wait)):
                continue
            ends = [each for each in self._on_same(wait) if each.way in _ENDS[wait.way]]
            is_sure = any(map(_also_by_error, ends))
            task = self._task_of(ends[0].function) if ends and not is_sure else None
            if task is None:
                continue
            function, site, read = task
            inside = self._only_in(function)
            if id(wait.function) in inside or any(id(e.function) not in inside for e in ends):
                continue
            if read.statement is None or self._comes_before(wait, site, read):
                yield self._unread(function, site, read, ends[0], wait, inside)

    def _on_same(self, act: _Act) -> list[_Act]:
        """What is done to the objects of a statement, in the order of the program."""
        found = {id(e): e for each in act.objects for e in self._acts_on[each]}
        self._steps.spend(1 + len(found))
        return list(found.values())

    def _unread(
        self,
        function: Function,
        site: Site,
        read: _Read,
        end: _Act,
        wait: _Act,
        inside: Mapping[int, Function],
    ) -> UnreadTask:
        own = next(
            (
                each
                for each in self._awaits
                if id(each.function) in inside and each.objects and _may_wait(each, wait)
            ),
            None,
        )
        caller = site.caller
        return UnreadTask(
            clean(function.name, QUOTE_LIMIT),
            function.file,
            caller.file,
            clean(caller.name, QUOTE_LIMIT),
            quoted(caller.module, site.statement),
            read.how,
            None if read.statement is None else quoted(caller.module, read.statement),
            clean(expression_text(end.of), QUOTE_LIMIT),
            end.way,
            quoted(end.function.module, end.statement),
            wait.function.file,
            clean(wait.function.name, QUOTE_LIMIT),
            quoted(wait.function.module, wait.statement),
            None if own is None else quoted(own.function.module, own.statement),
        )

    def _task_of(self, function: Function) -> tuple[Function, Site, _Read] | None:
        """The coroutine that has a function as a task, or calls it there, and what starts it."""
        for each in (function, *(s.caller for s in function.callers[:1])):
            sites = [site for site in each.callers if site.call is not None]
            if not isinstance(each.node, ast.AsyncFunctionDef) or not sites:
                continue
            reads = [self._read_of(site) for site in sites[:_CALLERS]]
            if reads[0] is not None and None not in reads:
                return each, sites[0], reads[0]
        return None

    def _only_in(self, function: Function) -> Mapping[int, Function]:
        """A function and those that nothing but it calls."""
        found = {id(function): function}
        waiting = deque([function])
        while waiting:
            for site in waiting.popleft().calls:
                self._steps.spend(1 + len(site.called.callers))
                is_only = all(id(each.caller) in found for each in site.called.callers)
                if is_only and id(site.called) not in found:
                    found[id(site.called)] = site.called
                    waiting.append(site.called)
        return found

    def _comes_before(self, wait: _Act, site: Site, read: _Read) -> bool:
        """Whether a wait, or the task that has it, is awaited before or with the other task."""
        waiting = wait.function
        first, last = first_line(site.statement), first_line(read.statement or site.statement)
        together = int(read.how == "together")
        if waiting is site.caller:
            return first < first_line(wait.statement) < last + together
        for each in waiting.callers[:_CALLERS]:
            if each.caller is not site.caller or each.call is None:
                continue
            own = self._read_of(each)
            at = each.statement if own is None else own.statement
            if at is not None and first <= first_line(at) < last + together:
                above = self._steps.parents_in(each.statement).get(id(each.call))
                return own is not None or isinstance(above, ast.Await)
        return False

    def _read_of(self, site: Site) -> _Read | None:
        """How the task that a call makes is read; `None` where that is at once, or not known."""
        above = self._steps.parents_in(site.statement)
        node: ast.AST | None = site.call
        made: ast.Call | None = None
        while node is not None:
            node = above.get(id(node))
            if isinstance(node, ast.Call):
                if together := _together(node):
                    return _Read(together, site.statement)
                if made is None and last_name(node.func) in _TASKS:
                    made = node
                    if _is_of_group(node, site):
                        return None
                elif made is not None and last_name(node.func) in ("add", "append"):
                    of = node.func.value if isinstance(node.func, ast.Attribute) else node
                    return self._read_later(of, site.caller)
                else:
                    return None
            elif isinstance(node, ast.Await | ast.Lambda | ast.Yield | ast.Subscript):
                return None
        if made is None:
            return None
        if isinstance(site.statement, ast.Expr):
            return _Read("dropped", None)
        targets = [target for target, _ in assignments(site.statement)]
        if len(targets) != 1:
            return None
        of = targets[0].value if isinstance(targets[0], ast.Subscript) else targets[0]
        return self._read_later(of, site.caller)

    def _read_later(self, named: ast.expr, function: Function, depth: int = 0) -> _Read | None:
        """How what is kept by a name is read: tasks, or a container of tasks."""
        name = last_name(named)
        if not name or depth > 1:
            return None
        if not self._uses:
            self._add_uses()
        reads: list[_Read] = []
        for user, statement in self._uses[name]:
            above = self._steps.parents_in(statement)
            self._steps.spend(1 + len(above))
            is_variable = isinstance(named, ast.Name)
            if is_variable and function is not user and function is not user.outer:
                continue
            for node in _named_in(statement, name, is_variable=is_variable):
                read = self._read_at(node, above, user, statement, depth)
                if read is None or (read.statement is not None and user is not function):
                    return None
                reads.append(read)
        after = [each for each in reads if each.statement is not None]
        return after[0] if after else _Read("kept", None)

    def _read_at(
        self,
        node: ast.AST,
        above: Mapping[int, ast.AST],
        function: Function,
        statement: ast.AST,
        depth: int,
    ) -> _Read | None:
        """How one use of a task or container reads it: `kept` for not at all, `None`: not known."""
        parent = above.get(id(node))
        if isinstance(parent, ast.Attribute):
            call = above.get(id(parent))
            given = call.args if isinstance(call, ast.Call) else []
            lets_go = parent.attr == "add_done_callback" and {*map(last_name, given)} <= {"discard"}
            return _Read("kept", None) if parent.attr in _HARMLESS or lets_go else None
        if isinstance(statement, ast.For) and node is statement.iter:
            return self._read_later(statement.target, function, depth + 1)
        if parent is None or isinstance(parent, ast.Compare | ast.BoolOp | ast.UnaryOp):
            is_test = isinstance(statement, ast.If | ast.While) or parent is not None
            return _Read("kept", None) if is_test else None
        inner: ast.AST | None = node
        while inner is not None:
            inner = above.get(id(inner))
            if isinstance(inner, ast.Call) and (together := _together(inner)):
                return _Read(together, statement)
            if isinstance(inner, ast.Call) and last_name(inner.func) in ("add", "append"):
                return _Read("kept", None) if depth else None
            if isinstance(inner, ast.Await):
                return _Read("later", statement)
        return None

    def _add_uses(self) -> None:
        for function in self._program.functions:
            for statement, _ in function.statements:
                if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                    continue
                names = {
                    last_name(node)
                    for node in expressions_of(statement)
                    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
                }
                for name in names:
                    self._uses[name].append((function, statement))


def _run_in_threads(program: Program, elsewhere: RunElsewhere, steps: _Steps) -> dict[int, Start]:
    """The functions that only another thread than that of a loop runs, with what starts them.

    Not what such a function gives to a loop to run, nor coroutines that it makes for one.
    """
    to_loop = {
        id(statement)
        for function in program.functions
        for statement, _ in function.statements
        if not isinstance(statement, (*FUNCTIONS, ast.ClassDef))
        for node in expressions_of(statement)
        if isinstance(node, ast.Call) and last_name(node.func) in _TO_LOOP
    }
    handed = {
        id(site.called)
        for function in program.functions
        for site in function.calls
        if id(site.statement) in to_loop
    }
    found: dict[int, Start] = {}
    waiting: deque[Function] = deque()
    for function in program.functions:
        start = elsewhere.start_of(function, function.node)
        is_direct = all(each.call is None for each in function.callers)
        is_plain = not isinstance(function.node, ast.AsyncFunctionDef)
        is_thread = start is not None and start.kind == "thread" and id(function) not in handed
        if start is not None and is_thread and is_direct and is_plain:
            found[id(function)] = start
            waiting.append(function)
    while waiting:
        at = waiting.popleft()
        for site in at.calls:
            steps.spend()
            called = site.called
            if id(called) in found or id(called) in handed or site.call is None:
                continue
            if elsewhere.start_of(called, called.node) is not found[id(at)]:
                continue
            if isinstance(called.node, ast.AsyncFunctionDef):
                around = steps.parents_in(site.statement).get(id(site.call))
                is_run = isinstance(around, ast.Call) and last_name(around.func) in _RUNS_LOOP
                if not (is_run or isinstance(around, ast.Await)):
                    continue
            found[id(called)] = found[id(at)]
            waiting.append(called)
    return found


def _calls_around(site: Site) -> Iterator[ast.Call]:
    """The calls of a statement that a function, or its coroutine, may be given to."""
    return (
        each
        for each in expressions_of(site.statement)
        if isinstance(each, ast.Call) and each is not site.call
    )


def _handed(site: Site, place: int) -> ast.expr | None:
    """What a call gives to a function that it has run: `q` of `Thread(target=f, args=(q,))`."""
    for call in _calls_around(site):
        names = [last_name(each) for each in call.args]
        if site.called.name in names and place >= 0:
            rest = call.args[names.index(site.called.name) + 1 :]
            if len(rest) == 1 and isinstance(rest[0], ast.Tuple):
                rest = rest[0].elts  # apply_async(f, (q,))
            return rest[place] if place < len(rest) else None
        for keyword in call.keywords:
            if keyword.arg in ("function", "target") and last_name(keyword.value) == (
                site.called.name
            ):
                given = argument_of(call, "args", -1)
                values = given.elts if isinstance(given, ast.Tuple | ast.List) else []
                return values[place] if 0 <= place < len(values) else None
    return None


def _run_at_once(statement: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """The expressions of a statement, without bodies of a lambda, and whether each is awaited."""
    waiting: list[tuple[ast.AST, bool]] = [
        (each, False)
        for each in ast.iter_child_nodes(statement)
        if not isinstance(each, ast.stmt | ast.ExceptHandler | ast.match_case)
    ]
    while waiting:
        node, is_awaited = waiting.pop()
        yield node, is_awaited
        if not isinstance(node, ast.Lambda):
            is_inside = isinstance(node, ast.Await) or (is_awaited and _passes_on(node))
            waiting += [(each, is_inside) for each in ast.iter_child_nodes(node)]


def _passes_on(node: ast.AST) -> bool:
    """`wait_for(q.get(), 5)` and `gather(q.get(), ...)` wait for what they are given."""
    return isinstance(node, ast.Call) and last_name(node.func) in ("gather", "shield", "wait_for")


def _wakes_a_loop(function: Function) -> bool:
    """Whether statements of a function wake a loop up, or run one."""
    return any(
        isinstance(node, ast.Attribute) and (node.attr in _WAKES or node.attr == "run_forever")
        for statement, _ in function.statements
        for node in expressions_of(statement)
    )


def _unsafe(
    act: _Act, kind: str, start: Start, made: _Object | None, wait: _Act | None
) -> UnsafeWake:
    names = {last_name(e.func) for e in expressions_of(start.statement) if isinstance(e, ast.Call)}
    of = act.function
    return UnsafeWake(
        kind,
        clean(expression_text(act.of), QUOTE_LIMIT),
        act.way,
        of.file,
        clean(of.name, QUOTE_LIMIT),
        quoted(of.module, act.statement),
        any(isinstance(each, LOOPS) for each in act.parents),
        start.function.file,
        clean(start.function.name, QUOTE_LIMIT),
        quoted(start.function.module, start.statement),
        not names.isdisjoint(_WAKES_AT_END),
        "" if wait is None else wait.function.file,
        "" if wait is None else clean(wait.function.name, QUOTE_LIMIT),
        None if wait is None else quoted(wait.function.module, wait.statement),
        "" if made is None else clean(expression_text(made.node), QUOTE_LIMIT),
    )


def _may_wait(own: _Act, wait: _Act) -> bool:
    """Whether a task may wait at a statement of its own while another one is in a wait."""
    if own.way != "put":
        return True
    is_empty = wait.way == "get" and own.objects.keys() <= wait.objects.keys()
    return not (is_empty or _has_room(own))


def _also_by_error(end: _Act) -> bool:
    """Whether a statement is reached when an exception leaves the block before it."""
    line = first_line(end.statement)
    return any(
        isinstance(each, ast.ExceptHandler)
        or (
            isinstance(each, ast.Try)
            and each.finalbody
            and first_line(each.finalbody[0]) <= line <= last_line(each.finalbody[-1])
        )
        for each in end.parents
    )


def _has_room(put: _Act) -> bool:
    """Whether the queue that a statement puts into has no bound."""
    calls = [each.node for each in put.objects.values() if isinstance(each.node, ast.Call)]
    return len(calls) == len(put.objects) and not any(e.args or e.keywords for e in calls)


def _together(call: ast.Call) -> UnreadHow | None:
    """`together` for a call that returns when all of several tasks have ended, failed or not."""
    name = last_name(call.func)
    given = {each.arg: each.value for each in call.keywords}
    if name == "gather":
        kept = given.get("return_exceptions")
        return "together" if isinstance(kept, ast.Constant) and kept.value is True else None
    is_wait = name == "wait" and receiver_of(call) == "asyncio"
    return "together" if is_wait and not given.keys() & {"return_when", "timeout"} else None


def _is_of_group(call: ast.Call, site: Site) -> bool:
    """Whether a task is of a group, which ends with the first exception of one of its tasks."""
    of = last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    return any(
        isinstance(each.context_expr, ast.Call)
        and last_name(each.context_expr.func) in _GROUPS
        and each.optional_vars is not None
        and last_name(each.optional_vars) == of
        for block in site.parents
        if isinstance(block, ast.AsyncWith)
        for each in block.items
    )


def _named_in(statement: ast.AST, name: str, *, is_variable: bool) -> Iterator[ast.AST]:
    """The expressions of a statement that read a variable, or an attribute, of a name."""
    kind = ast.Name if is_variable else ast.Attribute
    for node in expressions_of(statement):
        if isinstance(node, kind) and isinstance(node.ctx, ast.Load) and last_name(node) == name:
            yield node
