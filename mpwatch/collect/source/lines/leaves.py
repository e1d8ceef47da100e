"""Expressions whose value is not the same in each process, or not the same from time to time.

By their names as they are written: nothing is known of what a library does, but for the functions
that are named here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Final

from mpwatch.collect.source.syntax import expression_text, last_name, receiver_of
from mpwatch.model.source_code import OriginKind

RANK: Final = re.compile(
    r"_?(?:(?:global|local|world|node|dp|my|self|cur|current)_?)?rank(?:_id)?_?"
    r"|_?is_(?:main|master|first|chief|coordinator|rank_?zero|(?:global_|local_)?zero)\w*"
    r"|process_index|local_process_index|on_main_process",
    re.IGNORECASE,
)
"""Names of the number of a process among the ranks, and of whether it is the first of them."""
_RANK_CALLS: Final = frozenset(("get_rank", "get_node_local_rank", "get_process_index", "rank"))
_RANK_VARIABLES: Final = frozenset(
    ("GROUP_RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "RANK", "SLURM_LOCALID", "SLURM_PROCID")
)
_ASKS_RANK: Final = re.compile(
    r"(?:is_|if_|on_)?(?:main|master|first|primary|chief)_(?:process|rank)|(?:is_)?rank_?(?:zero|0)"
    r"|is_(?:main|master|chief|coordinator)",
    re.IGNORECASE,
)
ON_ONE_RANK: Final = re.compile(
    r"\w*(?:rank_?zero|rank_?0|main_process|master|is_main)\w*", re.IGNORECASE
)
"""Decorators of functions that only one rank runs."""
_SHARES: Final = re.compile(
    r"all_?reduce\w*|all_?gather\w*|broadcast\w*|scatter\w*|gather_for_metrics|reduce_mean"
    r"|reduce_scatter\w*|\w*sync_dist\w*|\w*across_\w+|\w*_from_main\w*"
)
_TO_ONE: Final = frozenset(("gather", "gather_object", "reduce"))
_OF_TORCH: Final = frozenset(("dist", "distributed"))
_CLOCKS: Final = frozenset(
    ("monotonic", "monotonic_ns", "now", "perf_counter", "perf_counter_ns", "time_ns", "utcnow")
)
_RANDOM: Final = frozenset(
    (
        *("bernoulli", "betavariate", "choice", "choices", "gauss", "getrandbits", "integers"),
        *("binomial", "exponential", "expovariate", "multinomial", "normal", "normalvariate"),
        *("permutation", "poisson", "rand", "randbytes", "randint", "randn", "standard_normal"),
        *("random", "randperm", "randrange", "sample", "shuffle", "uniform", "uuid4", "urandom"),
    )
)
_DRAWN_INTO: Final = frozenset(
    (
        *("bernoulli", "bernoulli_", "exponential_", "log_normal_", "multinomial", "normal_"),
        *("rand_like", "randint_like", "randn_like", "random_", "uniform_"),
    )
)
"""Draws that are also methods of a tensor, from the generator of torch."""
DISTRIBUTIONS: Final = frozenset(
    (
        *("Bernoulli", "Beta", "Binomial", "Categorical", "Exponential", "Geometric"),
        *("Multinomial", "Normal", "OneHotCategorical", "Poisson", "Uniform"),
    )
)
"""Classes of torch.distributions, of which sample() draws."""
_GENERATORS: Final = re.compile(r"random|\w*rng\w*|\w*generator|secrets|torch|os|uuid|_?rand\w*")
_MACHINE: Final = frozenset(
    (
        *("cpu_percent", "disk_usage", "getloadavg", "getrusage", "max_memory_allocated"),
        *("mem_get_info", "memory_allocated", "memory_info", "memory_reserved", "swap_memory"),
        "virtual_memory",
    )
)
_FILES: Final = frozenset(
    (
        *("exists", "getmtime", "getsize", "glob", "iglob", "is_dir", "is_file", "isdir", "isfile"),
        *("iterdir", "lexists", "listdir", "rglob", "scandir", "walk"),
    )
)
_READS: Final = frozenset(
    (
        *("fetchall", "fetchone", "load", "load_dataset", "loads", "memmap", "read_bytes"),
        *("read_csv", "read_parquet", "read_text", "readline", "readlines", "safe_load"),
    )
)
_QUEUE: Final = frozenset(("empty", "full", "qsize"))
_MESSAGES: Final = frozenset(
    ("get_nowait", "get_obj", "recv", "recv_bytes", "recv_pyobj", "recvall")
)
_QUEUES: Final = re.compile(r"(?:\w*_)?(?:q|queue|queues|inbox|outbox|mailbox|results|tasks|jobs)")
_WAITS: Final = frozenset(("acquire", "join", "poll", "select", "wait", "wait_for"))


def is_rank(name: str) -> bool:
    """Whether a name is that of the number of a process, or of whether it is the first."""
    return RANK.fullmatch(name) is not None


def kind_of_call(call: ast.Call) -> OriginKind:
    """What the result of a call depends on by itself; empty for a call of anything else."""
    name, of = last_name(call.func), receiver_of(call)
    last = of.rpartition(".")[2]
    if reads_clock(call):
        return "clock"
    if asks_rank(name) and not (call.args and name == "rank"):
        return "rank"
    if name in ("getenv", "get") and (name == "getenv" or last == "environ"):
        return _kind_of_variable(call.args[0] if call.args else None)
    if isinstance(call.func, ast.Name) and name == "hash" and len(call.args) == 1:
        return "hash"
    if name in _TO_ONE and (last in _OF_TORCH or any(e.arg == "dst" for e in call.keywords)):
        return "one-rank"
    is_gather = name == "gather" and len(call.args) == 1  # that of a tensor has an index as well
    if is_gather or _SHARES.fullmatch(name):
        return "shared"
    return _kind_of_method(call, name, last)


def _kind_of_method(call: ast.Call, name: str, last: str) -> OriginKind:
    if name in _RANDOM and (not last or _GENERATORS.fullmatch(last)):
        return "random" if last or name not in ("random", "sample", "choice") else ""
    if name in _DRAWN_INTO and last:
        return "random"
    if name in _MACHINE:
        return "machine"
    if name in _FILES:
        return "file"
    if name in _QUEUE and not call.args and not call.keywords:
        return "queue"
    if name in _MESSAGES or (name == "get" and _QUEUES.fullmatch(last.lower())):
        return "message"
    if name == "is_set" and not call.args:
        return "flag"
    if name in _WAITS and _has_limit(call, name):
        return "limit"
    if name == "open" and isinstance(call.func, ast.Name):
        return "data"
    if name == "parse_args":
        return "argument"
    return "data" if name in _READS else ""


def draws_of_torch(call: ast.Call) -> bool:
    """Whether it draws from the generator of torch as a function or a method of a tensor."""
    last = receiver_of(call).rpartition(".")[2]
    is_other = last != "torch" and _GENERATORS.fullmatch(last) is not None
    return last_name(call.func) in _DRAWN_INTO and not is_other


def _has_limit(call: ast.Call, name: str) -> bool:
    """Whether a wait ends by itself: `acquire(timeout=2)`, `wait(5)`."""
    if any(each.arg in ("timeout", "block", "blocking") for each in call.keywords):
        return True
    if name in ("join", "select", "wait_for"):  # `", ".join(names)`, and a condition
        return False
    return any(
        isinstance(each, ast.Constant) and type(each.value) in (int, float) for each in call.args
    )


def kind_of_subscript(node: ast.Subscript) -> OriginKind:
    """`os.environ["RANK"]` is the rank, `names[rank::count]` a part of the data."""
    if expression_text(node.value) in ("os.environ", "environ"):
        return _kind_of_variable(node.slice)
    return "data" if names_rank(node.slice) else ""


def names_rank(value: ast.AST) -> bool:
    """Whether an expression uses the number of the process."""
    return any(
        is_rank(last_name(each))
        if isinstance(each, ast.Name | ast.Attribute)
        else isinstance(each, ast.Call) and asks_rank(last_name(each.func))
        for each in ast.walk(value)
    )


def asks_rank(name: str) -> bool:
    """Whether a function of this name tells the number of the process, or whether it is first."""
    return name in _RANK_CALLS or (_ASKS_RANK.fullmatch(name) is not None)


def _kind_of_variable(name: ast.expr | None) -> OriginKind:
    text = name.value if isinstance(name, ast.Constant) else None
    return "rank" if text in _RANK_VARIABLES else "environment"


def reads_clock(node: ast.AST) -> bool:
    """Whether an expression is a call that tells the time: `time.monotonic()`."""
    return isinstance(node, ast.Call) and (
        (last_name(node.func) in _CLOCKS and not node.args)
        or (last_name(node.func) == "time" and receiver_of(node) == "time")
    )


_OF_ARGUMENTS: Final = re.compile(
    r"(?:\w+_)?(?:args|argv|opts?|options|cfg|conf|config|hparams|flags|settings)"
)


def kind_of_name(node: ast.Name | ast.Attribute) -> OriginKind:
    """What a variable or attribute depends on by its name alone."""
    name = last_name(node)
    if is_rank(name):
        return "rank"
    of = last_name(node.value) if isinstance(node, ast.Attribute) else name
    if name == "exitcode":
        return "message"
    return "argument" if _OF_ARGUMENTS.fullmatch(of.lower()) else ""


_DATA: Final = re.compile(
    r"(?:\w+_)?(?:batch|batches|data|dataset|datasets|loader|dataloader|sampler|shards?|stream"
    r"|samples|records|rows|documents|files|paths)"
)


def is_data(name: str) -> bool:
    """Whether a name is that of data which a process iterates over, as far as words show."""
    return _DATA.fullmatch(name.strip("_").lower()) is not None


OVER_ORDER: Final[Mapping[str, int]] = {"enumerate": 0, "iter": 0, "list": 0, "next": 0, "tuple": 0}
"""What keeps the order of the argument that it is given."""
