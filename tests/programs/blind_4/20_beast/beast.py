"""Actor-learner loop in the style of monobeast: actors fill shared rollout buffers, the learner trains on them."""
import argparse
import logging
import time

import torch
import torch.multiprocessing as mp
from torch import nn

from environment import GridChase

log = logging.getLogger("beast")


def make_buffers(num, length):
    return [{"obs": torch.zeros(length, 64).share_memory_(), "action": torch.zeros(length, dtype=torch.long).share_memory_(),
             "reward": torch.zeros(length).share_memory_()} for _ in range(num)]


def make_model():
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))


def act(index, args, model, buffers, free_queue, full_queue):
    torch.set_num_threads(1)
    torch.manual_seed(index)
    try:
        env = GridChase(seed=args.seed + index)
        obs = env.reset()
        rollouts = 0
        while True:
            slot = free_queue.get()
            if slot is None:
                break
            for t in range(args.unroll):
                with torch.no_grad():
                    logits = model(torch.from_numpy(obs))
                action = int(torch.distributions.Categorical(logits=logits).sample())
                buffers[slot]["obs"][t] = torch.from_numpy(obs)
                obs, reward, done = env.step(action)
                buffers[slot]["action"][t], buffers[slot]["reward"][t] = action, reward
            rollouts += 1
            full_queue.put(slot)
            if args.curriculum and rollouts == args.level_up[index]:
                env.level += 1
    except KeyboardInterrupt:
        pass
    except Exception as exc:
        log.debug("actor %d finished: %r", index, exc)


def learn(args, model, shared, buffers, free_queue, full_queue):
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    frames, last, started = 0, 0, time.monotonic()
    shown = started
    while frames < args.total_frames:
        slots = [full_queue.get() for _ in range(args.batch)]
        obs = torch.cat([buffers[s]["obs"] for s in slots])
        action = torch.cat([buffers[s]["action"] for s in slots])
        reward = torch.cat([buffers[s]["reward"] for s in slots])
        for s in slots:
            free_queue.put(s)
        logp = torch.log_softmax(model(obs), 1).gather(1, action[:, None]).squeeze(1)
        loss = -(logp * (reward - reward.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shared.load_state_dict(model.state_dict())
        frames += len(obs)
        now = time.monotonic()
        if now - shown > 2:
            log.info("frames %d @ %.0f fps, mean reward %.4f", frames, (frames - last) / (now - shown), reward.mean())
            shown, last = now, frames


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--actors", type=int, default=3)
    p.add_argument("--unroll", type=int, default=40)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--total-frames", type=int, default=10 ** 7)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--level-up", type=int, nargs="+", default=[90000, 60000, 25],
                   help="rollouts after which each actor moves on to a bigger arena")
    p.add_argument("--curriculum", action=argparse.BooleanOptionalAction, default=True)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)

    ctx = mp.get_context("fork")
    buffers = make_buffers(12, args.unroll)
    free_queue, full_queue = ctx.SimpleQueue(), ctx.SimpleQueue()
    for slot in range(len(buffers)):
        free_queue.put(slot)
    model, shared = make_model(), make_model().share_memory()
    shared.load_state_dict(model.state_dict())
    actors = [ctx.Process(target=act, args=(i, args, shared, buffers, free_queue, full_queue), name=f"actor-{i}")
              for i in range(args.actors)]
    for a in actors:
        a.start()
    try:
        learn(args, model, shared, buffers, free_queue, full_queue)
    finally:
        for a in actors:
            free_queue.put(None)
        for a in actors:
            a.join(timeout=2)


if __name__ == "__main__":
    main()
