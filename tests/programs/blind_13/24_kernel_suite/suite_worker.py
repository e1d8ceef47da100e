"""One worker of the suite: takes cases, measures them, keeps its own summary file."""
import json
import os
import time
import traceback

import torch

from ops import OPS


def run_case(name, seed, args):
    op, reference, tolerance = OPS[name]
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(args.size, generator=g) + 0.1
    timings = []
    for _ in range(args.repeat):
        t = time.perf_counter()
        out = op(x)
        timings.append(time.perf_counter() - t)
        time.sleep(0.05)
    error = abs(out.float().numpy() - reference(x.numpy())).max()
    return {"op": name, "seed": seed, "passed": bool(error < tolerance), "error": error, "ms": 1000 * min(timings)}


def write_summary(path, records):
    path.with_suffix(".part").write_text(json.dumps(records, indent=1))
    path.with_suffix(".part").rename(path)


def worker_loop(index, args, tasks, messages, results):
    out = open(results / f"worker{index}.log", "w", buffering=1)
    os.dup2(out.fileno(), 1)
    os.dup2(out.fileno(), 2)
    torch.set_num_threads(1)
    records = []
    while True:
        case = tasks.get()
        if case is None:
            break
        name, seed = case
        print(f"{name} seed {seed}", flush=True)
        try:
            record = run_case(name, seed, args)
        except Exception:
            traceback.print_exc()
            record = {"op": name, "seed": seed, "passed": False, "error": None, "ms": None}
        records.append(record)
        write_summary(results / f"summary{index}.json", records)
        messages.put(("result", index, record))
    messages.put(("exit", index, None))
