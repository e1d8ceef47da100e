"""The nodes of the cell: grasp planning service and the perception node that uses it."""
import collections
import logging
import os
import threading
import time

import torch

from client import ServiceClient
from transport import Node

log = logging.getLogger("cell")


def limit_runtime(seconds):
    timer = threading.Timer(seconds, os._exit, args=(0,))
    timer.daemon = True
    timer.start()


def grasp_service(port_pipe, args):
    limit_runtime(args.seconds + 10)
    node = Node("grasp_planner")
    port_pipe.send(node.address)
    began = time.monotonic()
    served = 0
    while time.monotonic() - began < args.service_seconds:
        for sender, (kind, header, blob) in node.poll():
            points = torch.frombuffer(bytearray(blob), dtype=torch.float16).view(-1, 3).float()
            centre = points.mean(0)
            node.send(sender, "response", {"sequence": header["sequence"], "grasp": centre.tolist()})
            served += 1
        time.sleep(0.01)
    log.info("grasp planner: estop pressed, shutting down after %d requests", served)


class Perception:
    def __init__(self, service_address, args):
        torch.manual_seed(11)
        self.args = args
        self.node = Node("perception")
        self.client = ServiceClient(self.node, "plan_grasp", service_address)
        self.waiting = collections.deque(maxlen=30)
        self.grasps = collections.deque(maxlen=100)
        self.base = torch.rand(args.points, 3)

    def capture(self):
        return self.base + 0.01 * torch.randn_like(self.base)

    def on_grasp(self, request, header):
        self.grasps.append((request.sequence, header["grasp"]))

    def drop_late(self):
        while self.waiting and self.client.is_late(self.waiting[0], self.args.timeout):
            request = self.waiting.popleft()
            self.client.late += 1
            if self.client.late % 50 == 1:
                log.warning("perception: no grasp for cloud %d within %.1fs, using the last one (%d late)",
                            request.sequence, self.args.timeout, self.client.late)

    def run(self):
        step = 1.0 / self.args.rate
        end = time.monotonic() + self.args.seconds
        due = time.monotonic()
        while time.monotonic() < end:
            self.waiting.append(self.client.call_async(self.capture(), self.on_grasp))
            self.client.spin()
            self.waiting = collections.deque(
                (r for r in self.waiting if r.sequence in self.client._pending), maxlen=30)
            self.drop_late()
            due += step
            time.sleep(max(0.0, due - time.monotonic()))


def perception_node(service_address, args):
    limit_runtime(args.seconds + 10)
    torch.set_num_threads(1)
    Perception(service_address, args).run()
