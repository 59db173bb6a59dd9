"""A catalogue that an earlier version made is brought to the present format, and says the same.

`data/format1.tar.xz` is such a catalogue of three drawn pictures and nineteen interests; `data/format1.npz`
holds the planes that the earlier version read from it.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest
from texcat.catalogue import Catalogue, ImageKey
from texcat.catalogue.derived import derived_planes
from texcat.catalogue.errors import CatalogueError
from texcat.catalogue.quantise import dequantise

from ..fakes import TinyEncoder

DATA = Path(__file__).parent / "data"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with tarfile.open(DATA / "format1.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "format1"


def assert_as_before(path: Path) -> None:
    before = np.load(DATA / "format1.npz")
    names = before["names"].tolist()
    keys = {ImageKey.parse(name.partition("/")[0]) for name in before.files if "/" in name}
    with Catalogue.open(path) as catalogue:
        catalogue.check_encoder(TinyEncoder().fingerprint)
        assert set(catalogue.store.keys()) == keys
        assert list(catalogue.store.check()) == []
        assert len(catalogue.interests()) == 19
        for key in keys:
            record = catalogue.store.read(key)
            parts = {name.partition("/")[2] for name in before.files if name.startswith(f"{key}/")}
            assert record.maps.keys() == {int(part) for part in parts - {"base"}}
            for interest, planes in record.maps.items():
                np.testing.assert_array_equal(dequantise(planes), before[f"{key}/{interest}"])
            assert record.base is not None
            stored = dict(zip(catalogue.schema.stored.names, dequantise(record.base), strict=True))
            expected = dict(zip(names, before[f"{key}/base"], strict=True))
            for name, plane in stored.items():
                np.testing.assert_array_equal(plane, expected[name], err_msg=name)
            for name, plane in derived_planes(stored).items():
                # Format 1 kept these, a byte a cell; now they follow from others that are kept so.
                span = expected[name].max() - expected[name].min()
                np.testing.assert_allclose(plane, expected[name], atol=span / 255 + 2 / 255, err_msg=name)


def test_an_old_catalogue_is_upgraded_by_the_first_writer(old: Path) -> None:
    with pytest.raises(CatalogueError, match="has format 1; any command that writes"):
        Catalogue.open(old)
    Catalogue.open(old, "w").close()
    assert_as_before(old)
    Catalogue.open(old, "w").close()
    assert_as_before(old)


def test_an_interrupted_upgrade_goes_on(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        # What an interruption before the last step leaves: all shards rewritten, the settings as they were.
        patch.setattr("texcat.catalogue.catalogue.write_settings", lambda folder, settings: None)
        Catalogue.open(old, "w").close()
    with pytest.raises(CatalogueError, match="has format 1"):
        Catalogue.open(old)
    Catalogue.open(old, "w").close()
    assert_as_before(old)


def test_channels_that_cannot_be_derived_are_named(old: Path) -> None:
    settings = old / "catalogue.toml"
    settings.write_text(settings.read_text().replace('"appearance", ', ""))
    with pytest.raises(
        CatalogueError, match="lacks red, green, blue, which its other channels are derived from"
    ):
        Catalogue.open(old, "w")
