"""CTC training of a small conformer-like encoder with smart batching."""
import argparse
import logging
import shutil
import signal
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

from audio import FilterBank, load_audio, write_corpus
from sampler import SmartBatchingSampler

log = logging.getLogger("train_asr")
VOCAB = 40


class SpeechToTextDataset(Dataset):
    def __init__(self, manifest, del_silence):
        self.audio_paths = [path for path, _ in manifest]
        self.transcripts = [text for _, text in manifest]
        self.del_silence = del_silence
        self.fbank = FilterBank()

    def __len__(self):
        return len(self.audio_paths)

    def __getitem__(self, index):
        signal = load_audio(self.audio_paths[index], del_silence=self.del_silence)
        return self.fbank(signal), torch.tensor(self.transcripts[index])


def collate(batch):
    feats = nn.utils.rnn.pad_sequence([f for f, _ in batch], batch_first=True)
    lens = torch.tensor([len(f) for f, _ in batch])
    targets = torch.cat([t for _, t in batch])
    target_lens = torch.tensor([len(t) for _, t in batch])
    return feats, lens, targets, target_lens


class Encoder(nn.Module):
    def __init__(self, n_mels=80, dim=96):
        super().__init__()
        self.sub = nn.Conv1d(n_mels, dim, 5, stride=4, padding=2)
        self.mix = nn.Conv1d(dim, dim, 9, padding=4, groups=dim)
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, feats, lens):
        x = F.relu(self.sub(feats.transpose(1, 2)))
        x = x + F.relu(self.mix(x))
        return self.out(x.transpose(1, 2)).log_softmax(-1), (lens + 3) // 4


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--utterances", type=int, default=1500)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--batches-per-epoch", type=int, default=12,
                   help="validate and save after this many batches")
    p.add_argument("--num-workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=200)
    p.add_argument("--no-del-silence", action="store_true")
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=102)
    p.add_argument("--walltime", type=int, default=140)
    return p.parse_args()


def limit_worker(worker_id):
    torch.set_num_threads(1)
    signal.alarm(140)


def train(args, root):
    manifest = write_corpus(root, args.utterances, args.seed)
    log.info("corpus of %d utterances in %s", len(manifest), root)
    dataset = SpeechToTextDataset(manifest, del_silence=not args.no_del_silence)
    loader = DataLoader(dataset, num_workers=args.num_workers, collate_fn=collate,
                        batch_sampler=SmartBatchingSampler(dataset, args.batch_size,
                                                           args.batches_per_epoch, args.seed),
                        persistent_workers=True, worker_init_fn=limit_worker)
    model = Encoder()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(1, args.epochs + 1):
        t0, total = time.monotonic(), 0.0
        for step, (feats, lens, targets, target_lens) in enumerate(loader, 1):
            out, out_lens = model(feats, lens)
            loss = F.ctc_loss(out.transpose(0, 1), targets, out_lens, target_lens,
                              zero_infinity=True)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            if step % 4 == 0:
                log.info("epoch %d step %d/%d loss %.3f", epoch, step, len(loader), total / step)
        log.info("epoch %d done in %.1fs, loss %.3f", epoch, time.monotonic() - t0, total / step)


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    signal.alarm(args.walltime)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    root = tempfile.mkdtemp(prefix="asr_")
    try:
        train(args, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
