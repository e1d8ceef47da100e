from collections import Counter


class TinyBpe:
    """A small byte pair tokenizer in plain Python, trained on the corpus itself."""

    def __init__(self, merges):
        self.n_merges = merges
        self.merges = []

    @staticmethod
    def _merge(word, pair):
        out, i = [], 0
        while i < len(word):
            if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
                out.append(word[i] + word[i + 1])
                i += 2
            else:
                out.append(word[i])
                i += 1
        return out

    def train(self, words, progress):
        words = [list(w) for w in words]
        for k in range(self.n_merges):
            pairs = Counter()
            for w in words:
                pairs.update(zip(w, w[1:]))
            if not pairs:
                break
            best = pairs.most_common(1)[0][0]
            self.merges.append(best)
            words = [self._merge(w, best) for w in words]
            progress(k + 1)
        self.vocab = {t: i + 1 for i, t in enumerate(sorted({t for w in words for t in w}))}

    def encode(self, text):
        ids = []
        for w in text.split():
            w = list(w)
            for pair in self.merges:
                w = self._merge(w, pair)
            ids.extend(self.vocab.get(t, 0) for t in w)
        return ids
