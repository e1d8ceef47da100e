"""A small byte-pair vocabulary, learned in plain Python."""
import random
import time
from collections import Counter


def synthetic_corpus(n_words, seed):
    rng = random.Random(seed)
    syllables = [a + b for a in "bcdfgklmnprstvz" for b in "aeiou"]
    return Counter(
        "".join(rng.choice(syllables) for _ in range(rng.randint(2, 5))) for _ in range(n_words)
    )


def learn_bpe(corpus, max_merges, budget_s, progress=None):
    """Merges the most frequent pair until max_merges or until the time budget is used."""
    words = {tuple(w): c for w, c in corpus.items()}
    merges = []
    t_end = time.monotonic() + budget_s
    while len(merges) < max_merges and time.monotonic() < t_end:
        pairs = Counter()
        for symbols, count in words.items():
            for a, b in zip(symbols, symbols[1:]):
                pairs[a, b] += count
        if not pairs:
            break
        best = max(pairs, key=pairs.get)
        merges.append(best)
        merged = {}
        for symbols, count in words.items():
            out, i = [], 0
            while i < len(symbols):
                if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == best:
                    out.append(symbols[i] + symbols[i + 1])
                    i += 2
                else:
                    out.append(symbols[i])
                    i += 1
            merged[tuple(out)] = merged.get(tuple(out), 0) + count
        words = merged
        if progress:
            progress(len(merges))
    return merges
