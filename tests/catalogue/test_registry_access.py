"""Reaching a registry: URLs, rights, several processes, and databases that fail."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Pool, event
from texcat.catalogue import database
from texcat.catalogue.errors import RegistryError, StoreFullError
from texcat.catalogue.registry import KnownFile, Registry, sqlite_url
from texcat.catalogue.types import ImageKey

NOBODY = 65534
KEY = ImageKey.of(b"an image")


@contextmanager
def without_rights_to_write(folder: Path) -> Iterator[None]:
    """Nobody may write in `folder`: its mode says so, and root becomes another user meanwhile."""
    folder.chmod(0o555)
    root = os.getuid() == 0
    if root:
        os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        if root:
            os.setresuid(0, 0, 0)
        folder.chmod(0o755)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can reach, as those of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="texcat-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def run_python(*programs: str) -> None:
    """Run programs at once, each in its own process; all must end well."""
    running = [
        subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
        for program in programs
    ]
    for process in running:
        _, told = process.communicate(timeout=60)
        assert process.returncode == 0, told


class TestSqliteFiles:
    @pytest.mark.parametrize("name", [b"a b?c#d%20e.sqlite", b"\xff\xfe.sqlite", "📷:memory:".encode()])
    def test_a_file_of_any_name(self, tmp_path: Path, name: bytes) -> None:
        path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
        with Registry.create(sqlite_url(path)) as registry:
            registry.add_interest("cat")
        with Registry.open(sqlite_url(path)) as registry:
            assert registry.counts().interests == 1
        assert [os.fsencode(file.name) for file in tmp_path.iterdir()] == [name]

    @given(st.binary(min_size=1).filter(lambda name: b"\0" not in name))
    def test_a_url_is_ascii_and_has_no_query(self, name: bytes) -> None:
        url = sqlite_url(Path("/" + os.fsdecode(name)))
        assert url.startswith("sqlite:////")
        assert url.isascii()
        assert not set("?# ") & set(url)

    def test_a_missing_file_is_not_made(self, tmp_path: Path) -> None:
        url = sqlite_url(tmp_path / "none.sqlite")
        for read_only in (False, True):
            with pytest.raises(RegistryError, match="there is no such file; `texcat init`") as caught:
                Registry.open(url, read_only=read_only)
            assert caught.value.url == url
        assert list(tmp_path.iterdir()) == []

    def test_a_missing_folder(self, tmp_path: Path) -> None:
        with pytest.raises(RegistryError, match="unable to open database file; check the rights"):
            Registry.create(sqlite_url(tmp_path / "none" / "registry.sqlite"))

    @pytest.mark.parametrize("read_only", [False, True])
    def test_a_file_that_is_no_database(self, tmp_path: Path, read_only: bool) -> None:
        path = tmp_path / "registry.sqlite"
        path.write_bytes(b"<html>not found</html>" * 100)
        with pytest.raises(RegistryError, match="file is not a database; restore the file"):
            Registry.open(sqlite_url(path), read_only=read_only)
        with pytest.raises(RegistryError, match="file is not a database; restore the file"):
            Registry.create(sqlite_url(path))
        assert path.read_bytes() == b"<html>not found</html>" * 100

    @pytest.mark.parametrize("read_only", [False, True])
    def test_an_empty_file_holds_no_registry(self, tmp_path: Path, read_only: bool) -> None:
        path = tmp_path / "registry.sqlite"
        path.touch()
        with pytest.raises(RegistryError, match="holds no registry"):
            Registry.open(sqlite_url(path), read_only=read_only)

    def test_nothing_is_left_beside_a_closed_registry(self, tmp_path: Path) -> None:
        path = tmp_path / "registry.sqlite"
        with Registry.create(sqlite_url(path)) as registry:
            registry.add_interest("cat")
            assert sorted(tmp_path.iterdir()) != [path]  # the write-ahead log
        assert sorted(tmp_path.iterdir()) == [path]

    def test_a_folder_that_cannot_be_written_is_read(self, folder: Path) -> None:
        url = sqlite_url(folder / "registry.sqlite")
        with Registry.create(url) as registry:
            registry.add_interest("cat")
        with without_rights_to_write(folder):
            with pytest.raises(PermissionError):
                (folder / "file").touch()
            with Registry.open(url, read_only=True) as registry:
                assert [interest.phrase for interest in registry.interests()] == ["cat"]

    def test_a_log_that_was_left_behind_is_read_there(self, folder: Path) -> None:
        url = sqlite_url(folder / "registry.sqlite")
        Registry.create(url).close()
        run_python(
            "import os; from texcat.catalogue.registry import Registry\n"
            f"Registry.open({url!r}).add_interest('cat')\n"
            "os._exit(0)"  # as kill -9 does: the log is not folded into the database
        )
        assert (folder / "registry.sqlite-wal").stat().st_size > 0
        with without_rights_to_write(folder), Registry.open(url, read_only=True) as registry:
            assert [interest.phrase for interest in registry.interests()] == ["cat"]

    def test_the_empty_log_of_a_reader_is_no_obstacle_there(self, folder: Path) -> None:
        url = sqlite_url(folder / "registry.sqlite")
        Registry.create(url).close()
        Registry.open(url, read_only=True).close()
        assert (folder / "registry.sqlite-wal").stat().st_size == 0
        with without_rights_to_write(folder), Registry.open(url, read_only=True) as registry:
            assert registry.interests() == []

    def test_a_full_disk_is_named_and_loses_nothing(self, tmp_path: Path) -> None:
        url = sqlite_url(tmp_path / "registry.sqlite")
        Registry.create(url).close()

        def leave_little_room(connection: sqlite3.Connection, record: object) -> None:
            connection.execute("PRAGMA max_page_count = 40")

        event.listen(Pool, "connect", leave_little_room)
        try:
            with Registry.open(url) as registry:
                registry.add_interest("cat")
                batch = [KnownFile(b"/%0500d" % i, 1, 1, 1, reason="bad") for i in range(1_000)]
                with pytest.raises(StoreFullError, match="full") as caught:
                    registry.record_files(batch)
                assert caught.value.path == url
                registry.record_files(batch[:10])
                assert registry.counts().files == 10
        finally:
            event.remove(Pool, "connect", leave_little_room)


class TestWriters:
    def test_two_processes_at_once_lose_nothing(self, empty_url: str) -> None:
        Registry.create(empty_url).close()
        run_python(
            *(
                "from texcat.catalogue.registry import KnownFile, Registry\n"
                "from texcat.catalogue.types import ImageKey\n"
                f"with Registry.open({empty_url!r}) as registry:\n"
                "    for number in range(40):\n"
                f"        registry.add_interest(f'{name} {{number}}')\n"
                f"        registry.add_interest(f'shared {{number}}', weight={weight})\n"
                "        key = ImageKey.of(bytes([number]))\n"
                # In opposite orders, which would deadlock if the writers did not take turns.
                f"        paths = [b'/%d' % i for i in range(20)][::{step}]\n"
                "        registry.record_files([KnownFile(p, 1, 1, 1, key) for p in paths], {key: (1, 1)})\n"
                f"        registry.put_question({name!r}, str(number), __import__('numpy').ones(4))\n"
                for name, weight, step in (("red", 1, 1), ("blue", 2, -1))
            )
        )
        with Registry.open(empty_url) as registry:
            phrases = [interest.phrase for interest in registry.interests()]
            counts = registry.counts()
        expected = [f"{name} {number}" for name in ("red", "blue", "shared") for number in range(40)]
        assert sorted(phrases) == sorted(expected)
        assert (counts.files, counts.images, counts.questions) == (20, 40, 80)

    def test_threads_share_a_registry(self, registry: Registry) -> None:
        failures: list[BaseException] = []

        def work(name: int) -> None:
            try:
                for number in range(10):
                    registry.add_interest(f"{name} {number}")
                    registry.interests()
            except BaseException as error:
                failures.append(error)
                raise

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len({interest.id for interest in registry.interests()}) == 40

    def test_a_lock_that_is_kept_is_named(self, empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(database, "LOCK_SECONDS", 0.1)
        Registry.create(empty_url).close()
        holder = database.Database.open(empty_url)
        with holder.writing("keep the lock"), Registry.open(empty_url) as registry:
            assert registry.interests() == []  # readers do not wait
            with pytest.raises(RegistryError, match="another process is writing"):
                registry.add_interest("cat")
        holder.close()


class TestUrls:
    @pytest.mark.parametrize(
        "url",
        [
            "postgresql://me:hunter2@127.0.0.1:1/photos",
            "postgresql://me@127.0.0.1:1/photos?password=hunter2",
            "postgresql+psycopg://me:hunter2@127.0.0.1:1/photos",
        ],
    )
    def test_a_server_that_is_not_there_is_named_without_the_password(self, url: str) -> None:
        for call in (Registry.open, Registry.create):
            with pytest.raises(RegistryError, match="check that the server runs") as caught:
                call(url)
            assert "hunter2" not in str(caught.value)
            assert "127.0.0.1:1/photos" in caught.value.url

    def test_what_the_server_refuses_is_named(
        self, postgres_url: str, new_postgres_database: Callable[[], str]
    ) -> None:
        url = postgres_url.replace("/postgres?", "/nowhere?")
        with pytest.raises(RegistryError, match='database "nowhere" does not exist; check that the server'):
            Registry.open(url)
        url = new_postgres_database().replace("@", ":hunter2@")
        with Registry.create(url) as registry:
            assert "hunter2" not in registry.url
            assert ":***@" in registry.url

    @pytest.mark.parametrize(
        ("url", "reason"),
        [
            ("sqlite://", "names no file|is no database that texcat uses"),
            ("sqlite:///", "names no file"),
            ("sqlite:///:memory:", "names no file"),
            ("sqlite:////a/b?mode=ro", "names no file"),
            ("mysql://me:hunter2@host/photos", "is no database that texcat uses"),
            ("photos:hunter2", "is no database URL"),
            ("postgresql://me:hunter2@host:port/photos", "is no database URL"),
        ],
    )
    def test_a_url_that_cannot_be_used(self, url: str, reason: str) -> None:
        with pytest.raises(RegistryError, match=rf"({reason}).*; expected sqlite:////path") as caught:
            Registry.open(url)
        assert "hunter2" not in str(caught.value)


def test_a_registry_that_is_up_to_date_is_opened_without_alembic(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "registry.sqlite")
    Registry.create(url).close()
    run_python(
        "import sys; from texcat.catalogue.registry import Registry\n"
        f"Registry.open({url!r}).close()\n"
        "assert not {'alembic', 'torch', 'psycopg'} & set(sys.modules), sorted(sys.modules)"
    )
