"""Made-up processes, samples, snapshots and files for tests, each kind built in one place."""
