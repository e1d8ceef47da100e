"""One node of a two-node gossip SGD run: local steps, then exchange and average parameters."""
import argparse
import logging
import pickle
import socket
import struct
import time

import numpy as np


class Peer:
    def __init__(self, rank, port):
        if rank == 0:
            with socket.create_server(("127.0.0.1", port)) as server:
                self.sock, _ = server.accept()
        else:
            for _ in range(100):
                try:
                    self.sock = socket.create_connection(("127.0.0.1", port))
                    break
                except ConnectionRefusedError:
                    time.sleep(0.1)

    def send(self, obj):
        data = pickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL)
        self.sock.sendall(struct.pack("!Q", len(data)) + data)

    def recv(self):
        (size,) = struct.unpack("!Q", self._read(8))
        return pickle.loads(self._read(size))

    def _read(self, n):
        buf = bytearray()
        while len(buf) < n:
            part = self.sock.recv(min(n - len(buf), 1 << 20))
            if not part:
                raise ConnectionError("peer has left")
            buf += part
        return bytes(buf)

    def exchange(self, obj):
        self.send(obj)
        return self.recv()


class Model:
    def __init__(self, hidden, seed=0):
        rng = np.random.default_rng(seed)
        self.params = {"w1": rng.normal(size=(64, hidden)), "w2": rng.normal(size=(hidden, 1))}

    def step(self, rng, lr=1e-5):
        x = rng.normal(size=(32, 64))
        h = np.maximum(x @ self.params["w1"], 0)
        err = h @ self.params["w2"] - x[:, :1]
        self.params["w2"] -= lr * h.T @ err
        return float((err ** 2).mean())


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rank", type=int, required=True)
    p.add_argument("--port", type=int, required=True)
    p.add_argument("--hidden", type=int, default=256)
    p.add_argument("--rounds", type=int, default=200)
    p.add_argument("--local-steps", type=int, default=20)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [node {args.rank}] %(message)s")

    peer = Peer(args.rank, args.port)
    remote = peer.exchange({"rank": args.rank, "hidden": args.hidden})
    logging.info("connected to node %d", remote["rank"])
    model, rng = Model(args.hidden), np.random.default_rng(100 + args.rank)
    for rnd in range(args.rounds):
        loss = [model.step(rng) for _ in range(args.local_steps)]
        other = peer.exchange(model.params)
        for key, value in other.items():
            model.params[key] = (model.params[key] + value) / 2
        logging.info("round %d loss %.4f", rnd, np.mean(loss))


if __name__ == "__main__":
    main()
