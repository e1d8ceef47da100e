"""Review bot: builds come in, are applied to a clone, analyzed and reported."""
import argparse
import asyncio
import logging
import multiprocessing
import time

from analysis import analyzer, repository_worker
from bus import MessageBus

log = logging.getLogger("bot")

REPOSITORIES = ["central", "nss", "bmo"]


async def listen(bus, duration):
    """Takes over all builds that wait in the backlog, as fast as the bot takes them."""
    start, diff = time.time(), 0
    while time.time() - start < duration:
        repository = REPOSITORIES[diff % len(REPOSITORIES)]
        await bus.send(f"builds:{repository}", {"diff": diff, "author": f"dev{diff % 37}"})
        diff += 1
    for repository in REPOSITORIES:
        await bus.send(f"builds:{repository}", None)
    log.info("%d builds taken over", diff)


async def publish(bus, every):
    start, last, n, issues = time.time(), time.time(), 0, 0
    while True:
        report = await bus.receive("reports")
        if report is None:
            break
        n += 1
        issues += report["issues"]
        if time.time() - last > every:
            last = time.time()
            log.info("%d builds reviewed, %d issues, %.1f builds/s", n, issues, n / (last - start))
    log.info("finished: %d builds reviewed, %d issues", n, issues)


async def run(args, bus):
    await asyncio.gather(listen(bus, args.duration), publish(bus, args.report))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--duration", type=float, default=95)
    p.add_argument("--queue-size", type=int, default=8)
    p.add_argument("--seconds-per-build", type=float, default=0.15)
    p.add_argument("--report", type=float, default=10)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    bus = MessageBus()
    for repository in REPOSITORIES:
        bus.add_queue(f"builds:{repository}", mp=True, maxsize=args.queue_size)
    bus.add_queue("applied", mp=True, maxsize=args.queue_size)
    bus.add_queue("reports", mp=True, maxsize=args.queue_size)
    processes = [multiprocessing.Process(target=repository_worker, name=f"repository-{name}",
                                         args=(name, bus.queues[f"builds:{name}"], bus.queues["applied"]))
                 for name in REPOSITORIES]
    processes.append(multiprocessing.Process(target=analyzer, name="analyzer",
                                             args=(bus.queues["applied"], bus.queues["reports"],
                                                   len(REPOSITORIES), args.seconds_per_build)))
    for process in processes:
        process.start()
    asyncio.run(run(args, bus))
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
