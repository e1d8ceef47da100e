"""Runs the nodes of a workflow in a process pool, as many as the limits allow."""
import html
import json
import logging
import multiprocessing as mp
import os
import threading
import time

import numpy as np

from nodes import run_node

log = logging.getLogger("workflow")


class MultiProcRunner:
    def __init__(self, n_procs, memory_gb, status_dir):
        self.n_procs = n_procs
        self.memory_gb = memory_gb
        self.status_dir = status_dir
        self.pool = mp.Pool(n_procs)
        self._event = threading.Event()
        self._taskresult = {}

    def _async_callback(self, result):
        self._taskresult[result["node"]] = result
        self._event.set()

    def _load(self, specs):
        self.specs = specs
        index = {s["name"]: i for i, s in enumerate(specs)}
        n = len(specs)
        self.depidx = np.zeros((n, n), dtype=bool)
        for i, s in enumerate(specs):
            for parent in s["parents"]:
                self.depidx[index[parent], i] = True
        self.proc_done = np.zeros(n, dtype=bool)
        self.proc_pending = np.zeros(n, dtype=bool)
        self.index = index

    def _collect(self):
        for name in list(self._taskresult):
            result = self._taskresult.pop(name)
            i = self.index[name]
            self.proc_pending[i] = False
            self.proc_done[i] = True
            self.depidx[i, :] = False
            log.info("[Node] finished %r (%d of %d)", name, self.proc_done.sum(), len(self.specs))
            with open(os.path.join(self.status_dir, f"result_{name}.json"), "w") as f:
                json.dump(result, f)

    def _free_memory_gb(self):
        with open("/proc/meminfo") as f:
            fields = dict(line.split(":") for line in f)
        return int(fields["MemAvailable"].split()[0]) / 2 ** 20

    def _send_procs_to_workers(self):
        ready = ~self.proc_done & ~self.proc_pending & (self.depidx.sum(0) == 0)
        for i in np.flatnonzero(ready):
            if self.proc_pending.sum() >= self.n_procs or self._free_memory_gb() < self.memory_gb:
                break
            self.proc_pending[i] = True
            log.info("[Node] setting up %r", self.specs[i]["name"])
            self.pool.apply_async(run_node, (self.specs[i],), callback=self._async_callback)
        self._write_status()

    def _write_status(self):
        rows = []
        for i, spec in enumerate(self.specs):
            state = "done" if self.proc_done[i] else "running" if self.proc_pending[i] else "waiting"
            rows.append(f"<tr class={state}><td>{html.escape(spec['name'])}</td><td>{state}</td></tr>")
        path = os.path.join(self.status_dir, "status.html")
        for part in ("graph", "table"):
            with open(f"{path}.{part}", "w") as f:
                f.write("<table>" + "\n".join(rows) + "</table>")
                f.flush()
                os.fsync(f.fileno())
        time.sleep(0.15)  # dot renders the graph
        os.replace(f"{path}.table", path)

    def run(self, specs):
        self._load(specs)
        while not self.proc_done.all():
            self._collect()
            self._send_procs_to_workers()
            if self.proc_done.all():
                break
            self._event.clear()
            self._event.wait()
        self.pool.close()
        self.pool.join()
