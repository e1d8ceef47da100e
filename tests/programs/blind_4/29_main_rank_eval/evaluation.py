import logging
import time

import torch

log = logging.getLogger("eval")


@torch.no_grad()
def beam_search_eval(model, prompts, width=8, length=30):
    """Beam search over a held-out prompt set, one prompt at a time."""
    model.eval()
    score, started = 0.0, time.monotonic()
    for n in range(prompts):
        beams, scores = torch.zeros(width, 1, dtype=torch.long) + n % 50, torch.zeros(width)
        for _ in range(length):
            logp = torch.log_softmax(model(beams[:, -1]), 1)
            scores, flat = (scores[:, None] + logp).flatten().topk(width)
            beams = torch.cat([beams[flat // logp.shape[1]], (flat % logp.shape[1])[:, None]], 1)
            time.sleep(0.004)
        score += float(scores[0])
        if n % 25 == 0:
            log.info("evaluated %d/%d prompts", n, prompts)
    model.train()
    log.info("evaluation took %.1f s", time.monotonic() - started)
    return score / prompts
