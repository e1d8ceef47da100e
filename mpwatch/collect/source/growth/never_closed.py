"""What a program makes again and again, and releases nowhere that the same round reaches.

Two kinds. An object of the program whose constructor takes what a dropped reference does not give
back (a thread that runs a method of the object, a process, a descriptor that is a plain number),
and whose close() or stop() is not called. And a call of a library that keeps what it makes until
its counterpart is called, as matplotlib.pyplot keeps figures.

All files that were read are looked at together: the class, the statement that makes an object and
the one that releases it may be in three of them. Nothing is told of an object that is given to
anything, returned or stored, as that may release it.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from mpwatch.collect.source.growth.kept_references import KEEPS_OPEN
from mpwatch.collect.source.repetition import Repeatable, functions_with_classes, loop_around
from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    LOOPS,
    ORDERS,
    FunctionNode,
    ParsedFile,
    every_node,
    expression_text,
    first_line,
    full_name,
    functions_in,
    imports_of,
    is_inside,
    last_line,
    last_name,
    names_in,
    of_file,
    own_nodes,
    quoted,
    receiver_of,
)
from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import Mark, NeverClosedKind

ABOUT_LIMIT: Final = 200
_NESTED: Final = 3
"""Objects in objects, and calls of callers, that are followed."""
_TAKEN: Final = 8
"""Of one class."""
_TRIED: Final = 128
"""Calls that are looked at: each is compared with all statements of its function."""
_RELEASE: Final = re.compile(
    r"_*(?:a?close|cancel|clean_?up|destroy|detach|disconnect|dispose|free|join|kill|quit|release"
    r"|shut_?down|stop|tear_?down|terminate|wait)(?:_\w+)?"
)
"""Names of methods and functions that give back what an object has taken."""
_WAITS_ONLY: Final = re.compile(r"_*(?:free|wait)(?:_\w+)?")
"""Those that end no thread."""
_TELLS: Final = frozenset(("put", "put_nowait", "send", "set"))
"""Methods of events, queues and pipes by which a thread may be told to end."""
_PLAIN_DECORATORS: Final = frozenset(("dataclass", "final", "runtime_checkable", "total_ordering"))
"""Of classes, which release nothing."""
_PLAIN_BASES: Final = frozenset(("ABC", "Generic", "Protocol", "Thread", "object"))
"""Bases that release nothing when an object is dropped."""
_GUARDS: Final = frozenset(("__del__", "finalize", "enter_context", "register", "push", "callback"))
"""Methods and calls of a class that may release its objects without a call of the program."""


class _OfLibrary(NamedTuple):
    """What a call of a library takes until its counterpart is called."""

    kind: NeverClosedKind
    undone_by: str
    is_handle: bool = False
    """Whether it returns a number, which any function of the library may be given."""


_FIGURE: Final = _OfLibrary("figures", "matplotlib.pyplot.close")
_LIBRARY: Final[Mapping[str, _OfLibrary]] = {
    **{f"matplotlib.pyplot.{each}": _FIGURE for each in ("figure", "subplots", "subplot_mosaic")},
    # Each FacetGrid or JointGrid has a figure of pyplot (seaborn 0.13, axisgrid.py).
    **{
        f"seaborn.{each}": _FIGURE
        for each in (
            "catplot",
            "clustermap",
            "displot",
            "jointplot",
            "lmplot",
            "pairplot",
            "relplot",
        )
    },
    "pybullet.connect": _OfLibrary("memory", "disconnect", is_handle=True),
    # Its thread waits for events until it is told to stop (tensorboard 2.20, event_file_writer.py).
    "tensorboardX.SummaryWriter": _OfLibrary("writers", "close"),
    "torch.utils.tensorboard.SummaryWriter": _OfLibrary("writers", "close"),
    "torch.utils.tensorboard.writer.SummaryWriter": _OfLibrary("writers", "close"),
}
_NUMBERS: Final[Mapping[str, NeverClosedKind]] = {
    "os.dup": "any",
    "os.eventfd": "event",
    "os.memfd_create": "shm",
    "os.open": "file",
    "os.pipe": "pipe",
    "os.pipe2": "pipe",
    "tempfile.mkstemp": "file",
}
"""Functions that return descriptors as plain numbers."""
_LIBRARY_NAMES: Final = frozenset(each.rpartition(".")[2] for each in _LIBRARY)
_ENDS_PROCESS: Final = frozenset(
    ("communicate", "join", "kill", "send_signal", "stdin", "terminate", "wait")
)
_CLOSES_FIGURES: Final = frozenset(("add_figure", "close", "clf", "ion", "show", "switch_backend"))
"""Calls that may close figures: add_figure() of a SummaryWriter closes the one that it is given."""
_LEAVES_FIGURE: Final = frozenset(
    (
        *(
            "FigureCanvas",
            "FigureCanvasAgg",
            "Image",
            "colorbar",
            "dump",
            "figure",
            "getp",
            "isinstance",
            "len",
            "log_figure",
            "plot",
            "print",
        ),
        *("sca", "scf", "setp", "str", "subplots_adjust", "tight_layout"),
    )
)
"""Functions that are given a figure and do not close it."""


class _Taken(NamedTuple):
    """What the constructor of a class takes and a dropped reference does not give back."""

    kind: NeverClosedKind
    attribute: str
    """Of the object; empty for a thread that only its own method has."""
    where: str
    """The file and line: `feed.py:12`."""
    released_by: frozenset[str]
    """Methods of what the attribute refers to, or functions that are given it."""
    is_object: bool = False
    """Whether the attribute is another such object of the program."""


class _Class(NamedTuple):
    file: str
    module: ParsedFile
    node: ast.ClassDef
    methods: Mapping[str, FunctionNode]


class _Holder(NamedTuple):
    """A class whose objects keep something until one of their methods is called."""

    of: _Class
    taken: tuple[_Taken, ...]
    """One of each kind."""
    releases: frozenset[str]
    """The methods that give it back; empty if it has none."""


class _Round(NamedTuple):
    """What a function calls in each round of an outermost loop, or besides its loops."""

    function: str
    calls: frozenset[str]
    together: frozenset[str]
    """What is called each time that one of these is: besides loops, all that the function calls."""
    is_loop: bool


class _FileUse(NamedTuple):
    """What a file does with attributes and functions, for questions of other files."""

    given: frozenset[tuple[str, str]]
    """Attributes that are given to a call, with its name; or returned or stored, with none."""
    released: frozenset[str]
    """Attributes of another object of which a releasing method is called."""
    read: frozenset[str]
    """Attributes and methods that are read of anything but `self` and a module."""
    rounds: tuple[_Round, ...]


class _Place(NamedTuple):
    """A function of the program."""

    file: str
    module: ParsedFile
    function: FunctionNode
    owner: ast.ClassDef | None
    nodes: Sequence[ast.AST]


def never_closed(files: Sequence[tuple[str, ParsedFile]]) -> Iterator[Repeatable]:
    """The statements of a program that make what nothing releases, with the loop of their function.

    Args:
        files: All that were read, with their paths.
    """
    program = _Program(files)
    for place, call in islice(program.candidates(), _TRIED):
        by = place.function.name
        if place.owner is not None and by == "__init__":
            by = place.owner.name
        for about in program.left_by(place, call):
            loops = _variables(place.function).loops
            loop = loop_around(place.file, place.function, loops, call)
            text = clean(about.replace(";", ","), ABOUT_LIMIT)
            statement = quoted(place.module, call)
            mark = Mark("never-closed", place.file, place.function.name, text, statement)
            yield Repeatable(mark, (by,), loop)


class _Program:
    """What the classes of all files take, and what their functions release."""

    def __init__(self, files: Sequence[tuple[str, ParsedFile]]) -> None:
        self._files = files
        self._uses = [of_file(module.tree, _uses_of_file) for _, module in files]
        classes = [each for file, module in files for each in _classes_of(file, module)]
        counts = Counter(each.node.name for each in classes)
        self._classes = {e.node.name: e for e in classes if counts[e.node.name] == 1}
        self._holders: dict[str, _Holder | None] = {}
        self._names = Counter(e.name for _, module in files for e in functions_in(module.tree))
        self._own = self._names.keys() | counts.keys()
        """The names of all functions and classes."""
        self._are_figures_left: bool | None = None
        self._callers: dict[tuple[frozenset[str], str], frozenset[str]] = {}
        """Functions that were asked for, with those that lead to them."""

    def candidates(self) -> Iterator[tuple[_Place, ast.Call]]:
        """The calls that make such an object, or are of such a function of a library."""
        for file, module in self._files:
            for function, owner in functions_with_classes(module.tree):
                if not isinstance(function, FUNCTIONS):
                    continue
                place = _Place(file, module, function, owner, own_nodes(function))
                for call in (each for each in place.nodes if isinstance(each, ast.Call)):
                    name = last_name(call.func)
                    if name in _LIBRARY_NAMES or (
                        name in self._classes and self._holder(name, _NESTED) is not None
                    ):
                        yield place, call

    def left_by(self, place: _Place, call: ast.Call) -> Iterator[str]:
        """What `Mark.about` says of a call that makes what is not released; nothing for others."""
        full = full_name(place.module.tree, call.func)
        library = _LIBRARY.get(full)
        if library is _FIGURE:
            if self._stays_open(place, call):
                yield f"figures, {full}, {library.undone_by}, , none"
        elif library is not None:
            releases = frozenset((library.undone_by,))
            is_undone = library.is_handle and self._calls(library.undone_by)
            way = "" if is_undone else self._way_of(place, call, releases)
            if way:
                yield f"{library.kind}, {full}, {library.undone_by}, , {way}"
        elif _is_plain(call.func) and (holder := self._holder(last_name(call.func), _NESTED)):
            way = self._way_of(place, call, holder.releases)
            for each in holder.taken if way else ():
                undone_by = min(holder.releases, key=_order, default="")
                if each.is_object and not undone_by:
                    undone_by = f"{each.attribute}.{min(each.released_by, key=_order)}"
                yield f"{each.kind}, {holder.of.node.name}, {undone_by}, {each.where}, {way}"

    def _calls(self, name: str) -> bool:
        """Whether any function of the program calls one of that name."""
        return any(name in each.calls for use in self._uses for each in use.rounds)

    def _way_of(self, place: _Place, call: ast.Call, releases: frozenset[str]) -> str:
        """How an object stays unreleased: `none`, `over`, or a condition; empty if it may not."""
        parents = _variables(place.function).parents
        parent = parents.get(id(call))
        if isinstance(parent, ast.Expr):
            return "none"
        if isinstance(parent, ast.Attribute):
            used = parents.get(id(parent))
            is_used = isinstance(used, ast.Call) and used.func is parent
            is_last = is_used and isinstance(parents.get(id(used)), ast.Expr)
            return "none" if is_last and not _may_release(parent.attr, releases) else ""
        if not isinstance(parent, ast.Assign) or len(parent.targets) != 1:
            return ""
        target = parent.targets[0]
        if isinstance(target, ast.Name):
            return self._way_of_variable(place, call, target.id, releases)
        if isinstance(target, ast.Attribute) and last_name(target.value) == "self":
            return self._way_of_attribute(place, call, target.attr, releases)
        return ""

    def _way_of_variable(
        self, place: _Place, call: ast.Call, name: str, releases: frozenset[str]
    ) -> str:
        """How the object of a variable stays unreleased; empty if it may not."""
        harmless = () if any(map(self._is_read, releases)) else self._own
        variables = _variables(place.function)
        found = variables.releases_of(name, call, releases, harmless)
        if not found:
            return "" if found is None else "none"
        around = _conditions(variables.tests, found[0], name)
        if len(found) > 1 or not around or is_inside(call, around[0]):
            return ""
        header = quoted(place.module, around[0])
        return f"{header.text} in line {header.line}"

    def _is_read(self, method: str) -> bool:
        """Whether a method of that name is called, or given on, of any object but its own."""
        return any(method in use.read for use in self._uses)

    def _is_given_on(self, attribute: str, releases: Iterable[str]) -> bool:
        """Whether an attribute is given to what may release its object.

        Not a function or class of the program, where nothing there calls what would.
        """
        given = {to for use in self._uses for each, to in use.given if each == attribute}
        return bool(given) and (not given <= self._own or any(map(self._is_read, releases)))

    def _way_of_attribute(
        self, place: _Place, call: ast.Call, name: str, releases: frozenset[str]
    ) -> str:
        """How an attribute is given a new object while the former one is not released."""
        owner = self._classes.get(place.owner.name) if place.owner is not None else None
        if owner is None or place.function.name == "__init__":
            return ""  # the objects of the class have it
        if _guards_itself(owner.node) or any(name in use.released for use in self._uses):
            return ""
        if self._is_given_on(name, releases) or _is_asked_for(place, call, name):
            return ""
        own = self._releasing(owner, name, releases) - {place.function.name}
        found = [each for each in place.nodes if _gives_back(each, name, releases, own)]
        if len(found) > 1 or self._callers_call(place.function.name, own | releases):
            return ""
        if not found:
            return "over"
        around = _conditions(_variables(place.function).tests, found[0], name)
        if not around or is_inside(call, around[0]):
            return ""
        header = quoted(place.module, around[0])
        return f"over {header.text} in line {header.line}"

    def _callers_call(self, name: str, called: frozenset[str]) -> bool:
        """Whether a round that calls a function, also by others, calls one of some names as well.

        What is called after a loop is not called in its rounds.
        """
        level = {name}
        seen: set[str] = set()
        called = self._leading_to(called, name)
        for _ in range(_NESTED):
            above: set[str] = set()
            for use in self._uses:
                for each in use.rounds:
                    is_it = each.function == name and self._names[name] == 1
                    if is_it or each.calls.isdisjoint(level):
                        continue
                    if not each.together.isdisjoint(called):
                        return True
                    above |= set() if each.is_loop else {each.function}
            seen |= level
            level = above - seen
        return False

    def _leading_to(self, called: frozenset[str], but: str) -> frozenset[str]:
        """Some functions, with those that call one of them, also by others; without one of these.

        Args:
            called: Their names.
            but: The name of a function that may call one under a condition only.
        """
        found = self._callers.get((called, but))
        if found is None:
            found = called
            for _ in range(_NESTED):
                found |= {
                    each.function
                    for use in self._uses
                    for each in use.rounds
                    if each.function != but and not each.calls.isdisjoint(found)
                }
            self._callers[called, but] = found
        return found

    def _holder(self, name: str, depth: int) -> _Holder | None:
        """The class of that name, if its objects keep what dropping them does not give back."""
        if name in self._holders or not depth:
            return self._holders.get(name)
        self._holders[name] = None  # also of a class that holds its own kind
        of = self._classes.get(name)
        if of is None or _guards_itself(of.node) or not self._is_plain_class(of, depth):
            return None
        decorators = {last_name(getattr(e, "func", e)) for e in of.node.decorator_list}
        if not decorators <= _PLAIN_DECORATORS:
            return None
        found = list(islice(self._taken_by(of, depth), _TAKEN))
        releases: frozenset[str] = frozenset()
        if any(each.kind == "threads" for each in found):
            named = (each for each in of.methods if _RELEASE.fullmatch(each))
            releases = frozenset(each for each in named if not _WAITS_ONLY.fullmatch(each))
        for each in found:
            releases = self._releasing(of, each.attribute, each.released_by, releases)
        init = of.methods.get("__init__")
        nodes = own_nodes(init) if init is not None else ()
        for each in found:
            if any(_gives_back(e, each.attribute, each.released_by, releases) for e in nodes):
                return None  # the constructor itself
        if any(self._may_release_outside(each, releases) for each in found):
            return None
        if found:
            kinds = {each.kind: each for each in reversed(found)}
            self._holders[name] = _Holder(of, tuple(kinds.values()), releases)
        return self._holders[name]

    def _may_release_outside(self, taken: _Taken, releases: frozenset[str]) -> bool:
        """Whether something besides the methods of its class may release what an object keeps."""
        if not releases and (taken.is_object or taken.kind in ("processes", "threads")):
            # By a flag or a message, or it ends by itself.
            return not taken.is_object or any(map(self._is_read, taken.released_by))
        if taken.kind == "memory":  # a number that says which, for functions of its library
            return not releases and any(map(self._calls, taken.released_by))
        if taken.attribute and any(taken.attribute in use.released for use in self._uses):
            return True
        return bool(taken.attribute) and self._is_given_on(taken.attribute, taken.released_by)

    def _is_plain_class(self, of: _Class, depth: int) -> bool:
        """Whether all bases of a class are known, and none releases what a dropped object has."""
        for base in of.node.bases:
            name = last_name(base.value if isinstance(base, ast.Subscript) else base)
            if name in _PLAIN_BASES:
                continue
            above = self._classes.get(name)
            if above is None or not depth or _guards_itself(above.node):
                return False
            if not self._is_plain_class(above, depth - 1):
                return False
        return not of.node.keywords

    def _taken_by(self, of: _Class, depth: int) -> Iterator[_Taken]:
        """What the constructor of a class takes, also in the methods that it calls."""
        init = of.methods.get("__init__")
        own = own_nodes(init) if init is not None else ()
        called = {last_name(e.func) for e in own if isinstance(e, ast.Call) and _is_own(e)}
        nodes = [*own]
        for name in sorted(called & of.methods.keys()):
            nodes += own_nodes(of.methods[name])
        started = {
            receiver_of(each)
            for each in nodes
            if isinstance(each, ast.Call) and last_name(each.func) == "start"
        }
        is_thread = any(last_name(each) == "Thread" for each in of.node.bases)
        if is_thread and "self" in started and _runs_on(of, "run"):
            yield _Taken("threads", "", _where(of, of.methods["run"]), frozenset())
        for node in nodes:
            if isinstance(node, ast.Assign):
                yield from self._taken_as(of, node, started, depth)
            elif isinstance(node, ast.Call) and last_name(node.func) == "start":
                made = node.func.value if isinstance(node.func, ast.Attribute) else node
                if isinstance(made, ast.Call) and _is_thread_of(of, made):
                    yield _Taken("threads", "", _where(of, made), frozenset())

    def _taken_as(
        self, of: _Class, node: ast.Assign, started: set[str], depth: int
    ) -> Iterator[_Taken]:
        """What an assignment of a constructor takes."""
        call, target = node.value, node.targets[0]
        first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
        if not isinstance(call, ast.Call):
            return
        name, where = expression_text(first), _where(of, node)
        attribute = last_name(first) if name == f"self.{last_name(first)}" else ""
        full = full_name(of.module.tree, call.func)
        if name in started and _is_thread_of(of, call):
            yield _Taken("threads", attribute, where, frozenset(("join",)))
        elif not attribute:
            return
        elif full in _NUMBERS:
            yield _Taken(_NUMBERS[full], attribute, where, frozenset(("close", "fdopen", "open")))
        elif full == "subprocess.Popen" or (full == "multiprocessing.Process" and name in started):
            yield _Taken("processes", attribute, where, _ENDS_PROCESS)
        elif full in _LIBRARY and _LIBRARY[full] is not _FIGURE:
            library = _LIBRARY[full]
            yield _Taken(library.kind, attribute, where, frozenset((library.undone_by,)))
        elif _is_plain(call.func) and (inner := self._holder(last_name(call.func), depth - 1)):
            for each in inner.taken:
                yield _Taken(each.kind, attribute, each.where, inner.releases, is_object=True)

    def _releasing(
        self, of: _Class, attribute: str, by: frozenset[str], known: frozenset[str] = frozenset()
    ) -> frozenset[str]:
        """The methods of a class that release what an attribute refers to, also by others of it."""
        found = known
        for _ in range(_NESTED):
            for name, method in of.methods.items():
                is_new = name not in found and name != "__init__"
                if is_new and any(_gives_back(e, attribute, by, found) for e in own_nodes(method)):
                    found |= {name}
        return found

    def _stays_open(self, place: _Place, call: ast.Call) -> bool:
        """Whether nothing in the program closes a figure of pyplot, as far as that shows."""
        is_named = bool(call.args) and last_name(call.func) == "figure"
        if is_named or any(each.arg in ("num", "clear", None) for each in call.keywords):
            return False  # an open figure of that number is used again
        if self._are_figures_left is None:
            trees = [module.tree for _, module in self._files]
            makers = {name for each in trees for name in of_file(each, _makers_of_figures)}
            self._are_figures_left = not any(of_file(each, _closes_figures) for each in trees) and (
                {name for each in trees for name in _given_figures(each, makers)}
                <= self._own | _LEAVES_FIGURE
            )
        return self._are_figures_left


class _Variables:
    """What a function does with its variables, gathered once for all objects that it makes."""

    def __init__(self, nodes: Sequence[ast.AST]) -> None:
        self.parents = {id(child): each for each in nodes for child in ast.iter_child_nodes(each)}
        """What each piece of syntax is directly in."""
        self.loops = [each for each in nodes if isinstance(each, LOOPS)]
        self.tests = [each for each in nodes if isinstance(each, ast.If)]
        self.uses: defaultdict[str, list[ast.Name]] = defaultdict(list)
        self.shared: set[str] = set()
        """Those that other functions have, too."""
        for node in nodes:
            if isinstance(node, ast.Name):
                self.uses[node.id].append(node)
            elif isinstance(node, ast.Global | ast.Nonlocal):
                self.shared.update(node.names)
            elif isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
                self.shared |= names_in(node)

    def releases_of(
        self, name: str, call: ast.Call, releases: frozenset[str], harmless: Container[str]
    ) -> list[ast.AST] | None:
        """The calls that release the object of a variable; `None` if something else may.

        Args:
            name: The variable.
            call: What makes its object.
            releases: Methods that do.
            harmless: Functions that do not release what they are given.
        """
        found: list[ast.AST] = []
        for node in self.uses[name]:
            parent = self.parents.get(id(node))
            if isinstance(node.ctx, ast.Store):
                value = parent.value if isinstance(parent, ast.Assign) else None
                if value is not call and getattr(value, "value", ...) is not None:
                    return None
            elif isinstance(node.ctx, ast.Load) and not _is_test(parent):
                if isinstance(parent, ast.Call) and last_name(parent.func) in harmless:
                    continue
                if not isinstance(parent, ast.Attribute) or not isinstance(parent.ctx, ast.Load):
                    return None
                used = self.parents.get(id(parent))
                is_called = isinstance(used, ast.Call) and used.func is parent
                if _may_tell(used):
                    return None
                if _may_release(parent.attr, releases):
                    if used is None or not is_called:
                        return None
                    found.append(used)
        return None if name in self.shared else found


def _variables(function: FunctionNode) -> _Variables:
    """Those of a function, kept with its syntax."""
    known: _Variables | None = vars(function).get("variables_of_objects")
    if known is None:
        known = vars(function)["variables_of_objects"] = _Variables(own_nodes(function))
    return known


def _may_release(method: str, releases: Iterable[str]) -> bool:
    """Whether a method releases its object, as its name or the class shows."""
    return method in releases or _RELEASE.fullmatch(method) is not None or method == "__exit__"


def _may_tell(used: ast.AST | None) -> bool:
    """`feed.put(None)` and `feed.done.set()`, by which the thread of an object may end."""
    if isinstance(used, ast.Call):
        return any(getattr(each, "value", ...) is None for each in used.args)
    return isinstance(used, ast.Attribute) and (
        used.attr in _TELLS or _RELEASE.fullmatch(used.attr) is not None
    )


def _is_test(parent: ast.AST | None) -> bool:
    return isinstance(
        parent,
        ast.FormattedValue | ast.Compare | ast.BoolOp | ast.If | ast.While | ast.UnaryOp,
    )


def _conditions(tests: Sequence[ast.If], inside: ast.AST, name: str) -> list[ast.If]:
    """The `if` statements around one, innermost first, but for those that ask whether it is there.

    `if self.feed is not None: self.feed.close()` is no condition.
    """
    around = [
        each
        for each in tests
        if is_inside(inside, each)
        and not re.search(rf"\b{re.escape(name)}\b", expression_text(each.test))
    ]
    return sorted(around, key=first_line, reverse=True)


def _is_asked_for(place: _Place, call: ast.Call, name: str) -> bool:
    """Whether an attribute gets its object only where it has none: `if self.feed is None:`."""
    tests = [
        each.test
        for each in _variables(place.function).tests
        if is_inside(call, each) or isinstance(each.body[-1], ast.Return)
    ]
    return any(re.search(rf"\b{re.escape(name)}\b", expression_text(each)) for each in tests)


def _gives_back(node: ast.AST, attribute: str, by: frozenset[str], methods: frozenset[str]) -> bool:
    """Whether a call releases what an attribute refers to, or calls a method that does."""
    if not isinstance(node, ast.Call):
        return False
    name = last_name(node.func)
    if name in methods and receiver_of(node) == "self":
        return True
    if not attribute or not _may_release(name, by):
        return False
    given = [*node.args, *(each.value for each in node.keywords)]
    return receiver_of(node) == f"self.{attribute}" or any(
        expression_text(each) == f"self.{attribute}"
        for each in given
        if isinstance(each, ast.Attribute)
    )


def _guards_itself(node: ast.ClassDef) -> bool:
    """Whether a class may release its objects when they are dropped, or at the end."""
    return any(
        (isinstance(each, FUNCTIONS) and each.name in _GUARDS)
        or (isinstance(each, ast.Call) and last_name(each.func) in _GUARDS)
        for each in ast.walk(node)
    )


def _where(of: _Class, node: ast.AST) -> str:
    return f"{of.file.rpartition('/')[2]}:{first_line(node)}"


def _runs_on(of: _Class, name: str) -> bool:
    """Whether a method that a thread runs has a loop without an end of its own."""
    method = of.methods.get(name)
    loops = own_nodes(method) if method is not None else ()
    return any(isinstance(each, ast.While) and not _counts(each.test) for each in loops)


def _counts(test: ast.expr) -> bool:
    """`number < 10`: such a loop ends by itself."""
    return isinstance(test, ast.Compare) and any(isinstance(op, tuple(ORDERS)) for op in test.ops)


def _is_thread_of(of: _Class, call: ast.Call) -> bool:
    """Whether a call makes a thread that runs a method of the object, which it then keeps."""
    target = next((each.value for each in call.keywords if each.arg == "target"), None)
    is_thread = full_name(of.module.tree, call.func) == "threading.Thread"
    is_own = isinstance(target, ast.Attribute) and last_name(target.value) == "self"
    return is_thread and is_own and _runs_on(of, last_name(target))  # type: ignore[arg-type]


def _is_own(call: ast.Call) -> bool:
    return receiver_of(call) == "self"


def _is_plain(func: ast.expr) -> bool:
    """Whether a name or a name in a module is called: `Feed()`, `feeds.Feed()`."""
    return isinstance(func, ast.Name) or (
        isinstance(func, ast.Attribute)
        and isinstance(func.value, ast.Name)
        and func.value.id not in ("self", "cls")
    )


_NAMED: Final = ("close", "stop", "shutdown", "disconnect", "terminate", "cleanup", "release")


def _order(name: str) -> tuple[int, bool, str]:
    """The method that is named: one of those before others, and public ones before others."""
    return _NAMED.index(name) if name in _NAMED else len(_NAMED), name.startswith("_"), name


def _classes_of(file: str, module: ParsedFile) -> Iterator[_Class]:
    for node in every_node(module.tree):
        if isinstance(node, ast.ClassDef):
            methods = {each.name: each for each in node.body if isinstance(each, FUNCTIONS)}
            yield _Class(file, module, node, methods)


def _uses_of_file(tree: ast.Module) -> _FileUse:
    """See `_FileUse`."""
    given: set[tuple[str, str]] = set()
    released: set[str] = set()
    read: set[str] = set()
    modules = of_file(tree, imports_of)
    for node in every_node(tree):
        if isinstance(node, ast.Attribute):
            first = node.value.id if isinstance(node.value, ast.Name) else ""
            if isinstance(node.ctx, ast.Load) and first != "self" and first not in modules:
                read.add(node.attr)
            continue
        read.update(_released_by(node))
        name = last_name(node.func) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and _RELEASE.fullmatch(name):
            of = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            every = (of, *node.args)
            released |= {last_name(e) for e in every if not expression_text(e).startswith("self.")}
        if not _is_test(node) and not _RELEASE.fullmatch(name) and name not in KEEPS_OPEN:
            given |= {
                (each.attr, name)
                for each in ast.iter_child_nodes(node)
                if isinstance(each, ast.Attribute)
                and isinstance(each.ctx, ast.Load)
                and not (isinstance(node, ast.Call) and each is node.func)
            }
            if isinstance(node, ast.Call):
                keywords = (each.value for each in node.keywords)
                given |= {(e.attr, name) for e in keywords if isinstance(e, ast.Attribute)}
    rounds = tuple(_rounds_of(tree))
    return _FileUse(frozenset(given), frozenset(released), frozenset(read), rounds)


def _released_by(node: ast.AST) -> Iterable[str]:
    """The methods that are called of an object without a name of theirs that is an attribute."""
    if isinstance(node, ast.withitem):
        is_made = isinstance(node.context_expr, ast.Call)
        return () if is_made else ("__exit__", "__aexit__")
    if not isinstance(node, ast.Call):
        return ()
    name = last_name(node.func)
    if name in ("closing", "aclosing"):
        return ("close", "aclose")
    if name in ("enter_context", "enter_async_context", "push"):
        return ("__exit__", "__aexit__")
    texts = (getattr(each, "value", None) for each in node.args)
    return [e for e in texts if isinstance(e, str)] if name in ("getattr", "methodcaller") else ()


def _rounds_of(tree: ast.Module) -> Iterator[_Round]:
    """The rounds of the outermost loops of a file's functions, and what is besides these."""
    for function, _ in functions_with_classes(tree):
        nodes = own_nodes(function)
        name = getattr(function, "name", "<module>")
        calls = [each for each in nodes if isinstance(each, ast.Call)]
        every = frozenset(last_name(each.func) for each in calls)
        loops = sorted((each for each in nodes if isinstance(each, LOOPS)), key=first_line)
        end, inside = 0, set[int]()
        for loop in loops:
            if first_line(loop) <= end:
                continue  # in another one
            end = last_line(loop)
            own = [each for each in calls if first_line(loop) <= first_line(each) <= end]
            inside |= {id(each) for each in own}
            names = frozenset(last_name(each.func) for each in own)
            yield _Round(name, names, names, is_loop=True)
        beside = frozenset(last_name(each.func) for each in calls if id(each) not in inside)
        yield _Round(name, beside, every, is_loop=False)


def _closes_figures(tree: ast.Module) -> bool:
    """Whether a file names a function of pyplot that closes or clears figures, or add_figure()."""
    for node in every_node(tree):
        if isinstance(node, ast.Attribute | ast.Name) and last_name(node) in _CLOSES_FIGURES:
            full = full_name(tree, node)
            if last_name(node) == "add_figure" or full == f"matplotlib.pyplot.{last_name(node)}":
                return True
    return False


def _figures_in(tree: ast.Module, function: FunctionNode, makers: Container[str]) -> set[str]:
    """The variables of a function that are given a figure, and those that are called like one."""
    return {
        each.id
        for node in own_nodes(function)
        for target in (node.targets if isinstance(node, ast.Assign) else ())
        for each in ast.walk(target)
        if isinstance(each, ast.Name)
        and (
            _FIGURE_NAME.fullmatch(each.id) or _makes_figure(tree, node.value, makers)  # type: ignore[attr-defined]
        )
    }


def _makers_of_figures(tree: ast.Module) -> frozenset[str]:
    """The functions of a file that return a figure which they have made."""
    return frozenset(
        function.name
        for function in functions_in(tree)
        for figures in [_figures_in(tree, function, ())]
        if any(
            isinstance(node, ast.Return)
            and node.value is not None
            and (names_in(node.value) & figures or _makes_figure(tree, node.value, ()))
            for node in own_nodes(function)
        )
    )


def _given_figures(tree: ast.Module, makers: Container[str]) -> set[str]:
    """The functions, not methods of figures, that a file gives a figure or what makes one."""
    found: set[str] = set()
    for function in functions_in(tree):
        names = _figures_in(tree, function, makers)
        for node in own_nodes(function):
            if isinstance(node, ast.Call):
                given = [*node.args, *(each.value for each in node.keywords)]
                if any(
                    (isinstance(each, ast.Name) and each.id in names)
                    or _makes_figure(tree, each, makers)
                    for each in given
                ):
                    found.add(last_name(node.func))
    return found


_FIGURE_NAME: Final = re.compile(r"(?:\w+_)?(?:fig|figs|figure|figures)")


def _makes_figure(tree: ast.Module, value: ast.expr, makers: Container[str]) -> bool:
    if not isinstance(value, ast.Call):
        return False
    name = last_name(value.func)
    is_of_pyplot = name in _LIBRARY_NAMES and _LIBRARY.get(full_name(tree, value.func)) is _FIGURE
    return is_of_pyplot or name in makers
