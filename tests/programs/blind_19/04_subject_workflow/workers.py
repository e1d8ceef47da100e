import concurrent.futures as cf
import logging
import multiprocessing as mp
import os
import threading
import time

log = logging.getLogger("workers")


def exit_with_parent(every=2.0):
    """Ends this process soon after its parent is gone."""
    parent = os.getppid()

    def watch():
        while os.getppid() == parent:
            time.sleep(every)
        os._exit(0)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


class Worker:
    def run_el(self, interface, **kwargs):
        raise NotImplementedError

    def close(self):
        pass


class SerialWorker(Worker):
    def run_el(self, interface, **kwargs):
        return interface(**kwargs)


class ConcurrentFuturesWorker(Worker):
    def __init__(self, nr_proc=4):
        self.nr_proc = nr_proc
        self.pool = cf.ProcessPoolExecutor(nr_proc, mp_context=mp.get_context("fork"),
                                           initializer=exit_with_parent)
        log.info("pool with %d processes", nr_proc)

    def run_el(self, interface, **kwargs):
        future = self.pool.submit(interface, **kwargs)
        return future.result()

    def close(self):
        self.pool.shutdown(wait=False, cancel_futures=True)


PLUGINS = {"serial": SerialWorker, "cf": ConcurrentFuturesWorker}


class Submitter:
    """Runs every element of a node's state and hands the outputs on in order."""

    def __init__(self, plugin, **plugin_args):
        self.worker = PLUGINS[plugin](**plugin_args)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.worker.close()

    def submit(self, node):
        for index, inputs in enumerate(node.states()):
            output = self.worker.run_el(node.interface, **inputs)
            node.set_output(index, output)
