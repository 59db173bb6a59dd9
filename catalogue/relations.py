"""How phrases are related by what they mean, and by what is seen in the images; kept in the registry.

Both are made from vectors and maps, and kept because making them again takes seconds. How phrases are used
together is not kept: the graph works it out from the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, delete, exists, select

from . import tables
from .database import Database
from .errors import UsageError
from .nearest import Nearest, correlations, extend

MEANING, SIGHT = "meaning", "sight"

NEIGHBOURS = 10
"""So many of the nearest phrases each phrase is tied to."""

LEAST_CORRELATION = 0.2
"""Interests whose scores correlate less are not tied; so much is chance among a hundred images."""

_BATCH = 1_000

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Relation:
    """Two phrases that are related: `value` is their cosine (meaning), or correlation (sight)."""

    kind: str
    source: str
    target: str
    value: float


class Relations:
    """Relations between the phrases of a registry, as the encoder with one fingerprint sees them.

    Each method is one transaction, or one for each thousand phrases; see `Memory` for errors.
    """

    def __init__(self, database: Database, fingerprint: str) -> None:
        self._database = database
        self._fingerprint = fingerprint

    def without_text(self) -> list[str]:
        """Phrases that have no text embedding yet, in the order in which they came to be."""
        held = exists().where(
            tables.phrase_vectors.c.phrase_id == tables.phrases.c.id,
            tables.phrase_vectors.c.fingerprint == self._fingerprint,
        )
        statement = select(tables.phrases.c.phrase).where(~held).order_by(tables.phrases.c.id)
        with self._database.reading() as connection:
            return list(connection.scalars(statement))

    def add_texts(self, texts: Mapping[str, NDArray[np.float32]]) -> None:
        """Keep text embeddings, by phrase, and tie each phrase to the `NEIGHBOURS` nearest.

        Phrases that are there already are tied to the new ones where those are nearer, and nothing else of
        them changes. A phrase that is not known, because it was forgotten meanwhile, is passed over.

        Args:
            texts: float32 [d_text], unit norm.

        Raises:
            UsageError: an embedding has not the length of the others, or not unit norm.
        """
        remaining = iter(texts.items())
        while batch := dict(islice(remaining, _BATCH)):
            with self._database.writing("tie phrases by their meaning") as connection:
                self._add(connection, batch)

    def put_scores(self, scores: Mapping[str, NDArray[np.float32]]) -> None:
        """Tie phrases by how their scores correlate over the images, in place of all such ties.

        Each is tied to the `NEIGHBOURS` whose scores correlate most with its own, from `LEAST_CORRELATION`.

        Args:
            scores: by phrase, float32 [images >= 1], over the same images in the same order.
        """
        phrases = list(scores)
        found = correlations(np.stack(list(scores.values()))) if phrases else np.zeros((0, 0), np.float32)
        with self._database.writing("tie interests by what is seen") as connection:
            connection.execute(
                delete(tables.relations).where(
                    tables.relations.c.fingerprint == self._fingerprint, tables.relations.c.kind == SIGHT
                )
            )
            known = select(tables.phrases.c.phrase, tables.phrases.c.id)
            ids = dict(connection.execute(known).all())
            rows = [
                self._row(SIGHT, ids[phrases[i]], ids[phrases[j]], float(found[i, j]))
                for i in range(len(phrases))
                for j in np.argsort(-found[i], kind="stable")[:NEIGHBOURS]
                if found[i, j] >= LEAST_CORRELATION and phrases[i] in ids and phrases[j] in ids
            ]
            if rows:
                connection.execute(tables.relations.insert(), rows)

    def all(self) -> list[Relation]:
        """All relations. Two phrases may be related from both ends, with the same value."""
        names = tables.phrases.c
        with self._database.reading() as connection:
            phrases = dict(connection.execute(select(names.id, names.phrase)).all())
            rows = connection.execute(_RELATIONS, {"of": self._fingerprint}).all()
        return [
            Relation(kind, phrases[source], phrases[target], value) for kind, source, target, value in rows
        ]

    def among(self, phrases: Iterable[str]) -> list[Relation]:
        """Each of `phrases` that has an embedding, with the `NEIGHBOURS` nearest among them, by meaning.

        The members of a large vocabulary take all the places among the nearest of all, so that two
        interests which belong together may not be related there.
        """
        names: list[str] = []
        texts: list[bytes] = []
        remaining = iter(sorted(phrases))
        with self._database.reading() as connection:
            while chunk := list(islice(remaining, _BATCH)):
                found = _TEXTS.where(tables.phrases.c.phrase.in_(chunk)).order_by(tables.phrases.c.phrase)
                for phrase, content in connection.execute(found, {"of": self._fingerprint}):
                    names.append(phrase)
                    texts.append(content)
        if not texts:
            return []
        vectors = np.stack([np.frombuffer(content, "<f4") for content in texts])
        nearest = extend(Nearest.none(0, NEIGHBOURS), vectors)
        return [
            Relation(MEANING, name, names[place], cosine)
            for name, places, cosines in zip(
                names, nearest.places.tolist(), nearest.cosines.tolist(), strict=True
            )
            for place, cosine in zip(places, cosines, strict=True)
            if place >= 0
        ]

    def _add(self, connection: Connection, texts: Mapping[str, NDArray[np.float32]]) -> None:
        held = connection.execute(_VECTORS, {"of": self._fingerprint}).all()
        known = [row.phrase_id for row in held]
        ids = connection.execute(
            select(tables.phrases.c.phrase, tables.phrases.c.id).where(tables.phrases.c.phrase.in_(texts))
        )
        new = {number: texts[phrase] for phrase, number in ids if number not in set(known)}
        if not new:
            return
        every = [*known, *new]
        vectors = _stacked([*(np.frombuffer(row.text, "<f4") for row in held), *new.values()])
        before = self._nearest(connection, known)
        after = extend(before, vectors)
        connection.execute(
            tables.phrase_vectors.insert(),
            [
                {"phrase_id": n, "fingerprint": self._fingerprint, "text": v.astype("<f4").tobytes()}
                for n, v in new.items()
            ],
        )
        gone, come = _changes(before, after)
        if gone:
            rows = [self._row(MEANING, every[i], every[j], 0.0) for i, j in gone]
            connection.execute(_FORGET_RELATION, rows)
        rows = [self._row(MEANING, every[i], every[j], value) for i, j, value in come]
        if rows:
            connection.execute(tables.relations.insert(), rows)

    def _nearest(self, connection: Connection, known: list[int]) -> Nearest:
        """What is kept of the nearest of the phrases `known`, whose ids ascend."""
        statement = _RELATIONS.where(tables.relations.c.kind == MEANING)
        rows = connection.execute(statement, {"of": self._fingerprint}).all()
        _, sources, targets, values = zip(*rows, strict=True) if rows else ((), (), (), ())
        ids = np.array(known, np.int64)
        source, target = (np.searchsorted(ids, np.array(ends, np.int64)) for ends in (sources, targets))
        cosines = np.array(values, np.float32)
        order = np.lexsort((-cosines, source))
        source = source[order]
        rank = np.arange(len(source)) - np.searchsorted(source, source)
        nearest = Nearest.none(len(known), NEIGHBOURS)
        nearest.places[source, rank] = target[order]
        nearest.cosines[source, rank] = cosines[order]
        return nearest

    def _row(self, kind: str, source: int, target: int, value: float) -> dict[str, object]:
        return {
            "fingerprint": self._fingerprint,
            "kind": kind,
            "source_id": source,
            "target_id": target,
            "value": value,
        }


_VECTORS = (
    select(tables.phrase_vectors.c.phrase_id, tables.phrase_vectors.c.text)
    .where(tables.phrase_vectors.c.fingerprint == bindparam("of"))
    .order_by(tables.phrase_vectors.c.phrase_id)
)
_TEXTS = (
    select(tables.phrases.c.phrase, tables.phrase_vectors.c.text)
    .join_from(tables.phrases, tables.phrase_vectors)
    .where(tables.phrase_vectors.c.fingerprint == bindparam("of"))
)
_RELATIONS = select(
    tables.relations.c.kind,
    tables.relations.c.source_id,
    tables.relations.c.target_id,
    tables.relations.c.value,
).where(tables.relations.c.fingerprint == bindparam("of"))
_FORGET_RELATION = delete(tables.relations).where(
    tables.relations.c.fingerprint == bindparam("fingerprint"),
    tables.relations.c.kind == bindparam("kind"),
    tables.relations.c.source_id == bindparam("source_id"),
    tables.relations.c.target_id == bindparam("target_id"),
)


def _changes(before: Nearest, after: Nearest) -> tuple[list[Pair], list[tuple[int, int, float]]]:
    """Pairs (source, target) that are neighbours no more, and the new ones with their cosines."""
    known = len(before.places)
    gone: list[Pair] = []
    come: list[tuple[int, int, float]] = []
    same = (before.places == after.places[:known]).all(1)
    for i in (*np.flatnonzero(~same).tolist(), *range(known, len(after.places))):
        old = set(before.places[i].tolist()) if i < known else set()
        new = dict(zip(after.places[i].tolist(), after.cosines[i].tolist(), strict=True))
        gone += ((i, j) for j in old - new.keys() if j >= 0)
        come += ((i, j, value) for j, value in new.items() if j >= 0 and j not in old)
    return gone, come


def _stacked(vectors: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    if len({vector.shape for vector in vectors}) != 1:
        raise UsageError(f"text embeddings have one length, got shapes {sorted({v.shape for v in vectors})}")
    stacked = np.stack(vectors).astype(np.float32)
    norms = np.linalg.norm(stacked, axis=1)
    if not np.allclose(norms, 1.0, atol=1e-3):
        raise UsageError(f"a text embedding has unit norm, got norms from {norms.min():g} to {norms.max():g}")
    return stacked
