"""Installs the plugins of a blueprint into a fresh environment with a few agents."""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import threading
from collections import Counter

from archives import build_repository
from installer import InstallAgent

log = logging.getLogger("manager")


class DeploymentManager:
    def __init__(self, args, root):
        self.args = args
        self.repository = os.path.join(root, "repository")
        self.environment = os.path.join(root, "env")
        os.makedirs(self.repository)
        os.makedirs(self.environment)
        self.requests = mp.Queue()
        self.results = mp.Queue()
        self.slots = mp.BoundedSemaphore(args.slots)
        self.outcome = Counter()

    def start_agents(self):
        self.agents = [
            InstallAgent(i, self.requests, self.results, self.slots, self.repository, self.environment)
            for i in range(self.args.agents)
        ]
        for agent in self.agents:
            agent.start()

    def deploy(self, plugins):
        for plugin in plugins:
            self.requests.put(plugin)
        for _ in self.agents:
            self.requests.put(None)
        failed = []
        for done in range(1, len(plugins) + 1):
            plugin, state, detail = self.results.get()
            self.outcome[state] += 1
            if state == "failed":
                failed.append((plugin, detail))
            if done % 10 == 0:
                log.info("%d/%d plugins handled: %s", done, len(plugins), dict(self.outcome))
        for agent in self.agents:
            agent.join()
        return failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plugins", type=int, default=160)
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--deadline", type=float, default=130)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")

    with tempfile.TemporaryDirectory(prefix="deploy-") as root:
        manager = DeploymentManager(args, root)

        def give_up():
            log.error("deployment not complete after %.0f s, giving up", args.deadline)
            for agent in mp.active_children():
                agent.kill()
            os._exit(1)

        timer = threading.Timer(args.deadline, give_up)
        timer.daemon = True
        plugins = build_repository(manager.repository, args.plugins)
        log.info("repository with %d plugins ready", len(plugins))
        manager.start_agents()
        timer.start()
        failed = manager.deploy(plugins)
        log.info("deployment complete, %d failed", len(failed))
        for plugin, detail in failed:
            log.info("  %s: %s", plugin, detail)


if __name__ == "__main__":
    main()
