import random

SUBJECTS = ("geometry", "plots", "tables", "puzzles", "physics")


class ProblemSet:
    """Visual question answering problems, by id."""

    def __init__(self, count, seed=21):
        self.count, self.seed = count, seed

    def ids(self):
        return [str(i) for i in range(1, self.count + 1)]

    def problem(self, pid):
        rng = random.Random(self.seed * 100_003 + int(pid))
        numbers = [rng.randint(1, 99) for _ in range(6)]
        return {
            "pid": pid,
            "subject": rng.choice(SUBJECTS),
            "question": f"The bars show {numbers}. What is the largest value minus the smallest?",
            "numbers": numbers,
            "choices": sorted({str(max(numbers) - min(numbers) + d) for d in (-3, 0, 2, 5)}),
        }
