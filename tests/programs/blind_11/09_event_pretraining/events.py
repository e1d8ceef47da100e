"""Event streams of patients, kept as they come out of the records."""
import random

import torch
from torch.utils.data import Dataset

CODES = 1200


class EventStreamDataset(Dataset):
    def __init__(self, subjects, events_per_subject, max_len, seed=11):
        self.max_len = max_len
        rng = random.Random(seed)
        self.cached_data = []
        for subject in range(subjects):
            age = rng.uniform(18, 90)
            stream = []
            for _ in range(events_per_subject):
                age += rng.expovariate(1.0)
                stream.append({
                    "time": age,
                    "code": f"ICD10//{rng.randrange(CODES):05d}//{subject}",
                    "value": rng.gauss(0.0, 1.0),
                    "observed": True,
                })
            self.cached_data.append({"subject_id": 1000000 + subject, "events": stream})

    def __len__(self):
        return len(self.cached_data)

    def __getitem__(self, index):
        record = self.cached_data[index]
        events = record["events"]
        codes = torch.zeros(self.max_len, dtype=torch.long)
        values = torch.zeros(self.max_len)
        deltas = torch.zeros(self.max_len)
        previous = events[0]["time"]
        for position, event in enumerate(events[-self.max_len:]):
            codes[position] = int(event["code"].split("//")[1])
            values[position] = event["value"] if event["observed"] else 0.0
            deltas[position] = event["time"] - previous
            previous = event["time"]
        return {"codes": codes, "values": values, "deltas": deltas}
