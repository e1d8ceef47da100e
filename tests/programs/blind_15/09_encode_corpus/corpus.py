import random

WORDS = ("the model data loss train batch image text token layer graph node score rank worker "
         "queue process memory value step epoch signal noise wave field").split()


def read_corpus(n, seed=3):
    """Stand-in for the CSV export of the help desk."""
    rng = random.Random(seed)
    rows = []
    for i in range(n):
        rows.append(" ".join(rng.choice(WORDS) for _ in range(rng.randint(5, 40))))
    rows[4321] = None
    return rows
