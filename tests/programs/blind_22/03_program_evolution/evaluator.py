"""Evaluates candidate programs against a small benchmark with a time budget."""
import asyncio
import logging
import random

log = logging.getLogger("evaluator")


class Evaluator:
    def __init__(self, timeout, cases=60, seed=5):
        self.timeout = timeout
        rng = random.Random(seed)
        self.cases = []
        for _ in range(cases):
            data = sorted(rng.sample(range(10_000), rng.randint(50, 400)))
            self.cases.append((data, rng.choice(data)))

    def _load(self, source, name):
        scope = {}
        exec(compile(source, f"<{name}>", "exec"), scope)
        return scope["search"]

    def _stage1(self, source, name):
        search = self._load(source, name)
        data, wanted = self.cases[0]
        return 1.0 if search(data, wanted) == data.index(wanted) else 0.0

    def _stage2(self, source, name):
        search = self._load(source, name)
        good = 0
        for data, wanted in self.cases:
            for _ in range(200):
                found = search(data, wanted)
            good += found == data.index(wanted)
        return good / len(self.cases)

    async def _run_stage(self, stage, source, name):
        loop = asyncio.get_running_loop()
        return await asyncio.wait_for(loop.run_in_executor(None, stage, source, name), self.timeout)

    async def evaluate(self, name, source):
        metrics = {"name": name, "stage1": 0.0, "stage2": 0.0, "error": None}
        try:
            metrics["stage1"] = await self._run_stage(self._stage1, source, name)
            if metrics["stage1"] > 0.5:
                metrics["stage2"] = await self._run_stage(self._stage2, source, name)
        except asyncio.TimeoutError:
            log.warning("%s timed out after %.1f s", name, self.timeout)
            metrics["error"] = "timeout"
        except Exception as err:
            metrics["error"] = repr(err)
        return metrics
