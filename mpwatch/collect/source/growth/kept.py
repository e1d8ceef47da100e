"""What keeps memory, as the source shows: containers that only grow, slices, autograd graphs."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from mpwatch.collect.source.syntax import (
    ADDS,
    CONTAINERS,
    FUNCTIONS,
    LOOPS,
    ORDERS,
    Found,
    adds_entry,
    assigned_to,
    bindings,
    children,
    every_node,
    expression_text,
    first_line,
    functions_by_name,
    functions_in,
    imported_roots,
    is_inside,
    last_name,
    names_in,
    own_nodes,
    parameters,
    receiver_of,
    within,
)

ARRAYS: Final = frozenset(("numpy", "torch"))
"""Modules whose slices share memory."""
NO_GRAD: Final = frozenset(("no_grad", "inference_mode"))
_DROPS: Final = frozenset(("pop", "popitem", "popleft", "clear", "remove", "discard"))


def is_cycle(call: ast.Call) -> bool:
    """`itertools.cycle(rows)`, but not of elements that are written there."""
    if expression_text(call.func) not in ("cycle", "itertools.cycle") or len(call.args) != 1:
        return False
    return not isinstance(call.args[0], ast.Constant | ast.List | ast.Tuple | ast.Set)


def find_held_futures(nodes: Iterable[ast.AST], dropped: Container[str]) -> Iterator[Found]:
    """`for each in as_completed(futures)` where nothing in the file takes one out of `futures`."""
    for node in nodes:
        for call in ast.walk(node.iter) if isinstance(node, ast.For) else ():
            if isinstance(call, ast.Call) and last_name(call.func) == "as_completed" and call.args:
                held = call.args[0]
                if (
                    isinstance(held, ast.Name | ast.Attribute)
                    and expression_text(held) not in dropped
                ):
                    yield "futures", expression_text(held), node


_SHARES: Final = frozenset(("detach", "numpy", "squeeze", "t", "transpose", "unsqueeze"))
"""Methods of a tensor whose result refers to the same memory."""
_NUMBERS: Final = frozenset(("shape", "size", "stride", "tolist"))
"""What a tensor has that gives plain numbers: an element of it is no view."""


class ReturnedSlice(NamedTuple):
    """What a function returns, where that is a slice of something."""

    file: str
    """Its name, empty for the file that is looked at."""
    part: ast.Subscript

    @property
    def words(self) -> str:
        """`line 39: signal[a:b]`, or `audio.py:39: signal[a:b]`."""
        line = self.part.lineno
        return f"{f'{self.file}:' if self.file else 'line '}{line}: {expression_text(self.part)}"


def find_views(
    nodes: Iterable[ast.AST],
    returned: Mapping[str, ReturnedSlice],
    plain: Container[str] = (),
) -> Iterator[Found]:
    """Elements and slices of something that are put into a container, or given to a method.

    Also `rows.append(part)` below `part = whole[:, 0]`, and where a function of the program returns
    such a part.

    Args:
        nodes: The syntax of a function.
        returned: The functions that return a slice, see `returned_slices_of`.
        plain: Containers whose elements are no views, see `plain_containers`.
    """
    slices: dict[str, ReturnedSlice] = {}
    for node in sorted(nodes, key=first_line):
        _bind(node, slices, returned)
        kept: list[ast.expr] = []
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            if adds_entry(call):
                kept = [*call.args]
            elif isinstance(call.func, ast.Attribute):
                for place, each in enumerate(call.args):
                    made = slices.get(expression_text(_shared(each)))
                    if made is not None:
                        yield "view-passed", f"{call.func.attr}, {place}, {made.words}", node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            into = node.targets[0].slice  # a slice of an array is written into, and keeps nothing
            kept = [] if isinstance(into, ast.Slice | ast.Tuple) else [node.value]
        while kept:
            each = _shared(kept.pop())
            if isinstance(each, ast.Tuple | ast.List):
                kept += each.elts
            elif isinstance(each, ast.Dict):
                kept += each.values
            elif isinstance(each, ast.Subscript) and not (
                (isinstance(each.slice, ast.Constant) and isinstance(each.slice.value, str))
                or last_name(getattr(each.value, "func", each.value)) in _NUMBERS
                or last_name(each.value) in plain
            ):
                yield "view", expression_text(each), node
            else:
                made = slices.get(expression_text(each))
                if isinstance(each, ast.Call):
                    made = returned.get(last_name(each.func))
                if made is not None:
                    yield "view", made.words, node


def plain_containers(tree: ast.AST) -> Iterator[str]:
    """The variables and attributes that a file binds to lists and dicts of Python, and only to."""
    given: defaultdict[str, list[bool]] = defaultdict(list)
    for node in every_node(tree):
        for target, value in bindings(node):
            if isinstance(target, ast.Name | ast.Attribute):
                given[last_name(target)].append(_is_plain(value))
        if isinstance(node, ast.arg):
            given[node.arg].append(
                node.annotation is not None
                and _LISTS.match(expression_text(node.annotation)) is not None
            )
    yield from (name for name, each in given.items() if all(each))


_LISTS: Final = re.compile(r"(?:typing\.)?(?:dict|list|set|tuple|Dict|List|Mapping|Sequence)\b")


def _is_plain(value: ast.expr) -> bool:
    """Whether an expression makes a container of Python."""
    if isinstance(value, ast.Call):
        return last_name(value.func) in CONTAINERS | {"sorted", "split", "tuple", "globals"}
    return isinstance(value, ast.List | ast.ListComp | ast.Dict | ast.DictComp | ast.Tuple)


def _shared(value: ast.expr) -> ast.expr:
    """The tensor of which an expression shares the memory: `part` of `part.detach().numpy()`."""
    while (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in _SHARES
    ):
        value = value.func.value
    return value


def _bind(
    node: ast.AST, slices: dict[str, ReturnedSlice], returned: Mapping[str, ReturnedSlice]
) -> None:
    """Note what a statement binds a variable to, if that is a slice: `part = whole[:, 0]`."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        name, value = node.targets[0].id, _shared(node.value)
        slices.pop(name, None)
        if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice | ast.Tuple):
            slices[name] = ReturnedSlice("", value)
        elif isinstance(value, ast.Call) and last_name(value.func) in returned:
            slices[name] = returned[last_name(value.func)]


def returned_slices_of(tree: ast.AST) -> dict[str, ReturnedSlice]:
    """The functions of a file that return a slice, under each name that only one of them has."""
    found: dict[str, ReturnedSlice] = {}
    for function in functions_by_name(tree).values():
        slices: dict[str, ReturnedSlice] = {}
        nodes = sorted(own_nodes(function), key=first_line)
        others = {id(n) for each in nodes if isinstance(each, ast.If) for n in _otherwise(each)}
        for node in nodes:
            if id(node) not in others:  # the one that is a slice may be returned
                _bind(node, slices, {})
            value = _shared(node.value) if isinstance(node, ast.Return) and node.value else None
            if isinstance(value, ast.Name) and value.id in slices:
                found[function.name] = slices[value.id]
            elif isinstance(value, ast.Subscript) and isinstance(
                value.slice, ast.Slice | ast.Tuple
            ):
                found[function.name] = ReturnedSlice("", value)
    return found


def _otherwise(node: ast.If) -> Iterator[ast.AST]:
    """What the `else` of a condition binds to variables that are slices below the condition."""
    slices = {
        target.id
        for each in node.body
        if isinstance(each, ast.Assign)
        for target in each.targets
        if isinstance(target, ast.Name)
        and isinstance(each.value, ast.Subscript)
        and isinstance(each.value.slice, ast.Slice | ast.Tuple)
    }
    for each in node.orelse:
        names = [last_name(t) for t in each.targets] if isinstance(each, ast.Assign) else []
        if not slices.isdisjoint(names):
            yield each


class Tensors(NamedTuple):
    """What a file shows of its models and of what keeps their outputs."""

    models: frozenset[str]
    """Last names of variables that the file binds to a module of torch."""
    frozen: frozenset[str]
    """Names of functions, and of models whose parameters it takes out of autograd."""
    bounded: frozenset[str]
    """Containers, as they are written, that are deques, which may have a bound."""
    emptied: Mapping[str, str]
    """Last names of the attributes that hold a container, and the function that empties it."""
    detaches: bool
    imports_torch: bool


MODELS = re.compile(
    r"(?!(?:build|compile|create|eval|export|fit|get|init|load|make|new|prepare|run|save|setup|test"
    r"|train|update|wrap)_)"
    r"(?:.*_)?(?:model|net|network|module|encoder|decoder|generator|discriminator|critic|actor"
    r"|policy|backbone|head|rnn|lstm|gru|ddp|fsdp)",
    re.IGNORECASE,
)
"""Names of models."""
_SCORES = re.compile(
    r"(?:.*_)?(?:elbo|energy|forward|likelihood|log_?prob|loss|nll|training_step)(?:_.*)?",
    re.IGNORECASE,
)
"""Methods of a model that compute what is trained."""
_LOSSES = re.compile(r"(?:.*_)?(?:criterion|loss|loss_fn|loss_func|objective)", re.IGNORECASE)
_KEEP_GRAPH: Final = frozenset(
    (
        *("abs", "chunk", "clone", "contiguous", "cpu", "cuda", "double", "exp", "expand"),
        *("flatten", "float", "half", "log", "log_prob", "log_softmax", "max", "mean", "min"),
        *("norm", "permute", "pow", "relu", "reshape", "sigmoid", "softmax", "split", "sqrt"),
        *("square", "squeeze", "std", "sum", "t", "tanh", "to", "transpose", "unbind"),
        *("unsqueeze", "var", "view"),
    )
)
"""Methods of a tensor whose result refers to its graph."""
_NO_GRAPH: Final = frozenset(
    (
        *("all", "any", "argmax", "argmin", "argsort", "bincount", "eq", "from_numpy", "ge", "gt"),
        *("isfinite", "isnan", "le", "lt", "ne", "no_grad", "ones_like", "tensor", "zeros_like"),
    )
)
"""Functions of torch whose result has no graph."""


def tensors_of(tree: ast.Module) -> Tensors:
    """The models of a file, and the containers that may keep what they compute."""
    every = list(every_node(tree))
    imports_torch = "torch" in imported_roots(tree)
    nodes = every if imports_torch else []
    of_module = {
        node.name
        for node in nodes
        if isinstance(node, ast.ClassDef)
        and any(last_name(base) in ("Module", "LightningModule") for base in node.bases)
    }
    models: set[str] = set()
    frozen = {name for node in nodes for name in _defined(node)}
    emptied: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            made = node.value.func
            is_model = last_name(made) in of_module or expression_text(made).startswith(
                ("nn.", "torch.nn.")
            )
            names = {last_name(each) for each in node.targets}
            if last_name(made) == "requires_grad_":
                frozen |= names
            elif is_model:
                models |= names
        elif isinstance(node, ast.Call) and last_name(node.func) == "requires_grad_":
            frozen |= set(receiver_of(node).split("."))
        elif isinstance(node, ast.For) and _is_over_parameters(node):
            frozen |= {last_name(e) for e in ast.walk(node.iter) if isinstance(e, ast.expr)}
        elif isinstance(node, FUNCTIONS) and node.name != "__init__":
            for inner in own_nodes(node):
                for name in (*names_dropped_from(inner), *names_set(inner)):
                    emptied[container_of(name)] = f"{node.name}()"
    detaches = any(
        isinstance(node, ast.Attribute) and node.attr in ("detach", "detach_", "data")
        for node in nodes
    )
    bounded = {
        expression_text(target)
        for node in every
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        if last_name(node.value.func) == "deque"
        for target in node.targets
    }
    return Tensors(
        frozenset(models),
        frozenset(frozen),
        frozenset(bounded),
        emptied,
        detaches,
        imports_torch,
    )


def _defined(node: ast.AST) -> Iterator[str]:
    """What a statement defines or imports: a function or a class, and no model."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.ImportFrom):
        yield from (each.asname or each.name for each in node.names)


def _is_over_parameters(node: ast.For) -> bool:
    """`for each in model.parameters(): each.requires_grad = False`."""
    names = {each.attr for each in ast.walk(node.iter) if isinstance(each, ast.Attribute)}
    return not names.isdisjoint(("parameters", "named_parameters")) and any(
        isinstance(each, ast.Attribute) and each.attr.startswith("requires_grad")
        for part in node.body
        for each in ast.walk(part)
    )


def find_graphs(function: ast.AST, own: Sequence[ast.AST], file: Tensors) -> Iterator[Found]:
    """Statements that keep the autograd graph of what a model has computed.

    A backward pass in the same function frees what its graph refers to, and a carried state raises
    in it: of such functions only a value that is computed where it is passed counts, as no backward
    pass can go through it there.
    """
    calls = [each for each in own if isinstance(each, ast.Call)]
    ends = [each for each in calls if _ends_graphs(each)]
    if not isinstance(function, FUNCTIONS) or any(last_name(e.func) not in _BACKWARD for e in ends):
        return
    if not file.imports_torch and not any(True for node in own for _ in _added(node)):
        return
    if any(last_name(getattr(e, "func", e)) in NO_GRAD for e in function.decorator_list):
        return
    given = [each for each in function.args.args if each.arg not in ("self", "cls")]
    computed = {
        each.arg: _Computed(0, place)
        for place, each in enumerate(given)
        if each.annotation is None or last_name(each.annotation) not in _PLAIN
    }
    objects = set(_objects(own))
    assigned = {} if ends else _assignments(own)
    is_pass = _PASSES.search(function.name) is not None
    for node, parents in within([node for _, node in children(function)]):
        if any(isinstance(each, ast.With) and _switches_off(each) for each in parents):
            continue
        loops = [each for each in parents if isinstance(each, LOOPS)]
        if not ends:
            yield from _kept_graphs(node, own, loops, computed, file, is_pass=is_pass)
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            of_class = expression_text(call.func.value) in objects
            for place, part in enumerate(call.args):
                found = _computed(part, {} if ends else computed, file)
                is_own = len(call.args) > 1 or call.func.attr not in ADDS or of_class
                if found is not None and found.line and is_own:
                    yield "graph-passed", f"{call.func.attr}, {place}, {found.line}", node
        if isinstance(node, ast.Assign) and not ends:
            if not is_pass or any(isinstance(e, ast.Attribute) for e in node.targets):
                yield from _carried(assigned, node, loops, file)
            found = _computed(node.value, computed, file)
            for name in (expression_text(e) for t in node.targets for e in _elements(t)):
                computed.pop(name, None)
                if found is not None:
                    computed[name] = found


_PASSES: Final = re.compile(r"^forward|_forward|^__call__$")
"""Names of functions that are one pass through the layers of a model."""


def _objects(own: Sequence[ast.AST]) -> Iterator[str]:
    """The variables that a function binds to a new object of a class, `tally = Tally()`.

    The containers of the standard library with a name like a class are left out.
    """
    for node in own:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=False))
                for name, value in pairs:
                    made = last_name(value.func) if isinstance(value, ast.Call) else ""
                    if made[:1].isupper() and made not in ("Counter", "OrderedDict"):
                        yield expression_text(name)


class _Computed(NamedTuple):
    """Where a value with a graph comes from."""

    line: int
    """Of the model's call; 0 for an argument of the function."""
    argument: int = 0
    """Its position."""


def _kept_graphs(
    node: ast.AST,
    own: Sequence[ast.AST],
    loops: Sequence[ast.AST],
    computed: Mapping[str, _Computed],
    file: Tensors,
    *,
    is_pass: bool,
) -> Iterator[Found]:
    """A statement that adds what a model has computed, or an argument, to what outlives it."""
    for container, value in _added(node):
        for part in _elements(value):
            found = _computed(part, computed, file)
            if found is None or not _outlives(own, container, loops, file):
                continue
            text, is_attribute = expression_text(container), isinstance(container, ast.Attribute)
            if is_pass and not is_attribute:
                continue  # it ends with the pass, and its graph with the step
            if found.line and file.imports_torch:
                ends = file.emptied.get(container_of(text), "") if is_attribute else ""
                yield "graph-kept", ", ".join(filter(None, (text, str(found.line), ends))), node
            is_own = is_attribute and text.partition(".")[0] in ("self", "cls")
            if not found.line and is_own and not isinstance(node, ast.Assign):
                # An assignment to an item may write into an array that is there already.
                yield "argument-kept", f"{found.argument}, {text}", node


_PLAIN: Final = frozenset(("bool", "bytes", "int", "str"))
"""Annotations of arguments that have no graph; a loss is often said to be a float, and is none."""
_BACKWARD: Final = frozenset(("backward", "manual_backward"))


def _ends_graphs(call: ast.Call) -> bool:
    """A backward pass, or a call that switches autograd off for all that follows."""
    return last_name(call.func) in _BACKWARD | {"set_grad_enabled", "grad"}


def _switches_off(node: ast.With) -> bool:
    return any(
        last_name(getattr(each.context_expr, "func", each.context_expr)) in NO_GRAD
        for each in node.items
    )


def _elements(value: ast.expr) -> Iterator[ast.expr]:
    """The elements of a tuple, a list or a dict that is written there, else the value itself."""
    if isinstance(value, ast.Tuple | ast.List):
        for each in value.elts:
            yield from _elements(each)
    elif isinstance(value, ast.Dict):
        yield from value.values
    else:
        yield value


def _added(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The container to which a statement adds, or the sum, and what it adds."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        if isinstance(call.func, ast.Attribute) and call.func.attr in _KEEPS and call.args:
            yield call.func.value, call.args[-1]
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        yield node.target, node.value
    elif isinstance(node, ast.Assign):
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and not isinstance(
            target.slice, ast.Constant | ast.Slice
        ):
            yield target.value, node.value


def _outlives(
    own: Sequence[ast.AST], container: ast.expr, loops: Sequence[ast.AST], file: Tensors
) -> bool:
    """Whether a container stays, with what it holds, from one round or call to the next."""
    text = expression_text(container)
    if text in file.bounded or any(text in names_dropped_from(each) for each in own):
        return False
    outer = {id(node) for loop in loops[:1] for node in ast.walk(loop)}
    made = [node for node in own if text in names_set(node)]
    if any(id(each) in outer for each in made):
        return False
    return bool(loops and made) or (isinstance(container, ast.Attribute) and not made)


def _computed(
    value: ast.expr, computed: Mapping[str, _Computed], file: Tensors
) -> _Computed | None:
    """Where what a value refers to was computed; `None` for none, as far as it shows."""
    parts: Iterable[ast.expr] = ()
    if isinstance(value, ast.Name | ast.Attribute) and expression_text(value) in computed:
        return computed[expression_text(value)]
    if isinstance(value, ast.Call):
        name = last_name(value.func)
        of = receiver_of(value).rpartition(".")[2] if _SCORES.fullmatch(name) else ""
        models = {each for each in (name, of) if each in file.models or MODELS.fullmatch(each)}
        if models and models.isdisjoint(file.frozen) and value.args:
            return _Computed(value.lineno)
        if isinstance(value.func, ast.Attribute) and name in _KEEP_GRAPH:
            parts = (value.func.value, *value.args)
        elif _LOSSES.fullmatch(name) or (
            expression_text(value.func).startswith(("F.", "torch.")) and name not in _NO_GRAPH
        ):
            parts = value.args
    elif isinstance(value, ast.Tuple | ast.List | ast.Dict):
        parts = _elements(value)
    elif isinstance(value, ast.BinOp):
        is_text = isinstance(value.left, ast.Constant) and isinstance(value.left.value, str)
        parts = () if is_text else (value.left, value.right)
    elif isinstance(value, ast.UnaryOp):
        parts = (value.operand,)
    elif isinstance(value, ast.Subscript | ast.Starred):
        parts = (value.value,)
    found = [each for part in parts if (each := _computed(part, computed, file)) is not None]
    return max(found, default=None)


def _carried(
    assigned: Mapping[str, Sequence[ast.Assign]],
    node: ast.Assign,
    loops: Sequence[ast.AST],
    file: Tensors,
) -> Iterator[Found]:
    """`out, self.state = self.model(x, self.state)`: the state keeps the graphs of all rounds."""
    call = node.value
    if file.detaches or not isinstance(call, ast.Call) or not file.imports_torch:
        return
    name = last_name(call.func)
    if name in file.frozen or not (name in file.models or MODELS.fullmatch(name)):
        return
    if any(isinstance(each, ast.For) and name in names_in(each.target) for each in loops):
        return  # of one layer after the other
    states = {expression_text(each) for target in node.targets for each in _elements(target)}
    given = [*call.args, *(each.value for each in call.keywords)]
    for part in (part for each in given for part in _elements(each)):
        text = expression_text(part)
        if text not in states:
            continue
        others = (each for each in assigned.get(text, ()) if each is not node)
        if isinstance(part, ast.Name):
            is_kept = bool(loops) and not any(is_inside(each, loops[-1]) for each in others)
        else:
            is_kept = isinstance(part, ast.Attribute) and not any(True for _ in others)
        if is_kept:
            yield "graph-carried", text, node


def _assignments(own: Iterable[ast.AST]) -> Mapping[str, Sequence[ast.Assign]]:
    """The statements of a function that assign to each name, `x` or `self.x`."""
    found: defaultdict[str, list[ast.Assign]] = defaultdict(list)
    for node in own:
        if isinstance(node, ast.Assign):
            for text in {expression_text(e) for t in node.targets for e in _elements(t)}:
                found[text].append(node)
    return found


_REDUCTIONS: Final = frozenset(
    ("abs", "amax", "amin", "max", "mean", "min", "norm", "std", "sum", "var")
)
"""Methods that give a tensor with the graph of theirs."""
_WITHOUT_GRAPH: Final = frozenset(("data", "detach", "item", "tolist"))


def forward_passes(tree: ast.Module) -> Iterator[ast.AST]:
    """The `forward` functions of the modules of torch that a file defines."""
    for node in every_node(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        if any(
            last_name(base) == "Module" or expression_text(base).startswith(("nn.", "torch.nn."))
            for base in node.bases
        ):
            yield from (
                each for each in node.body if isinstance(each, FUNCTIONS) and each.name == "forward"
            )


def find_running(forward: ast.AST) -> Iterator[Found]:
    """`self.running_mean = 0.9 * self.running_mean + 0.1 * mean`, with gradients on.

    Each value then refers to the one before, and so to the graphs of all batches.
    """
    graphs: set[str] = set()
    for node, parents in within([node for _, node in children(forward)]):
        if any(isinstance(each, ast.With) and _switches_off(each) for each in parents):
            continue
        if not isinstance(node, ast.Assign):
            continue
        parts = [each for each in ast.walk(node.value) if isinstance(each, ast.expr)]
        has_graph = any(
            (isinstance(each, ast.Call) and last_name(each.func) in _REDUCTIONS)
            or (isinstance(each, ast.Name) and each.id in graphs)
            for each in parts
        ) and not any(last_name(each) in _WITHOUT_GRAPH for each in parts)
        for target in node.targets:
            text = expression_text(target)
            graphs.discard(text)
            if has_graph and isinstance(target, ast.Name):
                graphs.add(text)
            is_own = isinstance(target, ast.Attribute) and text.startswith("self.")
            if has_graph and is_own and text in map(expression_text, parts):
                yield "graph-running", text, node


def find_outputs(function: ast.AST) -> Iterator[Found]:
    """`outputs.append(output)` in a loop that also calls `output["loss"].backward()`."""
    for loop, parents in within([node for _, node in children(function)]):
        if not isinstance(loop, LOOPS) or any(isinstance(each, LOOPS) for each in parents):
            continue
        inside = list(ast.walk(loop))
        differentiated = _differentiated(inside)
        if not differentiated:
            continue
        assigned = {
            expression_text(target): each
            for each in inside
            if isinstance(each, ast.Assign)
            for target in each.targets
        }
        changed = assigned.keys() | {name for e in inside for name in names_dropped_from(e)}
        for node in inside:
            for container, value in _added(node) if isinstance(node, ast.Expr) else ():
                text, name = expression_text(container), expression_text(value)
                made = assigned.get(name) if name in differentiated else None
                is_kept = isinstance(container, ast.Name) and text not in changed
                if made is not None and isinstance(made.value, ast.Call) and is_kept:
                    yield "outputs-kept", f"{text}, {first_line(made)}, {first_line(loop)}", node


def _differentiated(inside: Iterable[ast.AST]) -> set[str]:
    """The names in calls of a backward pass, `loss.backward()` and `accelerator.backward(loss)`."""
    return {
        name
        for each in inside
        if isinstance(each, ast.Call) and last_name(each.func) in _BACKWARD
        for part in (each.func, *each.args)
        for name in names_in(part)
    }


def find_sums(function: ast.AST) -> Iterator[Found]:
    """`total += loss` in a loop that also calls `loss.backward()`, and does not begin `total` anew.

    A tensor that is the sum of others refers to the graphs of all of them. A backward pass frees
    the tensors that a graph has saved, and leaves its nodes.
    """
    seen: set[ast.AST] = set()
    for loop, _ in within([node for _, node in children(function)]):
        for about, text, node in _summed(list(ast.walk(loop))) if isinstance(loop, LOOPS) else ():
            if node not in seen:
                seen.add(node)
                yield about, text, node


def _summed(inside: Sequence[ast.AST]) -> Iterator[Found]:
    """The sums of losses in one loop."""
    differentiated = _differentiated(inside)
    plain = {
        expression_text(target)
        for each in inside
        if isinstance(each, ast.Assign)
        and any(
            isinstance(part, ast.expr) and last_name(part) in _WITHOUT_GRAPH
            for part in ast.walk(each.value)
        )
        for target in each.targets
    }
    begun = {expression_text(t) for e in inside if isinstance(e, ast.Assign) for t in e.targets}
    for node in inside:
        if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.Add):
            continue
        target, value = expression_text(node.target), node.value
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult | ast.Div):
            value = value.left
        is_loss = isinstance(value, ast.Name) and value.id in differentiated - plain
        if is_loss and target not in begun and target not in differentiated:
            yield "graph-summed", f"{target}, {expression_text(value)}", node


def has_many_entries(function: ast.AST) -> bool:
    """Whether a cache of a function's results may have more than one: it is given something."""
    if not isinstance(function, FUNCTIONS):
        return False
    given = function.args
    return bool(parameters(function) or given.vararg or given.kwarg)


def picklers_of(tree: ast.Module) -> dict[str, int]:
    """The attributes that are made a Pickler or Unpickler, with the lines at which they are.

    Not one whose memo the file clears.
    """
    made = {
        expression_text(target): first_line(node)
        for node in every_node(tree)
        for target, value in bindings(node)
        if isinstance(value, ast.Call) and last_name(value.func) in ("Pickler", "Unpickler")
    }
    for node in every_node(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("clear_memo", "memo"):
            made.pop(expression_text(node.value), None)
    return {name: line for name, line in made.items() if "." in name}


def find_reused_picklers(nodes: Iterable[ast.AST], made: Mapping[str, int]) -> Iterator[Found]:
    """`self.pickler.dump(message)`: the pickler refers to each object that it has written.

    Args:
        nodes: The syntax of a function other than the one that makes it.
        made: See `picklers_of`.
    """
    for node in nodes:
        if isinstance(node, ast.Call) and last_name(node.func) in ("dump", "load"):
            name = receiver_of(node)
            if name in made and (node.args or last_name(node.func) == "load"):
                yield "reuses-pickler", f"{name}, {made[name]}", node


def is_unbounded_cache(decorator: ast.expr) -> bool:
    """`@cache` of functools, or its `@lru_cache(maxsize=None)`."""
    if not isinstance(decorator, ast.Call):
        return expression_text(decorator) in ("cache", "functools.cache")
    if last_name(decorator.func) != "lru_cache":
        return False
    sizes = [each.value for each in decorator.keywords if each.arg == "maxsize"]
    return any(
        isinstance(each, ast.Constant) and each.value is None
        for each in (*decorator.args[:1], *sizes)
    )


def bounded_names(tree: ast.Module) -> Iterator[str]:
    """Containers from which a file removes something, or of which it asks the length."""
    yield from _dropped_by_other_names(tree)
    for node in every_node(tree):
        yield from names_dropped_from(node)
        if isinstance(node, ast.Call) and last_name(node.func) == "len" and node.args:
            yield expression_text(node.args[0])


def names_dropped_from(node: ast.AST) -> Iterator[str]:
    """The containers from which a call or a `del` removes something.

    Also where the method itself is given to a call, `task.add_done_callback(tasks.discard)`.
    """
    if isinstance(node, ast.Call):
        for each in (node.func, *node.args):
            if isinstance(each, ast.Attribute) and each.attr in _DROPS:
                yield expression_text(each.value)
    elif isinstance(node, ast.Delete):
        for each in node.targets:
            yield expression_text(each.value if isinstance(each, ast.Subscript) else each)


def _dropped_by_other_names(tree: ast.Module) -> Iterator[str]:
    """`self.rows` of `rows = self.rows`, `take = rows.pop`."""
    aliases: defaultdict[str, set[str]] = defaultdict(set)
    dropped: set[str] = set()
    for node in every_node(tree):
        dropped.update(names_dropped_from(node))
        for target, value in bindings(node):
            if isinstance(value, ast.Attribute) and value.attr in _DROPS:
                dropped.add(expression_text(value.value))
            if isinstance(value, ast.Attribute) and isinstance(target, ast.Name | ast.Attribute):
                aliases[expression_text(target)].add(expression_text(value))
    for name in dropped:
        yield from aliases.get(name, ())
        yield name


def emptied_names(tree: ast.Module) -> Iterator[str]:
    """Containers from which a file removes something, gives new values, or that have a bound."""
    yield from _dropped_by_other_names(tree)
    for node in every_node(tree):
        yield from names_dropped_from(node)
        if isinstance(node, ast.For):  # each of several containers
            inside = (part for each in node.body for part in ast.walk(each))
            if any(True for each in inside for _ in names_dropped_from(each)):
                of = node.iter
                is_call = isinstance(of, ast.Call) and isinstance(of.func, ast.Attribute)
                yield expression_text(of.func.value if is_call else of)  # type: ignore[attr-defined]
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in assigned_to(node):
                if isinstance(target, ast.Subscript):
                    yield expression_text(target.value)
                elif isinstance(node.value, ast.Call) and last_name(node.value.func) == "deque":
                    yield expression_text(target)


def find_kept(nodes: Iterable[ast.AST], emptied: frozenset[str]) -> Iterator[Found]:
    """`self.losses.append(loss)` where nothing in the file removes anything from `losses`.

    Numbers and texts are left out: they are too small to be why memory rises.
    """
    for node in nodes:
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            continue
        call = node.value
        if not (isinstance(call.func, ast.Attribute) and call.func.attr in _KEEPS and call.args):
            continue
        container = call.func.value
        of = container.value if isinstance(container, ast.Subscript) else container
        if not isinstance(of, ast.Attribute) or of.attr in emptied:
            continue
        if not is_small_value(call.args[-1]):
            yield "kept", expression_text(container), node


def find_stored(
    function: ast.AST, nodes: Iterable[ast.AST], dicts: Container[str]
) -> Iterator[Found]:
    """`self.episodes[key] = (total, frames)` where nothing in the file removes from `episodes`.

    A loop over names, `for name, p in model.named_parameters()`, stores to the same keys again,
    and a function that looks a key up first makes what is missing.
    """
    nodes = list(nodes)
    looked = {
        expression_text(each.comparators[0])
        for each in nodes
        if isinstance(each, ast.Compare) and isinstance(each.ops[0], ast.In | ast.NotIn)
    }
    looked |= {
        receiver_of(e) for e in nodes if isinstance(e, ast.Call) and last_name(e.func) == "get"
    }
    names = {
        each.id
        for loop in ast.walk(function)
        if isinstance(loop, ast.For | ast.comprehension)
        for each in ast.walk(loop.target)
        if isinstance(each, ast.Name)
    }
    for node in nodes:
        if not isinstance(node, ast.Assign) or is_small_value(node.value):
            continue
        for target in node.targets:
            if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Attribute):
                continue
            key = variables_of(target.slice)
            is_new = target.value.attr in dicts and key and key.isdisjoint(names)
            is_new = is_new and expression_text(target.value) not in looked
            if is_new:
                yield "stored", expression_text(target.value), node


def dicts_of(tree: ast.Module) -> Iterator[str]:
    """The attributes that a file binds to a new dict."""
    for node in every_node(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            made = node.value
            is_dict = isinstance(made, ast.Dict) and not made.keys
            if isinstance(made, ast.Call):
                is_dict = last_name(made.func) in ("dict", "defaultdict", "OrderedDict")
            own = [each for each in assigned_to(node) if isinstance(each, ast.Attribute)]
            yield from (last_name(each) for each in own if is_dict)


def registries_of(tree: ast.Module) -> dict[str, str]:
    """The containers that a file makes once: its global variables, and attributes of its classes.

    Returns:
        The name by which functions of the file may write each, `entries`, `Handler.known`,
        `cls.known`, `self.known`, and the name by which the module has it.
    """
    found = {name: name for node in tree.body for name in _made_containers(node)}
    for owner in (each for each in tree.body if isinstance(each, ast.ClassDef)):
        for name in (made for node in owner.body for made in _made_containers(node)):
            whole = f"{owner.name}.{name}"
            found |= dict.fromkeys((whole, f"cls.{name}", f"self.{name}"), whole)
    return found


def _made_containers(node: ast.stmt) -> Iterator[str]:
    """The names that a statement binds to a new container without a bound."""
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return
    made = node.value
    is_new = isinstance(made, ast.Dict | ast.List | ast.Set)
    if isinstance(made, ast.Call):
        is_bounded = any(each.arg in ("maxlen", "maxsize") for each in made.keywords)
        is_new = last_name(made.func) in CONTAINERS and not is_bounded
    yield from (each.id for each in assigned_to(node) if is_new and isinstance(each, ast.Name))


def find_registered(
    function: ast.AST, nodes: Iterable[ast.AST], registries: Mapping[str, str]
) -> Iterator[Found]:
    """`known[key] = handler` in a function, where `known` is a global variable of the file."""
    nodes = list(nodes)
    if not isinstance(function, FUNCTIONS):
        return
    # What it makes itself is a variable of its own, unless it says otherwise.
    shared = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    own = {name for node in nodes for name in names_set(node)} - shared
    own |= {each.arg for each in function.args.args}
    told: set[str] = set()
    for adds, container, value in ((each, *pair) for each in nodes for pair in _added(each)):
        name = expression_text(container)
        whole = registries.get(name, "")
        if whole and name not in own and whole not in told and not is_small_value(value):
            told.add(whole)
            yield "registry", whole, adds


def find_bounded(tree: ast.Module) -> Iterator[Found]:
    """What has a bound and fills up to it: `while self.size > limit: self.entries.popitem()`."""
    added = {
        container_of(expression_text(container))
        for node in every_node(tree)
        for container, _ in _added(node)
    }
    for node in every_node(tree):
        if isinstance(node, ast.Call) and last_name(node.func) in ("deque", "lru_cache"):
            sizes = [e.value for e in node.keywords if e.arg in ("maxlen", "maxsize")]
            sizes += node.args[1:] if last_name(node.func) == "deque" else node.args
            if sizes and not (isinstance(sizes[0], ast.Constant) and sizes[0].value is None):
                yield "bounded", f"{last_name(node.func)} {expression_text(sizes[0])}", node
        elif isinstance(node, ast.While | ast.If):
            compared = [
                part
                for each in ast.walk(node.test)
                if isinstance(each, ast.Compare) and isinstance(each.ops[0], ORDERS)
                for part in (each.left, *each.comparators)
            ]
            inside = (e for part in node.body for e in ast.walk(part)) if compared else ()
            for name in sorted({n for e in inside for n in names_dropped_from(e)}):
                is_it = any(_tells_size(part, name) for part in compared)
                if is_it and container_of(name) in added:
                    yield "bounded", name, node


_SIZES: Final = re.compile(
    r"(?:.*_)?(?:age|bytes|capacity|count|entries|expires|free|length|limit|memory|n|now|num|size"
    r"|time|total|ttl|used|weight)(?:_.*)?"
)


def _tells_size(part: ast.expr, container: str) -> bool:
    """Whether an expression is the length of a container, or what is named like a size or age."""
    for each in ast.walk(part):
        if isinstance(each, ast.Call) and last_name(each.func) == "len" and each.args:
            if container_of(expression_text(each.args[0])) == container_of(container):
                return True
        elif isinstance(each, ast.Name | ast.Attribute) and _SIZES.fullmatch(last_name(each)):
            return True
    return False


def container_of(name: str) -> str:
    """The last name of a container, or of the one that holds it: `rows` of `self.rows['train']`."""
    return name.partition("[")[0].rpartition(".")[2]


_ENDS: Final = frozenset(
    ("__aexit__", "__del__", "__exit__", "close", "shutdown", "terminate", "teardown")
)
"""Functions that end the use of an object."""


def containers_emptied_at_end(tree: ast.Module) -> dict[str, str]:
    """Attributes of a file that hold a container, which only the end of an object empties.

    That is a function of `_ENDS`, or one that the file calls, and only from such functions.

    Returns:
        The last name of each attribute, and the functions that empty it, `clear() and __exit__()`.
    """
    functions = functions_in(tree)
    callers: defaultdict[str, set[str]] = defaultdict(set)
    for function in functions:
        for node in own_nodes(function):
            if isinstance(node, ast.Call) and last_name(node.func) != function.name:
                callers[last_name(node.func)].add(function.name)
    where: defaultdict[str, set[str]] = defaultdict(set)
    for function in functions:
        for node in own_nodes(function) if function.name != "__init__" else ():
            for name in (*names_dropped_from(node), *names_set(node)):
                where[name.rpartition(".")[2]].add(function.name)
    return {
        name: " and ".join(f"{each}()" for each in _with_ends(found, callers))
        for name, found in where.items()
        if all(each in _ENDS or (callers[each] and callers[each].issubset(_ENDS)) for each in found)
    }


def _with_ends(functions: set[str], callers: dict[str, set[str]]) -> list[str]:
    """Functions and what calls them, each once."""
    ends = {caller for each in functions if each not in _ENDS for caller in callers[each]}
    return [*sorted(functions), *sorted(ends - functions)]


def find_kept_to_end(nodes: Iterable[ast.AST], at_end: dict[str, str]) -> Iterator[Found]:
    """`self.shared[id(array)] = copy` where only `__exit__` or `close` empties `shared`."""
    for node in nodes:
        kept: list[ast.expr] = []
        if isinstance(node, ast.Assign) and not is_small_value(node.value):
            kept = [
                each.value
                for each in node.targets
                if isinstance(each, ast.Subscript) and not isinstance(each.slice, ast.Constant)
            ]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            is_added = isinstance(call.func, ast.Attribute) and call.func.attr in _KEEPS
            if is_added and call.args and not is_small_value(call.args[-1]):
                kept = [call.func.value] if isinstance(call.func, ast.Attribute) else []
        for each in kept:
            if isinstance(each, ast.Attribute) and each.attr in at_end:
                yield "kept-to-end", f"{expression_text(each)}, {at_end[each.attr]}", node


def sequences_of(tree: ast.Module) -> dict[str, str]:
    """The variables and attributes that a file binds to a new deque or list, and only to that.

    Not a list that is written out, and to which nothing is added: it is as short as it is written.

    Returns:
        Last name of each, and `deque` or `list`.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    written: set[str] = set()
    longer: set[str] = set()
    for node in every_node(tree):
        targets = assigned_to(node)
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.List) and value.elts:
            written |= {last_name(e) for e in targets if isinstance(e, ast.Name | ast.Attribute)}
        elif isinstance(node, ast.AugAssign):
            longer.add(last_name(node.target))
        elif isinstance(node, ast.Attribute) and node.attr in ADDS:
            longer.add(last_name(node.value))
        is_list = isinstance(value, ast.List | ast.ListComp)
        made = last_name(value.func) if isinstance(value, ast.Call) else "list" if is_list else ""
        for target in targets:
            if isinstance(target, ast.Name | ast.Attribute):
                found[last_name(target)].add(made)
    return {
        name: kind
        for name, kinds in found.items()
        if len(kinds) == 1 and (kind := next(iter(kinds))) in ("deque", "list")
        if name not in written or name in longer
    }


_KEEPS: Final = frozenset(("append", "appendleft", "add", "extend"))
_SMALL: Final = frozenset(
    ("item", "float", "int", "len", "str", "round", "time", "monotonic", "perf_counter")
)


def is_small_value(value: ast.expr) -> bool:
    """Whether an expression gives a number or a text, as far as it shows."""
    if isinstance(value, ast.Tuple):
        return all(map(is_small_value, value.elts))
    is_call = isinstance(value, ast.Call) and last_name(value.func) in _SMALL
    return is_call or isinstance(value, ast.Constant | ast.JoinedStr)


def find_memo_fills(nodes: Sequence[ast.AST], bounded: set[str]) -> Iterator[Found]:
    """`self.items[key] = make(key)` in a function that looks for the key in it before.

    Not of a variable that the function makes or is given: that may end with the call.
    """
    own = _ending_names(nodes)
    looked: dict[str, set[str]] = defaultdict(set)
    for node in nodes:
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            looked[expression_text(node.comparators[0])].add(expression_text(node.left))
        elif (
            isinstance(node, ast.Call) and last_name(node.func) == "get" and len(node.args) == 1
        ) and isinstance(node.func, ast.Attribute):
            looked[expression_text(node.func.value)].add(expression_text(node.args[0]))
    for node in nodes:
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Constant):
                name, key = expression_text(target.value), expression_text(target.slice)
                is_own = not own.isdisjoint(names_in(target.value)) and "." not in name
                if name and key and not is_own and name not in bounded and key in looked[name]:
                    yield "cache", name, node


def _ending_names(nodes: Sequence[ast.AST]) -> set[str]:
    """The variables of a function that may hold something of this one call.

    Its arguments, but for those called a cache or with a container as their default, and what it
    sets, but for other names of attributes: `known = self.known`.
    """
    shared = {n for e in nodes if isinstance(e, ast.Global | ast.Nonlocal) for n in e.names}
    given: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.arguments):
            parts = (*node.posonlyargs, *node.args)
            lasting = dict(zip(reversed(parts), reversed(node.defaults), strict=False))
            lasting |= {a: d for a, d in zip(node.kwonlyargs, node.kw_defaults, strict=True) if d}
            kept = {a.arg for a, d in lasting.items() if isinstance(d, ast.Dict | ast.Call)}
            names = {each.arg for each in (*parts, *node.kwonlyargs)} - kept
            given |= {each for each in names if re.search("cache|memo", each) is None}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            given.add(node.id)
    aliases = {
        target.id
        for node in nodes
        for target, value in bindings(node)
        if isinstance(target, ast.Name) and isinstance(value, ast.Attribute)
    }
    return given - shared - aliases - {"self", "cls"}


def names_set(node: ast.AST) -> Iterator[str]:
    """The variables to which a statement gives a value that does not depend on their own."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return
    used = variables_of(node.value)
    for target in assigned_to(node):
        for part in target.elts if isinstance(target, ast.Tuple) else [target]:
            name = expression_text(part)
            if name and name not in used:
                yield name


def variables_of(value: ast.expr) -> set[str]:
    """The names and attributes in an expression, as they are written."""
    return {expression_text(n) for n in ast.walk(value) if isinstance(n, ast.Name | ast.Attribute)}
