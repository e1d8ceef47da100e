import itertools
import logging
import time

log = logging.getLogger("client")


def embed_client(requests, replies, args):
    text = [3, 17, 101, 9, 250, 31, 77, 12]
    period = 1.0 / args.embed_rate
    window, lat = time.time(), []
    for i in itertools.count():
        t = time.time()
        requests.put({"kind": "embed", "id": i, "tokens": text})
        replies.get()
        lat.append(time.time() - t)
        time.sleep(max(0.0, period - lat[-1]))
        if time.time() - window >= 2:
            log.info("%.0f embeddings/s, mean latency %.1f ms", len(lat) / (time.time() - window),
                     1000 * sum(lat) / len(lat))
            window, lat = time.time(), []


def chat_client(requests, replies, args):
    time.sleep(args.first_chat)
    for i in itertools.count():
        t = time.time()
        requests.put({"kind": "chat", "id": i, "tokens": [1, 2, 3, i % 50]})
        reply = replies.get()
        log.info("reply %d: %d tokens in %.2f s", i, len(reply["tokens"]), time.time() - t)
        time.sleep(args.chat_every)
