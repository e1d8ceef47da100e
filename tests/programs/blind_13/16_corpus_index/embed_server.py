"""Embedding server, one request per line on stdin, one reply per line on stdout."""
import argparse
import json
import sys

import numpy as np


class Codebook:
    def __init__(self, path):
        self.table = np.load(path)
        self.table /= np.linalg.norm(self.table, axis=1, keepdims=True) + 1e-8

    def encode(self, docs):
        return np.stack([self.table[np.asarray(d)].mean(axis=0) for d in docs])


def serve(codebook, index):
    print("started", index, codebook.table.shape)
    while True:
        line = sys.stdin.readline()
        if not line:
            break
        request = json.loads(line)
        vectors = codebook.encode(request["docs"])
        print(json.dumps({"vectors": vectors.round(5).tolist()}))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--codebook", required=True)
    p.add_argument("--index", type=int, default=0)
    args = p.parse_args()
    serve(Codebook(args.codebook), args.index)


if __name__ == "__main__":
    main()
