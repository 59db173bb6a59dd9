from __future__ import annotations

from pathlib import Path

from texcat.catalogue import Catalogue

from .conftest import Texcat


def test_init_makes_a_catalogue_as_asked(texcat: Texcat, tmp_path: Path) -> None:
    path = tmp_path / "cat"
    database = f"sqlite:///{tmp_path}/elsewhere.sqlite"
    result = texcat(
        "init", "-c", path, "--groups", "saliency,appearance", "--shards", 2, "--database", database, "--json"
    )
    assert result.code == 0
    assert result.json == {
        "catalogue": str(path),
        "encoder": "builtin",
        "fingerprint": "",
        "groups": ["appearance", "saliency", "interest"],
        "shards": 2,
        "database": database,
        "observe": True,
        "half_life_days": 30.0,
    }
    with Catalogue.open(path) as catalogue:
        assert (catalogue.settings.shards, catalogue.settings.database) == (2, database)
    assert not (path / "registry.sqlite").exists()


def test_init_tells_what_comes_next(texcat: Texcat, tmp_path: Path) -> None:
    result = texcat("init", "-c", tmp_path / "cat")
    assert result.code == 0
    assert "texcat interest add" in result.out


def test_init_leaves_what_is_there_alone(texcat: Texcat, empty: Path) -> None:
    result = texcat("init", "-c", empty)
    assert result.code == 1
    assert "already holds a catalogue" in result.err


def test_an_unknown_group_makes_nothing(texcat: Texcat, tmp_path: Path) -> None:
    result = texcat("init", "-c", tmp_path / "cat", "--groups", "colour")
    assert result.code == 2
    assert "'colour'" in result.err
    assert list(tmp_path.iterdir()) == []


def test_an_encoder_that_cannot_be_loaded_makes_nothing(texcat: Texcat, tmp_path: Path) -> None:
    unknown = texcat("init", "-c", tmp_path / "cat", "--encoder", "builtin:large")
    assert unknown.code == 2
    assert "encoder 'builtin:large' is not known" in unknown.err
    assert list(tmp_path.iterdir()) == []
