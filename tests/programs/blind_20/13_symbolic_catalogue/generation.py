"""Generation of unique equations, spread over the ranks."""
import itertools
import logging
import os
import time

import torch
import torch.distributed as dist

log = logging.getLogger("generation")

UNARY = ["exp", "log", "sqrt", "square", "inv"]
BINARY = ["+", "-", "*", "/", "pow"]
LEAVES = ["x", "a0", "a1"]


def equations_of(complexity):
    """All prefix expressions of a given number of nodes, as strings."""
    if complexity == 1:
        return list(LEAVES)
    found = []
    for sub in equations_of(complexity - 1):
        found += [f"{u}({sub})" for u in UNARY]
    for left in range(1, complexity - 1):
        for l, r in itertools.product(equations_of(left), equations_of(complexity - 1 - left)):
            found += [f"({l} {b} {r})" for b in BINARY]
    return found


def signature(equation, points):
    """Numerical fingerprint of an expression, used to find duplicates."""
    env = {"x": points, "a0": torch.tensor(0.7), "a1": torch.tensor(1.9),
           "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt,
           "square": torch.square, "inv": torch.reciprocal, "pow": "pow"}
    value = eval(equation.replace("pow", "**") if " pow " in equation else equation,
                 {"__builtins__": {}}, env)
    value = torch.as_tensor(value).expand(points.shape)
    return tuple(torch.nan_to_num(value, nan=-99.0, posinf=1e6, neginf=-1e6)
                 .mul(1e4).round().tolist())


def split(items, rank, size):
    return items[rank::size]


def find_unique(complexity, out_dir):
    """Each rank takes a share of the equations; rank 0 writes the union."""
    rank, size = dist.get_rank(), dist.get_world_size()
    t0 = time.monotonic()
    points = torch.linspace(0.2, 3.0, 16)
    mine = {}
    for equation in split(equations_of(complexity), rank, size):
        mine.setdefault(signature(equation, points), equation)
    parts = [None] * size
    dist.all_gather_object(parts, mine)
    merged = {}
    for part in parts:
        for sig, equation in part.items():
            if sig not in merged or len(equation) < len(merged[sig]):
                merged[sig] = equation
    if rank == 0:
        path = os.path.join(out_dir, f"unique_equations_{complexity}.txt")
        with open(path, "w") as f:
            f.write("\n".join(sorted(merged.values())))
        log.info("complexity %d: %d unique equations (%.1fs)", complexity, len(merged),
                 time.monotonic() - t0)
    return len(merged)
