import logging
import multiprocessing as mp
import os
import tempfile
import zlib

log = logging.getLogger("station")


class Archiver(mp.Process):
    def __init__(self, records):
        super().__init__(name="archiver")
        self.records = records

    def run(self):
        written = 0
        with tempfile.TemporaryFile() as out:
            while True:
                item = self.records.get()
                if item is None:
                    break
                camera, number, frame = item
                blob = zlib.compress(frame.tobytes(), 9)
                out.seek(0)
                out.write(blob)
                out.flush()
                os.fsync(out.fileno())
                written += 1
                if written % 50 == 0:
                    log.info("archived %d frames, last camera %d frame %d", written, camera, number)
