import torch
import torch.nn.functional as F

OBJECTIVES = {"loss", "rl_loss", "reward_weighted", "bc_loss", "kl_anchor"}


class RewardWeightedObjective:
    """Reward weighted regression on candidate trajectories plus behaviour cloning."""

    def __init__(self, temperature=0.6, bc_weight=0.3, kl_weight=0.05):
        self.temperature = temperature
        self.bc_weight = bc_weight
        self.kl_weight = kl_weight

    def __call__(self, model, batch):
        mean, log_std = model(batch["scene"])
        candidates, reward, expert = batch["candidates"], batch["reward"], batch["expert"]
        error = ((candidates - mean.unsqueeze(1)) ** 2 / (2 * log_std.exp().unsqueeze(1) ** 2)).mean(-1)
        weights = torch.softmax(reward / self.temperature, dim=1)
        reward_weighted = (weights * error).sum(1).mean()
        bc_loss = F.smooth_l1_loss(mean, expert)
        kl_anchor = (log_std.exp() ** 2 - 2 * log_std - 1).mean()
        rl_loss = reward_weighted + log_std.mean()
        loss = rl_loss + self.bc_weight * bc_loss + self.kl_weight * kl_anchor
        parts = {"loss": loss, "rl_loss": rl_loss, "reward_weighted": reward_weighted,
                 "bc_loss": bc_loss, "kl_anchor": kl_anchor}
        per_sample = {"reward": reward.amax(1), "candidate_error": error.detach().amin(1)}
        return loss, {name: parts[name].detach() for name in OBJECTIVES}, per_sample
