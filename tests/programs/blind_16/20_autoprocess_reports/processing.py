"""Processing of one analysis: behaviour log, signatures, report."""
import hashlib
import json
import os
import random
import re
import time
import zlib

SIGNATURES = [re.compile(p) for p in (r"CreateRemoteThread", r"reg(?:set|create)[^;]{0,20}Run",
                                      r"http://[a-z]+\.example", r"Sleep\(\d{5,}\)")]
CALLS = ("NtCreateFile", "NtReadFile", "RegSetValueExA Run", "CreateRemoteThread", "connect http://cnc.example",
         "Sleep(60000)", "NtAllocateVirtualMemory")


class BehaviourCache:
    """Parsed call logs, shared by the modules and kept for similar samples of a campaign."""

    logs = {}

    @classmethod
    def get(cls, sample, calls):
        if sample not in cls.logs:
            rng = random.Random(sample)
            cls.logs[sample] = [{"api": rng.choice(CALLS), "tid": rng.randrange(4000),
                                 "args": "%x" % rng.getrandbits(512)} for _ in range(calls)]
        return cls.logs[sample]


def run_signatures(calls):
    matched = set()
    for call in calls:
        for n, sig in enumerate(SIGNATURES):
            if sig.search(call["api"]):
                matched.add(n)
    return sorted(matched)


def process(task_id, sample, category, folder):
    calls = BehaviourCache.get(sample, 9000 if category == "exe" else 5000)
    matched = run_signatures(calls)
    report = {"id": task_id, "pid": os.getpid(), "sha256": hashlib.sha256(sample.encode()).hexdigest(),
              "signatures": matched, "calls": calls[:500]}
    with open(os.path.join(folder, f"report_{task_id}.json.z"), "wb") as fh:
        fh.write(zlib.compress(json.dumps(report).encode()))
    time.sleep(0.35)
    return task_id, len(matched), os.getpid()
