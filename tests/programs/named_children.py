"""Children of multiprocessing in the ways that frameworks start them: `named_children.py WAY`."""

import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor

kept = []


def actor(number):
    time.sleep(600)


class Collector(multiprocessing.Process):
    def run(self):
        time.sleep(600)


def functions(context):
    return [context.Process(target=actor, args=(number,)) for number in range(3)]


def classes(context):
    return [Collector() for _ in range(2)]


def named(context):
    return [context.Process(target=actor, name=f"Env<{n}>", args=(n,)) for n in range(2)]


def pool(context):
    context.Pool(2).map_async(actor, range(2))
    return []


def executor(context):
    made = ProcessPoolExecutor(2, mp_context=context)
    made.submit(actor, 0)
    made.submit(actor, 1)
    return []


def manager(context):
    kept.append(multiprocessing.managers.BaseManager(ctx=context))
    kept[-1].start()
    return functions(context)[:1]


def ranks(context):
    import torch.multiprocessing

    method = context.get_start_method()
    torch.multiprocessing.start_processes(actor, nprocs=2, join=False, start_method=method)
    return []


if __name__ == "__main__":
    import multiprocessing.managers

    way, method = sys.argv[1:3]
    multiprocessing.set_start_method(method)
    for process in globals()[way](multiprocessing.get_context(method)):
        process.start()
        kept.append(process)
    print("ready", flush=True)
    time.sleep(600)
