"""Feature extraction with a forward hook on one module."""
import numpy as np
import torch


class Extractor:
    def __init__(self, model, module_name, token, report_every=1600):
        self.model = model
        self.token = token
        self.report_every = report_every
        self.activations = {}
        self.module_name = module_name
        model.get_submodule(module_name).register_forward_hook(self._hook)

    def _hook(self, module, inputs, output):
        self.activations[self.module_name] = output.detach()

    def extract_batch(self, batch):
        with torch.no_grad():
            self.model(batch)
        act = self.activations.pop(self.module_name)
        if self.token == "cls_token":
            act = act[:, 0, :]
        else:
            act = act.flatten(1)
        return act

    def extract(self, loader, report):
        features, seen = [], 0
        for batch in loader:
            features.append(self.extract_batch(batch).numpy())
            seen += len(batch)
            if seen % self.report_every < len(batch):
                report(seen)
        return np.vstack(features)
