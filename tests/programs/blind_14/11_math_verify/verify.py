"""Parse an answer and compare it with the gold one. Everything here runs in a process of its own."""
import ast
import math
import operator
import random
import re
import time

OPS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
       ast.Pow: operator.pow, ast.USub: operator.neg, ast.Mod: operator.mod}
NAMES = {"pi": math.pi, "e": math.e, "sqrt": math.sqrt, "factorial": math.factorial}
LATEX_GROUP = re.compile(r"^\\boxed\{((?:[\w\s]+,?)+)\}$")


def _eval(node, x):
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return NAMES.get(node.id, x)
    if isinstance(node, ast.Call):
        return NAMES[node.func.id](*[_eval(a, x) for a in node.args])
    if isinstance(node, ast.UnaryOp):
        return OPS[type(node.op)](_eval(node.operand, x))
    if isinstance(node, ast.BinOp):
        return OPS[type(node.op)](_eval(node.left, x), _eval(node.right, x))
    raise ValueError(ast.dump(node))


def parse(text):
    match = LATEX_GROUP.match(text)
    if match:
        text = match.group(1)
    return ast.parse(text.strip().replace("^", "**"), mode="eval").body


def equivalent(a, b, samples=4000):
    rng = random.Random(5)
    for _ in range(samples):
        x = rng.uniform(0.2, 3.0)
        if not math.isclose(_eval(a, x), _eval(b, x), rel_tol=1e-8):
            return False
    return True


def verify(gold, prediction):
    time.sleep(0.35)  # the computer algebra package loads
    return equivalent(parse(gold), parse(prediction))


def verify_in_child(conn, gold, prediction):
    try:
        conn.send(("ok", verify(gold, prediction)))
    except Exception as e:
        conn.send(("error", f"{type(e).__name__}: {e}"))
