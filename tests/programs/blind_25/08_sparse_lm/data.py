"""Synthetic token stream: a few 'domains', each a random Markov chain over its own part of the vocabulary."""
import torch


class MixtureStream:
    def __init__(self, vocab, domains, batch, seq, rank, world, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.batch, self.seq = batch, seq
        span = vocab // domains
        self.tables = []
        for d in range(domains):
            logits = torch.full((vocab, vocab), -6.0)
            logits[:, d * span:(d + 1) * span] = 2.0 * torch.randn(vocab, span, generator=g)
            self.tables.append(torch.softmax(logits, dim=-1))
        self.domains = domains
        self.schedule = torch.Generator().manual_seed(seed)
        self.vocab = vocab
        self.gen = torch.Generator().manual_seed(seed * 1000 + 17 * rank + 1)

    def next_batch(self):
        # batches are grouped by domain; every rank follows the same schedule
        domain = torch.randint(self.domains, (1,), generator=self.schedule).expand(self.batch)
        tok = torch.randint(self.vocab, (self.batch,), generator=self.gen)
        out = [tok]
        for _ in range(self.seq):
            probs = torch.stack([self.tables[d][t] for d, t in zip(domain.tolist(), tok.tolist())])
            tok = torch.multinomial(probs, 1, generator=self.gen).squeeze(1)
            out.append(tok)
        seq = torch.stack(out, dim=1)
        return seq[:, :-1], seq[:, 1:]
