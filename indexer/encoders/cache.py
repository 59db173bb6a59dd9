"""Arrays that take seconds to derive, kept in the user's cache folder between runs.

The folder holds nothing that cannot be made again: it may be deleted at any time. A file is used only
if its checksum is right.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

_DIGEST_BYTES = 16
_log = logging.getLogger(__name__)


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/texcat``, or ``~/.cache/texcat`` (XDG Base Directory Specification 0.8)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "texcat"


def cached_array(
    name: str, shape: tuple[int, ...], make: Callable[[], NDArray[np.float32]]
) -> NDArray[np.float32]:
    """The float32 array of `shape` that is kept as `name`; made, and kept, if there is none.

    `name` must change whenever the array would: a fingerprint is such a name.
    """
    file = cache_folder() / f"{name}.f32"
    try:
        content = file.read_bytes()
    except OSError:
        content = b""
    checksum, values = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if len(values) == 4 * math.prod(shape) and checksum == _checksum(values):
        return np.frombuffer(values, np.dtype("<f4")).reshape(shape).astype(np.float32)
    array = make()
    _keep(file, array.astype("<f4").tobytes())
    return array


def _checksum(values: bytes) -> bytes:
    return blake3(values).digest(length=_DIGEST_BYTES)


def _keep(file: Path, values: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=file.parent, prefix=file.name, delete=False) as new:
            new.write(_checksum(values) + values)
        os.replace(new.name, file)
    except OSError as error:
        # The array is right all the same: only the next start is slower.
        _log.warning("cannot keep %s (%s): every start takes some seconds longer", file, error)
