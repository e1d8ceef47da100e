"""Federated averaging simulator: every site runs as a process of its own."""
import argparse
import logging
import multiprocessing as mp
import signal
import time

import torch

from client_process import build_net, run_client

log = logging.getLogger("simulator")

SITES = [
    {"name": "site-1", "cases": 40, "spacing": 1.5, "seed": 1},
    {"name": "site-2", "cases": 60, "spacing": 1.0, "seed": 2},
    {"name": "site-3", "cases": 36, "spacing": 1.5, "seed": 3},
]


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=60)
    p.add_argument("--cases-per-round", type=int, default=4)
    p.add_argument("--cache-mb", type=int, default=70, help="cache budget of one client")
    p.add_argument("--min-round-time", type=float, default=1.5)
    p.add_argument("--server-lr", type=float, default=1.0)
    p.add_argument("--walltime", type=int, default=130)
    return p.parse_args()


class ClientHandle:
    def __init__(self, site, conn, process):
        self.name = site["name"]
        self.conn = conn
        self.process = process


class SimulatorRunner:
    def __init__(self, args):
        self.args = args
        self.ctx = mp.get_context("fork")
        self.clients = []
        self.pipes = []
        self.global_net = build_net()
        self.server_opt = torch.optim.SGD(self.global_net.parameters(), lr=args.server_lr)

    def start_clients(self):
        for site in SITES:
            parent_conn, child_conn = self.ctx.Pipe()
            self.pipes.append((parent_conn, child_conn))
            process = self.ctx.Process(target=run_client, args=(site, child_conn, self.args),
                                       name=site["name"], daemon=True)
            process.start()
            self.clients.append(ClientHandle(site, parent_conn, process))
        log.info("started clients %s", [(c.name, c.process.pid) for c in self.clients])

    def weights(self):
        return {k: v.tolist() for k, v in self.global_net.state_dict().items()}

    def collect(self):
        results = []
        for client in self.clients:
            results.append(client.conn.recv())
        return results

    def aggregate(self, results):
        total = sum(r["samples"] for r in results)
        for key, param in self.global_net.named_parameters():
            mean = sum(torch.tensor(r["weights"][key]) * (r["samples"] / total) for r in results)
            param.grad = param.detach() - mean
        self.server_opt.step()
        return sum(r["loss"] * r["samples"] for r in results) / total

    def run(self):
        self.start_clients()
        for number in range(1, self.args.rounds + 1):
            t0 = time.monotonic()
            task = {"name": "train", "round": number, "weights": self.weights()}
            for client in self.clients:
                client.conn.send(task)
            loss = self.aggregate(self.collect())
            log.info("round %d/%d loss %.4f (%.1fs)", number, self.args.rounds, loss,
                     time.monotonic() - t0)
        for client in self.clients:
            client.conn.send({"name": "end_run"})
        self.collect()
        for client in self.clients:
            client.process.join()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [server] %(name)s %(message)s")
    signal.alarm(args.walltime)
    torch.set_num_threads(1)
    SimulatorRunner(args).run()
    log.info("simulation finished")


if __name__ == "__main__":
    main()
