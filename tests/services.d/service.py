"""What all services have in common: a folder, ports, one process, and how it is brought to answer."""

import os
import pwd
import re
import shutil
import signal
import time
from pathlib import Path

from process import Failed, Process, free_port, pause, run, run_or_fail, spawn, tail

START_TRIES = 5
READY_WITHIN_S = 180  # generous: the machine may be compiling the whole crate meanwhile
PORT_TAKEN = re.compile(r"address already in use|eaddrinuse", re.IGNORECASE)


class Service:
    """One service in DIR/<name>/: its data in data/, its output in log, its process in process.

    `state` is the service's part of DIR/state.json: ports and secrets, chosen once and kept over every restart.
    """

    name = ""
    refuses_root = False
    ports = ("port",)
    soft, hard = signal.SIGTERM, signal.SIGKILL
    soft_patience_s = 30

    def __init__(self, root: Path, state: dict, others: dict):
        self.folder, self.state, self.others = root / self.name, state, others
        self.data, self.log = self.folder / "data", self.folder / "log"
        self.process = Process(self.folder / "process")

    def user(self):
        """Whom it runs as, if not as the caller. Asked when it starts: installing it may have made the user."""
        return unprivileged() if self.refuses_root else None

    def missing(self):
        """Debian packages that this service needs and the machine lacks."""
        return set()

    def prepare(self):
        """Makes the data folder, once, before the first start."""

    def configure(self):
        """Writes the configuration; before every start, for the ports may have changed."""

    def command(self):
        raise NotImplementedError

    def ready(self):
        """Whether it answers a real request; it must not be taken in by another run's service on its port."""
        raise NotImplementedError

    def settle(self):
        """What is done once, after the first start."""

    def env(self):
        """The variables that tests find it by."""
        raise NotImplementedError

    def start(self):
        """Starts it and waits until it answers. On its first start a port that was snatched away is drawn anew."""
        if self.process.pid() is not None:
            return
        first = not self.state.get("settled")
        self._make_folder()
        for _ in range(START_TRIES):
            if first:
                self.state.update({port: free_port() for port in self.ports})
            if not self.state.get("prepared"):
                shutil.rmtree(self.data, ignore_errors=True)  # of a first start that was broken off
                self.prepare()
                self.state["prepared"] = True
            self.configure()
            if self._answers():
                if first:
                    self.settle()
                    self.state["settled"] = True
                return
            if not (first and PORT_TAKEN.search(self._said())):
                break
        raise Failed(f"{self.name} ended while starting; the end of {self.log}:\n{tail(self.log)}")

    def stop(self, hard=False):
        if hard:
            self.process.stop(self.hard, 15)
        else:
            self.process.stop(self.soft, self.soft_patience_s)

    def forget(self):
        """Deletes the data. The log stays: it is small, and tells what happened."""
        shutil.rmtree(self.data, ignore_errors=True)
        self.state.clear()

    def _make_folder(self):
        self.folder.mkdir(exist_ok=True)
        if self.user() is not None:
            shutil.chown(self.folder, self.user())
            reachable(self.folder, self.user())

    def _said(self):
        """What it logged since its last start: the reason of an early end may be far from the log's own end."""
        with open(self.log, errors="replace") as log:
            log.seek(self.log_start)
            return log.read()

    def _answers(self):
        self.log_start = self.log.stat().st_size if self.log.exists() else 0
        spawn(self.command(), self.process.record, self.log, user=self.user(), env=self.process_env())
        deadline = time.monotonic() + READY_WITHIN_S
        while self.process.pid() is not None:
            if self.ready():
                return True
            if time.monotonic() > deadline:
                raise Failed(f"{self.name} does not answer; the end of {self.log}:\n{tail(self.log)}")
            pause(0.05)
        return False

    def process_env(self):
        return {}


def unprivileged():
    """The user for servers that refuse to run as root; None where the caller is not root."""
    if os.geteuid() != 0:
        return None
    for user in ("postgres", "semel-tests"):
        try:
            return pwd.getpwnam(user).pw_name
        except KeyError:
            continue
    run_or_fail(["useradd", "--system", "--no-create-home", "--shell", "/bin/false", "semel-tests"])
    return "semel-tests"


def reachable(folder: Path, user):
    """Says early, and clearly, that the server's user cannot enter the folder."""
    if run(["/bin/ls", folder], user=user, cwd="/")[0] != 0:
        raise Failed(f"user {user} cannot enter {folder}: choose a folder whose parents are open to everyone (711)")
