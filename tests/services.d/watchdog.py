"""Ends the services of an owner that is gone, however it went: the last resort against kill -9.

It is a process of its own, in a session of its own, started before the first service. It sleeps until the kernel says
that the owner ended (a pidfd becomes readable), waits for its turn on the folder, and takes everything down.
"""

import os
import select
import signal
import sys
import time
from pathlib import Path

from process import Process, spawn


class Watchdog:
    def __init__(self, root: Path):
        self.folder = root / "watchdog"
        self.process = Process(self.folder / "process")
        self.needed = False  # its hour has come: it is about to clean up

    def start(self, owner):
        if self.process.pid() is not None:
            return
        self.folder.mkdir(exist_ok=True)
        program = Path(__file__).parent
        spawn([sys.executable, "-B", "-E", program, "watch", self.folder.parent, "--owner", owner],
              self.process.record, self.folder / "log")

    def stop(self):
        if not self.needed:
            self.process.stop(signal.SIGTERM, 5)


def wait_for_end_of(pid):
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # an old Python or kernel
        while os.path.exists(f"/proc/{pid}"):
            time.sleep(0.5)
        return
    select.select([handle], [], [])
