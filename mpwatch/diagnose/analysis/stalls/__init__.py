"""Why processes make no progress whose waits may still end: by themselves, or from outside."""
