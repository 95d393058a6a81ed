"""A private PostgreSQL cluster, as unlike the developer's own as it may be.

Two settings are chosen so that a test fails where the code depends on them: the server's time zone is fourteen hours
ahead of UTC, and its default collation is not the byte order. `fsync` is on: durability is what the tests are about.
There is no socket file: its path would be too long in deep folders.
"""

import os
import secrets
import signal

from packages import find, find_postgres
from process import Failed, run, run_or_fail, until
from service import Service

CONFIGURATION = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
max_connections = 200
fsync = on
shared_buffers = 256MB
max_wal_size = 2GB
timezone = 'Pacific/Kiritimati'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] %u@%d '
log_lock_waits = on
"""

ROLE = """
CREATE ROLE semel LOGIN CREATEDB PASSWORD '{password}';
CREATE DATABASE semel OWNER semel;
"""


class Postgres(Service):
    name = "postgres"
    refuses_root = True
    soft, hard = signal.SIGINT, signal.SIGQUIT  # the fast and the immediate shutdown: the second leaves a crash behind

    def __init__(self, root, state, others):
        super().__init__(root, state, others)
        state.setdefault("password", secrets.token_hex(12))

    def missing(self):
        return set() if find_postgres("initdb") else {"postgresql"}

    def prepare(self):
        password = self.folder / "password"
        password.write_text(self.state["password"] + "\n")
        run_or_fail([find_postgres("initdb"), "-D", self.data, "-U", "postgres", "--no-sync", "-E", "UTF8",
                     "--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US",
                     "-A", "scram-sha-256", f"--pwfile={password}"], user=self.user(), cwd=self.folder)

    def configure(self):
        # Read after postgresql.conf, and wins over it.
        (self.data / "postgresql.auto.conf").write_text(CONFIGURATION.format(**self.state))

    def command(self):
        # A cluster whose postmaster was killed lives on in its last backends, and refuses a new one until they left.
        if not until(lambda: not self.members(), 30):
            raise Failed(f"an earlier cluster still runs in {self.data}: {self.members()}")
        return [find_postgres("postgres"), "-D", self.data]

    def process_env(self):
        return {"HOME": str(self.folder), "LC_ALL": "C.UTF-8", "PGTZ": ""}

    def ready(self):
        isready = [find_postgres("pg_isready"), "-q", "-h", "127.0.0.1", "-p", self.state["port"], "-U", "postgres"]
        return run(isready)[0] == 0 and self.query("SELECT 1")[0] == 0

    def settle(self):
        code, output = self.query(ROLE.format(**self.state))
        if code != 0:
            raise Failed(f"the database of the tests could not be made:\n{output}")

    def query(self, statements):
        return psql(self.url("postgres", "postgres"), statements)

    def members(self):
        """Every process of the cluster: each has the data folder as its working directory."""
        return [pid for pid in filter(str.isdigit, os.listdir("/proc")) if working_directory(pid) == str(self.data)]

    def url(self, role, database):
        return f"postgres://{role}:{self.state['password']}@127.0.0.1:{self.state['port']}/{database}"

    def env(self):
        return {
            "SEMEL_TEST_POSTGRES": self.url("semel", "semel"),
            "SEMEL_TEST_POSTGRES_ADMIN": self.url("postgres", "postgres"),
        }


def psql(url, statements):
    """Runs statements, each in a transaction of its own, through any server that speaks the protocol."""
    return run([find_postgres("psql") or find("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", url],
               input=statements, env={"PGCONNECT_TIMEOUT": "5"})


def working_directory(pid):
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return None
