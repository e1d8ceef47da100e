"""Score a translation model: decoder processes produce hypotheses, the main process keeps the BLEU."""
import argparse
import logging
import multiprocessing as mp
import time

from decoding import decode_worker, make_references
from metrics import BleuMetric

log = logging.getLogger("nmt_scoring")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--sentences", type=int, default=60000)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--decoders", type=int, default=2)
    p.add_argument("--vocab", type=int, default=1500)
    p.add_argument("--hidden", type=int, default=96)
    p.add_argument("--queue", type=int, default=8)
    p.add_argument("--log-every", type=int, default=5)
    return p.parse_args()


def evaluate(args, results, references):
    metric = BleuMetric()
    batches = (args.sentences + args.batch - 1) // args.batch
    mark = time.perf_counter()
    for n in range(1, batches + 1):
        ids, hypotheses = results.get()
        value = metric.update(hypotheses, [references[i] for i in ids])
        if n % args.log_every == 0:
            now = time.perf_counter()
            log.info("batch %d / %d, BLEU so far %.2f, %.2f s per batch", n, batches, 100 * value, (now - mark) / args.log_every)
            mark = now
    return metric.result()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    ctx = mp.get_context("fork")
    references = make_references(args.sentences, args.vocab)
    results = ctx.Queue(args.queue)
    decoders = [ctx.Process(target=decode_worker, args=(args, i, references, results), name=f"decoder-{i}", daemon=True)
                for i in range(args.decoders)]
    for p in decoders:
        p.start()
    log.info("evaluating %d sentences with %d decoders", args.sentences, args.decoders)
    score = evaluate(args, results, references)
    log.info("BLEU %.2f", 100 * score)


if __name__ == "__main__":
    main()
