"""Synthetic JPEGs that cost as much to decode as photographs."""

from pathlib import Path

import numpy as np
from PIL import Image

SEED = 7


def draw_pictures(folder: Path, num: int) -> list[str]:
    """Write pictures of 640 x 480 pixels into a folder; return their paths."""
    rng = np.random.default_rng(SEED)
    paths = [str(folder / f"{number:05d}.jpeg") for number in range(num)]
    for path in paths:
        coarse = rng.integers(0, 255, (12, 16, 3)).astype("uint8")
        Image.fromarray(coarse).resize((640, 480)).save(path, quality=90)
    return paths
