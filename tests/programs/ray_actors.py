"""A Ray driver with one actor on each node of a cluster; one that is not on the head hangs."""

import os
import sys
import time

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


class Trainer:
    def pid(self):
        return os.getpid()

    def step(self, number, is_last):
        if is_last:
            self.wait_for_the_simulator()
        return number

    def wait_for_the_simulator(self):
        time.sleep(600)


def main():
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
    alive = [node for node in ray.nodes() if node["Alive"]]  # in no order
    alive.sort(key=lambda node: "node:__internal_head__" not in node["Resources"])
    nodes = [node["NodeID"] for node in alive]
    kind = ray.remote(Trainer)
    actors = [
        kind.options(
            num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(each, soft=False)
        ).remote()
        for each in nodes
    ]
    for node, actor in zip(nodes, actors, strict=True):
        print("actor", node, ray.get(actor.pid.remote()), flush=True)
    print("ready", os.getpid(), flush=True)
    last = len(actors) - 1
    results = [actor.step.remote(n, n == last) for n, actor in enumerate(actors)]
    ray.get(results)


if __name__ == "__main__":
    main()
