"""Probes of the storage middleware; they run in worker processes because some of the libraries leave memory behind."""
import hashlib
import os
import random
import time


def smart_report(disk):
    time.sleep(random.uniform(0.2, 0.9))
    payload = os.urandom(256 * 1024)
    return {"probe": "smart", "target": disk, "pid": os.getpid(), "digest": hashlib.sha256(payload).hexdigest()}


def scrub_estimate(pool_name):
    digest = b""
    for i in range(4000):
        digest = hashlib.sha256(digest + pool_name.encode() + i.to_bytes(4, "little") * 64).digest()
    time.sleep(random.uniform(0.1, 0.4))
    return {"probe": "scrub", "target": pool_name, "pid": os.getpid(), "digest": digest.hex()}


def usage_tree(dataset):
    entries = [{"path": f"{dataset}/{i:05d}", "used": (i * 2654435761) % (1 << 32)} for i in range(30000)]
    entries.sort(key=lambda e: e["used"], reverse=True)
    return {"probe": "usage", "target": dataset, "pid": os.getpid(), "digest": entries[0]["path"]}


PROBES = {"smart": smart_report, "scrub": scrub_estimate, "usage": usage_tree}


def run_probe(job):
    kind, target = job
    return PROBES[kind](target)
