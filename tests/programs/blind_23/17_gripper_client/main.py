"""Brings up the nodes of the picking cell on one machine."""
import argparse
import logging
import multiprocessing as mp
import time

import nodes

log = logging.getLogger("launch")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--rate", type=float, default=15.0, help="point clouds per second")
    p.add_argument("--points", type=int, default=40_000)
    p.add_argument("--timeout", type=float, default=1.0)
    p.add_argument("--seconds", type=float, default=115.0)
    p.add_argument("--service-seconds", type=float, default=4.0, help="stop the planner as the safety test does")
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    nodes.limit_runtime(args.seconds + 15)
    here, there = mp.Pipe()
    planner = mp.Process(target=nodes.grasp_service, args=(there, args), name="grasp_planner", daemon=True)
    planner.start()
    address = here.recv()
    perception = mp.Process(target=nodes.perception_node, args=(address, args), name="perception", daemon=True)
    perception.start()
    log.info("planner pid %d at port %d, perception pid %d", planner.pid, address[1], perception.pid)
    while perception.is_alive():
        time.sleep(10)
        log.info("planner %s, perception running", "running" if planner.is_alive() else f"stopped ({planner.exitcode})")
    planner.join(1)


if __name__ == "__main__":
    main()
