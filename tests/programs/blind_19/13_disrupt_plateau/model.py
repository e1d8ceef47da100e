from torch import nn
from torch.nn.utils.parametrizations import weight_norm


class TemporalBlock(nn.Module):
    def __init__(self, cin, cout, kernel, dilation):
        super().__init__()
        self.pad = (kernel - 1) * dilation
        self.conv = weight_norm(nn.Conv1d(cin, cout, kernel, padding=self.pad, dilation=dilation))
        self.act = nn.ReLU()
        self.skip = nn.Conv1d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x):
        y = self.conv(x)[..., : -self.pad]
        return self.act(y) + self.skip(x)


class TCN(nn.Module):
    def __init__(self, channels=8, hidden=24, levels=4, kernel=5):
        super().__init__()
        blocks = []
        for i in range(levels):
            blocks.append(TemporalBlock(channels if i == 0 else hidden, hidden, kernel, 2 ** i))
        self.net = nn.Sequential(*blocks)
        self.head = nn.Conv1d(hidden, 1, 1)

    def forward(self, x):
        return self.head(self.net(x)).squeeze(1)
