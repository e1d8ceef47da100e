import argparse
import logging
import multiprocessing as mp

import torch

from board import JobBoard, worker

log = logging.getLogger("board")


class CurveModel(torch.nn.Module):
    """Predicts the end of a learning curve from its head."""

    def __init__(self):
        super().__init__()
        self.f = torch.nn.Linear(64, 1)

    def forward(self, c):
        return self.f(c)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=3)
    ap.add_argument("--jobs", type=int, default=5000)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    with mp.Manager() as manager:
        board, done = JobBoard(manager), manager.Queue()
        ps = [mp.Process(target=worker, args=(i, board.jobs, board.todo, done), daemon=True)
              for i in range(args.workers)]
        for p in ps:
            p.start()
        model = CurveModel()
        opt = torch.optim.SGD(model.parameters(), lr=1e-3)
        nxt = 0
        for _ in range(2 * args.workers):
            board.post(nxt)
            nxt += 1
        for n in range(args.jobs):
            vals = torch.tensor(board.collect(done.get()))
            loss = (model(vals[:64]) - vals[-100:].mean()).pow(2).sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
            board.post(nxt)
            nxt += 1
            if n % 20 == 0:
                log.info("job %d: %d values, loss %.4f, open jobs %d", n, len(vals), loss.item(), len(board.jobs))


if __name__ == "__main__":
    main()
