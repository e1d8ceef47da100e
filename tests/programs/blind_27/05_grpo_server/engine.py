"""Generation engine, one per data-parallel worker."""
import torch
import torch.nn as nn


class LLM:
    def __init__(self, vocab_size=1024, dim=96, max_model_len=320, seed=0):
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        self.max_model_len = max_model_len
        self.embed = nn.Embedding(vocab_size, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab_size)

    def _validate(self, prompt_token_ids):
        if len(prompt_token_ids) > self.max_model_len:
            raise ValueError(
                f"The decoder prompt (length {len(prompt_token_ids)}) is longer than the maximum model length of "
                f"{self.max_model_len}. Make sure that `max_model_len` is no smaller than the number of text tokens.")

    @torch.no_grad()
    def generate(self, prompts, max_tokens):
        outputs = []
        for ids in prompts:
            self._validate(ids)
            out, state = self.rnn(self.embed(torch.tensor([ids])))
            tokens = []
            for _ in range(max_tokens):
                probs = self.head(out[:, -1]).softmax(-1)
                token = torch.multinomial(probs, 1)
                tokens.append(int(token))
                out, state = self.rnn(self.embed(token), state)
            outputs.append(tokens)
        return outputs
