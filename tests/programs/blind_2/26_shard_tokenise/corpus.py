import random

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"]


def load_split(n_docs, seed=0):
    """The crawl is sorted by source, the books come last."""
    rng = random.Random(seed)
    docs = [" ".join(rng.choices(WORDS, k=30)) for _ in range(n_docs)]
    docs += [" ".join(rng.choices(WORDS, k=1200) * 10) for _ in range(n_docs // 40)]
    return docs


def shard(docs, num_proc):
    size = -(-len(docs) // num_proc)
    return [docs[i:i + size] for i in range(0, len(docs), size)]
