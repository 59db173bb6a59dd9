"""Examples to train a balancer on, and to measure it by: photos, what was asked of each, and where it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..catalogue.catalogue import Catalogue
from ..catalogue.errors import UsageError
from ..indexer import Progress, index_corpus
from ..indexer.encoders import DenseEncoder
from .evidence import PLANES, evidence
from .knowing import know
from .labelled import Target, read_targets
from .naming import named_matches
from .retriever import Retriever

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """E pairs of a photo and one category that it shows, over N positions.

    Attributes:
        planes: float32 [E, F, N], `evidence.PLANES`.
        asked: float32 [E, d_text], text embedding of the category.
        area: float32 [E, N], area of its boxes in each position, in parts of the image; its sum is above 0.
        photos: int64 [E], number of the photo.
        categories: names of the categories.
    """

    planes: Floats
    asked: Floats
    area: Floats
    photos: NDArray[np.int64]
    categories: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.planes)

    def of(self, chosen: NDArray[np.bool_]) -> Self:
        """Those that are `chosen`, bool [E]."""
        names = tuple(name for name, take in zip(self.categories, chosen, strict=True) if take)
        return type(self)(
            self.planes[chosen], self.asked[chosen], self.area[chosen], self.photos[chosen], names
        )


def index_examples(
    catalogue: Catalogue,
    data: Path,
    *,
    device: str = "auto",
    encoder: DenseEncoder | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Examples:
    """Examples of a folder of photos with boxes, which are indexed under their categories first.

    What is indexed already stays as it is, so that a catalogue that is kept makes the next call quick.

    Args:
        catalogue: open to write; the categories become interests of it.
        data: folder, see `labelled`.
        device, encoder: as `index_corpus`.
        on_progress: of the indexing.

    Raises:
        UsageError: the folder is not as it must be, or nothing in it can be learned from.
        ReadOnlyError, FingerprintMismatchError, EncoderError, StoreFullError: as their names say.
    """
    targets = read_targets(data)
    for category in sorted({target.category for wanted in targets.values() for target in wanted}):
        catalogue.add_interest(category)
    report = index_corpus(
        catalogue,
        [data / "images"],
        device=device,
        encoder=encoder,
        codes=False,
        on_progress=on_progress,
    )
    unread = {Path(skipped.path) for skipped in report.skipped}
    readable = {path: wanted for path, wanted in targets.items() if path.absolute() not in unread}
    with Retriever(catalogue, device=device, encoder=encoder, observe=False) as retriever:
        return collect(retriever, readable)


def recall(values: Floats, area: Floats, budget: int) -> Floats:
    """Part of the boxes' area that the `budget` highest positions cover, of each example: float32 [E].

    Of equal values, the first in raster order is taken, as `TopKAllocator` does.

    Args:
        values, area: float32 [E, N].
        budget: from 1 to N.
    """
    best = np.argsort(-values, axis=1, kind="stable")[:, :budget]
    return np.asarray(np.take_along_axis(area, best, axis=1).sum(axis=1) / area.sum(axis=1), np.float32)


def collect(
    retriever: Retriever,
    targets: Mapping[Path, Sequence[Target]],
) -> Examples:
    """Look every target up in a catalogue whose interests are its categories.

    Args:
        retriever: of a catalogue that holds the photos and their maps.
        targets: of each photo. Those whose boxes have no area are left out.

    Raises:
        UsageError: no target has an area.
        UnknownInterestError: a category is no interest of the catalogue.
    """
    planes, asked, areas, photos, names = [], [], [], [], []
    for number, (path, wanted) in enumerate(targets.items()):
        for target in wanted:
            area = target.area()
            if area.sum() > 0:
                hit = retriever.lookup(path, matches=named_matches(retriever.catalogue, [target.category]))
                planes.append(evidence(hit, know(hit)).reshape(len(PLANES), -1))
                asked.append(retriever.asked(hit))
                areas.append(area.ravel().astype(np.float32))
                photos.append(number)
                names.append(target.category)
    if not planes:
        raise UsageError("no photo has a box around anything; there is nothing to learn from")
    return Examples(np.stack(planes), np.stack(asked), np.stack(areas), np.array(photos), tuple(names))
