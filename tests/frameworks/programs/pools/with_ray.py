"""Two actors of Ray; `failing`: each waits for an answer of the other."""

import sys
import tempfile
import time

import ray


@ray.remote
class Trainer:
    def connect(self, other):
        self.other = other

    def step(self, number):
        time.sleep(0.1)
        return number * 2

    def evaluate(self):
        time.sleep(1)
        return ray.get(self.other.step.remote(1))


if __name__ == "__main__":
    ray.init(
        "local",  # also where a cluster runs
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=f"{tempfile.gettempdir()}/ray",
    )
    trainers = [Trainer.remote() for _ in range(2)]
    ray.get(
        [trainer.connect.remote(trainers[1 - number]) for number, trainer in enumerate(trainers)]
    )
    if "failing" in sys.argv:
        print("fault", flush=True)
        ray.get([trainer.evaluate.remote() for trainer in trainers])
    total = 0
    for number in range(80):
        total += sum(ray.get([trainer.step.remote(number) for trainer in trainers]))
    print("result", total, flush=True)
    ray.shutdown()
