"""Prefix cache of one tensor-parallel rank: device pages, host pages, storage."""
import collections
import logging

import torch
import torch.distributed as dist

from storage import PrefetchOperation

log = logging.getLogger("cache")


class HierarchicalCache:
    def __init__(self, store, prefetcher, tp_group, host_pages, prefetch_budget_s):
        self.store = store
        self.prefetcher = prefetcher
        self.tp_group = tp_group
        self.host_pages = host_pages
        self.prefetch_budget_s = prefetch_budget_s
        self.host = collections.OrderedDict()
        self.host_used = 0
        self.ongoing_prefetch = {}

    def match(self, prefix):
        if prefix in self.host:
            self.host.move_to_end(prefix)
            return self.host[prefix]
        return None

    def insert(self, prefix, pages):
        if prefix in self.host:
            return
        while self.host and self.host_used + len(pages) > self.host_pages:
            _, old = self.host.popitem(last=False)
            self.host_used -= len(old)
        self.host[prefix] = pages
        self.host_used += len(pages)

    def prefetch_from_storage(self, request):
        """Start reading the pages of this prompt unless this rank has them or has no room."""
        if self.match(request.prefix) is not None:
            return
        if self.host_used + request.num_pages > self.host_pages and not self._evict_for(request.num_pages):
            return
        operation = PrefetchOperation(request.request_id, request.prefix, self.prefetch_budget_s)
        self.ongoing_prefetch[request.request_id] = operation
        self.prefetcher.submit(operation)

    def _evict_for(self, num_pages):
        pinned = {op.prefix for op in self.ongoing_prefetch.values()}
        for prefix in list(self.host):
            if self.host_used + num_pages <= self.host_pages:
                break
            if prefix not in pinned:
                self.host_used -= len(self.host.pop(prefix))
        return self.host_used + num_pages <= self.host_pages

    def can_terminate_prefetch(self, operation):
        # every rank has to leave the prefetch in the same iteration
        state = torch.tensor([int(not (operation.finished or operation.expired()))], dtype=torch.int32)
        dist.all_reduce(state, op=dist.ReduceOp.MAX, group=self.tp_group)
        return state.item() == 0

    def check_prefetch_progress(self, request_id):
        operation = self.ongoing_prefetch.get(request_id)
        if operation is None:
            return True
        if not self.can_terminate_prefetch(operation):
            return False
        if operation.pages:
            loaded = torch.cat([torch.from_numpy(p) for p in operation.pages])
            self.insert(operation.prefix, loaded)
        del self.ongoing_prefetch[request_id]
        return True
