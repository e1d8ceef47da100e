import argparse, logging, random, time
import torch
import torch.multiprocessing as mp

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.pi = torch.nn.Linear(4, 2)

def play(rank, gnet, lock, results, episodes):
    torch.set_num_threads(1)
    random.seed(rank)
    local, opt = Net(), torch.optim.SGD(gnet.parameters(), 1e-3)
    for ep in range(episodes[rank]):
        length = random.choice([20, 40, 400])
        loss = 0.0
        for _ in range(length):
            loss = loss - torch.log_softmax(local.pi(torch.randn(4)), -1)[0] / length
            time.sleep(0.004)
        local.zero_grad(); loss.backward()
        with lock:
            for lp, gp in zip(local.parameters(), gnet.parameters()): gp._grad = lp.grad
            opt.step()
        local.load_state_dict(gnet.state_dict())
        results.put((rank, ep, length))
    results.put(None)

def main():
    p = argparse.ArgumentParser(); p.add_argument("--episodes", type=int, nargs="*", default=[12, 25, 110, 120])
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    gnet = Net(); gnet.share_memory()
    lock, results = mp.Lock(), mp.Queue()
    ps = [mp.Process(target=play, args=(r, gnet, lock, results, a.episodes)) for r in range(len(a.episodes))]
    for q in ps: q.start()
    running = len(ps)
    while running:
        r = results.get()
        if r is None: running -= 1
        else: logging.info("w%d ep %d length %d", *r)
    for q in ps: q.join()

if __name__ == "__main__":
    main()
