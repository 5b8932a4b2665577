"""Pictures of trajectories: PNG files beside the JSONL file, or inside a line."""

from __future__ import annotations

import base64
import hashlib
import io
import os
from pathlib import Path

import numpy as np

_PREFIX = "data:image/png;base64,"


def png(image: np.ndarray) -> bytes:
    """A picture, uint8 [height, width, 3], as a PNG file."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="png")
    return buffer.getvalue()


def from_png(data: bytes) -> np.ndarray:
    """Inverse of `png`."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return np.array(image)


def data_url(image: np.ndarray) -> str:
    """A picture as text."""
    return _PREFIX + base64.b64encode(png(image)).decode("ascii")


def from_data_url(text: str) -> np.ndarray:
    """Inverse of `data_url`."""
    return from_png(base64.b64decode(text.removeprefix(_PREFIX)))


class ImageFolder:
    """The pictures of a JSONL file: ``episodes.jsonl`` has them in ``episodes.images/``.

    Files are named by their content, so that a picture that is shown twice is stored once.

    Args:
        path: The JSONL file.
    """

    def __init__(self, path: Path) -> None:
        self._folder = path.with_suffix(".images")

    def save(self, image: np.ndarray) -> str:
        """Store a picture and return its name relative to the JSONL file's folder."""
        data = png(image)
        target = self._folder / f"{hashlib.sha256(data).hexdigest()[:16]}.png"
        if not target.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            partial = target.with_suffix(f".part{os.getpid()}")
            partial.write_bytes(data)
            os.replace(partial, target)
        return f"{self._folder.name}/{target.name}"

    def load(self, name: str) -> np.ndarray:
        """Inverse of `save`; also reads pictures that stand in the line itself."""
        if name.startswith(_PREFIX):
            return from_data_url(name)
        return from_png((self._folder.parent / name).read_bytes())
