import numpy as np


def generate_prompts(args):
    rng = np.random.default_rng(args.seed)
    for i in range(args.num_requests):
        length = max(4, int(rng.normal(args.mean_prompt_length, args.mean_prompt_length * 0.3)))
        new_tokens = max(2, int(rng.normal(args.mean_new_tokens, args.mean_new_tokens * 0.3)))
        yield {"id": i, "tokens": rng.integers(0, 1000, size=length).tolist(), "new_tokens": new_tokens}
