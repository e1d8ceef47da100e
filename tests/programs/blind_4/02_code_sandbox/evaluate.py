"""Score a file of generated solutions: run each one, compare its output with the reference."""
import argparse
import asyncio
import logging
import pathlib
import tempfile

from sandbox import run_snippet

log = logging.getLogger("evaluate")

SAMPLES = {
    "fizzbuzz/0": ("for i in range(1, 101):\n    print('FizzBuzz' if i % 15 == 0 else i)\n", None),
    "primes/0": ("p = [n for n in range(2, 2000) if all(n % d for d in range(2, int(n ** .5) + 1))]\nprint(len(p))\n", b"303\n"),
    "collatz/0": (
        "for s in range(1, 6000):\n    n, path = s, []\n    while n != 1:\n        path.append(n)\n"
        "        n = n // 2 if n % 2 == 0 else 3 * n + 1\n    print(s, len(path), max(path or [1]), path[:12])\n", None),
    "matrix/0": ("m = [[i * j for j in range(40)] for i in range(40)]\nprint(sum(map(sum, m)))\n", b"608400\n"),
    "words/0": ("import collections\nprint(collections.Counter('the cat the dog'.split()).most_common(1))\n", None),
}


async def worker(name, queue, results, timeout):
    while True:
        sample_id, path, expected = await queue.get()
        result = await run_snippet(sample_id, path, timeout)
        ok = result.returncode == 0 and (expected is None or result.stdout == expected)
        results[sample_id] = ok
        log.info("[%s] %-12s rc=%s stdout=%d bytes %.2fs %s", name, sample_id, result.returncode,
                 len(result.stdout), result.seconds, "pass" if ok else "FAIL")
        queue.task_done()


async def amain(args):
    queue, results = asyncio.Queue(), {}
    with tempfile.TemporaryDirectory(prefix="samples-") as tmp:
        for i, (sample_id, (code, expected)) in enumerate(SAMPLES.items()):
            path = pathlib.Path(tmp) / f"sample_{i}.py"
            path.write_text(code)
            queue.put_nowait((sample_id, path, expected))
        tasks = [asyncio.create_task(worker(f"w{i}", queue, results, args.timeout)) for i in range(args.workers)]
        await queue.join()
        for t in tasks:
            t.cancel()
    log.info("pass@1 %.2f", sum(results.values()) / len(results))


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--timeout", type=float, default=1800)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    asyncio.run(amain(args))


if __name__ == "__main__":
    main()
