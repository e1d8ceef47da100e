"""Reference data and the decoder processes."""
import time

import numpy as np
import torch


def make_references(count, vocab):
    rng = np.random.default_rng(3)
    lengths = rng.integers(14, 34, size=count)
    return [rng.zipf(1.4, size=n).clip(max=vocab - 1).tolist() for n in lengths]


class Decoder(torch.nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.emb = torch.nn.Embedding(vocab, hidden)
        self.rnn = torch.nn.GRUCell(hidden, hidden)
        self.head = torch.nn.Linear(hidden, vocab)

    @torch.no_grad()
    def greedy(self, sources, rng):
        length = max(map(len, sources))
        state = torch.zeros(len(sources), self.rnn.hidden_size)
        token = torch.tensor([s[0] for s in sources])
        for _ in range(length):
            state = self.rnn(self.emb(token), state)
            token = self.head(state).argmax(1)
        out = []
        for s in sources:
            keep = rng.random(len(s)) < 0.85
            out.append([t if k else int(token[0]) for t, k in zip(s, keep)])
        return out


def decode_worker(args, index, references, results):
    torch.set_num_threads(1)
    torch.manual_seed(index)
    rng = np.random.default_rng(index)
    model = Decoder(args.vocab, args.hidden)
    for start in range(index * args.batch, args.sentences, args.decoders * args.batch):
        ids = list(range(start, min(start + args.batch, args.sentences)))
        hypotheses = model.greedy([references[i] for i in ids], rng)
        time.sleep(0.02)
        results.put((ids, hypotheses))
