import argparse
import asyncio
import logging
import random
import time

from pool import AsyncTTSServerPool

log = logging.getLogger("tts")
WORDS = "the quick brown fox jumps over a lazy dog while seven wizards brew strong coffee by the river".split()


class Stats:
    def __init__(self):
        self.done, self.seconds = 0, 0.0

    def add(self, seconds):
        self.done += 1
        self.seconds += seconds


def sentence(rng, words):
    return " ".join(rng.choice(WORDS) for _ in range(words))


async def listener(pool, stats, seed, args):
    """A user who asks for one short sentence after the other."""
    rng = random.Random(seed)
    while True:
        t = time.time()
        await pool.generate(sentence(rng, rng.randint(5, 40)), rng.randint(40, 120))
        stats.add(time.time() - t)
        await asyncio.sleep(rng.uniform(0.05, 0.3))


async def audiobook(pool, stats, args):
    """Batch client which sends whole chapters."""
    rng = random.Random(77)
    await asyncio.sleep(args.first_chapter)
    for chapter in range(10):
        text = sentence(rng, args.chapter_words)
        log.info("chapter %d submitted, %d characters", chapter, len(text))
        mel = await pool.generate(text, 400)
        log.info("chapter %d: %d frames", chapter, len(mel))
        await asyncio.sleep(2)


async def report(pool, stats):
    while True:
        await asyncio.sleep(5)
        log.info("%d utterances, mean %.2fs, in flight %s", stats.done,
                 stats.seconds / max(stats.done, 1), pool.inflight())


async def serve(args):
    pool = AsyncTTSServerPool(args)
    await pool.start()
    stats = Stats()
    jobs = [listener(pool, stats, i, args) for i in range(args.listeners)]
    jobs += [audiobook(pool, stats, args), report(pool, stats)]
    try:
        await asyncio.wait_for(asyncio.gather(*jobs), args.lifetime - 15)
    except asyncio.TimeoutError:
        log.info("demo over, %d utterances", stats.done)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--worker-mb", type=int, default=1024, help="memory each replica may take on top of its start size")
    p.add_argument("--listeners", type=int, default=6)
    p.add_argument("--first-chapter", type=float, default=8.0)
    p.add_argument("--chapter-words", type=int, default=3000)
    p.add_argument("--lifetime", type=float, default=140)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(serve(args))


if __name__ == "__main__":
    main()
