PROBLEMS = [
    {"name": "sum_to", "fill": {"op": "+", "start": 0}, "tests": [((4,), 10), ((1,), 1), ((10,), 55)]},
    {"name": "factorial", "fill": {"op": "*", "start": 1}, "tests": [((4,), 24), ((1,), 1), ((6,), 720)]},
    {"name": "alternating", "fill": {"op": "-", "start": 0}, "tests": [((3,), -6), ((1,), -1), ((5,), -15)]},
]

TEMPLATES = [
    "def solve(n):\n    r = {start}\n    for i in range(1, n + 1):\n        r = r {op} i\n    return r\n",
    "def solve(n):\n    r = {start}\n    for i in range(n):\n        r = r {op} i\n    return r\n",
    "def solve(n):\n    r, i = {start}, 1\n    while i != n + 1:\n        r = r {op} i\n    return r\n",
    "def solve(n):\n    return n {op} solve(n - 1)\n",
    "import time\ndef solve(n):\n    while n > 0:\n        time.sleep(0.1)\n    return {start}\n",
    "import os\ndef solve(n):\n    os._exit(3)\n",
]
