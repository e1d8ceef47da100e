"""Reward verifiers. Each kind of answer is scored by a process of its own."""
import logging
import math
import resource
import time

import numpy as np

log = logging.getLogger("verifier")


def limit_cpu(seconds):
    """No submitted answer may burn more than `seconds` of processor time."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 2))


def score_format(answer):
    time.sleep(0.002)
    return 1.0 if answer["length"] < 180 else 0.2


def score_math(answer):
    time.sleep(0.004)
    return math.exp(-abs(answer["value"]))


def score_code(answer):
    """Run the candidate program on its test cases (here: a small interpreter loop)."""
    rng = np.random.default_rng(answer["seed"])
    passed = 0
    for case in rng.integers(1, 1000, size=answer["cases"]):
        acc = int(case)
        for _ in range(2500):
            acc = (acc * 1103515245 + 12345) & 0x7FFFFFFF
        passed += acc % 3 != 0
    return passed / answer["cases"]


SCORERS = {"format": score_format, "math": score_math, "code": score_code}


def verifier_main(kind, requests, results, cpu_seconds):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s[%(process)d] %(message)s")
    limit_cpu(cpu_seconds)
    score = SCORERS[kind]
    done = 0
    while True:
        request = requests.get()
        if request is None:
            break
        step, answers = request
        results.put((step, kind, [score(a) for a in answers]))
        done += len(answers)
        if done % 512 == 0:
            log.info("%s: %d answers scored", kind, done)
