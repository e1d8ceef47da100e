import random


class PromptPool:
    """Prompts with an expected answer length, ordered from easy to hard."""

    def __init__(self, size=512, seed=3):
        rng = random.Random(seed)
        self.lengths = sorted(int(rng.paretovariate(1.1) * 48) for _ in range(size))
        self.rng = rng

    def draw(self, count, hardest=1.0):
        limit = max(count, int(len(self.lengths) * hardest))
        picks = sorted(self.rng.sample(range(limit), count))
        return [min(self.lengths[i], 4000) for i in picks]


def sample_groups(lengths, group_size, rng, vocab=900):
    """group_size answers for each prompt, answers of a prompt one after the other."""
    rollouts = []
    for length in lengths:
        for _ in range(group_size):
            n = max(8, int(length * rng.uniform(0.8, 1.2)))
            rollouts.append([rng.randrange(vocab) for _ in range(n)])
    return rollouts


def repetition_score(tokens, max_n=6):
    """Share of n-grams seen before, for n = 2..max_n."""
    repeated = total = 0
    for n in range(2, max_n + 1):
        seen = set()
        for i in range(len(tokens) - n + 1):
            gram = tuple(tokens[i : i + n])
            repeated += gram in seen
            seen.add(gram)
            total += 1
    return repeated / max(total, 1)


def longest_common_run(tokens, reference):
    """Length of the longest common substring, by the usual table."""
    best, previous = 0, [0] * (len(reference) + 1)
    for token in tokens:
        current = [0]
        for j, ref in enumerate(reference):
            run = previous[j] + 1 if token == ref else 0
            current.append(run)
            if run > best:
                best = run
        previous = current
    return best


def reward(tokens, reference):
    return longest_common_run(tokens, reference) / 4.0 - repetition_score(tokens)
