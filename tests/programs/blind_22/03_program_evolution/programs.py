"""Candidate generation: mutations of a seed program."""

SEED = '''
def search(data, wanted):
    lo, hi = 0, len(data)
    while lo < hi:
        mid = (lo + hi) // 2
        if data[mid] < wanted:
            lo = {step}
        else:
            hi = {other}
    return lo {tail}
'''

LINEAR = '''
def search(data, wanted):
    for i in range(0, len(data), {stride}):
        if data[i] == wanted:
            return i
    return -1
'''


def mutate(rng, generation):
    kind = rng.random()
    if kind < 0.55:
        return SEED.format(step="mid + 1", other="mid", tail=rng.choice(["", "", "", "+ 1"]))
    if kind < 0.9:
        return LINEAR.format(stride=rng.choice([1, 1, 1, 2]))
    if kind < 0.95:
        return SEED.format(step="mid + 1", other="mid", tail="+ undefined_offset")
    return SEED.format(step="mid", other="mid", tail="")
