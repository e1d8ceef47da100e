import random
import time


def rollout_process(idx, cmds, out):
    rng = random.Random(idx)
    for n in iter(cmds.get, None):
        for _ in range(n):
            time.sleep(0.05)
            out.put((idx, rng.randbytes(128 * 1024)))
        out.put((idx, None))
