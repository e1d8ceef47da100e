"""The functions and classes of all files of a program that were read, and which calls which.

Nothing is run: names are followed as they are written. A method that several classes have is
followed into all of them, unless what it is called of is known.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, field

from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    LOOPS,
    ParsedFile,
    assigned_to,
    every_node,
    expression_text,
    first_line,
    last_line,
    last_name,
    parameters,
    within,
)

ORDINARY: Final = frozenset(
    (
        *("acquire", "add", "append", "appendleft", "cancel", "clear", "close", "copy", "count"),
        *("discard", "done", "empty", "exists", "extend", "flush", "format", "get", "index"),
        *("insert", "items", "join", "keys", "mean", "next", "open", "pop", "popitem", "popleft"),
        *("put", "read", "recv", "release", "remove", "result", "run", "send", "set", "setdefault"),
        *("size", "sort", "split", "start", "stop", "sum", "update", "values", "wait", "write"),
    )
)
"""Methods that many classes have: a call of one says nothing about those of the program."""
_TARGETS: Final = 4
"""Functions that a call of an object of an unknown class may lead to."""
_CALLS_UP: Final = 8
"""Calls that are followed, one above the other."""
_LOOPS_OF_ONE: Final = 8
_FAMILY: Final = 64
"""Classes that one is derived from."""
STEPS: Final = 400_000
"""Calls of one program that are followed, again included: those of asyncio are 17,000."""
NODES: Final = 120_000
"""Syntax nodes of a program that are looked at."""
_FROM_OUTSIDE: Final = re.compile(
    r"do_[A-Z]+|on_\w+|handle(?:_\w+)?|__call__|__getitem__|__iter__|__next__|forward"
    r"|training_step|validation_step|test_step|predict_step|collate\w*|emit|filter|run|step"
)
"""Methods that a library calls of the classes that a program derives from its own."""


class TooMuchToFollow(Exception):
    """The calls of a program lead to so many places that not all of them are looked at."""


class Function(Struct, eq=False):
    """A function of the program, or a file outside of its functions."""

    file: str
    module: ParsedFile
    node: ast.AST
    name: str
    owner: Class | None
    outer: Function | None
    statements: list[tuple[ast.AST, tuple[ast.AST, ...]]] = field(default_factory=list)
    """With the statements around each, outermost first."""
    calls: list[Site] = field(default_factory=list)
    callers: list[Site] = field(default_factory=list)
    assigned: dict[str, list[ast.expr]] = field(default_factory=dict)
    """What its variables are given by assignments."""
    iterated: dict[str, list[ast.expr]] = field(default_factory=dict)
    """What its variables take their values from in loops."""
    not_own: set[str] = field(default_factory=set)
    """The variables of the file, or of functions around it, that it sets."""

    @property
    def arguments(self) -> list[str]:
        """The names of its arguments, without that of its object."""
        if not isinstance(self.node, FUNCTIONS):
            return []
        names = parameters(self.node)
        is_bound = self.owner is not None and names[:1] in (["self"], ["cls"])
        return names[is_bound:]


class Class(Struct, eq=False):
    """A class of the program."""

    file: str
    node: ast.ClassDef
    methods: dict[str, Function] = field(default_factory=dict)
    values: defaultdict[str, list[ast.expr]] = field(default_factory=lambda: defaultdict(list))
    """What its attributes are given, by their names."""
    made: list[Site] = field(default_factory=list)
    """Where it is called."""

    @property
    def name(self) -> str:
        """Of the class."""
        return self.node.name


class Site(NamedTuple):
    """A call in the program, or where a function is given to one."""

    caller: Function
    called: Function
    call: ast.Call | None
    statement: ast.AST
    parents: tuple[ast.AST, ...]


class Round(NamedTuple):
    """A loop of the program in whose rounds something is reached."""

    function: Function
    loop: ast.AST
    by: tuple[str, ...]
    """The functions between the two, outermost first."""

    def has(self, line: int) -> bool:
        """Whether a line is in its body, or in the condition of a `while`."""
        body = getattr(self.loop, "body", [self.loop])
        first = self.loop if isinstance(self.loop, ast.While) else body[0]
        return first_line(first) <= line <= last_line(body[-1])


class Program:
    """All files of a program that were read."""

    def __init__(self, files: Iterable[tuple[str, ParsedFile]]) -> None:
        self.functions: list[Function] = []
        self.classes: defaultdict[str, list[Class]] = defaultdict(list)
        self.globals: dict[tuple[str, str], list[ast.expr]] = {}
        """Values of variables of files."""
        self.files_with: defaultdict[str, list[str]] = defaultdict(list)
        """The files that have a variable of a name."""
        self.having: defaultdict[str, list[Class]] = defaultdict(list)
        """The classes that have an attribute of a name."""
        self._named: defaultdict[str, list[Function]] = defaultdict(list)
        self._reached: dict[int, frozenset[int]] = {}
        self._imports: dict[int, dict[str, str]] = {}
        self._modules: dict[int, dict[str, str]] = {}
        self._mentioned: set[str] = set()
        self._steps = 0
        for file, module in files:
            self._add_file(file, module)
        every = [each for classes in self.classes.values() for each in classes]
        self._families = {id(each): self._family_of(each) for each in every}
        self._derived: defaultdict[int, list[Class]] = defaultdict(list)
        for each in every:
            for base in self.family(each)[1:]:
                self._derived[id(base)].append(each)
        for function in self.functions:
            self._add_values(function)
        for each in every:
            for name in each.values:
                self.having[name].append(each)
        for function in self.functions:
            self._add_calls(function)

    # --- what there is ------------------------------------------------------------------------

    def _add_file(self, file: str, module: ParsedFile) -> None:
        whole = Function(file, module, module.tree, "<module>", None, None)
        self._add_function(whole)

    def _add_function(self, function: Function) -> None:
        body = list(getattr(function.node, "body", ()))
        function.statements = list(within(body))
        self.functions.append(function)
        self._named[function.name].append(function)
        if function.owner is not None and function.outer is None:
            function.owner.methods.setdefault(function.name, function)
        self._add_definitions(function, [node for node, _ in function.statements])

    def _add_definitions(self, function: Function, nodes: Iterable[ast.AST]) -> None:
        is_file = isinstance(function.node, ast.Module)
        for node in nodes:
            if isinstance(node, FUNCTIONS):
                outer = None if is_file else function
                made = Function(
                    function.file, function.module, node, node.name, function.owner, outer
                )
                self._add_function(made)
            elif isinstance(node, ast.ClassDef):
                self._add_class(function, node)

    def _add_class(self, function: Function, node: ast.ClassDef) -> None:
        made = Class(function.file, node)
        self.classes[node.name].append(made)
        for part in node.body:
            if isinstance(part, FUNCTIONS):
                method = Function(function.file, function.module, part, part.name, made, None)
                self._add_function(method)
            elif isinstance(part, ast.Assign | ast.AnnAssign) and part.value is not None:
                for each in assigned_to(part):
                    made.values[last_name(each)].append(part.value)

    def _add_values(self, function: Function) -> None:
        """Note what attributes of objects and variables are given."""
        for node, _ in function.statements:
            for target, value in assignments(node):
                if isinstance(target, ast.Attribute) and last_name(target.value) in ("self", "cls"):
                    if function.owner is not None:
                        function.owner.values[target.attr].append(value)
                elif isinstance(target, ast.Name):
                    function.assigned.setdefault(target.id, []).append(value)
            if isinstance(node, ast.For):
                of = node.iter
                items = of.elts if isinstance(of, ast.Tuple | ast.List) else [of]
                function.iterated.setdefault(last_name(node.target), []).extend(items)
            elif isinstance(node, ast.Global | ast.Nonlocal):
                function.not_own.update(node.names)
        if isinstance(function.node, ast.Module):
            for name, values in function.assigned.items():
                self.globals[function.file, name] = values
                self.files_with[name].append(function.file)

    # --- what calls what ----------------------------------------------------------------------

    def _add_calls(self, function: Function) -> None:
        for statement, parents in function.statements:
            if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                continue
            for called in self._entered(statement, function):
                self._add_site(Site(function, called, None, statement, parents))
            for node in expressions_of(statement):
                for call, called in self._targets(node, function):
                    self._add_site(Site(function, called, call, statement, parents))
                if isinstance(node, ast.Call):
                    for each in self.classes.get(last_name(node.func), ()):
                        self.spend()
                        each.made.append(Site(function, function, node, statement, parents))

    def _add_site(self, site: Site) -> None:
        self.spend()
        site.caller.calls.append(site)
        site.called.callers.append(site)

    def _entered(self, statement: ast.AST, function: Function) -> Iterator[Function]:
        """What a `with` statement or the header of a `for` loop calls of the program's objects."""
        values: list[ast.expr] = []
        names: tuple[str, ...] = ("__iter__", "__next__", "__getitem__")
        if isinstance(statement, ast.With | ast.AsyncWith):
            values = [each.context_expr for each in statement.items]
            names = ("__enter__", "__exit__", "__aenter__", "__aexit__")
        elif isinstance(statement, ast.For | ast.AsyncFor):
            values = [statement.iter]
        for each in values:
            of = self.class_of(each, function)
            if of is not None:
                yield from self._methods(of, *names)

    def _targets(
        self, node: ast.AST, function: Function
    ) -> Iterator[tuple[ast.Call | None, Function]]:
        """The functions that an expression calls, or gives to a call."""
        if isinstance(node, ast.Call):
            for called in self.called_by(node.func, function):
                yield node, called
            for given in (*node.args, *(each.value for each in node.keywords)):
                if isinstance(given, ast.Name | ast.Attribute):
                    yield from ((None, called) for called in self._functions_at(given, function))
        elif isinstance(node, ast.Subscript):
            of = self.class_of(node.value, function)
            if of is not None:
                yield from ((None, m) for m in self._methods(of, "__getitem__", "__setitem__"))

    def called_by(self, called: ast.expr, function: Function) -> list[Function]:
        """The functions that a call of this expression may run."""
        if found := self._functions_at(called, function):
            return found
        name = last_name(called)
        if isinstance(called, ast.Name) and name in self.classes:
            return [m for c in self.classes[name] for m in self._methods(c, "__init__")]
        of = self.class_of(called, function)
        if of is not None:
            return self._methods(of, "__call__", "forward")
        if isinstance(called, ast.Attribute):
            return self._methods_named(called, function)
        return []

    def _functions_at(self, named: ast.expr, function: Function) -> list[Function]:
        """The function of this name, or the method of its object."""
        if isinstance(named, ast.Name):
            plain = [each for each in self._named.get(named.id, ()) if each.owner is None]
            inner = [each for each in plain if each.outer is not None]
            inner = [each for each in inner if each.outer in (function, function.outer)]
            plain = [each for each in plain if each.outer is None]
            beside = [each for each in plain if each.file == function.file]
            own = [
                each
                for each in self._named.get(named.id, ())
                if each.owner is not None and each.outer is function
            ]
            return inner or own or beside or plain[:_TARGETS]
        if isinstance(named, ast.Attribute):
            of = self.class_of(named.value, function)
            if of is not None:
                return self._methods(of, named.attr)
            if isinstance(named.value, ast.Name) and named.value.id not in function.assigned:
                module = self.imported_from(function, named.value.id, is_module=True)
                return [
                    each
                    for each in self._named.get(named.attr, ())
                    if each.owner is None and each.outer is None
                    if module and each.file.endswith(f"/{module}.py")
                ]
        return []

    def _methods_named(self, called: ast.Attribute, function: Function) -> list[Function]:
        """The methods, and functions of files, of a name that is called of something unknown."""
        of = expression_text(called.value)
        found = [each for each in self._named.get(called.attr, ()) if each.outer is None]
        if called.attr in ORDINARY:
            last = of.rpartition(".")[2].strip("_").replace("_", "").lower()
            found = [
                each
                for each in found
                if each.owner is not None
                and len(last) > 2
                and (last in each.owner.name.lower() or each.owner.name.lower() in last)
            ]
        return found if len(found) <= _TARGETS else []

    def _methods(self, of: Class, *names: str) -> list[Function]:
        """Methods of a class: its own or inherited ones, and those of classes derived from it."""
        found: list[Function] = []
        for name in names:
            own = next((c.methods[name] for c in self.family(of) if name in c.methods), None)
            found += [own] if own is not None else []
            found += [
                each.methods[name] for each in self._derived.get(id(of), ()) if name in each.methods
            ]
        return found

    def family(self, of: Class) -> Sequence[Class]:
        """A class of the program and those that it is derived from, at most `_FAMILY`."""
        return self._families[id(of)]

    def with_derived(self, of: Class) -> Sequence[Class]:
        """A class of the program and those that are derived from it."""
        return [of, *self._derived.get(id(of), ())]

    def _family_of(self, of: Class) -> Sequence[Class]:
        found, waiting = {id(of): of}, deque([of])
        while waiting and len(found) < _FAMILY:
            for base in waiting.popleft().node.bases:
                for each in self.classes.get(last_name(base), ())[:_FAMILY]:
                    if id(each) not in found:
                        found[id(each)] = each
                        waiting.append(each)
        return tuple(found.values())

    def imported_from(self, function: Function, name: str, *, is_module: bool = False) -> str:
        """The last name of the module from which the file of a function imports a name.

        Args:
            function: Of which file.
            name: As the file writes it.
            is_module: Whether the name is of a module itself, `import nodes as cell`.
        """
        tree = function.module.tree
        if id(tree) not in self._imports:
            found = self._imports[id(tree)] = {}
            itself = self._modules[id(tree)] = {}
            for node in every_node(tree):
                if isinstance(node, ast.ImportFrom):
                    module = (node.module or "").rpartition(".")[2]
                    for each in node.names:
                        found.setdefault(each.asname or each.name, module)
                        itself.setdefault(each.asname or each.name, each.name)
                elif isinstance(node, ast.Import):
                    for each in node.names:
                        itself.setdefault(each.asname or each.name, each.name.rpartition(".")[2])
        return (self._modules if is_module else self._imports)[id(tree)].get(name, "")

    def has_function(self, name: str) -> bool:
        """Whether a function of the program, and not a method, has a name."""
        return any(each.owner is None for each in self._named.get(name, ()))

    def is_known_call(self, site: Site) -> bool:
        """Whether a call leads to a function for more reason than a name that others have too."""
        if site.call is None:
            return False
        func = site.call.func
        if (
            not isinstance(func, ast.Attribute)
            or self.class_of(func.value, site.caller) is not None
        ):
            return True
        return func.attr not in ORDINARY and len(self._named.get(func.attr, ())) == 1

    def has_method(self, name: str) -> bool:
        """Whether a class of the program has a method of a name."""
        return any(each.owner is not None for each in self._named.get(name, ()))

    def is_mentioned(self, function: Function) -> bool:
        """Whether a file reads the name of a function, so that something unknown may call it.

        Not of a method of a name that many classes have.
        """
        if not self._mentioned:
            for tree in {
                id(each.module.tree): each.module.tree for each in self.functions
            }.values():
                for node in every_node(tree):
                    if isinstance(node, ast.Name | ast.Attribute):
                        self._mentioned.add(last_name(node))
        return function.name not in ORDINARY and function.name in self._mentioned

    def spend(self, steps: int = 1) -> None:
        """Count what was followed.

        Raises:
            TooMuchToFollow: It was more than `STEPS`.
        """
        self._steps += steps
        if self._steps > STEPS:
            raise TooMuchToFollow

    def class_of(self, value: ast.expr, function: Function) -> Class | None:
        """The class of the program of which an expression is an object, as far as it shows."""
        if isinstance(value, ast.Name):
            if value.id in ("self", "cls"):
                return function.owner
            return self._class_of_variable(value.id, function)
        if isinstance(value, ast.Call):
            return self._only(last_name(value.func))
        if isinstance(value, ast.Attribute):
            of = self.class_of(value.value, function)
            owners = self.family(of) if of is not None else []
            made = [v for each in owners for v in each.values.get(value.attr, ())]
            names = {last_name(v.func) for v in made if isinstance(v, ast.Call)}
            if len(names) == 1:
                return self._only(names.pop())
        return None

    def _class_of_variable(self, name: str, function: Function) -> Class | None:
        node = function.node
        if isinstance(node, FUNCTIONS):
            for each in (*node.args.args, *node.args.kwonlyargs):
                if each.arg == name and each.annotation is not None:
                    return self._only(last_name(each.annotation))
        values = function.assigned.get(name) or self.globals.get((function.file, name), [])
        names = {last_name(v.func) for v in values if isinstance(v, ast.Call)}
        return self._only(names.pop()) if len(names) == 1 and len(values) == 1 else None

    def _only(self, name: str) -> Class | None:
        found = self.classes.get(name, ())
        return found[0] if len(found) == 1 else None

    # --- what runs again and again ------------------------------------------------------------

    def rounds(self, function: Function, parents: Sequence[ast.AST], line: int) -> list[Round]:
        """The loops in whose rounds a statement is reached, nearest first.

        Args:
            function: That has the statement.
            parents: The statements around it.
            line: Where it begins.
        """
        found = [Round(function, loop, ()) for loop in loops_around(parents, line)]
        waiting: deque[tuple[Function, tuple[str, ...]]] = deque([(function, (function.name,))])
        seen = {id(function)}
        while waiting and len(found) < _LOOPS_OF_ONE:
            at, by = waiting.popleft()
            self.spend(1 + len(at.callers))
            for site in at.callers:
                loops = loops_around(site.parents, first_line(site.statement), site.statement)
                found += [Round(site.caller, loop, by) for loop in loops]
                if id(site.caller) not in seen and len(by) < _CALLS_UP:
                    seen.add(id(site.caller))
                    waiting.append((site.caller, (site.caller.name, *by)))
        return found[:_LOOPS_OF_ONE]

    def outside_calls(self, function: Function) -> Function | None:
        """The function that leads to this one and that a library calls for each item or request."""
        waiting, seen = deque([function]), {id(function)}
        while waiting and len(seen) < 4 * _CALLS_UP:
            at = waiting.popleft()
            if not at.callers and self.is_of_library(at):
                return at
            for site in at.callers:
                if id(site.caller) not in seen:
                    seen.add(id(site.caller))
                    waiting.append(site.caller)
        return None

    def is_reached(self, function: Function) -> bool:
        """Whether the program comes to a function from what a file runs, or a library calls.

        Also where its name is read and what that calls is not known.
        """
        waiting, seen = deque([function]), {id(function)}
        while waiting:
            at = waiting.popleft()
            self.spend(1 + len(at.callers))
            is_first = isinstance(at.node, ast.Module) or at.name == "main"
            if is_first or (not at.callers and (self.is_of_library(at) or self.is_mentioned(at))):
                return True
            for site in at.callers:
                if id(site.caller) not in seen:
                    seen.add(id(site.caller))
                    waiting.append(site.caller)
        return False

    def is_of_library(self, function: Function) -> bool:
        """Whether something outside of the program calls it again and again, as far as it shows."""
        if isinstance(function.node, FUNCTIONS) and function.node.decorator_list:
            plain = ("property", "staticmethod", "classmethod", "dataclass", "no_grad")
            names = {last_name(getattr(e, "func", e)) for e in function.node.decorator_list}
            if names.difference(plain):
                return True
        if function.owner is None or not _FROM_OUTSIDE.fullmatch(function.name):
            return False
        bases = [base for each in self.family(function.owner) for base in each.node.bases]
        return any(
            last_name(base) not in self.classes and last_name(base) != "object" for base in bases
        )

    def reached_in(self, found: Round) -> frozenset[int]:
        """The ids of the functions that are called in the rounds of a loop."""
        key = id(found.loop)
        if key not in self._reached:
            self.spend(len(found.function.calls))
            self._reached[key] = self.reached_by(
                site
                for site in found.function.calls
                if found.has(first_line(site.statement)) and _is_inside(site, found.loop)
            )
        return self._reached[key]

    def reached_from(self, function: Function) -> frozenset[int]:
        """The ids of the functions that the calls of one lead to."""
        key = id(function)
        if key not in self._reached:
            self._reached[key] = self.reached_by(function.calls)
        return self._reached[key]

    def reached_by(self, calls: Iterable[Site], *, is_at_once: bool = False) -> frozenset[int]:
        """The ids of the functions that some calls lead to.

        Args:
            calls: The calls.
            is_at_once: Only by calls that have returned before the next statement is run: not by
                one that hands a function or a coroutine to a task, a thread or a process.
        """
        waiting, seen = deque(calls), set[int]()
        while waiting:
            site = waiting.popleft()
            if id(site.called) in seen or (is_at_once and not _is_run_there(site)):
                continue
            self.spend(1 + len(site.called.calls))
            seen.add(id(site.called))
            waiting.extend(site.called.calls)
        return frozenset(seen)


def program_of(files: Iterable[tuple[str, ParsedFile]]) -> Program | None:
    """The program of some files, `None` for one of more than `NODES` or with too many calls.

    What is asked of it, such as what removes from a container, may be in what is not looked at.
    """
    used, count = [], 0
    for file, module in files:
        count += len(every_node(module.tree))
        if count > NODES:
            return None
        used.append((file, module))
    try:
        return Program(used)
    except TooMuchToFollow:
        return None


def _is_run_there(site: Site) -> bool:
    """Whether a call is all that its statement does, but for an assignment, and is awaited."""
    statement = site.statement
    value = statement.value if isinstance(statement, ast.Assign | ast.Expr) else None
    if isinstance(site.called.node, ast.AsyncFunctionDef) and not isinstance(value, ast.Await):
        return False
    value = value.value if isinstance(value, ast.Await) else value
    return value is not None and value is site.call


def _is_inside(site: Site, loop: ast.AST) -> bool:
    return loop in site.parents or site.statement is loop


def loops_around(
    parents: Sequence[ast.AST], line: int, statement: ast.AST | None = None
) -> Iterator[ast.AST]:
    """The loops around a line, innermost first; what a `for` goes through is made once."""
    around = [*parents, statement] if isinstance(statement, ast.While) else parents
    for each in reversed(around):
        if isinstance(each, LOOPS):
            first = each if isinstance(each, ast.While) else each.body[0]
            if first_line(first) <= line <= last_line(each.body[-1]):
                yield each


def expressions_of(statement: ast.AST) -> Iterator[ast.AST]:
    """The expressions of a statement, without the statements in it."""
    waiting = [
        each
        for each in ast.iter_child_nodes(statement)
        if not isinstance(each, ast.stmt | ast.ExceptHandler | ast.match_case)
    ]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += ast.iter_child_nodes(node)


def assignments(statement: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What an assignment gives a value, each with that: `a, b = [], {}` are two."""
    if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
        for target in assigned_to(statement):
            yield from _paired(target, statement.value)


def _paired(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple | ast.List):
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
            for each, of in zip(target.elts, value.elts, strict=True):
                yield from _paired(each, of)
        else:
            for each in target.elts:
                yield each, value
    else:
        yield target, value
