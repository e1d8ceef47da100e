"""Requests and sequence groups."""
import copy
from dataclasses import dataclass, field

import torch


@dataclass
class SamplingParams:
    n: int = 1
    max_tokens: int = 16
    temperature: float = 1.0
    seed: int = 0


@dataclass
class SequenceGroup:
    request_id: str
    prompt_token_ids: list
    pixel_values: torch.Tensor
    params: SamplingParams
    output_token_ids: list = field(default_factory=list)
    state: torch.Tensor = None

    def is_finished(self):
        return len(self.output_token_ids) >= self.params.max_tokens


@dataclass
class ParallelSampleSequenceGroup:
    """Bundles the n samples of a request and returns them as one output."""
    group_id: str
    seq_id_to_index: dict = field(default_factory=dict)
    to_be_finished: dict = field(default_factory=dict)
    outputs: dict = field(default_factory=dict)

    @staticmethod
    def add_request(request_id, engine, params, **kwargs):
        group = ParallelSampleSequenceGroup(request_id)
        for i in range(params.n):
            request_id_i = f"{request_id}_parallel_sample_{i}"
            group.seq_id_to_index[request_id_i] = i
            params_i = copy.deepcopy(params)
            params_i.n, params_i.seed = 1, params.seed + i
            seq_group = engine.add_processed_request(request_id_i, params=params_i, **kwargs)
            engine.seq_id_to_seq_group[request_id_i] = group
            group.to_be_finished[request_id_i] = seq_group

    def maybe_assemble(self, seq_group):
        self.outputs[self.seq_id_to_index[seq_group.request_id]] = seq_group.output_token_ids
        if len(self.outputs) < len(self.to_be_finished):
            return None
        return self.group_id, [self.outputs[i] for i in range(len(self.outputs))]
