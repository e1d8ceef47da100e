"""Problems with candidate answers, the policy chooses one of the candidates."""
import random

BOOK = [
    ("Write the largest number you can with exactly three nines.", ["9^{99}", "999", "9^{9^{9}}", "99^{9}"], "9^{99}"),
    ("What is 2^{10} - 24?", ["1000", "2^{10}", "1024 - 24", "998"], "1000"),
]


def make_problem(rng):
    a, b, c = rng.randint(2, 99), rng.randint(2, 99), rng.randint(2, 9)
    kind = rng.randint(0, 2)
    if kind == 0:
        return f"Compute {a} + {b}.", [str(a + b), f"{a} + {b + 1}", str(a - b), str(a * b)], str(a + b)
    if kind == 1:
        return f"Compute {a} times {b}.", [f"{a} \\cdot {b}", str(a + b), str(a * b + 1), f"{a}^{{2}}"], str(a * b)
    return f"Compute {a}/{b} to the power {c}.", [f"(\\frac{{{a}}}{{{b}}})^{{{c}}}", str(a), f"{b}^{{{c}}}", "1"], \
        f"(\\frac{{{a}}}{{{b}}})^{{{c}}}"


def build_dataset(size, seed):
    rng = random.Random(seed)
    items = [make_problem(rng) for _ in range(size)]
    for i, item in enumerate(BOOK):
        items[165 + 40 * i] = item
    return [(prompt, rng.sample(candidates, len(candidates)), truth) for prompt, candidates, truth in items]
