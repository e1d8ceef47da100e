import logging
import multiprocessing as mp
import random
import time

log = logging.getLogger("arena")


def play(weights, opponent, rng):
    score = sum(w * rng.gauss(0.1, 1) for w in weights) - sum(w * rng.gauss(0, 1) for w in opponent)
    return score > 0


def evaluator(inbox, outbox):
    """Sleeps until the learner publishes a snapshot, plays a short match and sleeps again."""
    rng = random.Random(5)
    best = [0.0] * 64
    while (snapshot := inbox.get()) is not None:
        version, weights = snapshot
        wins = sum(play(weights, best, rng) for _ in range(4000))
        if wins > 2200:
            best = weights
        outbox.put((version, wins))


def archiver(cond, latest, path):
    """Writes a snapshot when one is newer than the last that was written."""
    written = 0
    with open(path, "a") as fh:
        while True:
            with cond:
                cond.wait_for(lambda: latest.value != written)
                written = latest.value
            if written < 0:
                return
            fh.write(f"{time.time():.0f} {written}\n")
            fh.flush()


def start(path):
    ctx = mp.get_context("fork")
    inbox, outbox = ctx.Queue(), ctx.Queue()
    cond, latest = ctx.Condition(), ctx.Value("i", 0)
    procs = [ctx.Process(target=evaluator, args=(inbox, outbox), name="evaluator"),
             ctx.Process(target=archiver, args=(cond, latest, path), name="archiver")]
    for p in procs:
        p.start()
    return inbox, outbox, cond, latest, procs
