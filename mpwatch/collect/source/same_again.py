"""Calls that give the same in each round of a loop, or in each call from outside of the program.

A file that is read whole, something that takes long to build, a value that is pickled: where no
round changes the object or what it is given. Names are followed to constants, to arguments of the
function that has the loop, and to variables and attributes that get their value before it. Where
this does not show, or the call stands under a condition that may be one of a cache, nothing is
said.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import defaultdict, deque
from collections.abc import Container, Iterator, Sequence
from itertools import islice, pairwise
from typing import Final, NamedTuple

from mpwatch.collect.source.call_graph import (
    Class,
    Function,
    Program,
    Round,
    Site,
    TooMuchToFollow,
    expressions_of,
    loops_around,
)
from mpwatch.collect.source.growth.holders import round_of
from mpwatch.collect.source.syntax import (
    FUNCTIONS,
    LOOPS,
    ORDERS,
    QUOTE_LIMIT,
    adds_to,
    argument_of,
    bindings,
    calls_in,
    children,
    expression_text,
    first_line,
    full_name,
    imported_names,
    imported_roots,
    last_line,
    last_name,
    names_in,
    of_file,
    own_nodes,
    parameters,
    quoted,
)
from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import Again, AgainKind, Fixed, FixedHow, RoundOf

AGAIN: Final = 64
"""Calls kept of one program."""
STEPS: Final = 200_000
"""Expressions and statements of one program that are looked at; for as many it takes a second."""
_CALLS_UP: Final = 6
_WAYS: Final = 4
_DEPTH: Final = 8
"""Names that are followed, one after the other."""
_NAMES: Final = 6
"""Names of one call that are told."""
_SITES: Final = 8
"""Calls of one function; of more it is not said what it is given."""
_SENDS: Final = 4
"""Calls of one statement that send."""
_MAKES: Final = ("__init__", "__new__", "__post_init__")

_READS: Final = re.compile(
    r"(?:np|numpy)\.(?:load|loadtxt|genfromtxt|fromfile)|torch\.load|torchaudio\.load"
    r"|(?:pd|pandas|pl|polars|cudf|gpd|geopandas)\.read_(?!sql|clipboard|gbq|html|database)\w+"
    r"|(?:sf|soundfile|wavfile)\.read|librosa\.load|joblib\.load|(?:cv2|imageio|iio|io|plt)\.imread"
    r"|(?:pq|pyarrow\.parquet|feather)\.read_\w+|(?:scipy\.io\.|sio\.)?loadmat|nib\.load"
    r"|(?:datasets\.)?load_(?:dataset|from_disk)|(?:safetensors\.(?:torch|numpy)\.)?load_file"
)
"""What reads the whole file that its first argument names."""
_OF_MEMBERS: Final = frozenset(("np.load", "numpy.load"))
"""What may read nothing before a member is asked for."""
_PARTS: Final = frozenset(("chunksize", "iterator", "mmap_mode", "streaming"))
"""Arguments with which such a call does not read all of it at once."""
_READS_OPENED: Final = re.compile(
    r"(?:json|pickle|cloudpickle|dill|yaml|toml|tomllib|np|numpy|torch)\.(?:full_|safe_)?load"
)
"""What reads all of an open file."""
_OPENS: Final = re.compile(r"(?:gzip\.|bz2\.|lzma\.|io\.|codecs\.)?open")
_BUILDS: Final = re.compile(
    r"(?:\w+\.)*[A-Z]\w*\.(?:from_pretrained|from_file|from_crs)"
    r"|(?:(?:spm|sentencepiece)\.)?SentencePieceProcessor|spacy\.load|torch\.(?:hub|jit)\.load"
    r"|(?:sentence_transformers\.)?(?:SentenceTransformer|CrossEncoder)|(?:transformers\.)?pipeline"
    r"|(?:whisper|fasttext|whisperx)\.load_model|(?:faster_whisper\.)?WhisperModel"
    r"|(?:ort|onnxruntime)\.InferenceSession|faiss\.read_index|(?:ultralytics\.)?YOLO"
    r"|easyocr\.Reader|(?:llama_cpp\.)?Llama|ssl\.(?:create_default_context|SSLContext)"
    r"|httpx\.(?:Async)?Client|boto3\.(?:client|resource|Session)|(?:jinja2\.)?Environment"
    r"|jinja2\.Template|(?:\w+\.)*\w*env(?:ironment)?\.(?:from_string|compile_expression)"
    r"|(?:jsonschema\.)?Draft\w+Validator|(?:lark\.)?Lark(?:\.open)?"
    r"|librosa\.filters\.\w+|(?:torchaudio\.transforms|T)\.(?:MelSpectrogram|MFCC|Resample|LFCC)"
    r"|(?:torchaudio\.functional\.|F\.)?melscale_fbanks"
)
"""What takes long to make: models, tokenizers, templates, contexts, clients, tables of filters."""
_LIBRARIES_OF_COLUMNS: Final = frozenset(("datasets", "h5py", "netCDF4", "zarr"))
"""Libraries of whose objects a subscript makes a whole column or array."""
_OF_OBJECT: Final = frozenset(("compile_expression", "from_string"))
"""Those of them that build what they give by the object that they are called of."""
_PURE: Final = re.compile(
    r"(?:(?:os\.)?path|osp)\.(?:abspath|basename|commonpath|dirname|expanduser|expandvars|join"
    r"|normcase|normpath|realpath|relpath|split|splitext)|os\.fspath"
    r"|(?:pathlib\.)?(?:Pure)?Path|(?:torch\.)?device|bool|bytes|dict|float|int|isinstance|str|tuple"
    r"|.*\.(?:as_posix|encode|endswith|expanduser|format|joinpath|lower|replace|resolve|rstrip"
    r"|startswith|strip|upper|with_name|with_suffix)"
)
"""Calls that give the same for the same, as those on paths do."""
_SHOWS_STATE: Final = ("/dev/", "/proc/", "/sys/")
"""Paths of what the kernel makes anew each time it is read."""
_KEEPS: Final = re.compile(
    r".*(?:cache|done|kept|known|loaded|memo|ready|seen|store).*", re.IGNORECASE
)
"""In a condition that asks whether something was done before."""
_COMPOSED: Final = (
    *(ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.JoinedStr, ast.Starred),
    *(ast.FormattedValue, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.Slice),
)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_RUNS_ON: Final = re.compile(
    r"_*(?:f|fp|fh|fd|fin|it|iter|iterator|gen|generator|handle|stream|reader|buf|buffer|conn\w*"
    r"|sock\w*|pipe|stdin|queue|q|rng)"
)
"""Names of what gives something else each time, although it stays the same object."""
_OTHER_EACH_TIME: Final = frozenset(
    ("BytesIO", "StringIO", "Generator", "default_rng", "iter", "next", "open", "Random", "Queue")
)
_CACHES: Final = re.compile(
    r".*(?:cache|lazy|memo|once|reify|singleton|fixture|property).*", re.IGNORECASE
)
"""Decorators of functions that keep what they return, or are run once."""
_SERVES: Final = re.compile(
    r"get|post|put|patch|delete|route|websocket|task|remote|endpoint|listener|subscribe\w*|on_\w+"
    r"|tool|api_view|method|rpc\w*|inference_mode|no_grad|autocast|staticmethod|classmethod"
)
"""Decorators of functions that a library calls for each request, or that change nothing of that."""
_OF_ITEMS: Final = frozenset(
    (
        *("apply_async", "imap", "imap_unordered", "map", "map_async", "starmap", "starmap_async"),
        "submit",
    )
)
"""Methods that have a function called for each item."""
_WAITS: Final = frozenset(("sleep", "wait"))


class _Changes(Exception):
    """A value may be another one in the next round, or this does not show."""


class _Found(NamedTuple):
    """A call that may give the same again."""

    kind: AgainKind
    node: ast.expr
    inputs: tuple[ast.expr, ...]
    opened: ast.AST | None = None
    """The statement of its function that opens the file which it reads."""
    path: ast.expr | None = None


class _Test(NamedTuple):
    """A condition, and the function that has it."""

    value: ast.expr
    function: Function


class _Way(NamedTuple):
    """How a loop, or a call from outside, leads to a statement."""

    top: Function
    """That has the loop, or is called from outside."""
    loop: ast.AST | None
    by: tuple[str, ...]
    tests: tuple[_Test, ...] = ()
    """The conditions on the way: where no round changes them, each or no round passes them."""


class _Setting(NamedTuple):
    """A statement that gives a variable or an attribute a value."""

    function: Function
    statement: ast.AST
    parents: tuple[ast.AST, ...]
    value: ast.expr | None
    """`None` where it is another one each time, or does not show."""
    receiver: ast.expr | None = None


def same_again(program: Program) -> tuple[Again, ...]:
    """The calls of a program that give the same in each round; none of one too large to follow."""
    try:
        return tuple(islice(_Search(program).found(), AGAIN))
    except TooMuchToFollow:
        return ()


class _Search:
    """Finds the calls of one program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._steps = 0
        self._waiting: dict[int, bool] = {}
        """Loops and functions that were asked for, with whether something in them waits."""
        self._sending: dict[int, bool] = {}
        """Loops and comprehensions that were asked for, with whether they only send."""
        self._files = {e.file: e for e in program.functions if isinstance(e.node, ast.Module)}
        self._variables: dict[int, dict[str, list[_Setting]]] = {}
        self._attributes: defaultdict[str, list[_Setting]] = defaultdict(list)
        self._changed: set[str] = set()
        """Last names of what an element is stored in, or that is added to."""
        self._written: set[str] = set()
        """Paths, as they are written, of files that the program writes; see `_keys_of_path`."""
        self._paths: list[tuple[ast.expr, Function]] = []
        """The expressions of these paths."""
        self._elsewhere: set[tuple[str, str]] = set()
        """Variables of files that functions set."""
        self._has_columns = any(
            not _LIBRARIES_OF_COLUMNS.isdisjoint(of_file(each.module.tree, imported_roots))
            for each in self._files.values()
        )
        self._set_by_name: set[int] = set()
        """Classes whose attributes are set by setattr() or in `__dict__`."""
        for function in program.functions:
            self._elsewhere |= {(function.file, name) for name in function.not_own}
            for statement, parents in function.statements:
                self._note(function, statement, parents)
        for path, function in self._paths:
            self._written.update(self._keys_of_path(path, function))

    def _note(self, function: Function, statement: ast.AST, parents: tuple[ast.AST, ...]) -> None:
        """Note what a statement sets, changes and writes."""
        if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
            return
        own = self._variables.setdefault(id(function), {})
        for target, value in _settings(statement):
            setting = _Setting(function, statement, parents, value)
            if isinstance(target, ast.Name):
                own.setdefault(target.id, []).append(setting)
            elif isinstance(target, ast.Attribute):
                self._attributes[target.attr].append(setting._replace(receiver=target.value))
            elif isinstance(target, ast.Subscript):
                self._changed.add(last_name(target.value))
        for node in expressions_of(statement):
            if not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Attribute) and adds_to(node):
                self._changed.add(last_name(node.func.value))
            named = last_name(node.func)
            if function.owner is not None and (
                named == "setattr" or "__dict__" in expression_text(node.func)
            ):
                self._set_by_name.add(id(function.owner))
            self._paths += ((path, function) for path in _paths_written(node))

    def found(self) -> Iterator[Again]:
        """The calls, each with the nearest loops in whose rounds it is reached."""
        for function in self._program.functions:
            for statement, parents in function.statements:
                if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                    continue
                for each in self._candidates(function, statement):
                    yield from self._told(each, function, statement, parents)
                yield from self._sent(function, statement, parents)

    def _told(
        self, found: _Found, function: Function, statement: ast.AST, parents: tuple[ast.AST, ...]
    ) -> Iterator[Again]:
        for way in islice(self._ways(function, statement, parents), _WAYS):
            if found.kind == "reads" and self._may_be_written(found, function, way):
                continue
            if found.kind == "builds" and any(
                not self._written.isdisjoint(self._keys_of_path(each, function))
                for each in found.inputs
                if not isinstance(each, ast.Constant) or isinstance(each.value, str)
            ):
                continue  # of a file that the program writes
            if found.opened is not None and not _is_of_round(found.opened, function, way):
                continue
            try:
                fixed = dict.fromkeys(
                    each for value in found.inputs for each in self._look(value, function, way, 0)
                )
                for test in way.tests:
                    list(self._look(test.value, test.function, way, 0))
            except _Changes:
                continue
            yield self._again(found.kind, found.node, function, statement, way, tuple(fixed))
            for part, at in _members(found.node, function, statement):
                yield self._again(found.kind, part, function, at, way, tuple(fixed))

    def _again(
        self,
        kind: AgainKind,
        node: ast.AST,
        function: Function,
        statement: ast.AST,
        around: RoundOf | _Way,
        fixed: Sequence[Fixed],
    ) -> Again:
        outside = ""
        if isinstance(around, _Way):
            loop, outside = around.loop, "" if around.loop is not None else around.top.name
            found = None if loop is None else round_of(Round(around.top, loop, around.by), None)
        else:
            found = around
        return Again(
            kind,
            clean(expression_text(node), QUOTE_LIMIT),
            tuple(fixed[:_NAMES]),
            function.file,
            function.name,
            quoted(function.module, statement),
            last_line(statement),
            found,
            outside,
        )

    def _spend(self, steps: int) -> None:
        """Count what was looked at, apart from what else is asked of the program.

        Raises:
            TooMuchToFollow: It was more than `STEPS`.
        """
        self._steps += steps
        if self._steps > STEPS:
            raise TooMuchToFollow

    # --- calls --------------------------------------------------------------------------------

    def _candidates(self, function: Function, statement: ast.AST) -> Iterator[_Found]:
        """The expressions of a statement that read a whole file, build or count something."""
        of_items, seldom = _of_comprehensions(statement), _not_each_time(statement)
        for node in expressions_of(statement):
            if id(node) in seldom:
                continue
            if isinstance(node, ast.Subscript):
                if self._has_columns and (base := _whole_of(node)) is not None:
                    yield _Found("column", node, (base,))
            elif isinstance(node, ast.Call):
                if (of := _counted(node)) is not None:
                    yield _Found("counts", node, (of,))
                elif (found := self._call(node, function)) is not None and not any(
                    isinstance(each, ast.Name) and each.id in of_items
                    for value in found.inputs
                    for each in ast.walk(value)
                ):
                    yield found

    def _call(self, call: ast.Call, function: Function) -> _Found | None:
        name = expression_text(call.func)
        given = (*call.args, *(each.value for each in call.keywords))
        if isinstance(call.func, ast.Name) and self._is_own_name(name, function):
            return None
        opened = self._opened(call, name, function)
        if opened is not None:
            at, opens = opened
            return _Found("reads", call, _given_to(opens), at, _path_of(opens))
        if _READS.fullmatch(name) and call.args:
            is_part = any(each.arg in _PARTS and not _is_none(each.value) for each in call.keywords)
            return None if is_part else _Found("reads", call, given, None, call.args[0])
        if name in ("Path.read_text", "Path.read_bytes") or (
            isinstance(call.func, ast.Attribute) and call.func.attr in ("read_text", "read_bytes")
        ):
            path = call.func.value if isinstance(call.func, ast.Attribute) else None
            return None if path is None else _Found("reads", call, (path, *given), None, path)
        # A bare name counts where it is imported from that library: simulators, too, have an
        # `Environment`.
        built = full_name(function.module.tree, call.func)
        if _BUILDS.fullmatch(name if "." in name else built) and "." in built:
            of_object = isinstance(call.func, ast.Attribute) and call.func.attr in _OF_OBJECT
            owner = [call.func.value] if isinstance(call.func, ast.Attribute) and of_object else []
            return _Found("builds", call, (*owner, *given))
        return None

    def _opened(
        self, call: ast.Call, name: str, function: Function
    ) -> tuple[ast.AST | None, ast.Call] | None:
        """The call that opens what is read as a whole, and the statement of that if it has one."""
        of: ast.expr | None = None
        if _READS_OPENED.fullmatch(name) and call.args:
            of = call.args[0]
        elif isinstance(call.func, ast.Attribute) and call.func.attr in ("read", "readlines"):
            of = None if call.args else call.func.value
        if isinstance(of, ast.Call) and _opens_to_read(of):
            return None, of
        made = self._of_variable(function, of.id) if isinstance(of, ast.Name) else []
        value = made[0].value if len(made) == 1 else None
        if isinstance(value, ast.Call) and _opens_to_read(value):
            return made[0].statement, value
        return None

    def _is_own_name(self, name: str, function: Function) -> bool:
        """Whether a function or class of the program has a name, or an argument or a variable."""
        is_variable = name in parameters_of(function) or bool(self._of_variable(function, name))
        return is_variable or self._is_of_program(name)

    def _is_of_program(self, name: str) -> bool:
        return name in self._program.classes or self._program.has_function(name)

    def _keys_of_path(self, path: ast.expr, function: Function) -> set[str]:
        """By what two paths may be one, also by what their variables and arguments are given."""
        found: set[str] = set()
        waiting = [(path, function, 0)]
        while waiting:
            value, at, depth = waiting.pop()
            self._spend(1)
            key = _path_key(value)
            if not key or key in found:
                continue
            found.add(key)
            if depth == _DEPTH:
                continue
            settings: Sequence[_Setting] = ()
            if isinstance(value, ast.Name):
                settings = self._of_variable(at, value.id)
                settings = settings or self._of_variable(self._files[at.file], value.id)
                if value.id in at.arguments:
                    given = at.arguments.index(value.id)
                    for site in at.callers[:_SITES]:
                        each = argument_of(site.call, value.id, given) if site.call else None
                        waiting += [(each, site.caller, depth + 1)] if each is not None else []
            elif isinstance(value, ast.Attribute):
                settings = self._attributes[value.attr]
            waiting += [
                (e.value, e.function, depth + 1) for e in settings[:_SITES] if e.value is not None
            ]
        return found

    def _may_be_written(self, found: _Found, function: Function, way: _Way) -> bool:
        """Whether the program writes the file that is read, or waits in the loop for what comes."""
        if found.path is not None:
            keys = self._keys_of_path(found.path, function)
            if not self._written.isdisjoint(keys):
                return True
        body = way.loop if way.loop is not None else way.top.node
        if id(body) not in self._waiting:
            names = {last_name(each.func) for each in calls_in(body)}
            self._waiting[id(body)] = not names.isdisjoint(_WAITS)
        return self._waiting[id(body)]

    # --- ways ---------------------------------------------------------------------------------

    def _ways(
        self, function: Function, statement: ast.AST, parents: tuple[ast.AST, ...]
    ) -> Iterator[_Way]:
        """The nearest loops that reach a statement in their rounds, and what is called outside."""
        start = Site(function, function, None, statement, parents)
        waiting: deque[tuple[Site, tuple[str, ...], tuple[_Test, ...]]] = deque([(start, (), ())])
        seen = {id(function)}
        while waiting:
            site, by, below = waiting.popleft()
            at, inside, around = site.caller, site.statement, site.parents
            self._spend(1 + len(at.callers) + len(at.statements))
            loop = next(loops_around(around, first_line(inside), inside), None)
            own = self._tests(at, inside, around, loop)
            if own is None:
                continue
            tests = (*own, *below)
            if loop is not None:
                if not _leaves_after(inside, around, loop):
                    yield _Way(at, loop, by, tests)
                continue
            if any(_CACHES.fullmatch(each) for each in _decorators(at)):
                continue
            if at.outer is None and self._of_variable(self._files[at.file], at.name):
                continue  # its name stands for something else, as what keeps its results
            by = (at.name, *by)
            handed = [each for each in at.callers if each.call is None]
            is_of_items = any(map(_hands_items, handed))
            if is_of_items or (not at.callers and self._is_served(at)):
                yield _Way(at, None, by[1:], tests)
            for each in at.callers:
                if each.call is not None and id(each.caller) not in seen and len(by) < _CALLS_UP:
                    seen.add(id(each.caller))
                    waiting.append((each, by, tests))

    def _is_served(self, function: Function) -> bool:
        """Whether something outside of the program calls a function for each item or request."""
        if not self._program.is_of_library(function):
            return False
        return all(map(_SERVES.fullmatch, _decorators(function)))

    def _tests(
        self,
        function: Function,
        statement: ast.AST,
        parents: tuple[ast.AST, ...],
        loop: ast.AST | None,
    ) -> list[_Test] | None:
        """The conditions on which it depends whether a round, or a call, reaches a statement.

        `None` where it is only reached by an exception, or by a pattern that matches.
        """
        if loop is not None and loop in parents:
            parents = parents[parents.index(loop) + 1 :]
        elif loop is not None:
            parents = ()
        if any(isinstance(each, ast.ExceptHandler | ast.match_case) for each in parents):
            return None
        if any(_is_left_unless_raised(*e, statement, loop) for e in function.statements):
            return None
        found = [
            _Test(each.test, function)
            for each in parents
            if isinstance(each, ast.If) and not _is_main_guard(each)
        ]
        first, own = first_line(loop) if loop is not None else 0, set(parameters_of(function))
        for node, around in function.statements:
            if isinstance(node, ast.If) and first < first_line(node) < first_line(statement):
                is_left = isinstance(node.body[-1], ast.Return | ast.Continue | ast.Break)
                is_of_loop = loop is None or loop in around
                if is_left and is_of_loop and not self._is_plain(node.test, function, own):
                    found.append(_Test(node.test, function))
        return found

    def _is_plain(self, test: ast.expr, function: Function, own: set[str]) -> bool:
        """Whether a condition asks for the value of an argument or a variable, and for no cache."""
        known = (own | self._variables.get(id(function), {}).keys()) - {"self", "cls"}
        for each in ast.walk(test):
            if isinstance(each, ast.Compare):
                if any(isinstance(op, (ast.In, ast.NotIn, *ORDERS)) for op in each.ops):
                    return False
            elif isinstance(each, ast.BinOp):
                if isinstance(each.op, ast.Mod):
                    return False
            elif isinstance(each, ast.Name | ast.Attribute):
                is_known = isinstance(each, ast.Attribute) or each.id in known
                is_known = is_known or _is_builtin(last_name(each))
                if not is_known or _KEEPS.fullmatch(last_name(each)):
                    return False
        return True

    # --- values -------------------------------------------------------------------------------

    def _look(self, value: ast.expr, at: Function, way: _Way, depth: int) -> Iterator[Fixed]:
        """What an expression is made of, where no round changes that.

        Raises:
            _Changes: One may.
        """
        self._spend(1)
        if depth > _DEPTH:
            raise _Changes
        if isinstance(value, ast.Constant | ast.Lambda):
            if _is_of_kernel(value):
                raise _Changes
            return
        if last_name(value) in self._changed:
            raise _Changes
        if isinstance(value, ast.Name):
            yield from self._name(value.id, at, way, depth)
        elif isinstance(value, ast.Attribute):
            yield from self._attribute(value, at, way, depth)
        elif isinstance(value, ast.Subscript):
            if not last_name(value.value):
                raise _Changes
            yield from self._look(value.value, at, way, depth + 1)
            yield from self._look(value.slice, at, way, depth + 1)
        elif isinstance(value, ast.Call):
            name = expression_text(value.func)
            if not _PURE.fullmatch(name):
                raise _Changes
            if isinstance(value.func, ast.Attribute):
                yield from self._look(value.func.value, at, way, depth + 1)
            for each in (*value.args, *(each.value for each in value.keywords)):
                yield from self._look(each, at, way, depth + 1)
        elif isinstance(value, _COMPOSED):
            for child in ast.iter_child_nodes(value):
                if isinstance(child, ast.expr):
                    yield from self._look(child, at, way, depth + 1)
        else:
            raise _Changes

    def _name(self, name: str, at: Function, way: _Way, depth: int) -> Iterator[Fixed]:
        if name in ("self", "cls"):
            self._same_object(at, way, depth)
            return
        scope: Function | None = at
        while scope is not None and isinstance(scope.node, FUNCTIONS):
            if name in _bound_in_comprehensions(scope):
                raise _Changes
            settings = self._of_variable(scope, name)
            if name in parameters_of(scope):
                if settings:
                    raise _Changes
                yield from self._argument(name, scope, way, depth)
                return
            if settings:
                yield from self._variable(name, scope, settings, way, depth)
                return
            scope = scope.outer
        whole = self._files[at.file]
        settings = self._of_variable(whole, name)
        if settings:
            if (at.file, name) in self._elsewhere or name in _bound_in_comprehensions(whole):
                raise _Changes
            yield from self._variable(name, whole, settings, way, depth)
        elif name in of_file(at.module.tree, imported_names):
            self._imported(name, at)
        elif not (self._is_of_program(name) or _is_builtin(name)):
            raise _Changes

    def _imported(self, name: str, at: Function) -> None:
        """Raise if a name is a variable of another file of the program that may be set again."""
        module = self._program.imported_from(at, name)
        for file in self._program.files_with.get(name, ()):
            if module and file.endswith(f"/{module}.py"):
                settings = self._of_variable(self._files[file], name)
                if len(settings) != 1 or (file, name) in self._elsewhere:
                    raise _Changes

    def _of_variable(self, function: Function, name: str) -> list[_Setting]:
        return self._variables.get(id(function), {}).get(name, [])

    def _variable(
        self, name: str, scope: Function, settings: Sequence[_Setting], way: _Way, depth: int
    ) -> Iterator[Fixed]:
        is_top = scope is way.top and way.loop is not None
        inside = [each for each in settings if is_top and _is_in_loop(each, way.loop)]
        is_of_round = bool(inside) or (
            not is_top and isinstance(scope.node, FUNCTIONS) and self._is_in_round(scope, way)
        )
        if is_of_round:
            if len(settings) != 1 or settings[0].value is None:
                raise _Changes
            yield from self._look(settings[0].value, scope, way, depth + 1)
            return
        last = settings[-1]
        if is_top and way.loop is not None:
            if any(first_line(e.statement) > first_line(way.loop) for e in settings):
                raise _Changes
        elif len(settings) != 1:
            raise _Changes
        how: FixedHow = "variable" if isinstance(scope.node, FUNCTIONS) else "global"
        yield from self._set_once(name, how, last)

    def _set_once(self, name: str, how: FixedHow, setting: _Setting) -> Iterator[Fixed]:
        """What gets its value before the rounds; not an open file or what else goes on by itself.

        Raises:
            _Changes: It may be such a one.
        """
        value = setting.value
        last = name.rpartition(".")[2]
        is_made = isinstance(value, ast.Call) and last_name(value.func) in _OTHER_EACH_TIME
        is_named = _RUNS_ON.fullmatch(last) and not isinstance(value, ast.Constant)
        if value is None or is_made or is_named or isinstance(value, ast.GeneratorExp):
            raise _Changes
        if any(map(_is_of_kernel, ast.walk(value))):
            raise _Changes
        if isinstance(value, ast.Name) and _RUNS_ON.fullmatch(value.id):
            raise _Changes
        if not isinstance(value, ast.Lambda):
            at = setting.function
            yield Fixed(clean(name, QUOTE_LIMIT), how, at.file, first_line(setting.statement))

    def _argument(self, name: str, scope: Function, way: _Way, depth: int) -> Iterator[Fixed]:
        is_top = scope is way.top
        if is_top and way.loop is None:
            raise _Changes
        if is_top or not self._is_in_round(scope, way):
            if _RUNS_ON.fullmatch(name) or name not in scope.arguments:
                raise _Changes
            yield Fixed(clean(name, QUOTE_LIMIT), "argument", scope.file, first_line(scope.node))
            return
        for site in self._sites(scope, way):
            for value in self._given(site, name):
                yield from self._look(value, site.caller, way, depth + 1)

    def _sites(self, scope: Function, way: _Way) -> list[Site]:
        """The calls of a function in the rounds of a loop, or in a call from outside.

        Raises:
            _Changes: Not all of them are known.
        """
        found = [
            each
            for each in scope.callers
            if not (each.caller is way.top and way.loop and way.loop not in each.parents)
        ]
        if not found or len(found) > _SITES or any(each.call is None for each in found):
            raise _Changes
        return found

    def _given(self, site: Site, name: str) -> Iterator[ast.expr]:
        """What a call gives to an argument; nothing where that is a constant by default."""
        call, called = site.call, site.called
        if call is None or name not in called.arguments:
            raise _Changes
        has_others = any(isinstance(each, ast.Starred) for each in call.args) or any(
            each.arg is None for each in call.keywords
        )
        value = argument_of(call, name, called.arguments.index(name))
        if has_others:
            raise _Changes
        if value is not None:
            yield value
        elif not isinstance(_default_of(called.node, name), ast.Constant):
            raise _Changes

    def _same_object(self, at: Function, way: _Way, depth: int) -> None:
        """Raise if the object of a method may be another one in the next round."""
        if depth > _DEPTH:
            raise _Changes
        if at.outer is not None and "self" not in parameters_of(at):
            self._same_object(at.outer, way, depth + 1)
            return
        if at is way.top or not self._is_in_round(at, way):
            return
        if at.name in _MAKES:
            raise _Changes
        for site in self._sites(at, way):
            func = site.call.func if site.call is not None else None
            of = func.value if isinstance(func, ast.Attribute) else func
            if of is None:
                raise _Changes
            if isinstance(of, ast.Call) and last_name(of.func) == "super":
                of = ast.Name("self", ast.Load())
            for _ in self._look(of, site.caller, way, depth + 1):
                pass

    def _attribute(
        self, node: ast.Attribute, at: Function, way: _Way, depth: int
    ) -> Iterator[Fixed]:
        base = node.value
        if isinstance(base, ast.Name) and base.id in of_file(at.module.tree, imported_names):
            is_local = self._of_variable(at, base.id) or base.id in parameters_of(at)
            if not is_local and base.id not in self._program.classes:
                if any(not _is_of_maker(each) for each in self._attributes[node.attr]):
                    raise _Changes
                return
        owner = at.owner if isinstance(base, ast.Name) and base.id in ("self", "cls") else None
        if owner is not None:
            yield from self._own_attribute(node, owner, at, way, depth)
            return
        if any(not _is_of_maker(each) for each in self._attributes[node.attr]):
            raise _Changes
        if self._program.has_method(node.attr):  # a property may compute it
            raise _Changes
        for each in self._look(base, at, way, depth + 1):
            is_base = each.name == expression_text(base)
            yield each._replace(name=clean(expression_text(node), QUOTE_LIMIT)) if is_base else each

    def _own_attribute(
        self, node: ast.Attribute, owner: Class, at: Function, way: _Way, depth: int
    ) -> Iterator[Fixed]:
        """An attribute of the object itself, which only its making sets."""
        family = [*self._program.family(owner), *self._program.with_derived(owner)]
        own = [each for each in self._attributes[node.attr] if self._may_be_of(each, family)]
        in_class = [
            part
            for each in family
            for part in each.node.body
            if isinstance(part, ast.Assign | ast.AnnAssign)
            and node.attr in (last_name(target) for target in _targets(part))
        ]
        is_method = any(node.attr in each.methods for each in family)
        is_other = is_method or any(id(each) in self._set_by_name for each in family)
        if is_other or any(not _is_of_maker(e) for e in own) or not (own or in_class):
            raise _Changes
        if not self._is_made_in(owner, way):
            self._same_object(at, way, depth + 1)
            name = expression_text(node)
            if own:
                yield from self._set_once(name, "attribute", own[-1])
            else:
                file = next(each.file for each in family if in_class[0] in each.node.body)
                yield Fixed(clean(name, QUOTE_LIMIT), "attribute", file, first_line(in_class[0]))
            return
        if len(own) != 1 or in_class or own[0].value is None:
            raise _Changes
        yield from self._look(own[0].value, own[0].function, way, depth + 1)

    def _may_be_of(self, setting: _Setting, family: Sequence[Class]) -> bool:
        """Whether an attribute that is set may be one of an object of these classes."""
        if setting.receiver is None:
            return True
        of = self._program.class_of(setting.receiver, setting.function)
        return of is None or any(of is each for each in family)

    def _is_made_in(self, owner: Class, way: _Way) -> bool:
        """Whether an object of a class is made in the rounds."""
        made = [site for each in self._program.with_derived(owner) for site in each.made]
        self._spend(1 + len(made))
        return any(
            way.loop in site.parents
            if site.caller is way.top and way.loop is not None
            else self._is_in_round(site.caller, way)
            for site in made
        )

    def _is_in_round(self, function: Function, way: _Way) -> bool:
        """Whether a function is called in the rounds, or is the one that is called from outside."""
        if way.loop is None:
            return function is way.top or id(function) in self._reached_by(way.top)
        return id(function) in self._program.reached_in(Round(way.top, way.loop, ()))

    def _reached_by(self, function: Function) -> frozenset[int]:
        return self._program.reached_from(function)

    # --- what is sent -------------------------------------------------------------------------

    def _sent(
        self, function: Function, statement: ast.AST, parents: tuple[ast.AST, ...]
    ) -> Iterator[Again]:
        """Arguments of `submit()`, `put()` and the like that are the same for each.

        Of a loop or a comprehension that does nothing but send, collect and wait, so that nothing
        in it can change what is sent.
        """
        sends = list(islice((e for e in expressions_of(statement) if _carried(e)), _SENDS))
        if not sends:
            return
        loop = next(loops_around(parents, first_line(statement), statement), None)
        for call in sends:
            inside = next((e for e in _comprehensions(statement) if _is_in_elements(call, e)), None)
            body = inside if inside is not None else loop
            if body is None or not self._only_sends(body):
                continue
            if inside is None and loop is not None and _leaves_after(statement, parents, loop):
                continue  # it tries again
            fixed = self._same_sent(call, function, loop, inside)
            if inside is None:
                around: RoundOf | _Way = _Way(function, loop, ())
            else:
                header = quoted(function.module, statement)
                lines = first_line(statement), last_line(statement)
                around = RoundOf(function.file, *lines, function.name, False, header)
            if fixed:
                yield self._again("sends", call, function, statement, around, tuple(fixed))

    def _only_sends(self, body: ast.AST) -> bool:
        if id(body) not in self._sending:
            self._sending[id(body)] = _only_sends(body)
        return self._sending[id(body)]

    def _same_sent(
        self,
        call: ast.AST,
        function: Function,
        loop: ast.AST | None,
        comprehension: ast.AST | None,
    ) -> dict[Fixed, None]:
        """What is the same in each, unless what differs may be as large, as far as names show."""
        fixed: dict[Fixed, None] = {}
        others = 0
        for value in _carried(call):
            if self._is_small(value, function) or _is_counted(value, loop, comprehension):
                continue
            same = self._same_in(value, function, loop, comprehension)
            others += not same
            fixed.update(dict.fromkeys(same))
        if others:
            return {e: None for e in fixed if _LARGE.fullmatch(e.name.rpartition(".")[2])}
        return fixed

    def _same_in(
        self,
        value: ast.expr,
        function: Function,
        loop: ast.AST | None,
        comprehension: ast.AST | None,
    ) -> list[Fixed]:
        """What is the same in all rounds; in a comprehension, what it does not go through."""
        if comprehension is not None:
            if not names_in(value).isdisjoint(_bound_by(comprehension)):
                return []
            return [Fixed(clean(expression_text(value), QUOTE_LIMIT), "variable", function.file, 0)]
        try:
            return list(self._look(value, function, _Way(function, loop, ()), 0))
        except _Changes:
            return []

    def _is_small(self, value: ast.expr, function: Function) -> bool:
        """Whether what is sent is a number, a text, a function, a queue or the like."""
        name = last_name(value)
        if not name or _SMALL.fullmatch(name) or self._is_of_program(name) or _is_builtin(name):
            return True
        if name in of_file(function.module.tree, imported_names) or name == "self":
            return True
        is_of_small = isinstance(value, ast.Attribute) and _SMALL.fullmatch(last_name(value.value))
        if is_of_small or (isinstance(value, ast.Attribute) and self._program.has_method(name)):
            return True
        settings = (
            self._of_variable(function, name) or self._of_variable(self._files[function.file], name)
            if isinstance(value, ast.Name)
            else self._attributes[name]
        )
        return any(e.value is not None and _makes_small(e.value) for e in settings)


_SMALL: Final = re.compile(
    r".*(?:args|barrier|cfg|conf|config|count|device|dir|event|flag|fn|folder|func\w*|handle|id|idx"
    r"|index|key|kwargs|lock|logger|mode|n|name|num\w*|opt|options|opts|path|port|queue|q|rank|ref"
    r"|seed|shm|size|step|timeout|url|verbose|world_size)s?",
    re.IGNORECASE,
)
"""Names of what is small, as a rule."""
_LARGE: Final = re.compile(
    r".*(?:array|batch|data|dataset|df|embeddings?|features?|frame|graph|images?|matrix|model|net"
    r"|params|parameters|policy|state|state_dict|table|tensors?|weights?)s?",
    re.IGNORECASE,
)
"""Names of what is large, as a rule."""
_SMALL_MADE: Final = re.compile(
    r".*\.(?:broadcast|put|remote|scatter|share_memory_|submit)"
    r"|(?:\w+\.)*(?:Array|Barrier|Condition|Event|JoinableQueue|Lock|Manager|Namespace|Path|Queue"
    r"|RLock|Semaphore|SharedMemory|SimpleQueue|Value|bool|cpu_count|device|float|getLogger"
    r"|get_logger|getenv|int|len|parse_args|partial|perf_counter|range|str|time)"
)
"""Calls whose result is small, or stands for what lies elsewhere."""


def _makes_small(value: ast.expr) -> bool:
    if isinstance(value, ast.Constant | ast.JoinedStr | ast.Lambda | ast.Compare):
        return True
    return isinstance(value, ast.Call) and bool(_SMALL_MADE.fullmatch(expression_text(value.func)))


_COLLECTS: Final = frozenset(
    (
        *("add", "append", "as_completed", "cancel", "done", "enumerate", "extend", "get", "info"),
        *("join", "len", "list", "perf_counter", "print", "range", "result", "sorted", "start"),
        *("time", "tqdm", "update", "wait", "zip"),
    )
)
"""Calls beside those that send, which change nothing that is sent."""


def _carried(node: ast.AST) -> tuple[ast.expr, ...]:
    """The names in what a call pickles for another process; nothing of any other expression."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return ()
    named = [each.value for each in node.keywords if each.arg not in _OF_CALL]
    method, given = node.func.attr, [*node.args, *named]
    if method in ("submit", "apply_async"):
        given = given[1:]
    elif method in ("put", "send"):
        given = given[:1]
    elif method != "remote":
        return ()
    found: list[ast.expr] = []
    for each in given:
        parts = each.elts if isinstance(each, ast.Tuple | ast.List) else [each]
        parts = parts if not isinstance(each, ast.Dict) else each.values
        found += (part for part in parts if not isinstance(part, ast.Constant))
    return tuple(found)


def _is_counted(value: ast.expr, loop: ast.AST | None, comprehension: ast.AST | None) -> bool:
    """Whether a value is the number of the round."""
    counted: set[str] = set()
    for each in ast.walk(comprehension) if comprehension is not None else ():
        if isinstance(each, ast.comprehension):
            counted |= _numbers(each.target, each.iter)
    if isinstance(loop, ast.For):
        counted |= _numbers(loop.target, loop.iter)
    return isinstance(value, ast.Name) and value.id in counted


def _numbers(target: ast.expr, iterated: ast.expr) -> set[str]:
    """The variables of a loop that count: of a range, and the first of `enumerate()`."""
    called = last_name(iterated.func) if isinstance(iterated, ast.Call) else ""
    if called == "range":
        return names_in(target)
    is_pair = called == "enumerate" and isinstance(target, ast.Tuple)
    return names_in(target.elts[0]) if is_pair and isinstance(target, ast.Tuple) else set()


_OF_CALL: Final = frozenset(("block", "callback", "error_callback", "timeout"))
"""Arguments of such a call that are not sent."""


def _only_sends(body: ast.AST) -> bool:
    """Whether a loop or comprehension calls nothing that may change what it sends."""
    parts = body.body if isinstance(body, LOOPS) else [body]
    calls = [call for part in parts for call in calls_in(part)]
    sent = {last_name(value) for call in calls for value in _carried(call)} - {""}
    return all(
        _is_send(call) or (last_name(call.func) in _COLLECTS and not _changes(call, sent))
        for call in calls
    ) and not any(
        isinstance(node, ast.AugAssign)
        or (
            isinstance(node, ast.Subscript | ast.Attribute)
            and isinstance(node.ctx, ast.Store | ast.Del)
        )
        for part in parts
        for node in ast.walk(part)
    )


def _changes(call: ast.Call, names: Container[str]) -> bool:
    """`state.update(step=step)` of `state`."""
    if not isinstance(call.func, ast.Attribute):
        return False
    is_adding = call.func.attr in ("add", "append", "extend", "update")
    return is_adding and last_name(call.func.value) in names


def _is_send(call: ast.Call) -> bool:
    return last_name(call.func) in ("submit", "apply_async", "put", "send", "remote")


def _is_in_elements(call: ast.AST, comprehension: ast.AST) -> bool:
    """Whether a call is made for each element of a comprehension."""
    parts = [getattr(comprehension, each, None) for each in ("elt", "key", "value")]
    return any(call is each for part in parts if part is not None for each in ast.walk(part))


def _bound_by(comprehension: ast.AST) -> set[str]:
    found: set[str] = set()
    for each in ast.walk(comprehension):
        if isinstance(each, ast.comprehension):
            found |= names_in(each.target)
    return found


# --- syntax ---------------------------------------------------------------------------------------


def _settings(statement: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """What a statement gives a value, each with that where it is a whole one that shows."""
    for target, value in bindings(statement):
        if isinstance(target, ast.Tuple | ast.List):
            yield from ((each, None) for each in target.elts)
        else:
            yield target, value
    if isinstance(statement, ast.For | ast.AsyncFor):
        yield from ((each, None) for each in _leaves(statement.target))
    elif isinstance(statement, ast.AugAssign):
        yield statement.target, None
    elif isinstance(statement, ast.Delete):
        yield from ((each, None) for each in statement.targets)
    elif isinstance(statement, ast.ExceptHandler) and statement.name:
        yield ast.Name(statement.name, ast.Store()), None
    for node in expressions_of(statement):
        if isinstance(node, ast.NamedExpr):
            yield node.target, None


def _leaves(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _leaves(each)
    else:
        yield target


def _targets(part: ast.Assign | ast.AnnAssign) -> Sequence[ast.expr]:
    return part.targets if isinstance(part, ast.Assign) else [part.target]


def _is_of_maker(setting: _Setting) -> bool:
    """Whether an object sets its own attribute while it is made, outside of loops."""
    is_own = setting.receiver is None or last_name(setting.receiver) == "self"
    in_loop = any(isinstance(each, LOOPS) for each in setting.parents)
    return is_own and setting.function.name in _MAKES and not in_loop


def _is_in_loop(setting: _Setting, loop: ast.AST | None) -> bool:
    return loop is not None and (loop in setting.parents or setting.statement is loop)


def _is_of_round(statement: ast.AST, function: Function, way: _Way) -> bool:
    """Whether a statement of a function that is reached in the rounds is reached in each."""
    if function is not way.top or way.loop is None:
        return True
    return first_line(way.loop) < first_line(statement) <= last_line(way.loop)


def parameters_of(function: Function) -> list[str]:
    """The names of all parameters of a function, also of those that take any number of values."""
    if not isinstance(function.node, FUNCTIONS):
        return []
    given = function.node.args
    return parameters(function.node) + [e.arg for e in (given.vararg, given.kwarg) if e is not None]


def _default_of(function: ast.AST, name: str) -> ast.expr | None:
    """The default of a parameter; `None` for one without."""
    if not isinstance(function, FUNCTIONS):
        return None
    given = function.args
    named = [*given.posonlyargs, *given.args]
    pairs = [
        *zip(reversed(named), reversed(given.defaults), strict=False),
        *zip(given.kwonlyargs, given.kw_defaults, strict=True),
    ]
    return next((value for each, value in pairs if each.arg == name), None)


def _leaves_after(statement: ast.AST, parents: tuple[ast.AST, ...], loop: ast.AST) -> bool:
    """Whether a loop is left once a statement in it has ended, as one that tries again is."""
    path = [*parents, statement] if statement is not loop else [*parents]
    inside = path[path.index(loop) + 1 :] if loop in path else []
    for outer, inner in pairwise([loop, *inside]):
        block = next((name for name, child in children(outer) if child is inner), "body")
        after = [child for name, child in children(outer) if name == block or name == "orelse"]
        after = after[after.index(inner) :] if inner in after else []
        is_in_loop = not any(isinstance(each, LOOPS) for each in inside)
        if any(
            isinstance(e, ast.Return) or (isinstance(e, ast.Break) and is_in_loop) for e in after
        ):
            return True
    return False


def _is_left_unless_raised(
    block: ast.AST, around: tuple[ast.AST, ...], statement: ast.AST, loop: ast.AST | None
) -> bool:
    """Whether a later statement is reached only if one in a block raises an exception.

    `try: return known[key]` with `except KeyError: pass`, and the same with `suppress()`.
    """
    if not isinstance(block, ast.Try | ast.With | ast.AsyncWith):
        return False
    first = first_line(loop) if loop is not None else 0
    if not first < last_line(block) < first_line(statement):
        return False
    last = (block.orelse or block.body)[-1] if isinstance(block, ast.Try) else block.body[-1]
    if isinstance(last, ast.Return):
        return loop is None or loop in around
    inner = next((each for each in reversed(around) if isinstance(each, LOOPS)), None)
    return isinstance(last, ast.Continue | ast.Break) and loop is not None and inner is loop


def _not_each_time(statement: ast.AST) -> set[int]:
    """The ids of the expressions of a statement that may not be computed with it."""
    found: set[int] = set()
    for node in expressions_of(statement):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Lambda):
            parts = [node.body]
        elif isinstance(node, ast.IfExp):
            parts = [node.body, node.orelse]
        elif isinstance(node, ast.BoolOp):
            parts = node.values[1:]
        found.update(id(each) for part in parts for each in ast.walk(part))
    return found


def _is_of_kernel(node: ast.AST) -> bool:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_text and str(getattr(node, "value", "")).startswith(_SHOWS_STATE)


def _decorators(function: Function) -> list[str]:
    if not isinstance(function.node, FUNCTIONS):
        return []
    of = function.node.decorator_list
    return [last_name(each.func if isinstance(each, ast.Call) else each) for each in of]


def _hands_items(site: Site) -> bool:
    """Whether a statement gives a function to what calls it for each item."""
    return any(
        isinstance(node, ast.Call)
        and last_name(node.func) in _OF_ITEMS
        and node.args
        and last_name(node.args[0]) == site.called.name
        for node in expressions_of(site.statement)
    )


def _is_main_guard(node: ast.If) -> bool:
    return "__name__" in names_in(node.test)


def _is_builtin(name: str) -> bool:
    return hasattr(builtins, name)


def _members(
    read: ast.expr, function: Function, statement: ast.AST
) -> Iterator[tuple[ast.expr, ast.AST]]:
    """`tiles["x"]` after `tiles = np.load(path)`: of an .npz file it reads the member only then."""
    if not isinstance(read, ast.Call) or expression_text(read.func) not in _OF_MEMBERS:
        return
    names = {last_name(target) for target, value in bindings(statement) if value is read}
    for at, _ in function.statements if names - {""} else ():
        for node in expressions_of(at):
            if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant):
                continue
            if isinstance(node.value, ast.Name) and node.value.id in names:
                yield node, at


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value in (None, False)


def _bound_in_comprehensions(function: Function) -> frozenset[str]:
    """The variables of the comprehensions of a function, which it may not tell from its own."""
    known: frozenset[str] | None = vars(function.node).get("bound_in_comprehensions")
    if known is None:
        known = frozenset(
            name
            for each in own_nodes(function.node)
            if isinstance(each, ast.comprehension)
            for name in names_in(each.target)
        )
        vars(function.node)["bound_in_comprehensions"] = known
    return known


def _of_comprehensions(statement: ast.AST) -> set[str]:
    return {name for each in _comprehensions(statement) for name in _bound_by(each)}


def _comprehensions(statement: ast.AST) -> Iterator[ast.AST]:
    return (each for each in expressions_of(statement) if isinstance(each, _COMPREHENSIONS))


def _counted(call: ast.Call) -> ast.expr | None:
    """`model` of `sum(p.numel() for p in model.parameters())`."""
    given = call.args[0] if call.args else None
    if last_name(call.func) != "sum" or not isinstance(given, ast.GeneratorExp | ast.ListComp):
        return None
    elt, through = given.elt, given.generators[0].iter
    is_size = isinstance(elt, ast.Call) and last_name(elt.func) in ("numel", "nelement")
    is_all = len(given.generators) == 1 and not given.generators[0].ifs
    if not (is_size and is_all and isinstance(through, ast.Call)):
        return None
    is_model = last_name(through.func) == "parameters" and not through.args
    return through.func.value if is_model and isinstance(through.func, ast.Attribute) else None


def _whole_of(node: ast.Subscript) -> ast.expr | None:
    """`data` of `data["text"][i]` and of `data[:][i]`, of which one element is taken."""
    inner = node.value
    if not isinstance(inner, ast.Subscript) or not isinstance(node.ctx, ast.Load):
        return None
    is_column = isinstance(inner.slice, ast.Constant) and isinstance(inner.slice.value, str)
    is_all = isinstance(inner.slice, ast.Slice) and not any(
        (inner.slice.lower, inner.slice.upper, inner.slice.step)
    )
    is_element = not isinstance(node.slice, ast.Constant | ast.Slice)
    return inner.value if (is_column or is_all) and is_element else None


def _opens_to_read(call: ast.Call) -> bool:
    """`open(path)`, `gzip.open(path, "rb")`, `path.open()`."""
    name = expression_text(call.func)
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr == "open"
    is_function = bool(_OPENS.fullmatch(name))
    if not (is_function and call.args) and not is_method:
        return False
    mode = argument_of(call, "mode", 1 if is_function else 0)
    return mode is None or (
        isinstance(mode, ast.Constant) and str(mode.value).replace("t", "") in ("r", "rb")
    )


def _given_to(opens: ast.Call) -> tuple[ast.expr, ...]:
    of = _path_of(opens)
    return (*([of] if of is not None and of not in opens.args else []), *opens.args)


def _path_of(opens: ast.Call) -> ast.expr | None:
    if _OPENS.fullmatch(expression_text(opens.func)):
        return opens.args[0] if opens.args else None
    return opens.func.value if isinstance(opens.func, ast.Attribute) else None


_MAKES_PATH: Final = frozenset(("Path", "join", "joinpath", "str"))


def _path_key(path: ast.expr) -> str:
    """By what two paths may be one: the last name, or the last part of what is written out."""
    makes_path = isinstance(path, ast.Call) and last_name(path.func) in _MAKES_PATH
    if makes_path and isinstance(path, ast.Call) and path.args:
        path = path.args[-1]
    elif isinstance(path, ast.BinOp) and isinstance(path.op, ast.Div):
        path = path.right
    if isinstance(path, ast.Constant):
        return repr(str(path.value).rpartition("/")[2])
    return last_name(path) or expression_text(path)


_WRITES_FIRST: Final = frozenset(
    (
        *("save", "savez", "savez_compressed", "savetxt", "save_pretrained", "save_to_disk"),
        *("to_csv", "to_feather", "to_json", "to_parquet", "to_pickle", "imwrite", "tofile"),
        *("unlink", "remove"),
    )
)
_WRITES_SECOND: Final = frozenset(
    ("copy", "copyfile", "copy2", "dump", "move", "rename", "replace", "save", "save_file", "write")
)


_MAY_WRITE: Final = re.compile(
    r"(?:\w+_)?(?:download|export|fetch|render|sync)(?:_\w+)?|basicConfig|call|check_call"
    r"|check_output|FileHandler|Popen|run|system|urlretrieve"
)
"""Functions that may write a file which they are given, as those that run other programs do."""


def _paths_written(call: ast.Call) -> Iterator[ast.expr]:
    """The files that a call writes or removes, as far as its name shows."""
    name = last_name(call.func)
    if name == "open" and not _opens_to_read(call) and (path := _path_of(call)) is not None:
        yield path
    if name in ("write_text", "write_bytes", "unlink") and isinstance(call.func, ast.Attribute):
        yield call.func.value
    if name in _WRITES_FIRST:
        yield from call.args[:1]
    if name in _WRITES_SECOND:
        yield from call.args[1:2]
    if _MAY_WRITE.fullmatch(name):
        for given in (*call.args, *(each.value for each in call.keywords)):
            yield from given.elts if isinstance(given, ast.List | ast.Tuple) else (given,)
