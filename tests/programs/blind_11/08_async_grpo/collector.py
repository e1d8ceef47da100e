import logging
import multiprocessing as mp
import queue
import time

import numpy as np

from engine import GenerationEngine


class AsyncTrajectoryCollector(mp.Process):
    """Fills the replay buffer in the background with groups of rollouts."""

    def __init__(self, index, args, buffer_queue, weight_queue):
        super().__init__(name=f"collector-{index}", daemon=True)
        self.index = index
        self.args = args
        self.buffer_queue = buffer_queue
        self.weight_queue = weight_queue

    def _poll_weights(self, engine, log):
        try:
            while True:
                version, weights = self.weight_queue.get_nowait()
                engine.refit(weights, version)
                log.info("refit to weight version %d", version)
        except queue.Empty:
            pass

    def _prompt_length(self, version):
        return min(24 + 12 * version, 120)

    def _rollout_group(self, engine, rng):
        length = self._prompt_length(engine.version)
        prompt = rng.integers(0, self.args.vocab, size=length).tolist()
        group = [engine.generate(prompt, self.args.new_tokens) for _ in range(self.args.group_size)]
        rewards = [len(set(tokens)) / len(tokens) for tokens in group]
        return {"target_weight": engine.version, "collector": self.index, "tokens": group, "rewards": rewards}

    def run(self):
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s", force=True)
        log = logging.getLogger("collector")
        rng = np.random.default_rng(self.index)
        engine = GenerationEngine(self.args.vocab, self.args.hidden, self.args.max_model_len, self.index)
        while True:
            self._poll_weights(engine, log)
            for attempt in range(self.args.retries):
                try:
                    group = self._rollout_group(engine, rng)
                    break
                except IndexError as exc:
                    log.warning("generation failed for target weight %d (attempt %d): %s", engine.version, attempt + 1, exc)
                    time.sleep(0.1)
            else:
                raise RuntimeError(f"Rollout batch failed to buffer prompt group (target_weight={engine.version})")
            self.buffer_queue.put(group)
