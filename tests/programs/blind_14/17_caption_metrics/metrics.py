"""Metrics for generated captions."""
import math
import os
import subprocess
import sys
import threading
from collections import Counter


class Bleu:
    def __init__(self, n=4):
        self.n = n

    def compute_score(self, ref, hyp):
        r, h = ref.split(), hyp.split()
        total = 0.0
        for k in range(1, self.n + 1):
            rc = Counter(tuple(r[i:i + k]) for i in range(len(r) - k + 1))
            hc = Counter(tuple(h[i:i + k]) for i in range(len(h) - k + 1))
            hit = sum(min(c, rc[g]) for g, c in hc.items())
            total += math.log((hit + 0.1) / (sum(hc.values()) + 0.1))
        return math.exp(total / self.n)


class RougeL:
    def compute_score(self, ref, hyp):
        a, b = ref.split(), hyp.split()
        row = [0] * (len(b) + 1)
        for x in a:
            prev = 0
            for j, y in enumerate(b, 1):
                keep = row[j]
                row[j] = prev + 1 if x == y else max(row[j], row[j - 1])
                prev = keep
        return row[-1] / max(len(a), 1)


class Meteor:
    def __init__(self):
        jar = os.path.join(os.path.dirname(os.path.abspath(__file__)), "meteor_jar.py")
        self.meteor_p = subprocess.Popen([sys.executable, "-u", jar], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True, bufsize=1)
        self.lock = threading.Lock()

    def compute_score(self, ref, hyp):
        hyp = hyp.replace("|||", "").replace("  ", " ")
        self.lock.acquire()
        self.meteor_p.stdin.write(" ||| ".join(("SCORE", ref, hyp)) + "\n")
        self.meteor_p.stdin.flush()
        value = float(self.meteor_p.stdout.readline().strip())
        self.lock.release()
        return value
