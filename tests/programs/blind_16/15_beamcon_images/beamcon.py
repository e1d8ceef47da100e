"""Convolve one image to the common beam."""
import logging

import numpy as np

log = logging.getLogger("beamcon")


def read_image(filename, npix):
    rng = np.random.default_rng(abs(hash(filename)) % 2**32)
    image = rng.normal(0.0, 1e-4, (npix, npix)).astype(np.float32)
    for _ in range(40):
        y, x = rng.integers(8, npix - 8, 2)
        image[y - 2 : y + 3, x - 2 : x + 3] += rng.exponential(0.05)
    header = {"OBJECT": filename, "BUNIT": "JY/BEAM", "CDELT1": -2.0 / 3600, "CDELT2": 2.0 / 3600,
              "BMAJ": float(rng.uniform(11, 14)) / 3600, "BMIN": float(rng.uniform(9, 11)) / 3600}
    return image, header


def get_kernel(npix, old, new, dx):
    sigma = max(new**2 - old**2, 1e-12) ** 0.5 / 2.3548 / abs(dx)
    fy, fx = np.fft.fftfreq(npix)[:, None], np.fft.rfftfreq(npix)[None, :]
    return np.exp(-2 * (np.pi * sigma) ** 2 * (fx**2 + fy**2)).astype(np.float32)


def smooth(datadict, new_beam):
    image, header = datadict["image"], datadict["header"]
    kernel = get_kernel(image.shape[0], header["BMAJ"], new_beam, header["CDELT1"])
    new = np.fft.irfft2(np.fft.rfft2(image) * kernel, s=image.shape).astype(np.float32)
    factor = new_beam**2 / (header["BMAJ"] * header["BMIN"])
    return new * np.float32(factor), factor


def savefile(datadict, outdir, suffix="sm"):
    name = datadict["filename"].replace("/", "_").replace(".fits", f".{suffix}.npy")
    cutout = datadict["newimage"][::8, ::8]
    np.save(f"{outdir}/{name}", cutout)
    return name


def worker(job):
    filename, outdir, npix, new_beam = job
    image, header = read_image(filename, npix)
    datadict = {"filename": filename, "image": image, "header": header, "old_beam": header["BMAJ"]}
    newimage, factor = smooth(datadict, new_beam)
    datadict.update(newimage=newimage, factor=factor, new_beam=new_beam)
    datadict["outfile"] = savefile(datadict, outdir)
    return datadict
