from __future__ import annotations

from pathlib import Path

from texcat.catalogue import Catalogue

from .conftest import Texcat


def test_a_catalogue_is_made_anew_when_it_is_asked_for(texcat: Texcat, indexed: Path) -> None:
    with Catalogue.open(indexed, "w") as catalogue:
        interests, own = catalogue.interests(), catalogue.settings.fingerprint
        catalogue.replace_encoder("builtin", "builtin of before", 0.0, 1.0)
    dry = texcat("reindex", "-c", indexed)
    assert dry.code == 0
    assert "--yes drops all textures and codes, and makes those of 3 images anew" in dry.out
    assert "builtin of before" in dry.out
    done = texcat("reindex", "--yes", "-c", indexed, "--json")
    assert (done.code, done.json["report"]["indexed"], done.json["after"]) == (0, 3, own)
    with Catalogue.open(indexed) as catalogue:
        assert catalogue.interests() == interests
        assert catalogue.store.stats().codes == 3
    again = texcat("reindex", "--yes", "-c", indexed)
    assert "0 made anew, 3 were so already" in again.out
