"""Who exchanges with whom: every pair of peers meets once per cycle (circle method)."""


def partners(peers, round_index):
    """peer -> partner in this round; with an odd number of peers one of them has none."""
    seats = list(range(peers)) + ([None] if peers % 2 else [])
    fixed, rest = seats[0], seats[1:]
    turn = round_index % len(rest)
    table = [fixed] + rest[turn:] + rest[:turn]
    half = len(table) // 2
    pairs = {}
    for a, b in zip(table[:half], reversed(table[half:])):
        if a is not None:
            pairs[a] = b
        if b is not None:
            pairs[b] = a
    return pairs
