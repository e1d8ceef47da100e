"""Model processes: take problem ids, produce a response with its reasoning steps."""
import os
import random
import threading
import time


class Responder:
    def __init__(self, seed, latency):
        self.rng = random.Random(seed)
        self.latency = latency

    def respond(self, problem):
        time.sleep(self.latency * self.rng.uniform(0.7, 1.3))
        numbers = problem["numbers"]
        steps = []
        for position, value in enumerate(numbers):
            steps.append({"step": position, "text": f"bar {position} reads {value}",
                          "logprobs": [round(-self.rng.expovariate(2.0), 4) for _ in range(12)]})
        answer = str(max(numbers) - min(numbers))
        return {**problem, "steps": steps, "response": f"The largest minus the smallest is {answer}.",
                "extraction": answer if answer in problem["choices"] else problem["choices"][0]}


def serve(number, problems, inbox, outbox, latency, lifetime):
    timer = threading.Timer(lifetime, os._exit, args=(0,))
    timer.daemon = True
    timer.start()
    responder = Responder(number, latency)
    while True:
        pid = inbox.get()
        if pid is None:
            return
        outbox.put(responder.respond(problems.problem(pid)))
