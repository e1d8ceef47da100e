import logging
import os

import torch
import torch.distributed as dist

from pipeline import FrameParallelPipeline


class DistributedInferenceWorker:
    def __init__(self, rank, world_size, task_queue, result_queue):
        self.rank, self.world_size = rank, world_size
        self.task_queue, self.result_queue = task_queue, result_queue
        self.log = logging.getLogger(f"rank{rank}")
        self.task_group = None
        self.pipeline = None

    def init(self, port):
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ["MASTER_PORT"] = str(port)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo", rank=self.rank, world_size=self.world_size)
        self.task_group = dist.new_group(list(range(self.world_size)))
        self.pipeline = FrameParallelPipeline(self.rank, self.world_size, dist.group.WORLD)
        self.log.info("inference service initialised, world size %d", self.world_size)

    def next_task(self):
        box = [self.task_queue.get() if self.rank == 0 else None]
        dist.broadcast_object_list(box, src=0, group=self.task_group)
        return box[0]

    def serve(self):
        while True:
            task = self.next_task()
            if task is None:
                break
            try:
                video = self.pipeline.run(task)
                status, message = "success", f"{tuple(video.shape)} mean={video.mean():.4f}"
            except Exception as exc:
                self.log.exception("inference of task %s failed: %s", task["task_id"], exc)
                status, message = "failed", str(exc)
            if self.rank == 0:
                self.result_queue.put({"task_id": task["task_id"], "status": status, "message": message})
        dist.destroy_process_group()


def run_rank(rank, world_size, port, task_queue, result_queue):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    torch.set_num_threads(1)
    worker = DistributedInferenceWorker(rank, world_size, task_queue, result_queue)
    worker.init(port)
    worker.serve()
