"""Every job has its own log text, which the portal can show while the job runs."""
import io
import logging


class TranscriptHandler(logging.Handler):
    def __init__(self):
        super().__init__(logging.DEBUG)
        self.text = io.StringIO()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))

    def emit(self, record):
        self.text.write(self.format(record))
        self.text.write("\n")

    def tail(self, n=2000):
        return self.text.getvalue()[-n:]


class JobLog:
    def __init__(self, site, job_id):
        self.logger = logging.getLogger(f"{site}.jobs.{job_id}")
        self.logger.setLevel(logging.DEBUG)
        self.logger.propagate = False
        self.handler = TranscriptHandler()
        self.logger.addHandler(self.handler)

    def __getattr__(self, name):
        return getattr(self.logger, name)

    def close(self):
        self.handler.flush()
        self.handler.close()
