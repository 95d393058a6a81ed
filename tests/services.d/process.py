"""Long-lived processes that outlive the command that starts them.

A process is recorded as the pid *and* its start time, in the form of its own line of /proc/PID/stat, so that a number
that was given away again is never signalled. The record is written by the process itself before it becomes the
service (see LAUNCHER): there is no moment at which a service runs and is recorded nowhere, even if the caller is
killed between the two. Nothing is ever found by its name.

A service gets a session of its own (a Ctrl-C meant for the tests does not reach it), /dev/null as its input, its log
as its output, and no other descriptor of the caller: a lock or a pipe that it held open would keep a caller waiting
for ever.
"""

import os
import pwd
import random
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

POLL_S = 0.02
LAUNCHER = 'read -r stat </proc/$$/stat && echo "$stat" >"$0" && exec "$@"'

cancelled = threading.Event()


class Failed(Exception):
    """Something that the person at the terminal should read, without a traceback."""


class Cancelled(Exception):
    """A signal ended the command: whoever waits stops waiting."""


def pause(seconds=POLL_S):
    if cancelled.wait(seconds):
        raise Cancelled


class Process:
    """One recorded process; equal pids with another start time are another process."""

    def __init__(self, record: Path):
        self.record = record

    def pid(self):
        """The pid while the process runs, else None. A zombie is gone: who reaps it is not our business."""
        recorded = _stat(self.record)
        if recorded is None:
            return None
        now = _stat(Path(f"/proc/{recorded.pid}/stat"))
        if now is None or now.started != recorded.started or now.state in "ZX":
            return None
        return recorded.pid

    def signal(self, number):
        pid = self.pid()
        if pid is not None:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def gone_within(self, seconds):
        return until(lambda: self.pid() is None, seconds)

    def stop(self, number, patience_s):
        """Sends the signal, waits for the process itself (pid files go early), and insists if it takes too long."""
        self.signal(number)
        if not self.gone_within(patience_s):
            self.signal(signal.SIGKILL)
            if not self.gone_within(30):
                raise Failed(f"process {self.pid()} does not end: {self.record}")
        self.record.unlink(missing_ok=True)


class _Stat:
    def __init__(self, text):
        # pid (name) state ppid …: the name may hold anything, so read from its last bracket on.
        head, _, tail = text.rpartition(")")
        fields = tail.split()
        self.pid, self.state, self.started = int(head.split()[0]), fields[0], fields[19]


def _stat(path):
    try:
        return _Stat(path.read_text(errors="replace"))
    except (OSError, ValueError, IndexError):
        return None


def spawn(command, record: Path, log: Path, user=None, env=None):
    """Starts a service in its folder and returns its Process. The log is appended to: a restart keeps the past."""
    record.unlink(missing_ok=True)
    with open(log, "ab") as output:
        launched = subprocess.Popen(
            ["/bin/sh", "-c", LAUNCHER, str(record), *map(str, command)],
            cwd=record.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, **(env or {})},
            **as_user(user),
        )
    while not record.exists() or _stat(record) is None:
        if launched.poll() is not None:
            raise Failed(f"{command[0]} did not start:\n{tail(log)}")
        pause()
    threading.Thread(target=launched.wait, daemon=True).start()  # reaps it, should it end before we do
    return Process(record)


def run(command, user=None, env=None, cwd=None, input=None):
    """Runs a short program to its end and returns (exit code, output). A signal to us ends it too."""
    child = subprocess.Popen(
        list(map(str, command)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=cwd,
        start_new_session=True,
        env={**os.environ, **(env or {})},
        **as_user(user),
    )
    result = []
    reader = threading.Thread(target=lambda: result.append(child.communicate(input)[0]), daemon=True)
    reader.start()
    try:
        while reader.is_alive():
            reader.join(POLL_S)
            if cancelled.is_set():
                raise Cancelled
    except BaseException:
        os.killpg(child.pid, signal.SIGKILL)
        reader.join()
        raise
    return child.returncode, result[0]


def run_or_fail(command, **options):
    code, output = run(command, **options)
    if code != 0:
        raise Failed(f"{' '.join(map(str, command))} ended with {code}:\n{output}")
    return output


def as_user(user):
    """Only root changes its user; anyone else runs everything as themselves."""
    if user is None or os.geteuid() != 0:
        return {}
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def until(condition, seconds):
    """Waits for the condition, for so long; deaf to cancellation, since it is what cleaning up waits with."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def tail(log: Path, lines=40):
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def free_port():
    """A port that nobody listens on now.

    Taken from below the ephemeral range: there no outgoing connection can take it while its service is down. Two runs
    that draw the same number at the same moment are told apart by the bind (see Service.start).
    """
    ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    low, high = (10_000, ephemeral - 1) if ephemeral > 12_000 else (10_000, 65_535)
    while True:
        port = random.SystemRandom().randint(low, high)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
