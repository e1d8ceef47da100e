"""Play a short match between two network versions and report the score."""
import argparse
import logging
import multiprocessing as mp
import os
import subprocess
import sys
import time

from protocol import EngineClient

HERE = os.path.dirname(os.path.abspath(__file__))
ENGINE = os.path.join(HERE, "engine.py")
log = logging.getLogger("match")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--games", type=int, default=400)
    p.add_argument("--concurrency", type=int, default=2)
    p.add_argument("--bench-depth", type=int, default=6)
    p.add_argument("--movetime", type=int, default=60)
    p.add_argument("--max-plies", type=int, default=40)
    return p.parse_args()


def verify_signature(depth):
    """Run the engine's bench and return (signature, nodes per second)."""
    out = subprocess.run([sys.executable, ENGINE, "bench", str(depth)],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         universal_newlines=True, check=True).stdout
    sig = nps = None
    for line in out.splitlines():
        if line.startswith("Nodes searched"):
            sig = int(line.split(":")[1])
        elif line.startswith("Nodes/second"):
            nps = int(line.split(":")[1])
    if sig is None or nps is None:
        raise RuntimeError("unable to parse bench output:\n" + out)
    return sig, nps


def play_game(client, game_id, args):
    client.new_game()
    moves = []
    score = 0.0
    for _ in range(args.max_plies):
        reply = client.go(moves, args.movetime)
        moves.append(reply["bestmove"])
        score = reply["score"]
        if abs(score) > 3.0:
            break
    return game_id, len(moves), score


def match_worker(worker_id, tasks, results, args, tc_scale):
    args.movetime = int(args.movetime * tc_scale)
    client = EngineClient([sys.executable, ENGINE], name="engine-%d" % worker_id)
    log.info("starting %s", client.name)
    client.start()
    log.info("%s ready: %s", client.name, client.id_name)
    while True:
        game_id = tasks.get()
        if game_id is None:
            break
        results.put(play_game(client, game_id, args))
    client.quit()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    sig, nps = verify_signature(args.bench_depth)
    log.info("bench signature %d, %d nps", sig, nps)
    tc_scale = max(0.5, min(4.0, 20000.0 / nps))
    log.info("time control factor %.2f", tc_scale)

    tasks, results = mp.Queue(), mp.Queue()
    for g in range(args.games):
        tasks.put(g)
    workers = [mp.Process(target=match_worker, name="match-%d" % i,
                          args=(i, tasks, results, args, tc_scale))
               for i in range(args.concurrency)]
    for w in workers:
        tasks.put(None)
        w.start()

    total = 0.0
    t0 = time.time()
    for n in range(1, args.games + 1):
        game_id, plies, score = results.get()
        total += 1.0 if score > 0.2 else 0.5 if score > -0.2 else 0.0
        log.info("game %d: %d plies, score %+.2f  (%.1f/%d, %.1f games/min)",
                 game_id, plies, score, total, n, 60 * n / (time.time() - t0))
    for w in workers:
        w.join()


if __name__ == "__main__":
    main()
