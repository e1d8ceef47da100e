"""Evaluation worker: takes its shards one after the other and reports a metric for each."""
import faulthandler
import logging
import os
import sys
import time

import numpy as np

import walltime

log = logging.getLogger("eval")


class DecayLM:
    """Predicts the next token from a decaying mean of the embeddings so far."""

    def __init__(self, vocab: int, dim: int, decay: float, seed: int):
        rng = np.random.default_rng(seed)
        self.embed = rng.normal(0, 1, size=(vocab, dim)).astype(np.float32)
        self.head = rng.normal(0, 0.3 * dim ** -0.5, size=(dim, vocab)).astype(np.float32)
        self.decay = decay

    def logits(self, tokens: np.ndarray) -> np.ndarray:
        x = self.embed[tokens]
        state = np.zeros_like(x)
        state[:, 0] = x[:, 0]
        for t in range(1, x.shape[1]):
            state[:, t] = self.decay * state[:, t - 1] + (1 - self.decay) * x[:, t]
        return state @ self.head

    def nll(self, tokens: np.ndarray) -> float:
        z = self.logits(tokens[:, :-1])
        top = z.max(axis=-1, keepdims=True)
        log_sum = np.log(np.exp(z - top).sum(axis=-1)) + top[..., 0]
        target = np.take_along_axis(z, tokens[:, 1:, None], axis=-1)[..., 0]
        return float((log_sum - target).sum())


class ShardEvaluator:
    def __init__(self, args, index: int):
        self.args, self.index = args, index
        self.model = DecayLM(args.vocab, args.dim, args.decay, args.seed)

    def batches(self, shard):
        rng = np.random.default_rng(self.args.seed + shard.number)
        for _ in range(shard.batches):
            yield rng.integers(self.args.vocab, size=(self.args.batch_size, self.args.length))

    def evaluate(self, shard) -> dict:
        started = time.perf_counter()
        faulthandler.dump_traceback_later(self.args.stall_seconds, exit=True, file=sys.stderr)
        total, tokens = 0.0, 0
        for i, batch in enumerate(self.batches(shard)):
            total += self.model.nll(batch)
            tokens += batch[:, 1:].size
            if (i + 1) % 25 == 0:
                log.info("shard %d: batch %d of %d, loss %.4f", shard.number, i + 1, shard.batches, total / tokens)
            time.sleep(self.args.io_seconds)
        faulthandler.cancel_dump_traceback_later()
        return {"shard": shard.number, "loss": total, "tokens": tokens, "seconds": time.perf_counter() - started}


def worker_main(args, index: int, shards, results) -> None:
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s evaluator-{index}: %(message)s", force=True)
    walltime.arm(args.limit)
    evaluator = ShardEvaluator(args, index)
    log.info("process %d has %d shards", os.getpid(), len(shards))
    for shard in shards:
        results.put(evaluator.evaluate(shard))
    log.info("all shards done")
