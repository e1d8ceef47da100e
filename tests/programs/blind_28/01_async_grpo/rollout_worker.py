import logging
import time

import torch

from messages import RolloutResult
from policy import TinyPolicy

log = logging.getLogger("rollout")


def exact_match(prompt, completion):
    target = sum(prompt) % 31 + 1
    return 1.0 if target in completion else 0.0


class RolloutWorker:
    def __init__(self, replica, requests, results, max_new_tokens, engine_latency):
        self.replica = replica
        self.requests = requests
        self.results = results
        self.max_new_tokens = max_new_tokens
        self.engine_latency = engine_latency
        self.policy = TinyPolicy()

    def is_complete(self, completion):
        return completion[-1] == 0

    def run(self):
        torch.set_num_threads(1)
        torch.manual_seed(hash(self.replica) % 9973)
        while True:
            request = self.requests.get()
            if request is None:
                return
            result = RolloutResult(replica=self.replica)
            discarded = 0
            for payload in request.payloads:
                completion = self.policy.sample(torch.tensor(payload.prompt), self.max_new_tokens)
                time.sleep(self.engine_latency)
                if not self.is_complete(completion):
                    discarded += 1
                    continue
                result.payloads.append(payload)
                result.completions.append(completion)
                result.rewards.append(exact_match(payload.prompt, completion))
            if discarded:
                log.debug("%s: %d overlong completions", self.replica, discarded)
            if result.payloads:
                result.metrics["overlong"] = discarded
                self.results.put(result)


def rollout_main(replica, requests, results, max_new_tokens, engine_latency):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    RolloutWorker(replica, requests, results, max_new_tokens, engine_latency).run()
