import torch


class MarkovCorpus:
    """Text like token stream; every site has its own mixture of two sources."""

    def __init__(self, site, sites, vocab=96, seed=0):
        g = torch.Generator().manual_seed(seed)
        a = torch.softmax(2.5 * torch.randn(vocab, vocab, generator=g), -1)
        b = torch.softmax(2.5 * torch.randn(vocab, vocab, generator=g), -1)
        w = site / max(sites - 1, 1)
        self.trans = (1 - w) * a + w * b
        self.g = torch.Generator().manual_seed(1000 + site)
        self.state = torch.randint(0, vocab, (16,), generator=self.g)

    def batch(self, length):
        cols = [self.state]
        for _ in range(length):
            cols.append(torch.multinomial(self.trans[cols[-1]], 1, generator=self.g).squeeze(1))
        self.state = cols[-1]
        seq = torch.stack(cols, 1)
        return seq[:, :-1], seq[:, 1:]
