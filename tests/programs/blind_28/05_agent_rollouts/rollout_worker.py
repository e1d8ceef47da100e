import asyncio
import json
import logging
import random

import torch
from torch import nn

log = logging.getLogger("rollout")
WORDS = "open read edit run test grep list diff stash commit apply revert".split()


class Writer(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.emb = nn.Embedding(256, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, len(WORDS))

    @torch.no_grad()
    def next_words(self, text, n=6):
        tail = torch.tensor([list(text.encode()[-256:])])
        out, state = self.rnn(self.emb(tail))
        picked = []
        for _ in range(n):
            index = int(torch.distributions.Categorical(logits=self.head(out[0, -1])).sample())
            picked.append(WORDS[index])
            out, state = self.rnn(self.emb(torch.tensor([[index]])), state)
        return " ".join(picked)


class Sandbox:
    """Answers an agent's command with what the tool would have printed."""

    def __init__(self, kind, seed):
        self.kind = kind
        self.rng = random.Random(seed)

    async def execute(self, command):
        await asyncio.sleep(0.25)
        lines = 4 if self.kind == "math" else 110
        return "\n".join(
            f"{self.rng.randrange(10**6):06d} {self.rng.choice(WORDS)}/{self.rng.randrange(10**8):08d}.txt ok"
            for _ in range(lines)
        )


class RolloutWorker:
    def __init__(self, name, kind, port):
        self.name, self.kind, self.port = name, kind, port
        self.writer = Writer()
        self.sandbox = Sandbox(kind, name)
        self.turns = 0

    async def turn(self, task):
        command = self.writer.next_words(task["messages"][-1]["content"])
        observation = await self.sandbox.execute(command)
        return {
            "task": task["task"],
            "command": command,
            "observation": observation,
            "reward": float("test" in command),
        }

    async def run(self):
        reader, stream = await asyncio.open_connection("127.0.0.1", self.port)
        stream.write(json.dumps({"hello": self.name, "kind": self.kind}).encode() + b"\n")
        await stream.drain()
        while True:
            line = await reader.readline()
            if not line:
                break
            reply = await self.turn(json.loads(line))
            stream.write(json.dumps(reply).encode() + b"\n")
            await stream.drain()
            self.turns += 1
            if self.turns % 20 == 0:
                log.info("%s: %d turns", self.name, self.turns)
        stream.close()


def rollout_main(name, kind, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    asyncio.run(RolloutWorker(name, kind, port).run())
