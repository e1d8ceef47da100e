"""Makes a source tree to index and parses single files."""
import os
import random
import re
import time

TOKEN = re.compile(r"[A-Za-z_]\w*|\d+|[{}()\[\];,]|[-+*/=<>!&|]+|\"[^\"]*\"")
CALL = re.compile(r"^[A-Za-z_]\w*$")
CONFIGS = ["x86_64", "i386", "arm64", "arm", "riscv64", "ppc64le", "s390x", "mips"]
TYPES = ["int", "static void", "unsigned long", "struct page *", "const char *"]


def write_function(rng, name):
    body = "    setup(CONFIG_ARCH, a);\n" + "".join(f"    v{i} = call_{rng.randrange(400)}(v{rng.randrange(9)}, {rng.randrange(99)});\n"
                   for i in range(rng.randrange(6, 14)))
    return f"{rng.choice(TYPES)} {name}(int a, int b)\n{{\n{body}    return v0;\n}}\n\n"


def write_tree(root, files=400, seed=2):
    """Drivers first, then the third party amalgamations."""
    rng = random.Random(seed)
    block = "".join(write_function(rng, f"gen_{i}") for i in range(300))
    paths = []
    for i in range(files):
        if i < files - 25:
            path = os.path.join(root, f"drivers/d{i % 12:02d}/unit_{i:04d}.c")
            text = "".join(write_function(rng, f"f{i}_{k}") for k in range(rng.randrange(6, 20)))
        else:
            path = os.path.join(root, f"third_party/amalgamation_{i:04d}.c")
            text = block * 30
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(text)
        paths.append(path)
    return sorted(paths)


def parse_file(path):
    """Function definitions and calls of one file, over all build configurations."""
    with open(path) as f:
        text = f.read()
    time.sleep(0.02)  # source share
    defs, calls = {}, {}
    for config in CONFIGS:
        d, c = parse_text(text.replace("CONFIG_ARCH", config))
        defs.update(d)
        for name, targets in c.items():
            calls.setdefault(name, set()).update(targets)
    return path, defs, {k: sorted(v) for k, v in calls.items()}


def parse_text(text):
    depth, prev, current = 0, "", None
    defs, calls = {}, {}
    for m in TOKEN.finditer(text):
        tok = m.group()
        if tok == "{":
            depth += 1
        elif tok == "}":
            depth -= 1
        elif tok == "(" and CALL.match(prev):
            if depth == 0:
                current = prev
                defs[current] = text.count("\n", max(0, m.start() - 2000), m.start())
            elif current is not None:
                calls.setdefault(current, set()).add(prev)
        prev = tok
    return defs, calls
