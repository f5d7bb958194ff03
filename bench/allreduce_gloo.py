"""PyTorch's all_reduce over Gloo, measured as bench/allreduce.cpp measures Lockstep's. Run by bench/allreduce.sh: one
process per rank."""

import time
import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
for kib in 4, 16, 64, 256, 1024, 4096, 16384, 25 * 1024, 100 * 1024:
    data = torch.ones(kib * 1024 // 4)
    calls = min(max(64 * 1024 // kib, 2), 100)
    dist.all_reduce(data)
    assert data[-1].item() == size
    dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(data)
    slowest = torch.tensor([(time.perf_counter() - start) / calls], dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    if rank == 0:
        print("gloo", size, kib * 1024, f"{slowest.item():.9f}")
dist.destroy_process_group()
