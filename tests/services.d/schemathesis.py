"""schemathesis, which tries a server with what its OpenAPI document allows, and with what it does not."""

import shutil
import sys

from packages import cache, exclusive, install
from process import run_or_fail

VERSION = "4.32.5"


def program(say):
    """Its path. Installed once per user, from PyPI, in an environment of its own."""
    folder = cache() / f"schemathesis-{VERSION}-python{sys.version_info.major}.{sys.version_info.minor}"
    if not folder.exists():
        install(missing, say)
        with exclusive(cache() / "schemathesis.lock"):
            if not folder.exists():
                say(f"installing schemathesis {VERSION}")
                make(folder)
    return folder / "bin" / "schemathesis"


def missing():
    """Debian's Python has no `venv` of its own."""
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        return {"python3-venv"}
    return set()


def make(folder):
    """Whole or not at all. An environment knows where it is: it is made where it stays."""
    try:
        run_or_fail([sys.executable, "-m", "venv", str(folder)])
        run_or_fail([str(folder / "bin" / "pip"), "install", "-q", f"schemathesis=={VERSION}"])
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
