"""A real PostgreSQL for the tests: its own data folder, a Unix socket, gone afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

ROLE = "texcat"


@contextmanager
def postgres_server() -> Iterator[str]:
    """Start a server; gives the SQLAlchemy URL of its database ``postgres``."""
    binaries = find_binaries()
    # The path of a socket has at most 107 characters, so not under pytest's long temporary names.
    folder = Path(tempfile.mkdtemp(prefix="texcat-pg-"))
    account = unprivileged_account()
    if account is not None:
        shutil.chown(folder, account)
    data, log = folder / "data", folder / "log"

    def run(program: str, *arguments: str) -> None:
        # To a file: a server started by pg_ctl would keep a pipe open for ever.
        with (folder / "output").open("ab") as output:
            done = subprocess.run(
                [binaries / program, "-D", data, *arguments],
                user=account,
                cwd=folder,
                env={"LC_ALL": "C", "PATH": os.defpath},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=60,
                check=False,
            )
        if done.returncode != 0:
            told = [path.read_text(errors="replace") for path in (folder / "output", log) if path.exists()]
            raise RuntimeError(f"{program} ended with {done.returncode}:\n" + "\n".join(told))

    try:
        run("initdb", "--username", ROLE, "--auth", "trust", "--encoding", "UTF8", "--no-sync")
        run("pg_ctl", "start", "-w", "-l", str(log), "-o", f"-F -k {folder} -c listen_addresses=''")
        try:
            yield f"postgresql://{ROLE}@/postgres?host={quote(str(folder), safe='')}"
        finally:
            run("pg_ctl", "stop", "-w", "-m", "immediate")
    finally:
        shutil.rmtree(folder)


def find_binaries() -> Path:
    """The folder that holds initdb and pg_ctl."""
    candidates = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if config := shutil.which("pg_config"):
        told = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True).stdout
        candidates.insert(0, Path(told.strip()))
    if initdb := shutil.which("initdb"):
        candidates.append(Path(initdb).resolve().parent)
    for folder in candidates:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    raise RuntimeError("no PostgreSQL server (initdb, pg_ctl) is installed; `apt-get install postgresql`")


def unprivileged_account() -> str | None:
    """The user to run the server as, None for this one: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    import pwd

    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"
