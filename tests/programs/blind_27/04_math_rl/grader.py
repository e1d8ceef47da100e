"""Rule based reward for math answers."""
import ast
import operator
import re
import signal

BOXED = re.compile(r"\\boxed\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")
OPS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
       ast.Pow: operator.pow, ast.USub: operator.neg}


class ParsingTimeout(Exception):
    pass


def _on_alarm(signum, frame):
    raise ParsingTimeout


def latex_to_python(text):
    text = text.replace("\\cdot", "*").replace("\\times", "*").replace("{", "(").replace("}", ")")
    return re.sub(r"\\frac\(([^()]*)\)\(([^()]*)\)", r"((\1)/(\2))", text).replace("^", "**")


def simplify(node):
    if isinstance(node, ast.Expression):
        return simplify(node.body)
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp):
        return OPS[type(node.op)](simplify(node.operand))
    if isinstance(node, ast.BinOp):
        left, right = simplify(node.left), simplify(node.right)
        return OPS[type(node.op)](left, right)
    raise ValueError(ast.dump(node))


def parse(text, parsing_timeout=5):
    match = BOXED.search(text)
    if match is None:
        return None
    if parsing_timeout:
        signal.signal(signal.SIGALRM, _on_alarm)
        signal.alarm(parsing_timeout)
    try:
        return simplify(ast.parse(latex_to_python(match.group(1)), mode="eval"))
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, OverflowError):
        return None
    finally:
        if parsing_timeout:
            signal.alarm(0)


def verify(gold, answer):
    if gold is None or answer is None:
        return False
    return gold == answer or (isinstance(answer, float) and abs(gold - answer) < 1e-6)


def compute_score(solution, ground_truth):
    gold = parse("\\boxed{%s}" % ground_truth, parsing_timeout=None)
    answer = parse(solution, parsing_timeout=None)
    return 1.0 if verify(gold, answer) else 0.0
