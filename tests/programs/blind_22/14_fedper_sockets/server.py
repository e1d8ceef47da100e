import logging
import socket
import time

import numpy as np
import torch

from model import FedPerNet, to_vector
from wire import recv_vector, send_vector

log = logging.getLogger("server")


class FedServer:
    def __init__(self, port, clients, rounds, warmup):
        self.rounds = rounds
        self.warmup = warmup
        self.listener = socket.create_server(("127.0.0.1", port), backlog=clients)
        self.clients = clients
        torch.manual_seed(0)
        self.model = FedPerNet()

    def accept_all(self):
        peers = []
        while len(peers) < self.clients:
            sock, addr = self.listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peers.append(sock)
            log.info("client %d connected from port %d", len(peers), addr[1])
        return peers

    def run(self):
        peers = self.accept_all()
        initial = to_vector(self.model.shared_parameters(with_head=True))
        for sock in peers:
            send_vector(sock, initial)
        for rnd in range(self.rounds):
            started = time.time()
            updates = [recv_vector(sock) for sock in peers]
            average = np.mean(updates, axis=0)
            for sock in peers:
                send_vector(sock, average)
            log.info("round %d: %d parameters from %d clients, %.2f s", rnd, average.size,
                     len(updates), time.time() - started)
        for sock in peers:
            sock.close()


def serve(port, args):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    FedServer(port, args.clients, args.rounds, args.warmup_rounds).run()
