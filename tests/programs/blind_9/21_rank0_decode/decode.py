import logging
import time

import torch

log = logging.getLogger("decode")


class BeamDecoder:
    def __init__(self, model, vocab, beam):
        self.model, self.vocab, self.beam = model, vocab, beam

    @torch.no_grad()
    def decode(self, length):
        tokens = torch.zeros(self.beam, 1, dtype=torch.long)
        scores = torch.zeros(self.beam)
        for _ in range(length):
            logp = self.model(tokens[:, -1]).log_softmax(1)
            total = (scores[:, None] + logp).flatten()
            scores, idx = total.topk(self.beam)
            tokens = torch.cat([tokens[idx // self.vocab], (idx % self.vocab)[:, None]], 1)
            time.sleep(0.002)
        return tokens[0], scores[0].item()


def decode_test_set(model, vocab, sentences, length):
    decoder, total, t0 = BeamDecoder(model, vocab, beam=8), 0.0, time.monotonic()
    for s in range(1, sentences + 1):
        _, score = decoder.decode(length)
        total += score
        if s % 10 == 0:
            log.info("decoded %d/%d sentences, %.1f per second", s, sentences, s / (time.monotonic() - t0))
    return total / sentences
