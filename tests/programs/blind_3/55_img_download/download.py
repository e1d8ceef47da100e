import argparse, logging, random, time

class Server:
    def __init__(self): self.t0 = time.time()
    def get(self, key):
        time.sleep(0.02)
        if int(time.time() - self.t0) % 15 >= 9: raise ConnectionError("refused")
        return b"x" * 20000

def with_retry(fn, key, retries):
    for k in range(retries):
        try: return fn(key)
        except ConnectionError as e:
            wait = min(4, 0.5 * 2 ** k)
            logging.warning("%s: %s, retry in %.1f s", key, e, wait)
            time.sleep(wait)
    return None

def main():
    p = argparse.ArgumentParser(); p.add_argument("--retries", type=int, default=8)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    s, end, n = Server(), time.time() + 110, 0
    while time.time() < end:
        if with_retry(s.get, f"img{n:05d}", a.retries): n += 1
        if n % 100 == 0: logging.info("%d images", n)

if __name__ == "__main__":
    main()
