import logging
import socket

import numpy as np

from wire import recv_message, send_message

log = logging.getLogger("learner")


class Learner:
    def __init__(self, dim=32, lr=0.05):
        self.w = np.zeros((dim, 4), np.float32)
        self.lr = lr
        self.version = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def update(self, batch):
        adv = batch["reward"] - batch["reward"].mean()
        onehot = np.eye(4, dtype=np.float32)[batch["action"]]
        self.w += self.lr * batch["obs"].T @ (onehot * adv[:, None]) / len(adv)
        self.version += 1

    def serve(self, rounds):
        for _ in range(rounds):
            conn, addr = self.listener.accept()
            with conn:
                batch = recv_message(conn)
                self.update(batch)
                send_message(conn, {"w": self.w, "version": np.array(self.version)})
            log.info("update %d from %s, mean reward %.3f", self.version, addr[1], batch["reward"].mean())
