import os
import tempfile


class TrainReportCallback:
    """Reports the metrics and, every few epochs, a checkpoint from the first worker."""

    def __init__(self, session, every=4):
        self.session, self.every = session, every
        self.tmpdir = tempfile.mkdtemp(prefix="report_")

    def on_train_epoch_end(self, trainer, pl_module):
        metrics = {k: float(v) for k, v in trainer.callback_metrics.items()}
        metrics["epoch"] = trainer.current_epoch
        checkpoint = None
        if trainer.current_epoch % self.every == self.every - 1 and self.session.world_rank == 0:
            checkpoint = os.path.join(self.tmpdir, "ckpt.pt")
            trainer.save_checkpoint(checkpoint)
        self.session.report(metrics, checkpoint)
