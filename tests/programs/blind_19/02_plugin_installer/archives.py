import hashlib
import os
import random
import zipfile


def build_repository(root, count, seed=11):
    """Writes a small plugin repository: one archive per plugin, as the upload service leaves them."""
    rng = random.Random(seed)
    names = []
    for i in range(count):
        name = "plugin-%03d" % i
        path = os.path.join(root, name + ".wgn")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
            z.writestr("package.json", '{"package_name": "%s", "package_version": "1.%d"}' % (name, i))
            for part in range(4):
                z.writestr("wheels/%s_%d.whl" % (name, part), rng.randbytes(60_000))
        if i % 13 == 9:
            size = os.path.getsize(path)
            with open(path, "r+b") as f:
                f.truncate(size - 4096)
        names.append(name)
    return names


def unpack(path, target):
    digest = hashlib.sha256()
    os.makedirs(target, exist_ok=True)
    with zipfile.ZipFile(path) as z:
        for info in z.infolist():
            data = z.read(info)
            digest.update(data)
            out = os.path.join(target, os.path.basename(info.filename))
            with open(out, "wb") as f:
                f.write(data)
    return digest.hexdigest()
