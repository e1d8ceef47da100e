import random

WORDS = "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor".split()


def document(rng, words):
    return " ".join(rng.choice(WORDS) for _ in range(words)).encode().hex()


def load_corpus(count):
    """A made-up corpus in the order of its sources: chat messages, then book scans."""
    rng = random.Random(11)
    books = max(1, count // 100)
    texts = [document(rng, rng.randint(5, 40)) for _ in range(count - books)]
    texts += [document(rng, rng.randint(9000, 11000)) for _ in range(books)]
    return texts
