"""Embedding key-value store. The graph partition is read before the port is opened."""
import argparse
import multiprocessing.connection as mpc
import threading
import time

import numpy as np


def load_partition(parts, seconds):
    blocks = []
    for n in range(parts):
        blocks.append(np.random.default_rng(n).normal(size=(2000, 32)))
        time.sleep(seconds / parts)
        if n % 10 == 0:
            print(f"server: partition {n}/{parts}", flush=True)
    return np.concatenate(blocks)


def serve(conn, table, lock):
    try:
        while True:
            op, ids, delta = conn.recv()
            if op == "pull":
                conn.send(table[ids])
            else:
                with lock:
                    np.add.at(table, ids, delta)
    except EOFError:
        conn.close()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--address", required=True)
    p.add_argument("--clients", type=int, required=True)
    p.add_argument("--load-seconds", type=float, default=25)
    args = p.parse_args()
    table, lock = load_partition(40, args.load_seconds), threading.Lock()
    threads = []
    with mpc.Listener(args.address, "AF_UNIX") as listener:
        print("server: ready", flush=True)
        for _ in range(args.clients):
            t = threading.Thread(target=serve, args=(listener.accept(), table, lock))
            t.start()
            threads.append(t)
    for t in threads:
        t.join()


if __name__ == "__main__":
    main()
