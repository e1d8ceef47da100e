"""Policy server living in its own process: batched inference plus a control plane."""
import logging
import multiprocessing as mp
import time
from multiprocessing.connection import wait

import torch
from torch import nn

log = logging.getLogger("server")


class Policy(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, act_dim))

    def forward(self, obs):
        return self.net(obs)


class ServerLoop:
    def __init__(self, obs_dim, act_dim, clients, requests, responses):
        self.policy = Policy(obs_dim, act_dim)
        self.clients = clients
        self.requests = requests
        self.responses = responses
        self.served = 0
        self.version = 0

    def handle(self, command, kwargs):
        if command == "stats":
            return {"served": self.served, "version": self.version}
        if command == "update_weights":
            self.policy.load_state_dict({k: torch.tensor(v) for k, v in kwargs["weights"].items()})
            self.version += 1
            return self.version
        raise ValueError(f"unknown command {command!r}")

    def serve_batch(self, ready):
        obs = torch.stack([torch.tensor(c.recv()) for c in ready])
        with torch.no_grad():
            actions = self.policy(obs).argmax(-1).tolist()
        for client, action in zip(ready, actions):
            client.send(action)
        self.served += len(ready)

    def run(self):
        control = self.requests._reader
        while True:
            ready = wait([control, *self.clients])
            if control in ready:
                request_id, command, kwargs = self.requests.get()
                if command == "shutdown":
                    return
                self.responses.put((request_id, self.handle(command, kwargs)))
            ready = [c for c in ready if c is not control]
            if ready:
                self.serve_batch(ready)


def _server_main(*args):
    torch.set_num_threads(1)
    ServerLoop(*args).run()


class ProcessInferenceServer:
    def __init__(self, obs_dim, act_dim, num_clients):
        ctx = mp.get_context("fork")
        self._requests, self._responses = ctx.Queue(), ctx.Queue()
        pairs = [ctx.Pipe() for _ in range(num_clients)]
        self.clients = [a for a, _ in pairs]
        self._process = ctx.Process(target=_server_main, name="policy-server", daemon=True,
                                    args=(obs_dim, act_dim, [b for _, b in pairs],
                                          self._requests, self._responses))
        self._next_control_request_id = 0

    def start(self):
        self._process.start()

    def _request_control(self, command, kwargs=None):
        if not self._process.is_alive():
            raise RuntimeError(f"server is not alive (exitcode={self._process.exitcode})")
        request_id = self._next_control_request_id
        self._next_control_request_id += 1
        self._requests.put((request_id, command, kwargs or {}))
        while True:
            response_id, payload = self._responses.get()
            if response_id == request_id:
                return payload
            log.debug("dropping stale response %d", response_id)

    def stats(self):
        return self._request_control("stats")

    def update_weights(self, weights):
        return self._request_control("update_weights", {"weights": weights})

    def shutdown(self):
        self._requests.put((-1, "shutdown", {}))
        self._process.join(timeout=5)
