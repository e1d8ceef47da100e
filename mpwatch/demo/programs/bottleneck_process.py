"""Count words in four workers, in one dict that a Manager holds.

Each access is a message to the Manager's process and an answer from it. That process is Python and
serves one call at a time, so more workers do not count faster.
"""

import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

WORKERS = 4
WORDS = 500
AT_ONCE = 20_000


def count(words, seed):
    own: dict[int, int] = {}
    is_mended = mended()
    generator = torch.Generator().manual_seed(seed)
    while True:
        for word in torch.randint(WORDS, (AT_ONCE,), generator=generator).tolist():
            if is_mended:
                own[word] = own.get(word, 0) + 1
            else:
                words[word] = words.get(word, 0) + 1
        if is_mended:
            words.update(own)
            time.sleep(0.1)


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    with mp.Manager() as manager:
        words = manager.dict()
        for seed in range(WORKERS):
            mp.Process(target=count, args=(words, seed), daemon=True).start()
        while not words:
            time.sleep(0.1)
        print("ready", flush=True)
        time.sleep(max(0.0, until_s - time.monotonic()))


if __name__ == "__main__":
    main()
