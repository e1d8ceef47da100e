import sys
import time

import numpy as np

from channels import Writer


def main(folder, count):
    print("camera: opening the stream", flush=True)
    out = Writer(folder)
    rng = np.random.default_rng(0)
    for number in range(count):
        out.put(number, rng.integers(0, 255, (120, 160), dtype=np.uint8))
        time.sleep(0.05)


main(sys.argv[1], int(sys.argv[2]))
