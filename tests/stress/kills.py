"""Kill commands (SIGKILL) at random moments, and see what is left of the catalogue.

    python -m tests.stress kills [--kills 50] [--photos 40] [--seed 0]

Each command runs in a process of its own that is killed between its start and the time that it takes when
nobody interrupts it. Then the catalogue must verify, but for the problems that this command may leave; the
same command run again, and `repair` for what has no command of its own, must bring it, record by record, to
where it is without interruption. A new command that writes joins the table `SCENARIOS`.
"""

from __future__ import annotations

import multiprocessing
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path

from texcat.catalogue import Catalogue, UnknownInterestError
from texcat.catalogue.backup import backup
from texcat.catalogue.pruning import prune_interests
from texcat.catalogue.verifying import repair, verify

from .corpus import PHRASES, Content, content, differences, expand, index, make_photos, miss, work

ORPHAN = "record that the registry does not know"
FOUNDLING = "maps of an interest that is removed"
OTHER = "other"

_REASONS = {"has a record, but is not in the registry": ORPHAN, "its removal was interrupted": FOUNDLING}


@dataclass(frozen=True)
class Place:
    """Where a command works."""

    catalogue: Path
    photos: Path
    copy: Path


@dataclass(frozen=True)
class Scenario:
    """A command that is killed.

    Attributes:
        run: the command; run again, it must end what was interrupted.
        start: ``half``: half of the photos are indexed; ``full``: all are.
        legal: problems that it may leave.
    """

    run: Callable[[Place], None]
    start: str
    legal: frozenset[str] = frozenset()


def _index(place: Place) -> None:
    index(place.catalogue, place.photos)


def _add(place: Place) -> None:
    with Catalogue.open(place.catalogue, "w") as catalogue:
        catalogue.add_interest("blue sky")
        catalogue.add_interest("red rose", weight=2.0)
    index(place.catalogue, place.photos)


def _remove(place: Place) -> None:
    with Catalogue.open(place.catalogue, "w") as catalogue:
        for phrase in PHRASES:
            try:
                catalogue.remove_interest(phrase)
            except UnknownInterestError:
                continue  # the registry has forgotten it before the kill


def _expand(place: Place) -> None:
    expand(place.catalogue)


def _work(place: Place) -> None:
    miss(place.catalogue)
    work(place.catalogue)


def _prune(place: Place) -> None:
    with Catalogue.open(place.catalogue, "w") as catalogue:
        prune_interests(catalogue, max_bytes=0, dry_run=False)


def _compact(place: Place) -> None:
    with Catalogue.open(place.catalogue, "w") as catalogue:
        catalogue.compact()


def _backup(place: Place) -> None:
    with Catalogue.open(place.catalogue) as catalogue:
        if not place.copy.exists():
            backup(catalogue, place.copy)


SCENARIOS = {
    "index": Scenario(_index, "half", frozenset({ORPHAN})),
    "interest add": Scenario(_add, "full"),
    "interest remove": Scenario(_remove, "full", frozenset({FOUNDLING})),
    "expand": Scenario(_expand, "full"),
    "work": Scenario(_work, "full"),
    "prune": Scenario(_prune, "full"),
    "compact": Scenario(_compact, "full"),
    "backup": Scenario(_backup, "full"),
}


def run(folder: Path, kills: int, photos: int, seed: int) -> dict[str, object]:
    """Do `kills` kills, the commands in turn, in the empty folder `folder`.

    Returns:
        For each command: how many kills hit it, and after how many of them there was a problem, by kind.

    Raises:
        AssertionError: a catalogue was not sound, or not what it is without interruption.
    """
    chance = random.Random(seed)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    starts = _starts(context, folder, photos, seed)
    expected: dict[str, tuple[float, Content]] = {}
    counts = {name: Counter[str]() for name in SCENARIOS}
    for number in range(kills):
        name = list(SCENARIOS)[number % len(SCENARIOS)]
        scenario = SCENARIOS[name]
        if name not in expected:
            place = _fresh(starts, scenario, folder / f"whole-{name}")
            seconds = _run(context, scenario.run, place, None)[0]
            expected[name] = seconds, content(place.catalogue)
        seconds, whole = expected[name]
        ended = True
        while ended:  # one that came after its end was no kill
            place = _fresh(starts, scenario, folder / "killed")
            _, ended = _run(context, scenario.run, place, chance.uniform(0, seconds))
        counts[name]["killed"] += 1
        for kind in _examine(place, scenario, name):
            counts[name][kind] += 1
        _run(context, scenario.run, place, None)
        _finish(place, whole, name)
    return {name: dict(sorted(found.items())) for name, found in counts.items()}


def _starts(context: ForkServerContext, folder: Path, photos: int, seed: int) -> Place:
    """Catalogues to start from: ``half`` and ``full`` in one folder."""
    place = Place(folder / "starts", folder / "photos", folder / "copy")
    make_photos(place.photos, photos, seed)
    half = folder / "half"
    half.mkdir()
    for photo in sorted(place.photos.iterdir())[: photos // 2]:
        shutil.copy2(photo, half)
    place.catalogue.mkdir()
    for name in ("half", "full"):
        path = place.catalogue / name
        with Catalogue.create(path, shards=2) as catalogue:
            for phrase in PHRASES:
                catalogue.add_interest(phrase)
        source = half if name == "half" else place.photos
        _run(context, _index, Place(path, source, place.copy), None)
    return place


def _fresh(starts: Place, scenario: Scenario, path: Path) -> Place:
    """A place for a run. What an earlier kill left of a backup stays there: it must not matter."""
    copy = path.with_name(f"{path.name}-copy")
    for old in (path, copy):
        if old.exists():
            shutil.rmtree(old)
    shutil.copytree(starts.catalogue / scenario.start, path)
    return Place(path, starts.photos, copy)


def _run(
    context: ForkServerContext, command: Callable[[Place], None], place: Place, kill_after: float | None
) -> tuple[float, bool]:
    """Run a command in a process, and kill it if asked to; its seconds, and whether it came to its end."""
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(command, place, writer))
    process.start()
    writer.close()
    reader.recv()
    started = time.perf_counter()
    if kill_after is not None:
        time.sleep(kill_after)
        process.kill()
    process.join()
    seconds = time.perf_counter() - started
    if kill_after is None and process.exitcode != 0:
        raise AssertionError(f"{command.__name__} ended with {process.exitcode}")
    return seconds, process.exitcode == 0


def _child(command: Callable[[Place], None], place: Place, started: Connection) -> None:
    started.send(None)
    command(place)


def _examine(place: Place, scenario: Scenario, name: str) -> list[str]:
    """Kinds of the problems that a kill left, each once."""
    with Catalogue.open(place.catalogue) as catalogue:
        problems = list(verify(catalogue))
    kinds = {
        next((kind for words, kind in _REASONS.items() if words in problem.reason), OTHER): problem
        for problem in problems
    }
    for kind, problem in kinds.items():
        if kind not in scenario.legal:
            raise AssertionError(f"{name} left {problem}")
    _examine_copy(place)
    return sorted(kinds)


def _examine_copy(place: Place) -> None:
    """A backup is there as a whole, or not at all."""
    if place.copy.exists():
        with Catalogue.open(place.copy) as copy:
            problems = list(verify(copy))
        if problems or differences(content(place.copy), content(place.catalogue)):
            raise AssertionError(f"the backup is not sound: {problems}")


def _finish(place: Place, whole: Content, name: str) -> None:
    with Catalogue.open(place.catalogue, "w") as catalogue:
        repair(catalogue, verify(catalogue))
        left = list(verify(catalogue))
    if left:
        raise AssertionError(f"{name}: a repair left {left}")
    wrong = differences(content(place.catalogue), whole)
    if wrong:
        raise AssertionError(
            f"{name}: {len(wrong)} parts are not as without interruption, such as {wrong[0]}"
        )
    _examine_copy(place)
