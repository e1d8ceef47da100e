"""Recording of rendered episodes."""
import os

import numpy as np


class ImageSequenceClip:
    """Frames that are to become one file; encoders may still read from open clips."""

    _open = {}

    def __init__(self, frames, fps):
        self.frames = frames
        self.fps = fps
        self.duration = len(frames) / fps
        ImageSequenceClip._open[id(self)] = self

    def write_videofile(self, path):
        small = np.stack([f[::8, ::8] for f in self.frames[::4]])
        np.save(path, small)

    def close(self):
        ImageSequenceClip._open.pop(id(self), None)
        self.frames = None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


class RecordVideo:
    def __init__(self, env, folder, episode_trigger, fps=30, keep_files=5):
        self.env, self.folder, self.episode_trigger = env, folder, episode_trigger
        self.fps, self.keep_files = fps, keep_files
        self.episode_id = 0
        self.recording = False
        self.recorded_frames = []
        self.files = []

    def reset(self, **kwargs):
        obs = self.env.reset(**kwargs)
        if self.recording:
            self.stop_recording()
        if self.episode_trigger(self.episode_id):
            self.recording = True
            self._capture_frame()
        self.episode_id += 1
        return obs

    def step(self, action):
        result = self.env.step(action)
        if self.recording:
            self._capture_frame()
        return result

    def _capture_frame(self):
        self.recorded_frames.append(self.env.render())

    def stop_recording(self):
        if self.recorded_frames:
            clip = ImageSequenceClip(self.recorded_frames, fps=self.fps)
            path = os.path.join(self.folder, f"episode-{self.episode_id:05d}.npy")
            clip.write_videofile(path)
            self.files.append(path)
            while len(self.files) > self.keep_files:
                os.unlink(self.files.pop(0))
        self.recorded_frames = []
        self.recording = False
