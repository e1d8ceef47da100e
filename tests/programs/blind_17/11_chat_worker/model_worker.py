"""Model worker: accepts newline separated JSON requests and runs the model for them."""
import asyncio
import json
import logging
import uuid
from concurrent.futures import ThreadPoolExecutor

import torch

from model import CharTokenizer, TinyLM

logger = logging.getLogger("model_worker")


class ModelWorker:
    def __init__(self, model_name, limit_worker_concurrency, context_len):
        self.model_name = model_name
        self.worker_id = uuid.uuid4().hex[:8]
        self.limit_worker_concurrency = limit_worker_concurrency
        self.call_ct = 0
        self.semaphore = None
        self.tokenizer = CharTokenizer()
        torch.manual_seed(0)
        self.model = TinyLM(context_len=context_len).eval()

    def get_queue_length(self):
        if self.semaphore is None:
            return 0
        waiting = len(self.semaphore._waiters) if self.semaphore._waiters else 0
        return self.limit_worker_concurrency - self.semaphore._value + waiting

    @torch.inference_mode()
    def generate(self, params):
        ids = self.tokenizer.encode(params["prompt"])
        max_new = int(params.get("max_new_tokens", 16))
        out = []
        for _ in range(max_new):
            logits = self.model(torch.tensor([ids + out]))[0, -1]
            nxt = int(logits.argmax())
            if nxt == self.tokenizer.eos_id:
                break
            out.append(nxt)
        return {"text": self.tokenizer.decode(out), "usage": {"prompt": len(ids), "completion": len(out)},
                "error_code": 0}


class WorkerServer:
    def __init__(self, worker):
        self.worker = worker
        self.pool = ThreadPoolExecutor(worker.limit_worker_concurrency)

    async def acquire_worker_semaphore(self):
        if self.worker.semaphore is None:
            self.worker.semaphore = asyncio.Semaphore(self.worker.limit_worker_concurrency)
        await self.worker.semaphore.acquire()

    def release_worker_semaphore(self):
        self.worker.semaphore.release()

    async def api_generate(self, params):
        self.worker.call_ct += 1
        await self.acquire_worker_semaphore()
        loop = asyncio.get_running_loop()
        output = await loop.run_in_executor(self.pool, self.worker.generate, params)
        self.release_worker_semaphore()
        return output

    async def handle(self, reader, writer):
        peer = writer.get_extra_info("peername")
        while True:
            line = await reader.readline()
            if not line:
                break
            request = json.loads(line)
            try:
                reply = await self.api_generate(request)
            except Exception as exc:
                logger.error("request %s from %s failed: %s: %s", request["id"], peer, type(exc).__name__, exc)
                reply = {"text": "**NETWORK ERROR DUE TO HIGH TRAFFIC**", "error_code": 50001}
            reply["id"] = request["id"]
            writer.write(json.dumps(reply).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def heart_beat(self, interval):
        while True:
            await asyncio.sleep(interval)
            logger.info("Send heart beat. Models: [%s]. Semaphore: %s. call_ct: %d. worker_id: %s. queue: %d",
                        self.worker.model_name, self.worker.semaphore, self.worker.call_ct,
                        self.worker.worker_id, self.worker.get_queue_length())

    async def serve(self, host, port_pipe):
        server = await asyncio.start_server(self.handle, host, 0)
        port_pipe.send(server.sockets[0].getsockname()[1])
        asyncio.create_task(self.heart_beat(10.0))
        async with server:
            await server.serve_forever()


def run_worker(args, port_pipe):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s | %(levelname)s | %(name)s | %(message)s")
    torch.set_num_threads(1)
    worker = ModelWorker(args.model_name, args.limit_worker_concurrency, args.context_len)
    logger.info("Loading the model %s on worker %s ...", args.model_name, worker.worker_id)
    asyncio.run(WorkerServer(worker).serve(args.host, port_pipe))
