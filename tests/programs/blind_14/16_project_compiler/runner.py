"""Runs the nodes of one layer in worker processes."""
import logging
import multiprocessing as mp
import time

import numpy as np

log = logging.getLogger("runner")


class CompilationError(Exception):
    pass


class NodeRunner:
    def __init__(self, rows):
        self.rows = rows
        self.rng = np.random.default_rng(7)

    def compile(self, node):
        materialized = node.config.get("materialized", "view")
        if materialized == "incremental":
            key = node.config["unique_key"]
            where = " and ".join(f"t.{k} = s.{k}" for k in key.split(","))
            return f"merge into {node.unique_id} t using s on {where}"
        return f"create {materialized} as select * from {', '.join(node.depends_on) or 'raw'}"

    def execute(self, node, sql):
        until = time.monotonic() + node.cost
        checksum = 0.0
        while time.monotonic() < until:
            checksum += float(np.sort(self.rng.random(self.rows)).sum())
            time.sleep(0.02)
        return {"node": node.unique_id, "sql": len(sql), "checksum": checksum}


def worker_main(worker_id, jobs, results, rows):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s worker-{worker_id} %(message)s", force=True)
    runner = NodeRunner(rows)
    while True:
        node = jobs.get()
        if node is None:
            jobs.task_done()
            break
        try:
            sql = runner.compile(node)
            outcome = runner.execute(node, sql)
        except Exception as exc:
            log.error("node %s failed: %r", node.unique_id, exc)
            continue
        results.put(outcome)
        jobs.task_done()


class GraphRunnableTask:
    def __init__(self, graph, threads, rows):
        self.graph = graph
        self.jobs = mp.JoinableQueue()
        self.results = mp.SimpleQueue()
        self.workers = [
            mp.Process(target=worker_main, args=(i, self.jobs, self.results, rows),
                       name=f"worker-{i}", daemon=True)
            for i in range(threads)
        ]

    def run_queue(self, layer):
        for node in layer:
            self.jobs.put(node)
        self.jobs.join()
        outcomes = []
        while not self.results.empty():
            outcomes.append(self.results.get())
        return outcomes

    def run(self):
        for w in self.workers:
            w.start()
        finished = 0
        for number, layer in enumerate(self.graph.layers()):
            t0 = time.monotonic()
            outcomes = self.run_queue(layer)
            finished += len(outcomes)
            log.info("layer %d: %d of %d nodes ok in %.1f s (%d so far)",
                     number, len(outcomes), len(layer), time.monotonic() - t0, finished)
        for _ in self.workers:
            self.jobs.put(None)
        self.jobs.join()
        for w in self.workers:
            w.join()
