"""Multi-turn chat agents: each turn sends the whole conversation again."""
import logging
import queue
import random
import time

from engine import Request


class ChatAgent:
    def __init__(self, index, args, inbox, outbox):
        self.index, self.args = index, args
        self.inbox, self.outbox = inbox, outbox
        self.rng = random.Random(args.seed * 100 + index)
        self.log = logging.getLogger(f"agent{index}")
        self.conversation = 0

    def complete(self, name, prompt):
        self.inbox.put(Request(name, self.index, prompt, self.args.max_tokens))
        asked = time.monotonic()
        while True:
            try:
                request_id, output, reason = self.outbox.get(timeout=15)
            except queue.Empty:
                self.log.warning("%s (%d prompt tokens): no answer after %.0f s", name, len(prompt), time.monotonic() - asked)
                continue
            if request_id == name:
                return output, reason

    def run(self):
        while True:
            self.conversation += 1
            history = [self.rng.randrange(1, 512) for _ in range(self.args.system_tokens)]
            for turn in range(self.rng.randint(*self.args.turns)):
                name = f"a{self.index}-c{self.conversation}-t{turn}"
                output, reason = self.complete(name, list(history))
                if output is None:
                    self.log.info("%s refused: %s", name, reason)
                    break
                history += output
                history += [self.rng.randrange(1, 512) for _ in range(self.rng.randint(*self.args.user_tokens))]
                time.sleep(self.args.think)
            self.log.info("conversation %d over: %d tokens", self.conversation, len(history))


def run_agent(index, args, inbox, outbox):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(name)s: %(message)s")
    ChatAgent(index, args, inbox, outbox).run()
