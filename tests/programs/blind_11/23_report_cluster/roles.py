import logging
import os
import random
import time

logger = logging.getLogger("cluster")

NAMES = "earth sad coffee lake table ohio nevada kansas bakerloo carolina".split()


def pusher(task_queue, interval=0.6):
    logger.info("pushing tasks at %d", os.getpid())
    rng = random.Random(3)
    while True:
        task = {"name": "-".join(rng.sample(NAMES, 3)), "rows": rng.randint(2000, 9000)}
        task_queue.put(task)
        time.sleep(interval)


def render_report(task):
    total = 0
    for row in range(task["rows"]):
        total += (row * 2654435761) % 1013
    time.sleep(0.02)
    return total


def worker(task_queue, result_queue, timer):
    logger.info("ready for work at %d", os.getpid())
    for task in iter(task_queue.get, "STOP"):
        timer.value = time.time()
        task["result"] = render_report(task)
        task["by"] = os.getpid()
        result_queue.put(task)
        timer.value = -1.0


def monitor(result_queue):
    logger.info("monitoring at %d", os.getpid())
    for task in iter(result_queue.get, None):
        logger.info("Processed [%s] by %d", task["name"], task["by"])
