"""Line based analysis engine: one JSON query per line on stdin, one JSON reply per line on stdout."""
import json
import sys

import numpy as np

BOARD = 19


class Net:
    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.w1 = rng.normal(0, 0.05, (BOARD * BOARD, 96)).astype(np.float32)
        self.w2 = rng.normal(0, 0.05, (96, BOARD * BOARD + 1)).astype(np.float32)

    def __call__(self, planes):
        h = np.maximum(planes @ self.w1, 0)
        logits = h @ self.w2
        logits -= logits.max()
        p = np.exp(logits)
        return p / p.sum()


def encode(moves):
    planes = np.zeros(BOARD * BOARD, np.float32)
    for colour, idx in moves:
        planes[idx] = 1.0 if colour == "B" else -1.0
    return planes


def main():
    net = Net(seed=7)
    for line in sys.stdin:
        query = json.loads(line)
        planes = encode(query["moves"])
        policy = net(planes)
        for _ in range(query["maxVisits"]):
            policy = 0.9 * policy + 0.1 * net(planes + policy[:-1])
        reply = {
            "id": query["id"],
            "turnNumber": len(query["moves"]),
            "rootInfo": {"winrate": float(policy.max()), "scoreLead": float(policy[:-1].sum())},
            "policy": [round(float(v), 8) for v in policy],
        }
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
