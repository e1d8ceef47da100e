"""Candidate programs for 'sum of the numbers below n', as templates the policy chooses from."""

TEMPLATES = [
    "n = {n}\nprint(sum(range(n)))\n",
    "n = {n}\nprint(n * (n - 1) // 2)\n",
    "n = {n}\nt = 0\nfor i in range(n + 1):\n    t += i\nprint(t)\n",
    "n = {n}\nprint(sum(range(1, m)))\n",
    "n = {n}\nt, i = 0, 0\nwhile i != n:\n    t += i\n    i += {step}\nprint(t)\n",
]


def render(choice, n, step):
    return TEMPLATES[choice].format(n=n, step=step), n * (n - 1) // 2
