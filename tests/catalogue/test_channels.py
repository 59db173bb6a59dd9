"""The channel schema: names, orders, groups, and errors that say what to enable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from texcat.catalogue.channels import CHANNELS, PRESETS, ChannelSchema, Group, Kind, Source
from texcat.catalogue.errors import ChannelNotHeldError, UnknownChannelError

NAMES = [channel.name for channel in CHANNELS]


def test_core13_is_in_its_own_order() -> None:
    assert ChannelSchema.parse("core13").names == (
        "red", "green", "blue", "lightness", "green_red", "edge_x", "edge_y", "edge_magnitude",
        "y", "x", "eccentricity", "saliency", "luminance",
    )  # fmt: skip


def test_default_is_every_group_and_ends_with_the_interest_group() -> None:
    schema = ChannelSchema.parse("default")
    assert schema.groups == tuple(Group)
    assert schema.names[-3:] == ("similarity", "interest_edges", "interest_saliency")


@pytest.mark.parametrize("group", Group)
def test_a_group_stands_for_its_channels(group: Group) -> None:
    schema = ChannelSchema.of_groups([group])
    assert schema.names == tuple(channel.name for channel in CHANNELS if channel.group == group)
    assert schema.groups == (group,)
    if group != "saliency":  # a channel, too, and then that is meant
        assert ChannelSchema.parse([group]) == schema


@given(st.lists(st.sampled_from([*NAMES, *PRESETS, *Group])))
def test_no_channel_twice_and_each_at_its_index(parts: list[str]) -> None:
    schema = ChannelSchema.parse(parts)
    assert len(set(schema.names)) == len(schema)
    assert [schema.index(name) for name in schema.names] == list(range(len(schema)))
    assert ChannelSchema.parse(",".join(parts) or "red") == (schema if parts else ChannelSchema.parse("red"))


def test_only_planes_made_from_pixels_are_stored() -> None:
    stored = ChannelSchema.parse("default").stored
    assert {channel.source for channel in stored} == {Source.STORED}
    assert not {"y", "x", "eccentricity", "similarity"} & set(stored.names)
    assert {channel.name for channel in stored if channel.kind is Kind.LABEL} == {"cluster_id", "object_id"}


def test_a_channel_that_is_not_held_names_the_group_to_enable() -> None:
    schema = ChannelSchema.parse(["appearance", "interest"])
    with pytest.raises(ChannelNotHeldError, match=r"--groups appearance,interest,saliency"):
        schema.select("red,saliency")
    assert schema.select("similarity,red").names == ("similarity", "red")
    assert "red" in schema
    assert "saliency" not in schema


def test_where_a_channel_has_the_name_of_its_group_the_channel_is_meant() -> None:
    assert ChannelSchema.parse("saliency").names == ("saliency",)
    assert len(ChannelSchema.of_groups(["saliency"])) == 4


def test_of_groups_takes_groups_alone() -> None:
    with pytest.raises(UnknownChannelError, match="known: appearance, position"):
        ChannelSchema.of_groups(["red"])


@pytest.mark.parametrize("name", ["", "reds", "RED", "depth"])
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(UnknownChannelError, match="known: core13, default, appearance") as caught:
        ChannelSchema.parse([name])
    assert caught.value.name == name
    with pytest.raises(UnknownChannelError):
        ChannelSchema.parse("core13").index(name)
