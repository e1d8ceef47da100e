from torch import nn


class AcousticModel(nn.Module):
    def __init__(self, features=26, width=128, alphabet=28):
        super().__init__()
        self.front = nn.Sequential(nn.Linear(features, width), nn.Hardtanh(0, 20))
        self.rnn = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, alphabet)

    def forward(self, x):
        h, _ = self.rnn(self.front(x))
        return self.out(h).log_softmax(-1)
