import logging
import time

import torch
from torch.nn import functional as F

from model import FedPerNet, from_vector, to_vector
from wire import connect, recv_vector, send_vector


class FedClient:
    def __init__(self, cid, args):
        self.cid = cid
        self.args = args
        self.log = logging.getLogger(f"client{cid}")
        self.model = FedPerNet()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.lr, momentum=0.9)
        gen = torch.Generator().manual_seed(40 + cid)
        self.x = torch.randn(1024, 32, generator=gen)
        teacher = torch.randn(32, 10, generator=torch.Generator().manual_seed(4))
        tilt = 0.5 * torch.randn(10, generator=gen)
        self.y = (self.x @ teacher + tilt).argmax(dim=1)

    def local_epochs(self):
        last = 0.0
        for _ in range(self.args.local_epochs):
            for start in range(0, len(self.x), 64):
                xb, yb = self.x[start:start + 64], self.y[start:start + 64]
                loss = F.cross_entropy(self.model(xb), yb)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                last = loss.item()
            time.sleep(0.1)
        return last

    def run(self, port):
        sock = connect(port)
        from_vector(self.model.shared_parameters(with_head=True), recv_vector(sock))
        for rnd in range(self.args.rounds):
            loss = self.local_epochs()
            shared = self.model.shared_parameters(with_head=rnd < self.args.warmup_rounds)
            send_vector(sock, to_vector(shared))
            from_vector(shared, recv_vector(sock))
            self.log.info("round %d local loss %.4f", rnd, loss)
        sock.close()


def participate(cid, port, args):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    FedClient(cid, args).run(port)
