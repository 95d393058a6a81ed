"""Installs what a machine lacks, and touches nothing where everything is there."""

import contextlib
import fcntl
import glob
import os
import shutil
from pathlib import Path

from process import Failed, run_or_fail

POLICY = Path("/usr/sbin/policy-rc.d")
APT = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=900"]


def find(program):
    """A program's path, or None. Debian keeps servers out of the PATH of ordinary users."""
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def find_postgres(program):
    """A program of the newest PostgreSQL; Debian has one folder for each version."""
    found = glob.glob(f"/usr/lib/postgresql/*/bin/{program}")
    newest = max(found, key=lambda path: float(Path(path).parts[4]), default=None)
    return newest or find(program)


def cache():
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "semel-tests"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def exclusive(lock: Path):
    """One process at a time; Python's files are closed on exec, so no child inherits the lock."""
    with open(lock, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def install(missing, say):
    """Installs the Debian packages that `missing()` names, if any."""
    if not missing():
        return
    with exclusive(cache() / "install.lock"):
        packages = sorted(missing())  # asked again: another run may have installed them meanwhile
        if not packages:
            return
        if os.geteuid() != 0 or not find("apt-get"):
            raise Failed(f"missing: {', '.join(packages)} (Debian's names); install them, or run this as root")
        say(f"installing {', '.join(packages)}")
        env = {"DEBIAN_FRONTEND": "noninteractive"}
        run_or_fail([*APT, "update"], env=env)
        with no_autostart():
            run_or_fail([*APT, "install", "-y", "--no-install-recommends", *packages], env=env)


@contextlib.contextmanager
def no_autostart():
    """Debian starts a server when its package is installed; none is wanted on its well-known port."""
    try:
        with open(os.open(POLICY, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o755), "w") as policy:
            policy.write("#!/bin/sh\n# Written by Semel's tests for the time of an installation.\nexit 101\n")
        made = True
    except FileExistsError:
        made = False
    try:
        yield
    finally:
        if made:
            POLICY.unlink(missing_ok=True)
