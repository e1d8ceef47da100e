"""Generates a tree of plausible python sources to search in."""
import random

WORDS = ("the window element value if not return self layout key event button text size "
         "def class import theme column graph canvas update read the for in while").split()


def build_tree(root, n_files, seed):
    rng = random.Random(seed)
    for i in range(n_files):
        folder = root / f"pkg_{i % 14:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        lines = []
        for _ in range(rng.randint(150, 320)):
            lines.append(" " * rng.choice((0, 4, 8)) + " ".join(rng.choices(WORDS, k=rng.randint(4, 12))))
        if i % 40 == 0:
            lines.append("sg.Popup('done')")
        (folder / f"module_{i:04d}.py").write_text("\n".join(lines))
    return root
