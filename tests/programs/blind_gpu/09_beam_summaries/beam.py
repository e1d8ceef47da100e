import torch

BOS, EOS = 1, 2


class Beam:
    """Hypotheses of one document, best first."""

    def __init__(self, size, device, min_length=20, block_ngram=3, length_penalty=0.9):
        self.size, self.device = size, device
        self.min_length, self.block_ngram = min_length, block_ngram
        self.length_penalty = length_penalty
        self.scores = torch.zeros(size, device=device)
        self.scores[1:] = -1e4
        self.tokens = torch.full((size, 1), BOS, dtype=torch.long, device=device)
        self.finished = []

    def current(self):
        return self.tokens[:, -1]

    def _repeats(self, row):
        n, length = self.block_ngram, len(row)
        if length <= n:
            return False
        for start in range(1, length - n):
            if all(row[start + k] == row[length - n + k] for k in range(n)):
                return True
        return False

    def advance(self, logp):
        if self.tokens.shape[1] < self.min_length:
            logp[:, EOS] = -1e4
        for i in range(self.size):
            if self._repeats(self.tokens[i]):
                self.scores[i] = -1e4
        total = self.scores.unsqueeze(1) + logp
        best, flat = total.view(-1).topk(self.size)
        origin, token = flat // logp.shape[1], flat % logp.shape[1]
        self.tokens = torch.cat([self.tokens[origin], token.unsqueeze(1)], dim=1)
        self.scores = best.clone()
        for i in range(self.size):
            if token[i] == EOS:
                score = self.scores[i] / self.tokens.shape[1] ** self.length_penalty
                self.finished.append((score, self.tokens[i].clone()))
                self.scores[i] = -1e4
        return origin

    def done(self, max_length):
        return len(self.finished) >= self.size or self.tokens.shape[1] >= max_length

    def result(self):
        candidates = self.finished or [(self.scores[0], self.tokens[0])]
        return max(candidates, key=lambda item: item[0])[1].tolist()
