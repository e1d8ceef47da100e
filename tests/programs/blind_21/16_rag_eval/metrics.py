"""Evidence metrics for the retrieval evaluation."""
import re

_PUNCT = re.compile(r"[^\w\s]")
_SPACE = re.compile(r"\s+")
_CITE = re.compile(r"\[\d+(?:,\s*\d+)*\]")


def normalise(text):
    text = _CITE.sub(" ", text.lower())
    text = _PUNCT.sub(" ", text)
    return _SPACE.sub(" ", text).strip()


def resolve_gold(quotes, chunks):
    """Ids of the chunks that contain one of the gold quotes, whatever the chunking was."""
    needles = [normalise(q) for q in quotes]
    gold = set()
    for chunk in chunks:
        haystack = normalise(chunk.text)
        if any(n in haystack for n in needles):
            gold.add(chunk.id)
    return gold


def evidence_recall(retrieved, gold):
    return len(gold & set(retrieved)) / len(gold) if gold else 0.0


def full_chain(retrieved, gold):
    return float(bool(gold) and gold <= set(retrieved))


def reciprocal_rank(retrieved, gold):
    for rank, chunk_id in enumerate(retrieved, 1):
        if chunk_id in gold:
            return 1.0 / rank
    return 0.0
