"""``texcat stats``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.filesize import decimal

from .options import DEFAULT_CATALOGUE, CatalogueOption, JsonOption
from .output import count, out, print_json, printable, table

if TYPE_CHECKING:
    from pathlib import Path

    from ..catalogue.store import Reader


def stats(catalogue: CatalogueOption = DEFAULT_CATALOGUE, as_json: JsonOption = False) -> None:
    """Show what the catalogue holds, and how much room it takes."""
    from ..catalogue import Catalogue
    from ..catalogue.catalogue import CODEBOOK_NAME, REGISTRY_NAME

    with Catalogue.open(catalogue) as opened:
        settings, interests = opened.settings, opened.interests()
        counts, held = opened.registry.counts(), opened.store.stats()
        registry = None if settings.database else _bytes(opened.path, REGISTRY_NAME)
        codebook = _bytes(opened.path, CODEBOOK_NAME)
        path = str(opened.path)
    readers = _others(held.readers)
    total = held.file_bytes + (registry or 0) + codebook
    document = {
        "catalogue": path,
        "encoder": settings.encoder,
        "fingerprint": settings.fingerprint,
        "groups": list(settings.groups),
        "images": held.images,
        "codes": held.codes,
        "files": counts.files,
        "failed": counts.failed,
        "missing": counts.missing,
        "questions": counts.questions,
        "bytes": {
            "base": held.base_bytes,
            "maps": sum(held.map_bytes.values()),
            "codes": held.code_bytes,
            "shards": held.file_bytes,
            "free": held.free_bytes,
            "registry": registry,
            "codebook": codebook,
            "total": total,
            "per_image": total / held.images if held.images else None,
        },
        "readers": [
            {"pid": pid, "shards": shards, "pinned": pinned} for pid, (shards, pinned) in readers.items()
        ],
        "interests": [
            {
                "id": interest.id,
                "phrase": interest.phrase,
                "weight": interest.weight,
                "maps": held.maps.get(interest.id, 0),
                "bytes": held.map_bytes.get(interest.id, 0),
            }
            for interest in interests
        ],
    }
    if as_json:
        print_json(document)
        return
    console = out()
    facts = table("catalogue", printable(path))
    facts.add_row("encoder", printable(settings.encoder))
    facts.add_row("fingerprint", settings.fingerprint or "none until the first image is indexed")
    facts.add_row("channels", ", ".join(settings.groups))
    facts.add_row("images", f"{held.images:,}")
    facts.add_row("files", f"{counts.files:,} ({counts.failed:,} failed, {counts.missing:,} missing)")
    facts.add_row("questions", f"{counts.questions:,} remembered")
    facts.add_row("base textures", decimal(held.base_bytes))
    facts.add_row("interest maps", decimal(sum(held.map_bytes.values())))
    facts.add_row("codes", f"{decimal(held.code_bytes)}, of {count(held.codes, 'image')}")
    facts.add_row("shards on disk", f"{decimal(held.file_bytes)} ({decimal(held.free_bytes)} of it free)")
    if codebook:
        facts.add_row("codebook", decimal(codebook))
    facts.add_row("registry", "in a database of its own" if registry is None else decimal(registry))
    if held.images:
        facts.add_row("a photo", decimal(total // held.images))
    if readers:
        facts.add_row("being read by", ", ".join(_named(pid, pinned) for pid, (_, pinned) in readers.items()))
    console.print(facts)
    if interests:
        rows = table("#id", "interest", "#weight", "#maps", "#size")
        for interest in interests:
            rows.add_row(
                str(interest.id),
                printable(interest.phrase),
                f"{interest.weight:g}",
                f"{held.maps.get(interest.id, 0):,}",
                decimal(held.map_bytes.get(interest.id, 0)),
            )
        console.print(rows)


def _others(readers: Sequence[Reader]) -> dict[int, tuple[int, int]]:
    """By process but this one: how many shards it has open, and in how many it keeps freed pages from use."""
    found: dict[int, tuple[int, int]] = {}
    for pid in sorted({reader.pid for reader in readers} - {os.getpid()}):
        own = [reader for reader in readers if reader.pid == pid]
        found[pid] = (len({reader.file for reader in own}), len({r.file for r in own if r.pinned}))
    return found


def _named(pid: int, pinned: int) -> str:
    held = f" (keeps freed pages of {count(pinned, 'shard')} from being used again)" if pinned else ""
    return f"process {pid}{held}"


def _bytes(folder: Path, name: str) -> int:
    """Bytes of a file, and of those beside it that a database makes."""
    return sum(file.stat().st_size for file in folder.glob(f"{name}*"))
