"""Runs scripted agent sessions, one process each, and collects their observations."""
import argparse
import logging
import multiprocessing as mp
import os
import sys
import tempfile

from agent import session_main

log = logging.getLogger("orchestrator")

PLAN = [
    "python -c 'print(sum(i * i for i in range(200000)))'",
    "mkdir -p site && echo '<h1>report</h1>' > site/index.html && ls site",
    "sleep 1.5; wc -c site/index.html",
    "python -c 'import json; print(json.dumps({\"rows\": 1200}))' > stats.json; cat stats.json",
    "sleep 1; grep -c report site/index.html",
]
PREVIEW = "timeout --foreground 600 {python} -m http.server 0 --bind 127.0.0.1 --directory site & sleep 0.5; echo preview started"
CLOSING = ["sleep 0.5; ls -la site", "du -sk .", "echo done"]


def build_plan(session_id):
    plan = list(PLAN)
    if session_id % 2:
        plan.append(PREVIEW.format(python=sys.executable))
    return plan + CLOSING


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--tool-timeout", type=float, default=5.0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(message)s")

    root = tempfile.mkdtemp(prefix="agents_")
    ctx = mp.get_context("spawn")
    sessions = []
    for sid in range(args.sessions):
        parent, child = ctx.Pipe()
        proc = ctx.Process(target=session_main, name=f"session-{sid}",
                           args=(sid, os.path.join(root, f"ws{sid}"), child, args.tool_timeout))
        proc.start()
        child.close()
        sessions.append((proc, parent))

    for rnd in range(args.rounds):
        plans = [build_plan(sid) for sid in range(args.sessions)]
        for step in range(max(len(p) for p in plans)):
            active = []
            for sid, (proc, conn) in enumerate(sessions):
                if step < len(plans[sid]):
                    conn.send({"id": f"r{rnd}s{step}", "command": plans[sid][step]})
                    active.append(conn)
            for conn in active:
                reply = conn.recv()
                log.info("session %(session)d %(task)s %(elapsed).2fs %(observation)s", reply)
    for proc, conn in sessions:
        conn.send(None)
        proc.join()


if __name__ == "__main__":
    main()
