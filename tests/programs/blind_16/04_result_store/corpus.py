"""Reads the collection (here: generated text) and counts the tokens of each document."""
import random

WORDS = "the of and model data result method paper value table figure section".split()


def load_lengths(n_docs, seed=5):
    rng = random.Random(seed)
    lengths = []
    for _ in range(n_docs):
        text = " ".join(rng.choices(WORDS, k=rng.randint(180, 300)))
        lengths.append(len(text.split()))
    return lengths
