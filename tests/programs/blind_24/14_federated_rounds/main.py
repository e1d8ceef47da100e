"""Federated averaging with partial participation; the server is rank 0."""
import argparse
import logging
import multiprocessing as mp
import socket
import time

import torch
import torch.distributed as dist

import client as fl

log = logging.getLogger("server")


class Availability:
    """Who may be asked in a round. The last client is a clinic that gives us one slot in eight."""

    def __init__(self, clients, fraction, seed=0):
        self.clients, self.take = clients, max(1, int(clients * fraction))
        self.gen = torch.Generator().manual_seed(seed)

    def select(self, rnd):
        pool = [c for c in range(1, self.clients + 1) if c != self.clients or rnd % 8 == 7]
        if rnd % 8 == 7:
            rest = [c for c in pool if c != self.clients]
            pick = torch.randperm(len(rest), generator=self.gen)[:self.take - 1].tolist()
            return sorted([rest[i] for i in pick] + [self.clients])
        pick = torch.randperm(len(pool), generator=self.gen)[:self.take].tolist()
        return sorted(pool[i] for i in pick)


class Server:
    def __init__(self, args):
        self.args = args
        self.model = fl.build_model()
        self.policy = Availability(args.clients, args.fraction_fit)
        g = torch.Generator().manual_seed(99)
        self.x = torch.randn(2000, fl.DIM, generator=g)
        self.y = self.x[:, :fl.CLASSES].argmax(1)

    def round(self, rnd):
        chosen = self.policy.select(rnd)
        vec = fl.flatten(self.model)
        for c in chosen:
            dist.send(torch.tensor([rnd]), dst=c)
            dist.send(vec, dst=c)
        total, losses = torch.zeros_like(vec), []
        for c in chosen:
            answer = torch.zeros(vec.numel() + 1)
            dist.recv(answer, src=c)
            total += answer[:-1]
            losses.append(answer[-1].item())
        fl.unflatten(self.model, total / len(chosen))
        with torch.no_grad():
            acc = (self.model(self.x).argmax(1) == self.y).float().mean().item()
        log.info("round %d clients %s loss %.4f accuracy %.3f", rnd, chosen, sum(losses) / len(losses), acc)

    def run(self):
        end = time.monotonic() + self.args.seconds
        for rnd in range(self.args.rounds):
            self.round(rnd)
            if time.monotonic() > end:
                break
            time.sleep(self.args.pause)
        for c in range(1, self.args.clients + 1):
            dist.send(torch.tensor([fl.STOP]), dst=c)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--clients", type=int, default=4)
    ap.add_argument("--fraction-fit", type=float, default=0.5)
    ap.add_argument("--fit-seconds", type=float, default=2.5)
    ap.add_argument("--pause", type=float, default=0.5)
    ap.add_argument("--rounds", type=int, default=1000)
    ap.add_argument("--seconds", type=float, default=115)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ctx = mp.get_context("fork")
    procs = [ctx.Process(target=fl.serve, args=(r, args, port), name=f"client{r}", daemon=True)
             for r in range(1, args.clients + 1)]
    for p in procs:
        p.start()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=args.clients + 1)
    Server(args).run()
    for p in procs:
        p.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
