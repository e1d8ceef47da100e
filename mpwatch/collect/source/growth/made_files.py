"""The statements of a program that make files with a name which it writes out in part."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from mpwatch.collect.source.growth.kept_references import pattern_of, temporary_name
from mpwatch.collect.source.syntax import (
    ParsedFile,
    argument_of,
    bindings,
    every_node,
    first_line,
    functions_in,
    is_inside,
    last_name,
    names_in,
    own_nodes,
    quoted,
    receiver_of,
)
from mpwatch.model.sanitize import clean
from mpwatch.model.source_code import Mark

_PATTERN_LIMIT: Final = 80
_TEMPORARY: Final = frozenset(("mkdtemp", "mkstemp"))
_PATH_AT: Final[Mapping[str, int]] = {
    "makedirs": 0,
    "mkdir": 0,
    "save": 0,
    "savefig": 0,
    "savez": 0,
    "savez_compressed": 0,
    "to_csv": 0,
    "to_parquet": 0,
    "write_bytes": -1,
    "write_text": -1,
}
"""Functions that make a file or folder, and which argument is its path; -1 for the receiver."""
_REMOVES: Final = frozenset(("remove", "rmdir", "rmtree", "unlink"))
_MAY_REMOVE: Final = _REMOVES | {
    *("Popen", "call", "check_call", "cleanup", "delete", "move", "prune", "removedirs", "rename"),
    *("replace", "rm", "rm_file", "run", "system"),
}
"""Functions that may take files away, those that run other programs among them."""
_NAMED_LIKE_REMOVAL: Final = re.compile(
    r"\w*(?:clean|clear|delete|discard|evict|expire|keep_?last|prune|purge|remove|rotate|sweep"
    r"|TemporaryDirectory|trim|unlink)\w*",
    re.IGNORECASE,
)
"""Functions of the program or a library that may, as their names say."""


def made_files(file: str, module: ParsedFile) -> Iterator[Mark]:
    """The statements of a file that make files whose names are written out in part.

    What removes them is told as far as it is sure: nothing in the file, or one call under a
    condition in the same function.
    """
    has_removal = any(
        (isinstance(each, ast.Attribute | ast.Name) and last_name(each) in _MAY_REMOVE)
        or (isinstance(each, ast.Call) and _NAMED_LIKE_REMOVAL.fullmatch(last_name(each.func)))
        for each in every_node(module.tree)
    )
    for function in functions_in(module.tree):
        nodes = own_nodes(function)
        calls = [each for each in nodes if isinstance(each, ast.Call) and _may_make(each)]
        values = _values(nodes) if calls else {}
        for call in calls:
            pattern = _name_of(call, values)
            if not pattern.strip("*._-"):
                continue
            removed = _removal_words(module, nodes, call) if has_removal else "none"
            about = f"{clean(pattern, _PATTERN_LIMIT)}; {removed}"
            yield Mark("makes-file", file, function.name, about, quoted(module, call))


def _may_make(call: ast.Call) -> bool:
    name = last_name(call.func)
    return name in _TEMPORARY or name in _PATH_AT or name in ("NamedTemporaryFile", "open")


def _values(nodes: Sequence[ast.AST]) -> dict[str, ast.expr]:
    """The variables of a function that are given one value, with that."""
    found: dict[str, ast.expr | None] = {}
    for node in nodes:
        for target, value in bindings(node):
            if isinstance(target, ast.Name):
                found[target.id] = None if target.id in found else value
    return {name: value for name, value in found.items() if value is not None}


def _name_of(call: ast.Call, values: Mapping[str, ast.expr]) -> str:
    """The name of the file that a call makes, with `*` for what is not written out."""
    name = last_name(call.func)
    if name in _TEMPORARY:
        return temporary_name(call)
    if name == "NamedTemporaryFile":
        delete = argument_of(call, "delete", 7)
        is_kept = getattr(delete, "value", True) is False
        # The order of its other arguments is another one: mode, buffering, encoding, newline.
        return temporary_name(ast.Call(call.func, [], call.keywords)) if is_kept else ""
    if name == "open":
        mode = getattr(argument_of(call, "mode", 1), "value", "r")
        if receiver_of(call) or not isinstance(mode, str) or not set(mode) & set("wx"):
            return ""
        path = argument_of(call, "file", 0)
    elif _PATH_AT[name] < 0:
        path = call.func.value if isinstance(call.func, ast.Attribute) else None
    else:
        place = 1 if name == "save" and receiver_of(call) == "torch" else _PATH_AT[name]
        path = call.args[place] if place < len(call.args) else None
    if isinstance(path, ast.Name):
        path = values.get(path.id)
    return pattern_of(path).rpartition("/")[2] if path is not None else ""


def _removal_words(module: ParsedFile, nodes: Sequence[ast.AST], call: ast.Call) -> str:
    """The condition under which alone the function removes what a call makes; empty if unknown."""
    names = {
        each
        for node in nodes
        if isinstance(node, ast.Assign) and any(part is call for part in ast.walk(node.value))
        for target in node.targets
        for each in names_in(target)
    } | {each for argument in call.args for each in names_in(argument)}
    removing = [
        each
        for each in nodes
        if isinstance(each, ast.Call)
        and last_name(each.func) in _MAY_REMOVE
        and any(names_in(part) & names for part in (*each.args, each.func))
    ]
    if len(removing) != 1 or last_name(removing[0].func) not in _REMOVES:
        return ""
    around = [each for each in nodes if isinstance(each, ast.If) and is_inside(removing[0], each)]
    if any(names_in(each.test) & names for each in around):
        return ""  # it asks whether the file is there
    if not around or is_inside(call, max(around, key=first_line)):
        return ""
    header = quoted(module, max(around, key=first_line))
    return f"{header.text} in line {header.line}".replace(";", ",")
