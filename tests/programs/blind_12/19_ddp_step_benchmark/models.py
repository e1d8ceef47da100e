import torch.nn as nn


def mlp(width, depth, classes=100):
    layers = [nn.Flatten(), nn.Linear(3 * 16 * 16, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, classes))


def convnet(width, depth, classes=100):
    layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


ZOO = {
    "conv-24x3": lambda: convnet(24, 3),
    "conv-32x3": lambda: convnet(32, 3),
    "mlp-512x4": lambda: mlp(512, 4),
    "mlp-768x4": lambda: mlp(768, 4),
    "mlp-1024x3": lambda: mlp(1024, 3),
}
