class SkipSample(Exception):
    """Raised by a sample loader to leave a sample out."""
