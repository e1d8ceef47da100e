import torch
from torch.utils.data import Dataset


class Utterances(Dataset):
    """Feature sequences with token targets; lengths as in the manifest."""

    def __init__(self, n, feat=24, vocab=32, seed=0):
        self.n, self.feat, self.vocab, self.seed = n, feat, vocab, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 100003 + i)
        frames = int(torch.randint(30, 60, (1,), generator=g))
        tokens = int(torch.randint(4, 12, (1,), generator=g))
        if i == 403:
            frames = 8
            tokens = 20
        x = torch.randn(frames, self.feat, generator=g)
        y = torch.randint(1, self.vocab, (tokens,), generator=g)
        return "utt-%05d" % i, x, y


def collate(items):
    ids, xs, ys = zip(*items)
    xlen = torch.tensor([len(x) for x in xs])
    ylen = torch.tensor([len(y) for y in ys])
    x = torch.nn.utils.rnn.pad_sequence(xs, batch_first=True)
    return ids, x, xlen, torch.cat(ys), ylen
