import random
import sys
import time


def read_alignments(gene, n):
    rng = random.Random(gene)
    for i in range(n):
        yield "".join(rng.choice("ACGT") for _ in range(60)), rng.random()


def em(counts, rounds=40):
    probs = {a: 1 / len(counts) for a in counts}
    for _ in range(rounds):
        total = sum(counts[a] * probs[a] for a in counts)
        probs = {a: counts[a] * probs[a] / total for a in counts}
    return probs


def type_gene(gene, depth):
    counts = {}
    for read, score in read_alignments(gene, depth):
        if score < 0.2:
            continue
        allele = f"{gene}*{read.count('GC') % 5 + 1:02d}"
        counts[allele] = counts.get(allele, 0) + 1
    time.sleep(0.2)
    if sum(counts.values()) < 50:
        print(f"Error: too few reads for {gene} ({sum(counts.values())})", file=sys.stderr, flush=True)
        sys.exit(1)
    return gene, max(em(counts).items(), key=lambda kv: kv[1])
