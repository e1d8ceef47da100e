import random

DOMAINS = ["web", "code", "books", "news", "papers", "forums", "wiki", "dialogue"]


class DomainMixture:
    """Draws (domain, tokens) documents; the same mixture on every rank, other documents."""

    def __init__(self, rank, vocab, length):
        self.rng = random.Random(1000 + rank)
        self.vocab, self.length = vocab, length

    def batch(self, n):
        docs = []
        for i in range(n):
            domain = DOMAINS[i % len(DOMAINS)]
            base = DOMAINS.index(domain) * (self.vocab // len(DOMAINS))
            docs.append((domain, [base + self.rng.randrange(32) for _ in range(self.length)]))
        return docs
