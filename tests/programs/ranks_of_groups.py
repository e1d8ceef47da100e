"""One of four gloo ranks with process groups of pairs and a hook; WAY says how they stand still.

Pairs are 0-1 and 2-3 (of a row), and 0-2 and 1-3 (of a column), as in a mesh of two by two.

`order`: odd and even ranks use their two groups in a different order. `count`: rank 3 leaves out a
call in its column. `operation`: rank 2 calls another operation in its column than rank 0.
`late`: rank 3 sleeps in place of a call in its row, and ranks 0 and 1 wait for nothing but that.
"""

import os
import time

import torch
import torch.distributed as dist

import mpwatch


def main() -> None:
    way = os.environ["WAY"]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    groups = {pair: dist.new_group(list(pair)) for pair in ((0, 1), (2, 3), (0, 2), (1, 3))}
    row = groups[(0, 1) if rank < 2 else (2, 3)]
    column = groups[(0, 2) if rank % 2 == 0 else (1, 3)]
    for _ in range(3):
        dist.all_reduce(torch.ones(3), group=row)
        dist.all_reduce(torch.ones(3), group=column)
    print("ready", flush=True)
    if way == "order":
        # 0 waits for 1 in the row, 1 for 3 in the column, 3 for 2 in the row, 2 for 0.
        dist.all_reduce(torch.ones(3), group=row if rank in (0, 3) else column)
    if way == "count" and rank != 3:
        dist.all_reduce(torch.ones(3), group=column)
    if way == "operation" and rank == 2:
        dist.broadcast(torch.ones(3), src=2, group=column)
        dist.broadcast(torch.ones(3), src=0, group=column)
    elif way == "operation":
        dist.all_reduce(torch.ones(3), group=column)
    if way == "late" and rank == 3:
        time.sleep(600)
    if way == "late":
        dist.all_reduce(torch.ones(3), group=row)
    dist.barrier()


if __name__ == "__main__":
    mpwatch.instrument()
    main()
