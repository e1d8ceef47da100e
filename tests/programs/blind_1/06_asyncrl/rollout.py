import dataclasses
import random
import time


@dataclasses.dataclass
class TrajectoryGroup:
    prompt_id: int
    policy_version: int
    rewards: list
    tokens: list
    refreshed: int = 0


def rollout_worker(wid, prompt_q, traj_q, version, stop):
    rng = random.Random(wid)
    while not stop.is_set():
        prompt_id, group_size = prompt_q.get()
        started_with = version.value
        time.sleep(0.12 * group_size + rng.random() * 0.1)
        tokens = [[rng.randrange(1000) for _ in range(64)] for _ in range(group_size)]
        traj_q.put(TrajectoryGroup(prompt_id, started_with, [rng.random() for _ in range(group_size)], tokens))


def prompt_feeder(prompt_q, n_prompts, warm_prompts):
    for i in range(n_prompts):
        prompt_q.put((i, 6 if i < warm_prompts else 2))
