"""Time synchronous beam search for the transducer (Graves 2012)."""
import torch

from data import BLANK


class Hyp:
    __slots__ = ("last", "parent", "length", "score")

    def __init__(self, last, parent, length, score):
        self.last, self.parent, self.length, self.score = last, parent, length, score

    def normalised(self):
        return self.score / max(self.length, 1)

    def tokens(self):
        out, node = [], self
        while node is not None and node.last != BLANK:
            out.append(node.last)
            node = node.parent
        return out[::-1]


class TransducerBeamSearcher:
    def __init__(self, model, beam_size=4, state_beam=2.3, expand_beam=2.3):
        self.model = model
        self.beam_size = beam_size
        self.state_beam = state_beam
        self.expand_beam = expand_beam

    @torch.no_grad()
    def __call__(self, feats):
        enc = self.model.encode(feats)
        beam = [Hyp(BLANK, None, 0, 0.0)]
        for t in range(enc.size(0)):
            beam = self._advance(enc[t], beam)
        return max(beam, key=Hyp.normalised).tokens()

    def _advance(self, frame, hyps):
        pending = list(hyps)
        beam = []
        while len(beam) < self.beam_size and pending:
            best = max(pending, key=Hyp.normalised)
            if beam:
                best_done = max(beam, key=Hyp.normalised)
                if best_done.normalised() >= self.state_beam + best.normalised():
                    break
            pending.remove(best)

            logp = torch.log_softmax(self.model.join(frame, torch.tensor(best.last)), dim=-1)
            scores, symbols = logp.topk(self.beam_size)
            floor = scores[0].item() - self.expand_beam
            for s, k in zip(scores.tolist(), symbols.tolist()):
                if k == BLANK:
                    beam.append(Hyp(best.last, best.parent, best.length, best.score + s))
                elif s >= floor:
                    pending.append(Hyp(k, best, best.length + 1, best.score + s))
        return beam
