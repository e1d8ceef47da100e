"""Candidate programs as a policy writes them."""

GOOD = "def solve(n):\n    return sum(i * i for i in range(n))\n"
WRONG = "def solve(n):\n    return n * n\n"
BROKEN = "def solve(n):\n    return sum(i * i for i in rang(n))\n"
SLOW = "def solve(n):\n    total = 0\n    for i in range(n):\n        for j in range(i):\n            total += i\n    return total\n"
LOOPING = ("def solve(n):\n    total, i = 0, 0\n    while i != n:\n        total += i * i\n        i += 2\n"
           "    return total\n")

TESTS = [((n,), sum(i * i for i in range(n))) for n in (4, 10, 301, 500)]


def rollout(index):
    kind = (GOOD, WRONG, GOOD, BROKEN, SLOW)[index % 5]
    if index == 60:
        kind = LOOPING
    return {"id": index, "source": kind, "tests": TESTS}
