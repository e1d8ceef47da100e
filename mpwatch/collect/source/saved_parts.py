"""Parts of a tensor that are saved or pickled, and so carry the storage of the whole tensor.

A slice, a row or a chunk of a tensor is a view. torch.save() and pickle write the storage behind a
view as a whole (torch 2.13), unlike what torch.multiprocessing shares. A part is followed through
the variables of a function, through a function that returns it, and through one that saves what it
is given.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from mpwatch.collect.source.growth.kept import MODELS
from mpwatch.collect.source.syntax import (
    CONTAINER_METHODS,
    FUNCTIONS,
    Found,
    assigned_to,
    expression_text,
    first_line,
    functions_by_name,
    last_name,
    own_nodes,
    parameters,
)

_SAVERS: Final = frozenset(
    (
        *("cloudpickle.dump", "cloudpickle.dumps", "dill.dump", "dill.dumps", "joblib.dump"),
        *("pickle.dump", "pickle.dumps", "torch.save"),
    )
)
"""What writes the object that it is given first."""
_SAME_STORAGE: Final = frozenset(
    (
        *("contiguous", "detach", "flatten", "narrow", "permute", "reshape", "select", "squeeze"),
        *("transpose", "unsqueeze", "view"),
    )
)
"""Methods of a tensor whose result may have its storage."""
_CUTS: Final = frozenset(("narrow", "select"))
"""Those of them whose result is a part."""
_DIVIDES: Final = frozenset(("chunk", "split", "tensor_split", "unbind"))
"""Methods of a tensor whose result is a tuple of parts."""
_SAME_KIND: Final = frozenset(("contiguous", "cpu", "detach", "float", "half", "to"))


class Part(NamedTuple):
    """A part of a tensor."""

    text: str
    """`self.obs[a:b]`."""
    whole: str
    """`self.obs`, or `tensor self.obs` where that is known to be one."""
    made: str = ""
    """Where a function that returns it makes it, `47 segment` or `buffer.py:47 segment`; empty
    where it is written as the argument."""

    @property
    def words(self) -> str:
        """`47 segment: self.obs[a:b]`."""
        return f"{self.made}: {self.text}" if self.made else self.text


class _Scope(NamedTuple):
    """What a function shows of its variables."""

    tensors: Container[str]
    attributes: Container[str]
    """Attributes that are tensors."""
    outputs: Container[str]
    """Variables that are what a model has computed."""
    indices: Container[str]
    """Variables by which an element or a slice is taken, so that the result is a view."""
    returned: Mapping[str, Part]
    parts: dict[str, Part]
    """Variables that are parts, or containers that hold one."""

    def whole(self, value: ast.expr) -> str | None:
        """The tensor that an expression is, see `Part.whole`; `None` for none."""
        if isinstance(value, ast.Attribute):
            name = expression_text(value) if value.attr in self.attributes else ""
            return f"tensor {name}" if name else None
        if isinstance(value, ast.Name):
            if value.id in self.tensors:
                return f"tensor {value.id}"
            return value.id if value.id in self.outputs else None
        return None

    def divided(self, value: ast.expr) -> str | None:
        """The tensor of which an expression is a tuple of parts: `x.chunk(4)`."""
        if not isinstance(value, ast.Call) or last_name(value.func) not in _DIVIDES:
            return None
        of = _given_tensor(value)
        return self.whole(of) if of is not None else None

    def part(self, value: ast.expr) -> Part | None:
        """The part of a tensor that an expression is, in the storage of that; `None` for none."""
        cut: ast.expr | None = None
        while isinstance(value, ast.Call) and last_name(value.func) in _SAME_STORAGE:
            of = _given_tensor(value)
            if of is None:
                return None
            cut = value if cut is None and last_name(value.func) in _CUTS else cut
            value = of
        if isinstance(value, ast.Name) and value.id in self.parts:
            return self.parts[value.id]
        if isinstance(value, ast.Call):
            return self.returned.get(last_name(value.func))
        inner = value
        while isinstance(inner, ast.Subscript):
            if (whole := self.divided(inner.value)) is not None:
                return Part(expression_text(value), whole)
            if not self._is_view(inner):
                return None
            inner = inner.value
        cut = value if inner is not value else cut
        whole = self.whole(inner)
        is_tuple = isinstance(value, ast.Subscript) and _is_number(value.slice)
        # What a model returns may be a tuple.
        if cut is None or whole is None or (is_tuple and not whole.startswith("tensor ")):
            return None
        return Part(expression_text(cut), whole)

    def _is_view(self, value: ast.Subscript) -> bool:
        """Whether a subscript gives a part: not all, and no copy by a list of indices or a mask."""
        taken = value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]
        if all(isinstance(e, ast.Slice) and not (e.lower or e.upper or e.step) for e in taken):
            return False
        return all(
            isinstance(each, ast.Slice)
            or _is_number(each)
            or (isinstance(each, ast.Name) and each.id in self.indices)
            for each in taken
        )


def _is_number(value: ast.expr) -> bool:
    inner = value.operand if isinstance(value, ast.UnaryOp) else value
    return isinstance(inner, ast.Constant) and isinstance(inner.value, int)


def _given_tensor(call: ast.Call) -> ast.expr | None:
    """`x` of `x.chunk(4)` and of `torch.chunk(x, 4)`."""
    if not isinstance(call.func, ast.Attribute):
        return None
    of = call.func.value
    if isinstance(of, ast.Name) and of.id == "torch":
        return call.args[0] if call.args else None
    return of


def find_saves(function: ast.AST, nodes: Sequence[ast.AST]) -> Iterator[Found]:
    """The arguments that a function saves as they are, see `saves` of `MarkKind`."""
    names = parameters(function) if isinstance(function, FUNCTIONS) else []
    names = names[names[:1] in (["self"], ["cls"]) :]
    found = [each for each in _saved(nodes) if names]
    kept = {last_name(each) for node in nodes for each in _bound_by(node)} if found else set()
    for node, given in found:
        if isinstance(given, ast.Name) and given.id in names and given.id not in kept:
            yield "saves", f"{names.index(given.id)}", node


def _saved(nodes: Sequence[ast.AST]) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The calls that save something, each with what of it."""
    for node in nodes:
        if isinstance(node, ast.Call) and node.args and expression_text(node.func) in _SAVERS:
            yield from ((node, each) for each in _stored(node.args[0]))


def find_saved_parts(
    function: ast.AST,
    nodes: Sequence[ast.AST],
    tensors: Mapping[str, Container[str]],
    returned: Mapping[str, Part],
) -> Iterator[Found]:
    """Parts of a tensor that are saved, or given to a method which may save them.

    See `saves-part` and `passes-part` of `MarkKind`.

    Args:
        function: The function, or the file.
        nodes: Its syntax.
        tensors: Variables that are tensors, as of `tensors_in`.
        returned: The functions that return a part, see `returned_parts_of`.
    """
    scope = _scope_of(function, nodes, tensors, returned)
    for saving, value in _saved(nodes):
        if (part := scope.part(value)) is not None:
            yield "saves-part", f"{part.words}, {part.whole}", saving
    for node in nodes:
        if not isinstance(node, ast.Expr | ast.Await):
            continue
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if not isinstance(call, ast.Call) or expression_text(call.func) in _SAVERS:
            continue
        for place, given in enumerate(call.args if (name := last_name(call.func)) else ()):
            part = next(filter(None, map(scope.part, _stored(given))), None)
            if part is not None:
                yield "passes-part", f"{name}, {place}, {part.whole}, {part.words}", node


def returned_parts_of(tree: ast.AST, tensors: Mapping[str, Container[str]]) -> Mapping[str, Part]:
    """The functions of a file that return a part of a tensor, alone or in a dict, list or tuple.

    Args:
        tree: The file.
        tensors: Its variables that are tensors, as of `tensors_in`.

    Returns:
        The first part that each returns, by a name that only one function has.
    """
    found: dict[str, Part] = {}
    for name, function in functions_by_name(tree).items():
        if name in CONTAINER_METHODS:
            continue
        nodes = own_nodes(function)
        gives = [e for e in nodes if isinstance(e, ast.Return) and e.value is not None]
        if not gives:
            continue
        scope = _scope_of(function, nodes, tensors, MappingProxyType({}))
        for node in gives:
            for each in _stored(node.value) if node.value is not None else ():
                if name not in found and (part := scope.part(each)) is not None:
                    found[name] = part._replace(made=f"{each.lineno} {name}")
    return found


def _scope_of(
    function: ast.AST,
    nodes: Sequence[ast.AST],
    tensors: Mapping[str, Container[str]],
    returned: Mapping[str, Part],
) -> _Scope:
    name = function.name if isinstance(function, FUNCTIONS) else "<module>"
    scope = _Scope(
        tensors.get(name, ()),
        tensors.get("", ()),
        set(_outputs_of_models(nodes)),
        {*_counted(nodes), *_slices(nodes)},
        returned,
        {},
    )
    scope.parts.update(_rows_of(nodes, scope))
    bound = Counter(
        target.id for n in nodes for target in _bound_by(n) if isinstance(target, ast.Name)
    )
    given = (each for each in nodes if isinstance(each, ast.Assign))
    for node in sorted(given, key=first_line):
        target = node.targets[0]
        if isinstance(target, ast.Name) and bound[target.id] == 1:
            part = next(filter(None, map(scope.part, _stored(node.value))), None)
            if part is not None:
                scope.parts[target.id] = part
    return scope


def _outputs_of_models(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The variables of a function that are what a model has computed."""
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
                if value.func.attr not in _SAME_KIND:
                    break
                value = value.func.value
            name = last_name(value.func) if isinstance(value, ast.Call) else ""
            if isinstance(target, ast.Name) and name and MODELS.fullmatch(name) is not None:
                yield target.id


def _rows_of(nodes: Iterable[ast.AST], scope: _Scope) -> Iterator[tuple[str, Part]]:
    """The variables of loops that are rows or chunks of a tensor."""
    for node in nodes:
        if not isinstance(node, ast.For):
            continue
        of: list[tuple[ast.expr, ast.expr]] = [(node.target, node.iter)]
        if isinstance(node.iter, ast.Call) and isinstance(node.target, ast.Tuple):
            name, given = last_name(node.iter.func), node.iter.args
            given = [ast.Constant(0), *given] if name == "enumerate" else given
            of = (
                list(zip(node.target.elts, given, strict=False))
                if name in ("enumerate", "zip")
                else []
            )
        for target, value in of:
            whole = scope.whole(value) or scope.divided(value)
            if isinstance(target, ast.Name) and whole is not None:
                yield target.id, Part(target.id, whole)


def _counted(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The variables of loops that are numbers: of a range, or of `enumerate`."""
    for node in nodes:
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
            name, target = last_name(node.iter.func), node.target
            if name == "enumerate" and isinstance(target, ast.Tuple) and target.elts:
                target = target.elts[0]
            if name in ("enumerate", "range") and isinstance(target, ast.Name):
                yield target.id


def _slices(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The variables of `part = slice(a, b)`."""
    for node in nodes:
        value = node.value if isinstance(node, ast.Assign) else None
        if isinstance(value, ast.Call) and expression_text(value.func) == "slice":
            yield from (each.id for each in assigned_to(node) if isinstance(each, ast.Name))


def _stored(value: ast.expr) -> Iterator[ast.expr]:
    """What a value that is saved holds, in dicts, lists and tuples that are written there."""
    if isinstance(value, ast.Dict):
        for each in value.values:
            yield from _stored(each)
    elif isinstance(value, ast.List | ast.Tuple):
        for each in value.elts:
            yield from _stored(each)
    else:
        yield value


def _bound_by(node: ast.AST) -> Sequence[ast.expr]:
    """What a statement gives a value, also a loop to its variables."""
    if isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For | ast.AsyncFor):
        return (node.target,)
    return assigned_to(node)
