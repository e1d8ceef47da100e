"""Expressions that take long for what they do, as their syntax shows.

Also those that go through a list or deque to find or move one element, calls of a function whose
results another function of the same file keeps in a cache, waits for the result of a task right
after the statement that starts it (such a function has one task under way at a time, however many
workers its pool has), and statements that write all of what was collected for each item.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from mpwatch.collect.source.growth.kept import names_dropped_from, names_set, variables_of
from mpwatch.collect.source.repetition import Repeatable, functions_with_classes, loop_around
from mpwatch.collect.source.syntax import (
    BLOCKS,
    FUNCTIONS,
    LOOPS,
    ORDERS,
    QUOTE_LIMIT,
    Found,
    FunctionNode,
    ParsedFile,
    adds_to,
    assigned_to,
    calls_in,
    expression_text,
    first_line,
    functions_by_name,
    functions_in,
    is_inside,
    last_name,
    own_nodes,
    quoted,
    receiver_of,
)
from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import Mark, SlowKind

_TENSORS: Final = frozenset(
    ("tensor", "as_tensor", "Tensor", "FloatTensor", "DoubleTensor", "LongTensor", "IntTensor")
)
_ARRAYS: Final = frozenset(("array", "asarray"))
_ALL_OF: Final = frozenset(("sorted", "sum", "min", "max", "any", "all", "set", "Counter"))
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Slow(NamedTuple):
    """One expression."""

    kind: SlowKind
    node: ast.expr


def slow(
    nodes: Sequence[ast.AST],
    sequences: Container[str],
    assigned: Mapping[str, ast.expr] = MappingProxyType({}),
    *,
    is_once: bool = False,
) -> Iterator[Slow]:
    """The slow expressions of one function.

    Args:
        nodes: The syntax of the function, without that of functions defined in it.
        sequences: Last names of the variables and attributes of the file that are lists or deques.
        assigned: What the file gives to its variables and attributes.
        is_once: Whether it is a file, or a function that is called once for an object.
    """
    unpacked = set(_from_zip(nodes))
    own = {
        target.id for node in nodes for target in _bound_by(node) if isinstance(target, ast.Name)
    } | {each.arg for each in nodes if isinstance(each, ast.arg)}
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        given = node.args[0] if node.args else None
        module, name = _called(node.func)
        if name in _TENSORS and module == "torch" and _is_list(given, sequences, unpacked):
            yield Slow("list-to-tensor", node)
        elif name in _ARRAYS and module in ("np", "numpy") and _is_list(given, sequences, unpacked):
            yield Slow("list-to-array", node)
        elif (name == "iterrows" and given is None) or (
            name == "apply" and any(_is(each, "axis", 1) for each in node.keywords)
        ):
            yield Slow("rows", node)
        elif name == "deepcopy" and given is not None:
            yield Slow("deepcopy", node)
        elif (kind := _slow_call(node, module, name)) is not None:
            yield Slow(kind, node)
        elif (module, name) == ("gc", "collect"):
            yield Slow("collect", node)
        elif name == "empty_cache" and given is None:
            yield Slow("empty-cache", node)
        elif _goes_through_folders(node, module, name):
            yield Slow("files", node)
        elif _draws_from_all(_source_of_draws(module, assigned), name, node):
            yield Slow("choice", node)
        elif _copied_whole(node, module, name) is not None:
            yield Slow("copy", node)
        elif name in _ALL_OF and given is not None and not module:
            is_kept = isinstance(given, ast.Attribute) or (
                isinstance(given, ast.Name) and given.id not in own
            )
            if is_kept and last_name(given) in sequences:
                yield Slow("all-of", node)
    inside = _in_loops(nodes) if is_once else None
    yield from _single_values(nodes)
    yield from _opened_anew(nodes, inside)
    yield from _digests(nodes, assigned, inside)


_SLOW_CALLS: Final[Mapping[tuple[str, str], SlowKind]] = {
    ("datetime", "strptime"): "dates",
    ("datetime.datetime", "strptime"): "dates",
    ("dt.datetime", "strptime"): "dates",
    ("time", "strptime"): "dates",
    ("dateutil.parser", "parse"): "dates",
    ("importlib.metadata", "distributions"): "metadata",
    ("importlib.metadata", "entry_points"): "metadata",
    ("importlib.metadata", "version"): "metadata",
    ("metadata", "version"): "metadata",
    ("pkg_resources", "get_distribution"): "metadata",
    ("inspect", "getouterframes"): "stack",
    ("inspect", "getsource"): "stack",
    ("inspect", "getsourcelines"): "stack",
    ("inspect", "stack"): "stack",
    ("inspect", "trace"): "stack",
    ("traceback", "extract_stack"): "stack",
    ("traceback", "format_stack"): "stack",
    ("traceback", "print_stack"): "stack",
}
"""Functions of libraries of which one call takes far longer than what it is asked for shows."""


def _slow_call(call: ast.Call, module: str, name: str) -> SlowKind | None:
    if (module, name) == ("inspect", "stack"):
        given = [*call.args, *(each.value for each in call.keywords)]
        if any(getattr(each, "value", None) == 0 for each in given):
            return None  # without lines of source
    if (module, name) in (("json", "dump"), ("json", "dumps")):
        indents = [each.value for each in call.keywords if each.arg == "indent"]
        is_indented = any(getattr(each, "value", 0) is not None for each in indents)
        return "indented" if is_indented else None
    return _SLOW_CALLS.get((module, name))


_ARCHIVES: Final = {
    ("", "ZipFile"): 1,
    ("zipfile", "ZipFile"): 1,
    ("tarfile", "open"): 1,
    ("h5py", "File"): 1,
    ("lmdb", "open"): -1,
    ("pq", "ParquetFile"): -1,
    ("netCDF4", "Dataset"): 1,
}
"""What opens files with a table of contents, and the position of its mode; -1 for none."""


def _opened_anew(nodes: Sequence[ast.AST], inside: Container[int] | None) -> Iterator[Slow]:
    """`with zipfile.ZipFile(self.path) as archive:`, an archive that is opened for each call.

    Of one path: a name that the function does not set and is not given, or an attribute of its
    object or of such a name. Not one that is opened under a condition, as where it is kept from one
    call to the next.

    Args:
        nodes: The syntax of the function.
        inside: The ids of the syntax that is looked at, where that is not all of it.
    """
    calls = [
        each
        for each in nodes
        if isinstance(each, ast.Call) and each.args and _called(each.func) in _ARCHIVES
        if inside is None or id(each) in inside
    ]
    if not calls:
        return
    kept = {
        id(call)
        for node in nodes
        for part in (
            [node.value]
            if isinstance(node, ast.Assign) and not _are_names(node.targets)
            else [*node.body, *node.orelse]
            if isinstance(node, ast.If)
            else node.values
            if isinstance(node, ast.BoolOp)
            else [node.body, node.orelse]
            if isinstance(node, ast.IfExp)
            else [node.value]
            if isinstance(node, ast.Return) and node.value is not None
            else ()
        )
        for call in calls_in(part)
    }
    own = {
        each.arg if isinstance(each, ast.arg) else each.id
        for each in nodes
        if isinstance(each, ast.arg) or (isinstance(each, ast.Name) and not _is_read(each))
    } - {"self", "cls"}
    own |= {expression_text(e) for e in nodes if isinstance(e, ast.Attribute) and not _is_read(e)}
    for call in calls:
        path = call.args[0]
        while isinstance(path, ast.Call) and len(path.args) == 1 and last_name(path.func) in _PATHS:
            path = path.args[0]
        name = _dotted(path)
        is_one = bool(name) and name not in own and name.partition(".")[0] not in own
        if is_one and id(call) not in kept and _only_reads(call) and not _is_kept(call, nodes):
            yield Slow("archive", call)


_DIGESTS: Final = re.compile(
    r"(?:hashlib\.)?(?:md5|sha\d[\w]*|blake2[bs])|hashlib\.(?:new|file_digest)|joblib\.hash"
    r"|(?:zlib|binascii)\.(?:crc32|adler32)|xxhash\.xxh\w+|blake3\.blake3|mmh3\.hash\w*"
)
"""What computes a digest of its argument, or makes what does."""
_SAME_BYTES: Final = frozenset(
    (
        *("array", "asarray", "ascontiguousarray", "bytes", "cast", "contiguous", "cpu", "data"),
        *("detach", "dump", "dumps", "memoryview", "numpy", "open", "ravel", "read", "read_bytes"),
        *("reshape", "tobytes", "tolist", "view"),
    )
)
"""Calls whose result has all bytes of what they are given, or of the object that they belong to."""
_MODULES: Final = frozenset(("cloudpickle", "dill", "io", "joblib", "np", "numpy", "pickle"))


def _digests(
    nodes: Sequence[ast.AST], assigned: Mapping[str, ast.expr], inside: Container[int] | None
) -> Iterator[Slow]:
    """`self._md5.update(scan.tobytes())`: a digest of all of an array, a file or an object.

    Not that of a text, of a part or of what is computed there, which may take the time.

    Args:
        nodes: The syntax of the function.
        assigned: What the file gives to its variables and attributes.
        inside: The ids of the syntax that is looked at, where that is not all of it.
    """
    for call in nodes:
        if not isinstance(call, ast.Call) or not (inside is None or id(call) in inside):
            continue
        called = expression_text(call.func)
        if called.endswith(".update"):
            made = assigned.get(called.removesuffix(".update"))
            called = expression_text(made.func) if isinstance(made, ast.Call) else ""
        if not _DIGESTS.fullmatch(called):
            continue
        given = call.args[1:2] if called == "hashlib.new" else call.args[:1]
        if given and _is_whole(given[0], assigned):
            yield Slow("digest", call)


def _is_whole(value: ast.expr, assigned: Mapping[str, ast.expr]) -> bool:
    """Whether an expression is all bytes of a variable or attribute, which is no text."""
    while True:
        if isinstance(value, ast.Call) and last_name(value.func) in _SAME_BYTES:
            owner = value.func.value if isinstance(value.func, ast.Attribute) else None
            is_method = owner is not None and _dotted(owner) not in _MODULES
            inner = owner if is_method else next(iter(value.args), None)
            if inner is None:
                return False
            value = inner
        elif isinstance(value, ast.Attribute) and value.attr == "data":
            value = value.value
        else:
            break
    made = assigned.get(_dotted(value))
    is_text = isinstance(made, ast.Constant | ast.JoinedStr) or (
        isinstance(made, ast.Call) and last_name(made.func) in _TEXTS
    )
    return bool(_dotted(value)) and not is_text


_TEXTS: Final = frozenset(("encode", "format", "hexdigest", "join", "repr", "str"))
"""Calls that make a text, which is short."""
_PATHS: Final = frozenset(
    ("BytesIO", "Path", "abspath", "expanduser", "fspath", "open", "realpath", "str")
)
"""Calls whose result stands for the same file as their argument."""


def _is_read(node: ast.Name | ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Load)


def _is_kept(call: ast.Call, nodes: Sequence[ast.AST]) -> bool:
    """Whether the variable that gets what a call opens is returned, or given to an attribute."""
    names = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and node.value is call
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return any(
        isinstance(node, ast.Assign | ast.Return)
        and isinstance(node.value, ast.Name)
        and node.value.id in names
        for node in nodes
    )


def _are_names(targets: Sequence[ast.expr]) -> bool:
    return all(isinstance(each, ast.Name) for each in targets)


def _only_reads(call: ast.Call) -> bool:
    """Whether a call opens an archive to read it."""
    place = _ARCHIVES[_called(call.func)]
    given = call.args[place] if 0 <= place < len(call.args) else None
    mode = next((each.value for each in call.keywords if each.arg == "mode"), given)
    return mode is None or (
        isinstance(mode, ast.Constant) and isinstance(mode.value, str) and mode.value[:1] == "r"
    )


def _goes_through_folders(call: ast.Call, module: str, name: str) -> bool:
    """`glob.glob(pattern, recursive=True)`, `os.walk(folder)`, `folder.rglob(pattern)`."""
    if name in ("glob", "iglob"):
        return any(_is(each, "recursive", True) for each in call.keywords)
    return (module, name) in (("os", "walk"), ("os", "fwalk")) or (
        name == "rglob" and isinstance(call.func, ast.Attribute)
    )


def _in_loops(nodes: Sequence[ast.AST]) -> set[int]:
    """The ids of all syntax in loops and comprehensions."""
    loops = (node for node in nodes if isinstance(node, (*LOOPS, *_COMPREHENSIONS)))
    return {id(each) for loop in loops for each in ast.walk(loop)}


def _single_values(nodes: Sequence[ast.AST]) -> Iterator[Slow]:
    """`x[i, j].item()` in a loop: one number a call."""
    inside = _in_loops(nodes)
    for node in nodes:
        is_item = isinstance(node, ast.Call) and _called(node.func)[1] == "item" and not node.args
        if not is_item or id(node) not in inside:
            continue
        assert isinstance(node, ast.Call)
        receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
        if isinstance(receiver, ast.Subscript):
            yield Slow("single-values", node)


def tensors_in(tree: ast.AST) -> dict[str, frozenset[str]]:
    """The variables of each function of a file that are tensors, as far as the file shows.

    An attribute or variable that is bound to what a function of torch returns, and a parameter of
    a function that the file calls with such a tensor, or with a part of it.

    Returns:
        Last names, by the name of the function; attributes under an empty name.
    """
    functions = functions_in(tree)
    single = functions_by_name(tree)
    attributes: set[str] = set()
    others: set[str] = set()
    found: dict[str, set[str]] = {}
    for function in functions:
        own = found.setdefault(function.name, set())
        for node in own_nodes(function):
            if not isinstance(node, ast.Assign):
                continue
            is_tensor, is_other = _makes_tensor(node.value), _makes_other(node.value)
            for target in node.targets if is_tensor or is_other else ():
                if isinstance(target, ast.Attribute):
                    (attributes if is_tensor else others).add(target.attr)
                elif isinstance(target, ast.Name) and is_tensor:
                    own.add(target.id)
    attributes -= others  # two classes of a file may have an attribute of one name
    for function in functions:
        for node in own_nodes(function):
            called = _called(node.func)[1] if isinstance(node, ast.Call) else ""
            other = single.get(called)
            if not isinstance(node, ast.Call) or other is None:
                continue
            names = [each.arg for each in other.args.args if each.arg not in ("self", "cls")]
            for name, given in zip(names, node.args, strict=False):
                if _is_tensor(given, found[function.name], attributes):
                    found[called].add(name)
    return {"": frozenset(attributes), **{name: frozenset(each) for name, each in found.items()}}


_MAKES: Final = frozenset(
    (
        *("arange", "argmax", "as_tensor", "cat", "empty", "empty_like", "from_numpy", "full"),
        *("full_like", "ones", "ones_like", "rand", "rand_like", "randint", "randn", "randn_like"),
        *("stack", "tensor", "topk", "where", "zeros", "zeros_like"),
    )
)
_MOVES: Final = frozenset(("cpu", "cuda", "pin_memory", "share_memory_", "to"))
"""Methods of a tensor whose result is the same one, elsewhere."""


def _makes_tensor(value: ast.expr) -> bool:
    while (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in _MOVES
    ):
        value = value.func.value
    return (
        isinstance(value, ast.Call)
        and _called(value.func)[0] == "torch"
        and _called(value.func)[1] in _MAKES
    )


def _makes_other(value: ast.expr) -> bool:
    """Whether an expression makes an array of numpy, or a container of Python."""
    if isinstance(value, ast.Call):
        return _called(value.func)[0] in ("np", "numpy")
    return isinstance(value, (ast.List, ast.Dict, ast.Tuple, *_COMPREHENSIONS))


def _is_tensor(node: ast.expr, names: Container[str], attributes: Container[str]) -> bool:
    """Whether an expression is one of these tensors, or an element or a part of one."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr in attributes
    return isinstance(node, ast.Name) and node.id in names


def elements(
    nodes: Sequence[ast.AST], names: Container[str], attributes: Container[str]
) -> Iterator[Slow]:
    """`row[i] == row[j]` and `int(row[i])` of a tensor in a loop: one element at a time.

    Args:
        nodes: The syntax of one function.
        names: Its variables that are tensors.
        attributes: Attributes that are.
    """
    inside = _in_loops(nodes)
    for node in nodes:
        if id(node) not in inside:
            continue
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and _called(node.func) in _NUMBERS_OF:
            parts = node.args[:1]
        if any(
            isinstance(each, ast.Subscript)
            and not isinstance(each.slice, ast.Slice)
            and _is_tensor(each, names, attributes)
            for each in parts
        ):
            assert isinstance(node, ast.expr)
            yield Slow("elements", node)


_NUMBERS_OF: Final = (("", "bool"), ("", "float"), ("", "int"))


def _is_list(node: ast.expr | None, sequences: Container[str], unpacked: Container[str]) -> bool:
    """Whether an argument is a list or tuple that is made or filled by a loop."""
    if isinstance(node, ast.ListComp):
        return True
    if isinstance(node, ast.Call):
        return _called(node.func)[1] in ("list", "tuple") and bool(node.args)
    if isinstance(node, ast.Name) and node.id in unpacked:
        return True
    return node is not None and last_name(node) in sequences


def _from_zip(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """The variables of `a, b = zip(*rows)`, which are tuples."""
    for node in nodes:
        for target in _bound_by(node):
            value = node.value if isinstance(node, ast.Assign) else None
            if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Call):
                continue
            given = value.args[-1] if value.args else None
            is_mapped = _called(value.func)[1] == "map" and isinstance(given, ast.Call)
            zipped = given if is_mapped and isinstance(given, ast.Call) else value
            if _called(zipped.func)[1] == "zip" and any(
                isinstance(each, ast.Starred) for each in zipped.args
            ):
                yield from (each.id for each in target.elts if isinstance(each, ast.Name))


def _bound_by(node: ast.AST) -> Sequence[ast.expr]:
    """What a statement gives a value, also a loop to its variables."""
    if isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For | ast.AsyncFor):
        return (node.target,)
    return assigned_to(node)


_JOINS: Final = frozenset(("array", "stack", "cat", "concatenate", "vstack", "hstack"))


def _copied_whole(call: ast.Call, module: str, name: str) -> ast.expr | None:
    """An attribute, an item or the beginning of one, of which a call copies everything.

    `self.rows[:n].copy()`, `self.weight.clone()`, `np.stack(self.rows)`; not what is picked by an
    index before.
    """
    if name in ("copy", "clone") and not call.args and isinstance(call.func, ast.Attribute):
        copied: ast.expr = call.func.value
    elif name in _JOINS and module in ("np", "numpy", "torch") and len(call.args) == 1:
        copied = call.args[0]
    else:
        return None
    inner = copied
    if isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Slice):
        inner = inner.value if inner.slice.lower is None else inner
        if isinstance(inner, ast.Subscript) and not isinstance(inner.slice, ast.Slice | ast.Tuple):
            inner = inner.value
    return copied if isinstance(inner, ast.Attribute) else None


_LEGACY: Final = "numpy.random"
_GENERATOR: Final = "numpy.random.Generator"


def _source_of_draws(receiver: str, assigned: Mapping[str, ast.expr]) -> str:
    """What draws, where it is numpy's or is set to an object of it: `self.rng`."""
    if receiver in ("np.random", "numpy.random"):
        return _LEGACY
    made = assigned.get(receiver)
    name = last_name(made.func) if isinstance(made, ast.Call) else ""
    if name == "RandomState":
        return _LEGACY
    return _GENERATOR if name in ("default_rng", "Generator") else receiver


def _draws_from_all(source: str, name: str, call: ast.Call) -> bool:
    """Whether all elements are gone through for each call.

    `choice` of numpy sums all of `p`, and that of `numpy.random` and RandomState permutes all
    elements where it does not replace (numpy 2; `Generator.choice` permutes as few as it can);
    `random.choices` sums all weights.
    """
    if (source, name) == ("random", "choices"):
        return _has(call, "weights")
    if name != "choice" or source not in (_LEGACY, _GENERATOR):
        return False
    is_permuting = source == _LEGACY and any(_is(e, "replace", False) for e in call.keywords)
    return _has(call, "p") or is_permuting


def _has(call: ast.Call, keyword: str) -> bool:
    return any(each.arg == keyword for each in call.keywords)


def _is(keyword: ast.keyword, name: str, value: object) -> bool:
    return keyword.arg == name and getattr(keyword.value, "value", None) is value


def _called(function: ast.expr) -> tuple[str, str]:
    """The words before the last dot of what is called, and the word after it."""
    if isinstance(function, ast.Attribute):
        return _dotted(function.value), function.attr
    return "", function.id if isinstance(function, ast.Name) else ""


def _dotted(node: ast.expr) -> str:
    """`np.random`; empty for what has more in it than names."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


_CACHES: Final = frozenset(("cache", "lru_cache"))


def cached_variants(functions: Sequence[ast.AST]) -> Mapping[str, str]:
    """Functions of a file by name, each with the one that returns its results from a cache.

    `kernel` and `cached_kernel` of `@lru_cache(maxsize=16) def cached_kernel(n): return kernel(n)`.
    """
    known = {each.name for each in functions if isinstance(each, FUNCTIONS)}
    return {
        name: each.name
        for each in functions
        if isinstance(each, FUNCTIONS) and any(map(_is_cache, each.decorator_list))
        for name in _returned(each)
        if name in known and name != each.name
    }


def find_past_caches(
    function: ast.AST, nodes: Sequence[ast.AST], variants: Mapping[str, str]
) -> Iterator[Found]:
    """Calls that pass over the cached variant of a function, and compute its result anew."""
    if not variants or not isinstance(function, FUNCTIONS):
        return
    if function.name in variants or any(map(_is_cache, function.decorator_list)):
        return
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            if name in variants:
                yield "past-cache", f"{name}, {variants[name]}", node


def _is_cache(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return last_name(called) in _CACHES


def _returned(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """The function that it calls with its own arguments and nothing else, to return the result."""
    arguments = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    for node in own_nodes(function):
        call = node.value if isinstance(node, ast.Return) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.keywords:
            given = [each.id if isinstance(each, ast.Name) else "" for each in call.args]
            if given == arguments:
                yield call.func.id


# --- results awaited one by one -----------------------------------------------------------------

_STARTS: Final = frozenset(("submit", "apply_async"))
"""Methods that start one task; `map_async` starts many."""
_AWAITS: Final = frozenset(("result", "get", "wait"))
_POOL: Final = re.compile(r"pool|worker|proc", re.IGNORECASE)
"""In the name of what is no data frame, which has a method `apply`, too."""


def find_awaited_tasks(function: ast.AST, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """Statements of a function that wait for a task, and none of its tasks runs beside that one.

    `pool.submit(f, x).result()`, `pool.apply(f, (x,))`, and `task.get()` after
    `task = pool.apply_async(f, (x,))` in the same block, with no other task started in between.

    Args:
        function: The function, or the file.
        nodes: Its own syntax.
    """
    calls = [each for each in nodes if isinstance(each, ast.Call)]
    for call in calls:
        if (start := _started_by(call)) is not None:
            yield "awaits-task", _about(start), call
    if not any(map(_starts, calls)):
        return
    for node in (function, *(each for each in nodes if not isinstance(each, FUNCTIONS))):
        for block in BLOCKS:
            body = getattr(node, block, None)
            if isinstance(body, list):
                yield from _in_block(body)


def _started_by(call: ast.Call) -> ast.Call | None:
    """The call that starts the task for which another call waits at once; it may be the same."""
    if not isinstance(call.func, ast.Attribute):
        return None
    inner = call.func.value
    if call.func.attr in _AWAITS and isinstance(inner, ast.Call) and _starts(inner):
        return inner
    is_pool = call.func.attr == "apply" and _POOL.search(last_name(call.func.value))
    return call if is_pool and call.args else None


def _starts(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr in _STARTS and bool(node.args)


def _in_block(body: Sequence[ast.AST]) -> Iterator[Found]:
    """Waits for tasks that are assigned to a name, later in the same block."""
    for number, node in enumerate(body):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        name = expression_text(target) if isinstance(target, ast.Name | ast.Attribute) else ""
        if name and isinstance(node.value, ast.Call) and _starts(node.value):
            wait = _wait_for(name, body[number + 1 :])
            if wait is not None:
                yield "awaits-task", _about(node.value), wait


def _wait_for(name: str, rest: Sequence[ast.AST]) -> ast.Call | None:
    """The first wait for a task of this name; `None` if another task may be started before it."""
    for node in rest:
        found = list(calls_in(node))
        for call in found:
            if last_name(call.func) in _AWAITS and receiver_of(call) == name:
                return call
        if any(map(_starts, found)):
            return None
    return None


def _about(start: ast.Call) -> str:
    return f"{start.lineno}, {last_name(start.func)}"


_TASKS: Final = frozenset(("create_task", "ensure_future", "start_soon"))
_SERVES: Final = frozenset(("serve", "start_server", "start_unix_server"))
"""Calls that make a task of a coroutine for each connection."""
_Elements: TypeAlias = ast.ListComp | ast.SetComp | ast.GeneratorExp
_OF_ELEMENTS: Final = (ast.ListComp, ast.SetComp, ast.GeneratorExp)


def find_several_tasks(nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """Calls that start several tasks of one coroutine, or one for each connection.

    `asyncio.gather(*(fetch(url) for url in urls))`, `create_task(work(queue))` in a loop,
    `start_server(answer, port=8000)`.
    """
    calls = [each for each in nodes if isinstance(each, ast.Call) and each.args]
    gathers = [each for each in calls if last_name(each.func) == "gather"]
    made: dict[str, _Elements] = {}
    for each in nodes if gathers else ():
        if isinstance(each, ast.Assign) and isinstance(each.value, _OF_ELEMENTS):
            made.setdefault(last_name(each.targets[0]), each.value)
    for call in calls:
        name = last_name(call.func)
        coroutines = sorted(_gathered(call, made)) if name == "gather" else []
        if name in _SERVES:
            coroutines = [last_name(call.args[0])]
        if any(coroutines):
            yield "several-tasks", ", ".join(filter(None, coroutines)), call
    starting = [each for each in calls if last_name(each.func) in _TASKS]
    repeated: set[int] = set()
    for each in nodes if starting else ():
        if isinstance(each, LOOPS) and id(each) not in repeated:
            repeated.update(map(id, own_nodes(each)))
        elif isinstance(each, _OF_ELEMENTS):
            repeated.update(map(id, ast.walk(each.elt)))
    for call in starting:
        coroutine = _coroutine(call.args[0])
        if id(call) in repeated and coroutine:
            yield "several-tasks", coroutine, call


def _gathered(call: ast.Call, made: Mapping[str, _Elements]) -> set[str]:
    """The coroutines of which gather() is given many, or at least two.

    Args:
        call: The call.
        made: Lists that the function makes, by their names.
    """
    single = {_coroutine(each) for each in call.args if isinstance(each, ast.Call)}
    found = single if len(call.args) > 1 else set()
    for each in call.args:
        value = each.value if isinstance(each, ast.Starred) else None
        if isinstance(value, ast.Name):
            value = made.get(value.id)
        if isinstance(value, _OF_ELEMENTS) and isinstance(value.elt, ast.Call):
            found.add(_coroutine(value.elt))
    return found - _TASKS - {""}


def _coroutine(node: ast.expr) -> str:
    return last_name(node.func if isinstance(node, ast.Call) else node)


def find_walks(nodes: Iterable[ast.AST], sequences: Mapping[str, str]) -> Iterator[Found]:
    """`self.buffer[j]` of a deque, `items.pop(0)` and `x in items` of a list.

    Such a statement goes through all that the container holds, or half of it.
    """
    for node in nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            is_end = isinstance(node.slice, ast.Constant | ast.UnaryOp | ast.Slice)
            if not is_end and sequences.get(last_name(node.value)) == "deque":
                yield "walks", f"deque {expression_text(node.value)}, {expression_text(node)}", node
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            container = node.comparators[0]
            if last_name(container) in sequences:
                name, text = expression_text(container), expression_text(node)
                yield "walks", f"{sequences[last_name(container)]} {name}, {text}", node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            container, name = node.func.value, node.func.attr
            kind = sequences.get(last_name(container))
            is_first = getattr(node.args[0], "value", None) == 0 and name in ("pop", "insert")
            if (kind == "list" and is_first) or (kind and name in ("index", "remove", "count")):
                yield "walks", f"{kind} {expression_text(container)}, {expression_text(node)}", node


def found_of(expressions: Iterable[Slow]) -> Iterator[Found]:
    """Slow expressions as what a file is marked with."""
    for found in expressions:
        yield "slow", f"{found.kind}: {expression_text(found.node)}", found.node


# --- what is written as a whole for each item -----------------------------------------------------

_ENCODERS: Final = frozenset(
    ("dill", "joblib", "json", "msgpack", "orjson", "pickle", "simplejson", "ujson", "yaml")
)
_TABLES: Final = re.compile(r"to_(?:csv|excel|feather|json|parquet|pickle)")
_WRITES: Final = frozenset(("write", "write_bytes", "write_text"))
_WRAPPERS: Final = frozenset(
    ("DataFrame", "array", "asarray", "concatenate", "dict", "dumps", "from_dict", "from_list")
) | {"join", "list", "set", "sorted", "stack", "str", "tuple", "items", "values"}
"""Calls of a container that go through all of it."""
_RESTORES: Final = re.compile(r"load\w*|read\w*|from_\w+|get")
_SELDOM: Final = re.compile(r"\b\w*(?:due|dirty|every|interval|now|time)\w*\b")


def find_rewrites(file: str, module: ParsedFile) -> Iterator[Repeatable]:
    """`json.dump(self.results, f)` of a container that another statement only adds to.

    Where a function adds an item and then writes all of it, or calls what does, no loop has to be
    known; else a loop has to reach what writes.
    """
    functions: Mapping[ast.ClassDef | None, Sequence[_Function]] | None = None
    for function, owner in functions_with_classes(module.tree):
        if not isinstance(function, FUNCTIONS):
            continue
        nodes = own_nodes(function)
        writing = [
            (each, parts)
            for each in nodes
            if isinstance(each, _SIMPLE)
            and (parts := [part for call in calls_in(each) for part in _written(call)])
        ]
        if not writing:
            continue
        made, turns = _made_by_calls(nodes), turns_of(nodes)
        for statement, parts in writing:
            written = {name for part in parts for name in _wholes(part, made)}
            if not written or turns.has(statement):
                continue
            if functions is None:
                functions = _functions_of(module.tree)
            adding = _adding(functions[owner], function, written)
            if adding is None:
                continue
            adder, name, added = adding
            about = f"{clean(name, QUOTE_LIMIT // 2)}, {adder.name}, {added.lineno}"
            mark = Mark("rewrites", file, function.name, about, quoted(module, statement))
            if "." not in name:  # a variable of the function
                around = [e for e in nodes if isinstance(e, LOOPS) and is_inside(added, e)]
                around = [e for e in around if not any(name in names_set(n) for n in ast.walk(e))]
                if loop := loop_around(file, function, around, statement):
                    yield Repeatable(mark, (), loop)
                continue
            is_each = _follows(adder, added, function)
            if is_each or not _AT_END.match(function.name):
                yield Repeatable(mark, (function.name,), None, is_each)


_AT_END: Final = re.compile(
    r"_*(?:on_|at_)?(?:close|end|exit|final|finish|report|stop|summary|tear)"
)
"""Names of functions that are called once for each of several objects."""
_SIMPLE: Final = (ast.Expr, ast.Assign, ast.Return)


def _written(call: ast.Call) -> Sequence[ast.expr]:
    """The expressions whose values a call writes to a file."""
    module, name = _called(call.func)
    if (name == "dump" and module in _ENCODERS) or (module, name) == ("torch", "save"):
        return call.args[:1]
    if name in ("save", "savetxt", "savez") and module in ("np", "numpy"):
        return call.args[1:2]
    if name in ("writelines", "writerows"):
        return call.args[:1]
    if name in _WRITES and isinstance(call.func, ast.Attribute):
        return [each for each in call.args[:1] if isinstance(each, ast.Call)]
    if _TABLES.fullmatch(name) and isinstance(call.func, ast.Attribute):
        is_added_to = any(_is_text_of(each, "mode", "a") for each in call.keywords)
        return () if is_added_to else (call.func.value,)
    return ()


def _is_text_of(keyword: ast.keyword, name: str, value: str) -> bool:
    return keyword.arg == name and getattr(keyword.value, "value", None) == value


def _made_by_calls(nodes: Iterable[ast.AST]) -> Mapping[str, Sequence[ast.Call]]:
    """The calls whose results a function gives to its variables."""
    made: defaultdict[str, list[ast.Call]] = defaultdict(list)
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            for target in node.targets:
                made[expression_text(target)].append(node.value)
    return made


def _wholes(value: ast.expr, made: Mapping[str, Sequence[ast.Call]]) -> Iterator[str]:
    """The containers of which an expression has everything.

    Args:
        value: The expression.
        made: See `_made_by_calls`.
    """
    if isinstance(value, ast.Dict):
        for each in value.values:
            yield from _wholes(each, made)
    elif isinstance(value, ast.ListComp | ast.GeneratorExp) and not value.generators[0].ifs:
        yield from _wholes(value.generators[0].iter, made)
    elif isinstance(value, ast.Call):
        inner = value.args[0] if value.args else None
        if inner is None and isinstance(value.func, ast.Attribute):
            inner = value.func.value
        if inner is not None and last_name(value.func) in _WRAPPERS:
            yield from _wholes(inner, made)
    elif isinstance(value, ast.Attribute):
        yield expression_text(value)
    elif isinstance(value, ast.Name):
        yield value.id
        for call in made.get(value.id, ()):  # `frame = pd.DataFrame(self.rows)`
            yield from _wholes(call, {})


class _Turns(NamedTuple):
    """What a function reaches in some rounds only: each hundredth, or once in a minute."""

    under: frozenset[int]
    """The ids of what stands under a condition for that."""
    left_at: int | None
    """The line of the first such condition that leaves the function, or goes on."""

    def has(self, node: ast.AST) -> bool:
        """Whether a piece of syntax of the function is reached in some rounds only."""
        is_left = self.left_at is not None and self.left_at < first_line(node)
        return is_left or id(node) in self.under


def turns_of(nodes: Iterable[ast.AST]) -> _Turns:
    """What the syntax of a function has under a condition for some rounds only."""
    turns = [each for each in nodes if isinstance(each, ast.If) and _tests_for_turn(each.test)]
    leaves = (e for e in turns if isinstance(e.body[-1], ast.Return | ast.Continue))
    under = (id(n) for e in turns for part in (*e.body, *e.orelse) for n in ast.walk(part))
    return _Turns(frozenset(under), min(map(first_line, leaves), default=None))


def _tests_for_turn(test: ast.expr) -> bool:
    return any(
        (isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mod))
        or (isinstance(each, ast.Compare) and isinstance(each.ops[0], ORDERS))
        or (isinstance(each, ast.Name | ast.Attribute) and _SELDOM.fullmatch(last_name(each)))
        for each in ast.walk(test)
    )


class _Function(NamedTuple):
    """What a function does with containers, by their names as they are written."""

    node: FunctionNode
    let_go: frozenset[str]
    """From which it removes something, and attributes to which it gives something else."""
    added: Mapping[str, ast.stmt]
    """To which it adds, each with the first such statement; nothing of `__init__`."""


def _functions_of(tree: ast.Module) -> Mapping[ast.ClassDef | None, Sequence[_Function]]:
    """The functions of a file by their class. It is asked for each statement that writes."""
    found: defaultdict[ast.ClassDef | None, list[_Function]] = defaultdict(list)
    for function, owner in functions_with_classes(tree):
        if not isinstance(function, FUNCTIONS):
            continue
        let_go: set[str] = set()
        added: dict[str, ast.stmt] = {}
        for node in own_nodes(function):
            let_go.update(names_dropped_from(node))
            if function.name == "__init__":
                continue
            if not _is_restored(node):
                let_go.update(name for name in names_set(node) if "." in name)
            if (name := _added_to(node)) and isinstance(node, ast.stmt):
                added.setdefault(name, node)
        found[owner].append(_Function(function, frozenset(let_go), added))
    return found


def _adding(
    functions: Iterable[_Function], writer: FunctionNode, written: set[str]
) -> tuple[FunctionNode, str, ast.stmt] | None:
    """What adds to one of some containers, from which nothing removes: function, name, statement.

    An attribute is that of the class with the function that writes it; a variable, of that itself.

    Args:
        functions: Those of the class, or of no class where it writes in none.
        writer: The function that writes.
        written: The containers.
    """
    functions = list(functions)
    if any(not written.isdisjoint(each.let_go) for each in functions):
        return None
    return next(
        (
            (each.node, name, statement)
            for each in functions
            for name, statement in each.added.items()
            if name in written and ("." in name or each.node is writer)
        ),
        None,
    )


def _is_restored(node: ast.AST) -> bool:
    value = getattr(node, "value", None)
    return isinstance(value, ast.Call) and bool(_RESTORES.fullmatch(last_name(value.func)))


def _added_to(node: ast.AST) -> str:
    """The container that a statement adds an entry to; empty for none."""
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call):
        return receiver_of(call) if adds_to(call) and call.args else ""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Constant):
            return expression_text(target.value)
        name = expression_text(target)
        is_joined = isinstance(node.value, ast.Call) and last_name(node.value.func) == "concat"
        if is_joined and name in variables_of(node.value):
            return name
    if isinstance(node, ast.AugAssign) and isinstance(node.value, ast.List):
        return expression_text(node.target)
    return ""


def _follows(adder: FunctionNode, added: ast.stmt, writer: FunctionNode) -> bool:
    """Whether the function that adds an item writes all of them then, or calls what does."""
    if adder is writer:
        return True
    nodes = own_nodes(adder)
    turns = turns_of(nodes)
    return any(
        isinstance(each, ast.Call)
        and last_name(each.func) == writer.name
        and each.lineno >= added.lineno
        and not turns.has(each)
        for each in nodes
    )
