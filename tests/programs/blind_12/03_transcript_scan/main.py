"""Scan the transcripts of an evaluation for refusals and tool errors."""
import argparse
import collections
import hashlib
import json
import logging
import os
import random
import re
import tempfile
import time

from scanner import MultiProcessScan

WORDS = "the model answers with a call of the tool and an error sorry cannot help result ok file path list".split()


def write_transcripts(folder, count):
    rng = random.Random(3)
    paths = []
    for i in range(count):
        path = os.path.join(folder, f"sample_{i:04d}.json")
        turns = [{"role": rng.choice(["user", "assistant", "tool"]), "content": " ".join(rng.choices(WORDS, k=60))}
                 for _ in range(60)]
        with open(path, "w") as f:
            json.dump({"id": i, "messages": turns}, f)
        paths.append(path)
    return paths


def parse(path):
    time.sleep(0.02)  # log store
    with open(path) as f:
        return json.load(f)


def refusal(transcript):
    hits = 0
    for m in transcript["messages"]:
        if m["role"] == "assistant":
            for _ in range(10):
                hits += len(re.findall(r"(sorry|cannot)\s+(?:\w+\s+){0,4}help", m["content"]))
    return hits


def tool_error(transcript):
    digest = hashlib.sha256()
    hits = 0
    for m in transcript["messages"]:
        digest.update(m["content"].encode())
        hits += m["role"] == "tool" and len(re.findall(r"\berror\b", m["content"])) > 3
    return int(hits)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--transcripts", type=int, default=600)
    p.add_argument("--max-processes", type=int, default=4)
    p.add_argument("--max-transcripts", type=int, default=25, help="transcripts in flight")
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    log = logging.getLogger("main")

    totals = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="eval_") as folder:
        paths = write_transcripts(folder, args.transcripts)
        log.info("%d transcripts in %s", len(paths), folder)

        def on_result(path, found):
            totals.update(found)
            totals["n"] += 1
            if totals["n"] % 100 == 0:
                log.info("%d/%d", totals["n"], len(paths))

        scan = MultiProcessScan(parse, {"refusal": refusal, "tool_error": tool_error},
                                args.max_processes, args.max_transcripts)
        scan.run(paths, on_result)
    log.info("summary %s", dict(totals))


if __name__ == "__main__":
    main()
