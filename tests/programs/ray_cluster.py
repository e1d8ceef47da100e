"""A Ray cluster of several raylets on this machine; lines of its input add and end nodes.

`add` starts another raylet, `remove N` stops the N-th (from 0, the head), `kill N` kills its raylet
with SIGKILL. It prints `ready ADDRESS` and, for each line, `done NUMBER`.
"""

import os
import signal
import sys

from ray.cluster_utils import Cluster


def raylet_pid(node):
    return node.all_processes["raylet"][0].process.pid


def main():
    count = int(sys.argv[1])
    common = {"num_cpus": 2, "object_store_memory": 80 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={**common, "include_dashboard": False})
    nodes = [cluster.head_node]
    nodes += [cluster.add_node(**common) for _ in range(count - 1)]
    for node in nodes:
        print("raylet", raylet_pid(node), node.node_id, flush=True)
    print("ready", cluster.address, flush=True)
    for told, line in enumerate(sys.stdin, 1):
        command, _, number = line.strip().partition(" ")
        if command == "add":
            node = cluster.add_node(**common)
            nodes.append(node)
            print("raylet", raylet_pid(node), node.node_id, flush=True)
        elif command == "remove":
            cluster.remove_node(nodes[int(number)])
        elif command == "kill":
            os.kill(raylet_pid(nodes[int(number)]), signal.SIGKILL)
        print("done", told, command, flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
