"""Lists of images: a column of paths or URLs in a Parquet file, or in a file of JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import IO, Any

from ..catalogue.errors import UsageError
from ..catalogue.types import Skipped
from . import remote
from .places import absolute, is_url
from .reading import one_line

COLUMNS = ("path", "url", "image")
"""Columns that are looked for, in this order, when none is named."""

_PARQUET = (b".parquet",)
_JSON_LINES = (b".jsonl", b".ndjson")


def is_list(place: bytes) -> bool:
    """Whether `place` is written as a list: ``.parquet``, ``.jsonl`` or ``.ndjson``."""
    return place.lower().endswith((*_PARQUET, *_JSON_LINES))


def read_list(place: bytes, column: str | None = None) -> Iterator[bytes | Skipped]:
    """The places that the list at `place` names, absolute, in its order; what cannot be used, as `Skipped`.

    A relative path is relative to the folder of the list. In JSON lines, each line is an object, or a string
    alone.

    Args:
        place: of the list, absolute: a path or a URL.
        column: that holds the places; the first of `COLUMNS` that there is when None.

    Raises:
        UsageError: it has no such column of strings, or pyarrow, which reads Parquet, is not installed.
    """
    rows = _parquet if place.lower().endswith(_PARQUET) else _json_lines
    folder = place[: place.rindex(b"/") + 1]
    try:
        with closing(remote.open_file(place) if is_url(place) else open(place, "rb")) as file:
            for name, value in rows(file, os.fsdecode(place), column):
                yield _entry(folder, name, value)
    except UsageError:
        raise
    except remote.RemoteError as error:
        yield Skipped(os.fsdecode(place), error.reason)
    except Exception as error:  # pyarrow and file systems have errors of their own
        yield Skipped(os.fsdecode(place), f"cannot be read as a list: {one_line(error)}")


def _entry(folder: bytes, name: str, value: object) -> bytes | Skipped:
    """The place that `value` means; `name` tells where in the list it stands."""
    if not isinstance(value, str) or not value:
        return Skipped(name, f"names no path or URL, but {value!r:.60}")
    try:
        place = os.fsencode(value)
        return absolute(place if place.startswith(b"/") or is_url(place) else folder + place)
    except (UsageError, UnicodeEncodeError) as error:
        return Skipped(name, one_line(error))


def _json_lines(file: IO[bytes], name: str, column: str | None) -> Iterator[tuple[str, object]]:
    """Where each entry stands, and its value. The first object tells whether the column is there."""
    seen = False
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        try:
            value: Any = json.loads(line)
        except ValueError as error:  # JSON, or UTF-8
            yield where, error
            continue
        if isinstance(value, dict):
            column = column or _choose(list(value), where)
            if not seen and column not in value:
                raise UsageError(f"{where!r} has no column {column!r}, but {_listed(value)}")
            seen = True
            value = value.get(column)
        yield where, value


def _parquet(file: IO[bytes], name: str, column: str | None) -> Iterator[tuple[str, object]]:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError(
            f'{name!r} is a Parquet file: `pip install "texcat[remote]"` to read it ({error})'
        ) from error

    table = pyarrow.parquet.ParquetFile(file)
    kinds = {field.name: field.type for field in table.schema_arrow}
    if column is None:
        column = _choose([key for key, kind in kinds.items() if _is_text(kind)], name)
    if column not in kinds:
        raise UsageError(f"{name!r} has no column {column!r}, but {_listed(kinds)}")
    if not _is_text(kinds[column]):
        raise UsageError(f"column {column!r} of {name!r} holds {kinds[column]}, not paths or URLs as strings")
    number = 0
    for batch in table.iter_batches(columns=[column]):
        for value in batch.column(0).to_pylist():
            number += 1
            yield f"{name}:{number}", value


def _is_text(kind: Any) -> bool:
    import pyarrow.types as kinds

    value = kind.value_type if kinds.is_dictionary(kind) else kind
    return bool(kinds.is_string(value) or kinds.is_large_string(value) or kinds.is_string_view(value))


def _choose(columns: Sequence[str], name: str) -> str:
    for column in COLUMNS:
        if column in columns:
            return column
    raise UsageError(
        f"{name!r} has none of the columns {', '.join(COLUMNS)} as strings, but {_listed(columns)}; name "
        "the one that holds paths or URLs (--column)"
    )


def _listed(columns: Any) -> str:
    return ", ".join(map(repr, columns)) or "none"
