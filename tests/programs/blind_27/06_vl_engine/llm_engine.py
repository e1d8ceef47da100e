"""A small vision-language engine with continuous batching."""
import logging
import time

import torch
import torch.nn as nn

from sequence import ParallelSampleSequenceGroup, SequenceGroup

logger = logging.getLogger("engine")


class VisionLanguageModel(nn.Module):
    def __init__(self, vocab=2048, dim=64):
        super().__init__()
        self.vision = nn.Conv2d(3, dim, 16, 16)
        self.embed = nn.Embedding(vocab, dim)
        self.cell = nn.GRUCell(dim, dim)
        self.head = nn.Linear(dim, vocab)


class LLMEngine:
    def __init__(self, max_num_seqs):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.model = VisionLanguageModel().eval()
        self.max_num_seqs = max_num_seqs
        self.waiting, self.running = [], []
        self.seq_id_to_seq_group = {}
        self.num_finished = 0
        self.last_stats = time.time()

    def add_request(self, request_id, prompt_token_ids, image, params):
        pixel_values = (torch.from_numpy(image).float() / 255 - 0.5) * 2
        kwargs = dict(prompt_token_ids=prompt_token_ids, pixel_values=pixel_values)
        if params.n > 1:
            ParallelSampleSequenceGroup.add_request(request_id, self, params, **kwargs)
        else:
            self.add_processed_request(request_id, params=params, **kwargs)

    def add_processed_request(self, request_id, prompt_token_ids, pixel_values, params):
        seq_group = SequenceGroup(request_id, prompt_token_ids, pixel_values, params)
        self.waiting.append(seq_group)
        return seq_group

    def has_unfinished_requests(self):
        return bool(self.waiting or self.running)

    @torch.inference_mode()
    def _prefill(self, seq_group):
        patches = self.model.vision(seq_group.pixel_values[None])
        text = self.model.embed(torch.tensor(seq_group.prompt_token_ids)).mean(0)
        seq_group.state = patches.flatten(2).mean(2)[0] + text

    @torch.inference_mode()
    def step(self):
        while self.waiting and len(self.running) < self.max_num_seqs:
            seq_group = self.waiting.pop(0)
            self._prefill(seq_group)
            self.running.append(seq_group)
        states = torch.stack([s.state for s in self.running])
        last = torch.tensor([(s.output_token_ids or s.prompt_token_ids)[-1] for s in self.running])
        states = self.model.cell(self.model.embed(last), states)
        tokens = torch.multinomial(self.model.head(states).softmax(-1), 1).squeeze(1)
        for seq_group, state, token in zip(self.running, states, tokens.tolist()):
            seq_group.state = state.clone()
            seq_group.output_token_ids.append(token)
        return self._process_outputs()

    def _process_outputs(self):
        outputs = []
        for seq_group in [s for s in self.running if s.is_finished()]:
            self.running.remove(seq_group)
            group = self.seq_id_to_seq_group.get(seq_group.request_id)
            output = group.maybe_assemble(seq_group) if group else (seq_group.request_id, [seq_group.output_token_ids])
            if output is not None:
                outputs.append(output)
                self.num_finished += 1
        if time.time() - self.last_stats > 5:
            logger.info("Running: %d reqs, Pending: %d reqs, Finished: %d reqs", len(self.running), len(self.waiting),
                        self.num_finished)
            self.last_stats = time.time()
        return outputs


def run_engine(requests, outputs, max_num_seqs):
    engine = LLMEngine(max_num_seqs)
    logger.info("engine core is ready")
    while True:
        while not engine.has_unfinished_requests() or not requests.empty():
            request = requests.get()
            if request is None:
                return
            engine.add_request(**request)
        for output in engine.step():
            outputs.put(output)
