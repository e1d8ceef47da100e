import random

PRIMES = """
def solve(n):
    out = []
    for k in range(2, n):
        for d in out:
            if d * d > k:
                out.append(k)
                break
            if k % d == 0:
                break
        else:
            out.append(k)
    return len(out)
"""

COLLATZ = """
def solve(n):
    best = 0
    for k in range(1, n):
        steps, v = 0, k
        while v != 1:
            v = v // 2 if v % 2 == 0 else 3 * v + 1
            steps += 1
        best = max(best, steps)
    return best
"""

PARTITIONS = """
def solve(n):
    ways = [1] + [0] * n
    for part in range(1, n + 1):
        for total in range(part, n + 1):
            ways[total] += ways[total - part]
    return ways[n] % 1000007
"""

WRONG = """
def solve(n):
    return n // 0
"""

PROBLEMS = {"primes": (PRIMES, 130_000), "collatz": (COLLATZ, 20_000), "partitions": (PARTITIONS, 2_000)}


def sample_problem(rng: random.Random):
    name = rng.choice(sorted(PROBLEMS))
    source, size = PROBLEMS[name]
    return name, size


def write_solution(name, quality, rng: random.Random):
    """What the policy samples: right more often as ``quality`` rises."""
    return PROBLEMS[name][0] if rng.random() < 0.3 + 0.6 * quality else WRONG
