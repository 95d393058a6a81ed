"""PgBouncer before the private PostgreSQL, in transaction mode with its own defaults.

Debian's release has no prepared statements in this mode, which is what makes it the hard test. It serves every
database of the cluster, so a test that makes its own can go through it too.
"""

from packages import find
from postgres import psql
from service import Service

CONFIGURATION = """
[databases]
* = host=127.0.0.1 port={server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
pool_mode = transaction
auth_type = scram-sha-256
auth_file = {users}
max_client_conn = 500
default_pool_size = 20
server_login_retry = 1
"""


class PgBouncer(Service):
    name = "pgbouncer"
    refuses_root = True
    soft_patience_s = 15

    def missing(self):
        return set() if find("pgbouncer") else {"pgbouncer"}

    def configure(self):
        server = self.others["postgres"].state
        users, settings = self.folder / "users", self.folder / "pgbouncer.ini"
        users.write_text("".join(f'"{role}" "{server["password"]}"\n' for role in ("semel", "postgres")))
        settings.write_text(CONFIGURATION.format(server=server["port"], users=users, **self.state))

    def command(self):
        return [find("pgbouncer"), self.folder / "pgbouncer.ini"]

    def ready(self):
        return psql(self.url(), "SELECT 1")[0] == 0

    def url(self):
        return f"postgres://semel:{self.others['postgres'].state['password']}@127.0.0.1:{self.state['port']}/semel"

    def env(self):
        return {"SEMEL_TEST_PGBOUNCER": self.url()}
