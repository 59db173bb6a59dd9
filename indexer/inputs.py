"""What is given to be indexed, of any kind, and what a pass has to open of it.

Folders and files of this machine, folders and files behind URLs, tar archives, and lists of images: each
comes to a `ScanPlan`, and these are one plan. A rescan asks for the state of each archive, and of each file
behind a URL; it reads none that is as it was.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace

from ..catalogue.registry import KnownArchive, KnownFile, Registry
from ..catalogue.types import Skipped
from . import remote
from .lists import is_list, read_list
from .places import absolute, is_url, member_of, split_member
from .reading import from_remote, one_line
from .scan import FoundFile, ScanPlan, compare, has_image_suffix, plan_scan, renewed
from .tars import list_archive

CONNECTIONS = 32
"""Questions that servers are asked at the same time: each waits for its answer, and takes no processor."""

_STATES = ("new", "unchanged", "failed", "missing", "unavailable")
_COMPRESSED_SUFFIXES = (b".tar.gz", b".tgz", b".tar.bz2", b".tbz2", b".tar.xz", b".txz", b".tar.zst")


@dataclass(slots=True)
class _Sorted:
    """Inputs, by what they are. Of an archive the members that count, or None for all of them."""

    folders: list[bytes] = field(default_factory=list)
    files: list[bytes] = field(default_factory=list)
    archives: dict[bytes, set[bytes] | None] = field(default_factory=dict)
    trees: list[bytes] = field(default_factory=list)
    urls: list[bytes] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def add_file(self, place: bytes) -> None:
        """Take `place` for one image."""
        member = None if os.path.lexists(place) else split_member(place)
        if member is not None:
            members = self.archives.setdefault(member[0], set())
            if members is not None:
                members.add(place)
        else:
            (self.urls if is_url(place) else self.files).append(place)


def plan_inputs(
    registry: Registry, inputs: Iterable[str | bytes | os.PathLike[str]], column: str | None = None
) -> ScanPlan:
    """Compare what is at `inputs` with what `registry` knows of it.

    Each input is taken for what its name says: a list of images (`lists.is_list`), a tar archive (``.tar``),
    a member of one, a URL, or else a folder or file of this machine. Lists and archives in a folder are not
    looked into. Of a list, each entry is one image, and what it does not name any more is left as it is.

    A file behind a URL is unchanged when its server tells the same size and ETag, checksum or time as before;
    without any of these it is read again. It is missing when the server answers that it is not there, and
    unavailable when the server does not answer. A member is unchanged when the size and time of its archive
    are; it is missing when a sound archive does not hold it any more, or the archive itself is missing.

    Args:
        registry: what is known.
        inputs: as above.
        column: of the lists that holds paths or URLs; see `read_list`.

    Raises:
        UsageError: the file system of a URL needs a package that is not installed, or a list cannot be used.
    """
    given = _sort(inputs, column)
    known = {**registry.files(given.folders), **registry.files_at(given.files)}
    return _merged(
        plan_scan(given.folders, known, given.files),
        _plan_archives(registry, given.archives),
        *(_plan_tree(url, registry.files([url])) for url in given.trees),
        _plan_states(_look_at_urls(given.urls), registry.files_at(given.urls)),
        ScanPlan(skipped=tuple(given.skipped)),
    )


def plan_known(registry: Registry, known: Mapping[bytes, KnownFile]) -> ScanPlan:
    """Compare files that are `known`, each by itself, with what they are now."""
    given = _Sorted()
    for place in known:
        given.add_file(place)
    return _merged(
        plan_scan([], known, given.files),
        _plan_archives(registry, given.archives),
        _plan_states(_look_at_urls(given.urls), {url: known[url] for url in given.urls}),
    )


def _sort(inputs: Iterable[str | bytes | os.PathLike[str]], column: str | None) -> _Sorted:
    found = _Sorted()
    for name in inputs:
        place = absolute(name)
        if is_url(place):
            remote.require((split_member(place) or (place,))[0])
        if os.path.isdir(place):
            found.folders.append(place)
        elif is_list(place):
            for entry in read_list(place, column):
                if isinstance(entry, Skipped):
                    found.skipped.append(entry)
                else:
                    found.add_file(entry)
        elif place.lower().endswith(b".tar"):
            found.archives[place] = None
        elif place.lower().endswith(_COMPRESSED_SUFFIXES):
            reason = "is a compressed archive, where no member can be read alone; unpack it to a plain .tar"
            found.skipped.append(Skipped(os.fsdecode(place), reason))
        elif split_member(place) is not None:
            found.add_file(place)
        else:
            (found.trees if is_url(place) else found.folders).append(place)
    return found


@dataclass(frozen=True, slots=True)
class _Absent:
    """A file that was not found, and whether it is gone for certain."""

    reason: str
    gone: bool


def _plan_archives(registry: Registry, archives: Mapping[bytes, Collection[bytes] | None]) -> ScanPlan:
    known = {
        archive: registry.files_in(archive) if members is None else registry.files_at(members)
        for archive, members in archives.items()
    }
    states = {
        **_look_at_disk({archive: files for archive, files in known.items() if not is_url(archive)}),
        **_look_at_urls(archive for archive in archives if is_url(archive)),
    }
    plans: list[ScanPlan] = []
    for archive, members in archives.items():
        state = states[archive]
        if isinstance(state, _Absent):
            plans.append(_absent(archive, state, known[archive].values()))
        else:
            plans.append(_plan_archive(registry, state, known[archive], members))
    return _merged(*plans)


def _plan_archive(
    registry: Registry, archive: FoundFile, known: Mapping[bytes, KnownFile], wanted: Collection[bytes] | None
) -> ScanPlan:
    """What became of the `wanted` members of an archive that is there; of all its images when None."""
    state = (archive.size, archive.mtime_ns)
    current = {
        path: replace(archive, path=path)
        for path, file in known.items()
        if (file.size, file.mtime_ns) == state
    }
    if wanted is None:
        listed = registry.archive(archive.path)
        if listed is not None and (listed.size, listed.mtime_ns, listed.members) == (
            *state,
            sum(map(_is_image, current)),
        ):
            return _compared(current, known, damage=_damage(archive.path, listed.damage))
    elif len(current) == len(wanted):
        return _compared(current, known)
    try:
        listing = list_archive(archive.path, *state)
    except (OSError, remote.RemoteError) as error:
        return _absent(
            archive.path, _Absent(f"cannot be read: {one_line(error)}", gone=False), known.values()
        )
    members = {member_of(archive.path, name): span for name, span in listing.spans.items()}
    found = {
        path: replace(archive, path=path, span=span)
        for path, span in members.items()
        if (_is_image(path) if wanted is None else path in wanted)
    }
    damage = _damage(archive.path, listing.damage)
    if wanted is None:
        kept = KnownArchive(archive.path, *state, len(found), listing.damage)
        return _merged(_compared(found, known, damage=damage), ScanPlan(archives=(kept,)))
    absent = [path for path in wanted if path not in members and path not in known]
    skipped = tuple(Skipped(os.fsdecode(path), "is not in its archive") for path in absent)
    return _merged(_compared(found, known, damage=damage), ScanPlan(skipped=skipped))


def _damage(archive: bytes, reason: str | None) -> tuple[Skipped, ...]:
    return () if reason is None else (Skipped(os.fsdecode(archive), reason),)


def _is_image(member: bytes) -> bool:
    """Whether a member is taken when its archive is given: as files are from a folder."""
    name = os.path.basename(member.rpartition(b"::")[2])
    return has_image_suffix(name) and not name.startswith(b".")


def _plan_tree(url: bytes, known: Mapping[bytes, KnownFile]) -> ScanPlan:
    """What became of the images below a URL, or of the one that is at it. With a slash, it is a folder."""
    try:
        one = None if url.endswith(b"/") else remote.look(url)
        files = [one] if one is not None else remote.look_below(url)
    except remote.RemoteError as error:
        # As with a folder that is not there: the server may have been set up anew, and lack a disk.
        is_file = error.gone and url in known
        return _absent(url, _Absent(error.reason, is_file), known.values())
    taken = [file for file in files if one is not None or _is_taken(url, file.url)]
    states: dict[bytes, FoundFile | _Absent] = {
        file.url: from_remote(file) for file in taken if file.stamp is not None
    }
    states.update(_look_at_urls(file.url for file in taken if file.stamp is None))
    return _plan_states(states, known)


def _is_taken(root: bytes, url: bytes) -> bool:
    parts = url[len(root) :].strip(b"/").split(b"/")
    return has_image_suffix(parts[-1]) and not any(part.startswith(b".") for part in parts)


def _plan_states(states: Mapping[bytes, FoundFile | _Absent], known: Mapping[bytes, KnownFile]) -> ScanPlan:
    found = {place: state for place, state in states.items() if isinstance(state, FoundFile)}
    absent = {place: state for place, state in states.items() if isinstance(state, _Absent)}
    return _merged(
        *(_absent(place, state, [known[place]] if place in known else []) for place, state in absent.items()),
        _compared(found, {place: file for place, file in known.items() if place not in absent}),
    )


def _look_at_urls(urls: Iterable[bytes]) -> dict[bytes, FoundFile | _Absent]:
    def look(url: bytes) -> FoundFile | _Absent:
        try:
            file = remote.look(url)
        except remote.RemoteError as error:
            return _Absent(error.reason, error.gone)
        return _Absent("is a folder, not a file", gone=False) if file is None else from_remote(file)

    distinct = list(dict.fromkeys(urls))
    with ThreadPoolExecutor(CONNECTIONS, "texcat-look") as pool:
        return dict(zip(distinct, pool.map(look, distinct), strict=True))


def _look_at_disk(known: Mapping[bytes, Mapping[bytes, KnownFile]]) -> dict[bytes, FoundFile | _Absent]:
    """State of archives on the disk, of which some members may be known."""
    # An archive is gone when a file that lay where its members did would be. The size makes it a changed one.
    stand_ins = {
        archive: replace(next(iter(files.values())), path=archive, size=-2)
        for archive, files in known.items()
        if files
    }
    plan = plan_scan([], stand_ins, known)
    states: dict[bytes, FoundFile | _Absent] = {file.path: file for file in plan.new}
    states.update((file.path, _Absent("does not exist", gone=True)) for file in plan.missing)
    states.update((os.fsencode(item.path), _Absent(item.reason, gone=False)) for item in plan.skipped)
    return states


def _absent(place: bytes, state: _Absent, known: Iterable[KnownFile]) -> ScanPlan:
    files = tuple(known)
    if state.gone and files:
        return ScanPlan(missing=files)
    return ScanPlan(unavailable=files, skipped=(Skipped(os.fsdecode(place), state.reason),))


def _compared(
    found: Mapping[bytes, FoundFile], known: Mapping[bytes, KnownFile], damage: tuple[Skipped, ...] = ()
) -> ScanPlan:
    """The files that were found, against those known in the same place.

    Those of the known that were not found are missing; unavailable when `damage` may hide them.
    """
    new, unchanged, failed = compare(found.values(), known)
    absent = tuple(file for path, file in known.items() if path not in found)
    return ScanPlan(
        new=tuple(new),
        unchanged=tuple(unchanged),
        failed=tuple(failed),
        renewed=renewed((*unchanged, *failed), found),
        missing=() if damage else absent,
        unavailable=absent if damage else (),
        skipped=damage,
    )


def _merged(*plans: ScanPlan) -> ScanPlan:
    """One plan of several; a file that several came upon is in it as the first has it."""
    parts: dict[str, list[object]] = {part.name: [] for part in fields(ScanPlan)}
    taken: set[bytes] = set()
    for plan in plans:
        fresh = {file.path for part in _STATES for file in getattr(plan, part)} - taken
        for part in (*_STATES, "renewed"):
            parts[part] += (file for file in getattr(plan, part) if file.path in fresh)
        parts["skipped"] += plan.skipped
        parts["archives"] += plan.archives
        taken |= fresh
    return ScanPlan(**{name: tuple(items) for name, items in parts.items()})  # type: ignore[arg-type]
