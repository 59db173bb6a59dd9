"""Every error that texcat raises on purpose.

TexcatError
 ├─ UsageError                  a value that the caller gave cannot be used
 │   ├─ InvalidPhraseError
 │   ├─ UnknownChannelError
 │   ├─ UnknownInterestError
 │   └─ UnknownEncoderError
 ├─ CatalogueError              the folder of a catalogue, or its state
 │   ├─ CatalogueMissingError
 │   ├─ CatalogueExistsError
 │   ├─ CatalogueLockedError
 │   ├─ ReadOnlyError
 │   ├─ FormatVersionError
 │   ├─ FingerprintMismatchError
 │   └─ ChannelNotHeldError
 ├─ StoreError                  the texture shards
 │   ├─ RecordCorruptError
 │   ├─ RecordMissingError
 │   └─ StoreFullError
 ├─ RegistryError               the registry database
 ├─ UnrelatedError              two phrases that nothing leads from one to the other
 ├─ ImageReadError              one image that cannot be read
 ├─ EngineError                 the machines that records are made on
 ├─ EncoderNeededError          what only an encoder can make, where none may be loaded
 ├─ EncoderError                an encoder that cannot be loaded or run
 ├─ ModelError                  a vision-language model that cannot be loaded or run
 └─ BalancerError               a balancer that cannot be read, or is one of another encoder

A message names the file or value at fault, what was expected, and what to do. What a program may
want to act on is an attribute of the error.
"""

from __future__ import annotations

import os
from collections.abc import Sequence


class TexcatError(Exception):
    """Root of the tree: ``except TexcatError`` catches whatever texcat raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        """How it goes from a worker to the process that it works for: as it is, and not made anew."""
        return _as_it_was, (type(self), self.args, self.__dict__)


def _as_it_was(kind: type[TexcatError], args: tuple[object, ...], state: dict[str, object]) -> TexcatError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class UsageError(TexcatError):
    """A value that the caller gave cannot be used."""


class InvalidPhraseError(UsageError):
    """A phrase that cannot name an interest."""

    def __init__(self, phrase: str, reason: str) -> None:
        self.phrase = phrase
        self.reason = reason
        shown = phrase if len(phrase) <= 60 else phrase[:57] + "..."
        super().__init__(f"phrase {shown!r} {reason}; give a few words, in any language")


class UnknownChannelError(UsageError):
    """A channel, group or preset name that no schema knows."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(f"no channel, group or preset is called {name!r}; known: {', '.join(known)}")


class UnknownInterestError(UsageError):
    """An interest that the catalogue does not hold."""

    def __init__(self, phrase: str) -> None:
        self.phrase = phrase
        super().__init__(
            f"the catalogue holds no interest {phrase!r}; `texcat interest list` shows those it holds"
        )


class UnknownEncoderError(UsageError):
    """An encoder specification that names no encoder."""

    def __init__(self, spec: str, reason: str) -> None:
        self.spec = spec
        super().__init__(
            f"encoder {spec!r} {reason}; expected 'builtin' or 'open_clip:MODEL/PRETRAINED', where "
            "PRETRAINED is a tag or a checkpoint file, and ,variant=… ,size=… ,precision=… may follow"
        )


class CatalogueError(TexcatError):
    """The folder of a catalogue, or its state."""


class CatalogueMissingError(CatalogueError):
    """There is no catalogue at this path."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        super().__init__(f"no catalogue at {self.path!r}; `texcat init -c {self.path}` makes one")


class CatalogueExistsError(CatalogueError):
    """A catalogue, or another file, is in the way of a new one."""

    def __init__(self, path: str | os.PathLike[str], found: str = "a catalogue") -> None:
        self.path = os.fspath(path)
        super().__init__(f"{self.path!r} already holds {found}; open it, or choose another folder")


class CatalogueLockedError(CatalogueError):
    """Another process writes to this catalogue."""

    def __init__(self, path: str | os.PathLike[str], holder: str) -> None:
        self.path = os.fspath(path)
        self.holder = holder
        super().__init__(
            f"catalogue {self.path!r} is being written by {holder}; wait until it ends, or open it to read"
        )


class ReadOnlyError(CatalogueError):
    """A change was asked of a catalogue that was opened to read."""

    def __init__(self, path: str | os.PathLike[str], action: str) -> None:
        self.path = os.fspath(path)
        self.action = action
        super().__init__(f"cannot {action}: catalogue {self.path!r} is open to read; open it with mode='w'")


class FormatVersionError(CatalogueError):
    """A file written in a format that this version does not read."""

    def __init__(self, what: str, found: object, expected: object) -> None:
        self.found = found
        self.expected = expected
        super().__init__(
            f"{what} has format {found}, this version of texcat reads {expected}; "
            "use the version of texcat that wrote it, or index again into a new catalogue"
        )


class FingerprintMismatchError(CatalogueError):
    """A catalogue or record that was made with another encoder."""

    def __init__(self, what: str, expected: str, actual: str) -> None:
        self.expected = expected
        self.actual = actual
        super().__init__(
            f"{what} was made with encoder {expected}, but the encoder in use is {actual}: maps of two "
            "encoders never mix; load the first encoder, or `texcat reindex` with the second"
        )


class ChannelNotHeldError(CatalogueError):
    """A channel that this catalogue could hold, but does not."""

    def __init__(self, name: str, group: str, held: Sequence[str]) -> None:
        self.name = name
        self.group = group
        super().__init__(
            f"channel {name!r} is not held: group {group!r} is not enabled (held: {', '.join(held)}); "
            f"make the catalogue with `texcat init --groups {','.join((*held, group))}`"
        )


class StoreError(TexcatError):
    """The texture shards."""


class RecordCorruptError(StoreError):
    """A record whose bytes are not what was written; it is never served."""

    def __init__(self, where: str, expected: object, actual: object) -> None:
        self.where = where
        self.expected = expected
        self.actual = actual
        super().__init__(
            f"record {where} is damaged (expected {expected}, found {actual}); `texcat verify` lists "
            "damaged records, and `texcat index` makes them again"
        )


class RecordMissingError(StoreError):
    """An image that has no record in the store."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"no texture is stored for image {key}; `texcat index` the folder that holds it")


class StoreFullError(StoreError):
    """The disk, or the quota, has no room left; everything committed before is kept."""

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        self.path = os.fspath(path)
        super().__init__(
            f"no room left for {self.path!r} ({reason}); free some space and run the command again: "
            "it goes on where it stopped"
        )


class RegistryError(TexcatError):
    """The registry database."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"registry {url}: {reason}")


class UnrelatedError(TexcatError):
    """Two phrases of the graph of interests that no chain of ties joins."""

    def __init__(self, start: str, end: str, around: tuple[int, int]) -> None:
        self.start = start
        self.end = end
        self.around = around
        super().__init__(
            f"nothing leads from {start!r} to {end!r}: {around[0]} phrases hang together around the first "
            f"and {around[1]} around the second; ask about both in one session, or add an interest that lies "
            "between them"
        )


class ImageReadError(TexcatError):
    """One image that cannot be read. Never stops a batch."""

    def __init__(self, path: str | os.PathLike[str] | bytes, reason: str) -> None:
        self.path = os.fsdecode(path)
        self.reason = reason
        super().__init__(f"{self.path!r}: {reason}")


class EngineError(TexcatError):
    """The machines that records are made on: they cannot be reached, or fail again and again."""


class EncoderNeededError(TexcatError):
    """Something that only an encoder can make, where none may be loaded."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what} needs the encoder, which was ruled out; use Retriever(..., compute=True)")


class EncoderError(TexcatError):
    """An encoder that cannot be loaded or run."""

    def __init__(self, encoder: str, reason: str) -> None:
        self.encoder = encoder
        self.reason = reason
        super().__init__(f"encoder {encoder}: {reason}")


class ModelError(TexcatError):
    """A vision-language model that cannot be loaded or run."""

    def __init__(self, model: str, reason: str) -> None:
        self.model = model
        self.reason = reason
        super().__init__(f"model {model}: {reason}")


class BalancerError(TexcatError):
    """A balancer whose file cannot be read, or that was trained with another encoder."""

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"balancer {os.fspath(path)!r}: {reason}")
