"""Channels: which planes a texture has, in which order, with which range.

Consumers ask for a channel by name and never by position. A channel that a catalogue does not hold
is an error that names the group to enable.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from .errors import ChannelNotHeldError, UnknownChannelError


class Group(StrEnum):
    """The groups that a catalogue enables as a whole, in the order of a texture."""

    APPEARANCE = "appearance"
    POSITION = "position"
    EDGES = "edges"
    SALIENCY = "saliency"
    CLUSTERS = "clusters"
    OBJECTS = "objects"
    INTEREST = "interest"


class Kind(StrEnum):
    """How the values of a plane may be treated."""

    CONTINUOUS = "continuous"
    """A magnitude: may be averaged, interpolated and quantised."""

    LABEL = "label"
    """A whole number from 0 to 255 that names a segment: never averaged or interpolated."""


class Source(StrEnum):
    """Where a plane comes from when a texture is put together."""

    STORED = "stored"
    """Made from the image's pixels once, stored once per image."""

    DERIVED = "derived"
    """Follows from other channels, at look-up: cheaper to make again than to read."""

    GRID = "grid"
    """The same for every image: made from the grid alone."""

    INTEREST = "interest"
    """Blended from interest maps at look-up."""


@dataclass(frozen=True, slots=True)
class Channel:
    """One named plane.

    Attributes:
        name: unique.
        group: what it is enabled with.
        low, high: bounds of its values; infinite where the encoder sets the scale.
        kind: what may be done with its values.
        source: where it comes from.
        needs: channels that a derived one follows from.
    """

    name: str
    group: Group
    low: float
    high: float
    kind: Kind = Kind.CONTINUOUS
    source: Source = Source.STORED
    needs: tuple[str, ...] = ()


_INF = math.inf
_A, _P, _E = Group.APPEARANCE, Group.POSITION, Group.EDGES
_S, _C, _O, _I = Group.SALIENCY, Group.CLUSTERS, Group.OBJECTS, Group.INTEREST


def _derived(name: str, group: Group, low: float, high: float, *needs: str) -> Channel:
    return Channel(name, group, low, high, source=Source.DERIVED, needs=needs)


CHANNELS: tuple[Channel, ...] = (
    Channel("red", _A, 0.0, 1.0),
    Channel("green", _A, 0.0, 1.0),
    Channel("blue", _A, 0.0, 1.0),
    _derived("luminance", _A, 0.0, 1.0, "red", "green", "blue"),
    Channel("lightness", _A, 0.0, 100.0),
    Channel("green_red", _A, -128.0, 127.0),
    Channel("y", _P, 0.0, 1.0, source=Source.GRID),
    Channel("x", _P, 0.0, 1.0, source=Source.GRID),
    Channel("eccentricity", _P, 0.0, 1.0, source=Source.GRID),
    Channel("edge_x", _E, -1.0, 1.0),
    Channel("edge_y", _E, -1.0, 1.0),
    Channel("edge_magnitude", _E, 0.0, 1.0),
    _derived("edge_inverted", _E, 0.0, 1.0, "edge_magnitude"),
    _derived("highpass", _E, -1.0, 1.0, "luminance", "lowpass"),
    _derived("lowpass", _E, 0.0, 1.0, "luminance"),
    Channel("saliency_color", _S, 0.0, 1.0),
    Channel("saliency_intensity", _S, 0.0, 1.0),
    Channel("saliency_orientation", _S, 0.0, 1.0),
    _derived("saliency", _S, 0.0, 1.0, "saliency_color", "saliency_intensity", "saliency_orientation"),
    Channel("cluster_id", _C, 0.0, 255.0, Kind.LABEL),
    Channel("color_variance", _C, 0.0, 1.0),
    Channel("distance_to_boundary", _C, 0.0, 1.0),
    Channel("object_id", _O, 0.0, 255.0, Kind.LABEL),
    _derived("object_boundary", _O, 0.0, 1.0, "object_id"),
    Channel("similarity", _I, -_INF, _INF, source=Source.INTEREST),
    _derived("interest_edges", _I, 0.0, 1.0, "similarity", "edge_magnitude"),
    _derived("interest_saliency", _I, 0.0, 1.0, "similarity"),
)
"""Every channel that texcat makes, in the order of a full texture."""

PRESETS: dict[str, tuple[str, ...]] = {
    "core13": (
        "red", "green", "blue", "lightness", "green_red", "edge_x", "edge_y", "edge_magnitude",
        "y", "x", "eccentricity", "saliency", "luminance",
    ),
    "default": tuple(channel.name for channel in CHANNELS),
}  # fmt: skip
"""Named selections, in their own order."""

_BY_NAME = {channel.name: channel for channel in CHANNELS}
_GROUPS = frozenset(group.value for group in Group)
_KNOWN = (*PRESETS, *Group, *_BY_NAME)


@dataclass(frozen=True, slots=True)
class ChannelSchema:
    """An ordered choice of channels, each at most once."""

    channels: tuple[Channel, ...]

    @classmethod
    def parse(cls, names: str | Sequence[str]) -> Self:
        """Schema of the named presets, channels and groups, in the order given.

        `names` is a sequence, or one string with commas. A group stands for all of its channels; where a
        channel has the name of its group (``saliency``), the channel is meant. A channel that is named twice
        is kept at its first place.

        Raises:
            UnknownChannelError: a name is neither a preset, a channel nor a group.
        """
        parts = names.split(",") if isinstance(names, str) else names
        chosen = (channel for part in parts for channel in _expand(part.strip()))
        return cls(tuple(dict.fromkeys(chosen)))

    @classmethod
    def of_groups(cls, groups: Sequence[str]) -> Self:
        """Every channel of the named groups, in the order of a full texture.

        Raises:
            UnknownChannelError: a name is not that of a group.
        """
        for group in groups:
            if group not in _GROUPS:
                raise UnknownChannelError(group, tuple(Group))
        return cls(tuple(channel for channel in CHANNELS if channel.group in groups))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the channels, in order."""
        return tuple(channel.name for channel in self.channels)

    @property
    def groups(self) -> tuple[Group, ...]:
        """Groups that have at least one channel here, in the order of a full texture."""
        held = {channel.group for channel in self.channels}
        return tuple(group for group in Group if group in held)

    @property
    def stored(self) -> Self:
        """The channels that are kept of an image to give these: each once, in the order of a full texture."""
        needed, waiting = set[str](), list(self.names)
        while waiting:
            name = waiting.pop()
            if name not in needed:
                needed.add(name)
                waiting.extend(_BY_NAME[name].needs)
        return type(self)(tuple(c for c in CHANNELS if c.name in needed and c.source is Source.STORED))

    def index(self, name: str) -> int:
        """Position of the channel called `name`.

        Raises:
            UnknownChannelError: no channel has this name.
            ChannelNotHeldError: the channel exists, but this schema does not hold it.
        """
        for position, channel in enumerate(self.channels):
            if channel.name == name:
                return position
        if name not in _BY_NAME:
            raise UnknownChannelError(name, tuple(_BY_NAME))
        raise ChannelNotHeldError(name, str(_BY_NAME[name].group), [str(group) for group in self.groups])

    def select(self, names: str | Sequence[str]) -> Self:
        """The channels that `names` ask for, in that order; each must be held here.

        Raises:
            UnknownChannelError, ChannelNotHeldError: as `parse` and `index`.
        """
        wanted = type(self).parse(names)
        for name in wanted.names:
            self.index(name)
        return wanted

    def __contains__(self, name: object) -> bool:
        return any(channel.name == name for channel in self.channels)

    def __iter__(self) -> Iterator[Channel]:
        return iter(self.channels)

    def __len__(self) -> int:
        return len(self.channels)


def _expand(name: str) -> tuple[Channel, ...]:
    if name in PRESETS:
        return tuple(_BY_NAME[member] for member in PRESETS[name])
    if name in _BY_NAME:
        return (_BY_NAME[name],)
    if name in _GROUPS:
        return ChannelSchema.of_groups([name]).channels
    raise UnknownChannelError(name, _KNOWN)
