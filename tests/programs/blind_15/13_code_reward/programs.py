TEMPLATES = [
    "print({a} + {b})",
    "print(sum(range({a}, {b})))",
    "print({a} * {b})",
    "x = {a}\nwhile x != {b}:\n    x += 0 if x > {b} else 2\nprint(x * {a})",
    "table = [[0] * 1000 for _ in range(10 ** 6)]\nprint(len(table))",
    "def f(n):\n    return f(n - 1) * {a}\nprint(f({b}))",
    "print(int('{a}' + '{b}'))",
    "import time\ntime.sleep({b})\nprint({a} * {b})",
]


def task_for(task):
    a, b = 3 + task, 20 + 2 * task
    return {"a": a, "b": b}, str(a * b)
