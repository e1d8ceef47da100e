from contextlib import contextmanager

import torch.distributed as dist


class PartialState:
    def __init__(self, rank, world_size):
        dist.init_process_group("gloo", rank=rank, world_size=world_size)
        self.process_index = rank
        self.num_processes = world_size

    @property
    def is_main_process(self):
        return self.process_index == 0

    def wait_for_everyone(self):
        dist.barrier()

    def _goes_first(self, is_main):
        if not is_main:
            self.wait_for_everyone()
        yield
        if is_main:
            self.wait_for_everyone()

    @contextmanager
    def main_process_first(self):
        yield from self._goes_first(self.is_main_process)
