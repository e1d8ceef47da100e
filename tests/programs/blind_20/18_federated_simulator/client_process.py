"""A simulated client: trains the global model on its own site."""
import logging
import signal
import time

import torch
import torch.nn.functional as F
from torch import nn

from site_data import SiteDataset

log = logging.getLogger("client")


def build_net():
    return nn.Sequential(nn.Conv3d(1, 8, 3, padding=1), nn.ReLU(),
                         nn.Conv3d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv3d(8, 1, 1))


class ClientRunner:
    def __init__(self, site, conn, args):
        self.site = site
        self.conn = conn
        self.args = args
        self.data = SiteDataset(site["name"], site["cases"], site["spacing"],
                                args.cache_mb, site["seed"])
        self.net = build_net()

    def train_round(self, round_number, weights):
        self.net.load_state_dict({k: torch.tensor(v) for k, v in weights.items()})
        opt = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)
        total, count, t0 = 0.0, 0, time.monotonic()
        for image, mask in self.data.patches(round_number, self.args.cases_per_round):
            loss = F.binary_cross_entropy_with_logits(self.net(image), mask)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            count += 1
        time.sleep(max(0.0, self.args.min_round_time - (time.monotonic() - t0)))
        return {"weights": {k: v.tolist() for k, v in self.net.state_dict().items()},
                "loss": total / count, "samples": count}

    def loop(self):
        while True:
            task = self.conn.recv()
            if task["name"] == "end_run":
                self.conn.send({"stop": True})
                return
            self.conn.send(self.train_round(task["round"], task["weights"]))


def run_client(site, conn, args):
    logging.basicConfig(level=logging.INFO,
                        format=f"%(asctime)s [{site['name']}] %(name)s %(message)s", force=True)
    signal.alarm(args.walltime)
    torch.set_num_threads(1)
    torch.manual_seed(site["seed"])
    log.info("client process started, %d cases at %.1f mm", site["cases"], site["spacing"])
    ClientRunner(site, conn, args).loop()
