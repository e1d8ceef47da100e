import argparse, logging, multiprocessing as mp, random, time

def annotate(tasks, results):
    while (batch := tasks.get()) is not None:
        time.sleep(0.4)
        results.put([(c, p, random.random()) for c, p in batch])
    results.put(None)

def read_vcf(tasks, n, workers, size):
    for k in range(n):
        tasks.put([(f"chr{k % 22 + 1}", k * size + i) for i in range(size)])
    for _ in range(workers): tasks.put(None)

def main():
    p = argparse.ArgumentParser()
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--batches", type=int, default=500)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    tasks, results = mp.Queue(maxsize=a.processes * 2), mp.Queue()
    ps = [mp.Process(target=annotate, args=(tasks, results), name=f"annotator-{i}") for i in range(a.processes)]
    ps.append(mp.Process(target=read_vcf, args=(tasks, a.batches, a.processes, 200), name="reader"))
    for q in ps: q.start()
    alive, n = a.processes, 0
    while alive:
        r = results.get()
        if r is None: alive -= 1; continue
        n += len(r)
        logging.info("%d variants annotated", n)
    for q in ps: q.join()

if __name__ == "__main__":
    main()
