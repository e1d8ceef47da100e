"""Ask a worker for a score again and again, with a new pipe for each answer.

Nobody closes the pipes: the list of answers keeps them. Descriptors rise until the limit is
reached, hours later; then whatever needs one next fails.
"""

import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended


def score(requests):
    weights = torch.ones(1000)
    while True:
        reply = requests.get()
        reply.send(float(weights.sum()))
        reply.close()


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    requests = mp.SimpleQueue()
    mp.Process(target=score, args=(requests,), daemon=True).start()
    answers = []
    while time.monotonic() < until_s:
        receiver, sender = mp.Pipe(duplex=False)
        requests.put(sender)
        sender.close()
        answers.append((receiver.recv(), receiver))
        if mended():
            receiver.close()
        if len(answers) == 4:
            print("ready", flush=True)
        time.sleep(0.4)


if __name__ == "__main__":
    main()
