import argparse
import logging
import socket
import time

import torch
import torch.multiprocessing as mp

from server import recv_msg, send_msg, server_main

log = logging.getLogger("trainer")


class PsClient:
    def __init__(self, port):
        self.port = port

    def call(self, **msg):
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            send_msg(s, msg)
            return torch.from_numpy(recv_msg(s)["weights"])


def trainer_main(rank, port, dim, steps, rate):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    client = PsClient(port)
    target = torch.ones(dim)
    w = client.call(op="pull")
    for step in range(steps):
        w = w.clone().requires_grad_()
        x = torch.randn(8, dim)
        loss = ((x @ w) - (x @ target)).pow(2).mean()
        loss.backward()
        w = client.call(op="push", grad=w.grad.numpy())
        if step % 10 == 0:
            log.info("trainer %d step %d loss %.4f", rank, step, loss.item())
        time.sleep(1.0 / rate)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--trainers", type=int, default=3)
    p.add_argument("--dim", type=int, default=128)
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--rate", type=float, default=3.0)
    args = p.parse_args()
    here, there = mp.Pipe()
    server = mp.Process(target=server_main, args=(there, args.dim), daemon=True)
    server.start()
    port = here.recv()
    procs = [mp.Process(target=trainer_main, args=(r, port, args.dim, args.steps, args.rate), daemon=True)
             for r in range(args.trainers)]
    for pr in procs:
        pr.start()
    for pr in procs:
        pr.join()
    server.terminate()


if __name__ == "__main__":
    main()
