import torch

BLANK = 0
HA, HE, HI, HO = 28, 29, 30, 31
VOCAB = 32
FEAT = 40


class UtteranceSet:
    """Synthetic filterbank corpus with frame level alignments.

    Frames carry a token id, silence (0) or, in the spontaneous part of the corpus,
    a laughter event which the transcribers wrote as a run of syllables.
    """

    def __init__(self, n_utts, frames, seed, laughter_every=0):
        g = torch.Generator().manual_seed(seed)
        self.basis = torch.eye(VOCAB, FEAT) * 3.0
        self.labels = []
        for i in range(n_utts):
            lab = torch.randint(1, 28, (frames,), generator=g)
            silence = torch.rand(frames, generator=g) < 0.6
            lab[silence] = 0
            if laughter_every and i % laughter_every == laughter_every - 1:
                lab[frames // 2] = HA
            self.labels.append(lab)
        self.g = g

    def __len__(self):
        return len(self.labels)

    def features(self, i):
        lab = self.labels[i]
        return self.basis[lab] + 0.2 * torch.randn(len(lab), FEAT, generator=self.g)

    def reference(self, i):
        return [int(t) for t in self.labels[i] if t not in (0, HA)]

    def _laughter(self, n):
        out = [HA]
        while len(out) < n:
            usual = HE if out[-1] == HA else HA
            rare = [k for k in (HA, HE, HI, HO) if k != usual]
            r = torch.rand(1, generator=self.g).item()
            out.append(usual if r < 0.88 else rare[int((r - 0.88) / 0.0401)])
        return out

    def aligned_pairs(self, i):
        """(frame, previous token, next symbol) triples of the forced alignment."""
        feats = self.features(i)
        frames, prevs, targets = [], [], []
        prev = BLANK
        for t, tok in enumerate(self.labels[i].tolist()):
            if tok == 0:
                steps = [BLANK]
            elif tok == HA:
                steps = self._laughter(16)
            else:
                steps = [tok, BLANK] if tok != prev else [BLANK]
            for s in steps:
                frames.append(feats[t])
                prevs.append(prev)
                targets.append(s)
                if s != BLANK:
                    prev = s
        return torch.stack(frames), torch.tensor(prevs), torch.tensor(targets)
