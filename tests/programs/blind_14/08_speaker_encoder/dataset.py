import random

import torch
from torch.utils.data import Dataset


class SpeakerDataset(Dataset):
    """One item is a speaker; the collator takes several utterances of each."""

    def __init__(self, ap, num_speakers, utterances_per_speaker, num_utter_per_speaker, seq_len):
        self.ap = ap
        self.num_speakers = num_speakers
        self.utterances_per_speaker = utterances_per_speaker
        self.num_utter_per_speaker = num_utter_per_speaker
        self.seq_len = seq_len

    def __len__(self):
        return 1_000_000

    def __getitem__(self, idx):
        return idx % self.num_speakers

    def sample_utterance(self, speaker):
        while True:
            wav = self.ap.trim_silence(self.ap.load_wav(speaker, random.randrange(self.utterances_per_speaker)))
            if wav.size > self.ap.hop_length * (self.seq_len + 3):
                return wav

    def collate_fn(self, batch):
        feats = []
        for speaker in batch:
            for _ in range(self.num_utter_per_speaker):
                mel = self.ap.melspectrogram(self.sample_utterance(speaker))
                start = random.randint(0, mel.shape[1] - self.seq_len)
                feats.append(torch.from_numpy(mel[:, start:start + self.seq_len].T.copy()))
        return torch.stack(feats)
