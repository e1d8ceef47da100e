"""Messages between the environment processes and the policy server."""
from dataclasses import dataclass

import numpy as np


@dataclass
class Initialize:
    client: int
    session: str


@dataclass
class Act:
    client: int
    session: str
    observation: np.ndarray


@dataclass
class Delete:
    client: int
    session: str


class PolicyClient:
    def __init__(self, client, requests, replies):
        self.client, self.requests, self.replies = client, requests, replies
        self.counter = 0
        self.session = None

    def initialize(self):
        self.counter += 1
        self.session = "%d-%06d" % (self.client, self.counter)
        self.requests.put(Initialize(self.client, self.session))

    def act(self, observation):
        self.requests.put(Act(self.client, self.session, observation))
        return self.replies.get()

    def delete(self):
        self.requests.put(Delete(self.client, self.session))
        self.session = None
