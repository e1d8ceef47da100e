"""Corpus BLEU and the metric object that the evaluation loop updates."""
import math
from collections import Counter


def ngrams(tokens, n):
    return Counter(tuple(tokens[i:i + n]) for i in range(len(tokens) - n + 1))


def corpus_bleu(hypotheses, references, order=4):
    matches, totals = [0] * order, [0] * order
    hyp_len = ref_len = 0
    for hyp, ref in zip(hypotheses, references):
        hyp_len += len(hyp)
        ref_len += len(ref)
        for n in range(1, order + 1):
            h, r = ngrams(hyp, n), ngrams(ref, n)
            matches[n - 1] += sum((h & r).values())
            totals[n - 1] += max(len(hyp) - n + 1, 0)
    if min(matches) == 0:
        return 0.0
    precision = sum(math.log(m / t) for m, t in zip(matches, totals)) / order
    penalty = min(0.0, 1.0 - ref_len / max(hyp_len, 1))
    return math.exp(precision + penalty)


class BleuMetric:
    def __init__(self, metric_fn=corpus_bleu):
        self.metric_fn = metric_fn
        self.hypotheses = []
        self.references = []
        self.value = 0.0

    def update(self, hypotheses, references):
        self.hypotheses.extend(hypotheses)
        self.references.extend(references)
        self.value = self.metric_fn(self.hypotheses, self.references)
        return self.value

    def result(self):
        return self.value
