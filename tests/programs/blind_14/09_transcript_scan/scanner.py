"""Runs in the scan processes: reads transcripts, applies the scanners, sends the results up."""
import random
import re
import time

from messages import ResultItem, Transcript, WorkerComplete

WORDS = "the model then called the tool again and reported that the file could not be opened because".split()
SCANNERS = {"refusal": re.compile(r"could not|cannot|unable"), "tool_use": re.compile(r"called the tool")}


def read_transcript(worker, number, rng):
    messages = []
    for turn in range(rng.randint(20, 44)):
        rng.shuffle(WORDS)
        messages.append({"role": "user" if turn % 2 else "assistant",
                         "content": " ".join(WORDS * rng.randint(4, 14)) + f" #{turn}"})
    time.sleep(0.036)  # the transcripts come from the store
    return Transcript(f"t{worker}-{number:06d}", messages)


def scan_transcript(transcript):
    for name, pattern in SCANNERS.items():
        hits = [m["content"][:80] for m in transcript.messages if pattern.search(m["content"])]
        yield name, len(hits) / len(transcript.messages), hits[:3]


def scan_process(worker, count, upstream, seed):
    rng = random.Random(seed + worker)
    for number in range(count):
        transcript = read_transcript(worker, number, rng)
        for name, value, evidence in scan_transcript(transcript):
            upstream.put(ResultItem(worker, name, transcript, value, evidence))
    upstream.put(WorkerComplete(worker, count))
