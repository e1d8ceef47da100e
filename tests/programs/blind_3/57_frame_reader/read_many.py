import argparse, logging, multiprocessing as mp, time

def reader(q_in, q_out):
    while True:
        idx, path = q_in.get()
        if idx is None: break
        time.sleep(0.15)
        q_out.put((idx, len(path)))

def multiprocess_with_queues(nproc, func_input):
    q_in, q_out = mp.Queue(), mp.Queue()
    procs = [mp.Process(target=reader, args=(q_in, q_out), daemon=True) for _ in range(nproc)]
    for p in procs: p.start()
    n = len([q_in.put(x, block=False) for x in enumerate(func_input)])
    for _ in procs: q_in.put((None, None), block=False)
    for k in range(n):
        yield q_out.get()
        if k % 20 == 0: logging.info("%d of %d frames", k, n)
    for p in procs: p.join()

def main():
    p = argparse.ArgumentParser()
    p.add_argument("--nproc", type=int, default=3)
    p.add_argument("--frames", type=int, default=2000)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    paths = [f"/data/H1/H-H1_R-{1e9 + 64 * i:.0f}-64.gwf" for i in range(a.frames)]
    out = dict(multiprocess_with_queues(a.nproc, paths))
    logging.info("read %d", len(out))

if __name__ == "__main__":
    main()
