"""Token streams."""
import torch
from torch.utils.data import Dataset
from torch.utils.data.datapipes.iter import IterableWrapper

VOCAB = 512


def _document(index, length):
    gen = torch.Generator().manual_seed(index)
    start = torch.randint(0, VOCAB, (1,), generator=gen)
    steps = torch.randint(1, 4, (length,), generator=gen)
    return (start + steps.cumsum(0)) % VOCAB


class HeldOutDocuments(Dataset):
    def __init__(self, num_docs=480, seq_len=65):
        self.num_docs, self.seq_len = num_docs, seq_len

    def __len__(self):
        return self.num_docs

    def __getitem__(self, index):
        return _document(10_000_000 + index, self.seq_len)


def read_shard(shard, docs_per_shard=256, seq_len=65):
    return [_document(shard * docs_per_shard + i, seq_len) for i in range(docs_per_shard)]


def build_train_pipe(num_shards):
    pipe = IterableWrapper(range(num_shards)).shuffle()
    return pipe.map(read_shard).unbatch().shuffle(buffer_size=1024)
