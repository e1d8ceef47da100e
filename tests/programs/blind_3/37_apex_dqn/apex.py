import argparse, logging, time
import numpy as np
import torch
import torch.multiprocessing as mp
from buffer import SharedReplay

def explorer(rank, replay, lock, count):
    rng = np.random.default_rng(rank)
    local = []
    while True:
        local.append(rng.standard_normal(32).astype("float32"))
        if len(local) == 64:
            with lock:
                replay.add(local)
            local = []
            with count.get_lock():
                count.value += 64

def learner(replay, lock, steps):
    torch.set_num_threads(1)
    net = torch.nn.Sequential(torch.nn.Linear(32, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    while True:
        if replay.size.value < 512:
            time.sleep(0.05)
            continue
        with lock:
            for _ in range(200):
                idx, batch = replay.sample(1024)
                td = net(batch).squeeze(1) - batch.sum(1)
                opt.zero_grad(); td.pow(2).mean().backward(); opt.step()
                replay.update_priorities(idx, td.detach().abs())
        steps.value += 200

def main():
    p = argparse.ArgumentParser(); p.add_argument("--explorers", type=int, default=3)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    ctx = mp.get_context("fork")
    replay, lock = SharedReplay(ctx, 50000, 32), ctx.Lock()
    count, steps = ctx.Value("l", 0), ctx.Value("l", 0)
    procs = [ctx.Process(target=explorer, args=(i, replay, lock, count), daemon=True) for i in range(a.explorers)]
    procs.append(ctx.Process(target=learner, args=(replay, lock, steps), daemon=True))
    for q in procs: q.start()
    for _ in range(60):
        time.sleep(2)
        logging.info("transitions %d, learner steps %d", count.value, steps.value)

if __name__ == "__main__":
    main()
