"""A private RabbitMQ node, and the port mapper (epmd) that Erlang needs.

Erlang starts a mapper by itself where it finds none: one for the whole machine, for ever, on every interface. So each
installation has its own as a service, and no Erlang program here may start one. RabbitMQ's own start script would stay
between us and the node, and a kill would hit only the script: where input is allowed it becomes the node instead.

The node keeps nothing outside its folder and reads no settings of the machine's. Readiness is its own aliveness test,
which makes a queue, publishes and consumes; the password tells it from another run's node.
"""

import base64
import secrets
import socket
import struct
import urllib.request
from pathlib import Path

from packages import find
from service import Service

DEBIAN = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # the one in the PATH insists on a user of its own

CONFIGURATION = """
listeners.tcp.1 = 127.0.0.1:{port}
management.tcp.ip = 127.0.0.1
management.tcp.port = {management_port}
default_user = semel
default_pass = {password}
log.console = true
log.console.level = info
log.file = false

# A test machine may be nearly full; a blocked publisher is not what the tests are about.
disk_free_limit.absolute = 20MB
"""

# Nobody spins on the shared cores, no mapper is started, and other nodes are spoken to on this machine only.
EMULATOR = "+sbwt none +sbwtdcpu none +sbwtdio none"
DISTRIBUTION = "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}"


class Epmd(Service):
    name = "epmd"
    soft_patience_s = 5

    def missing(self):
        return set() if find("epmd") else {"rabbitmq-server"}

    def command(self):
        return [find("epmd"), "-port", self.state["port"], "-address", "127.0.0.1"]

    def ready(self):
        """It lists its nodes, and names its own port before them."""
        try:
            with socket.create_connection(("127.0.0.1", self.state["port"]), timeout=10) as mapper:
                mapper.sendall(struct.pack(">Hc", 1, b"n"))
                return struct.unpack(">I", mapper.recv(4, socket.MSG_WAITALL))[0] == self.state["port"]
        except (OSError, struct.error):
            return False

    def env(self):
        return {}


class RabbitMQ(Service):
    name = "rabbitmq"
    ports = ("port", "management_port", "distribution_port")

    def __init__(self, root, state, others):
        super().__init__(root, state, others)
        state.setdefault("password", secrets.token_hex(12))
        state.setdefault("node", f"semel-{secrets.token_hex(4)}@localhost")

    def missing(self):
        return set() if find("rabbitmq-server") else {"rabbitmq-server"}

    def prepare(self):
        self.data.mkdir()

    def configure(self):
        (self.folder / "rabbitmq.conf").write_text(CONFIGURATION.format(**self.state))
        (self.folder / "plugins").write_text("[rabbitmq_management].\n")

    def command(self):
        return [DEBIAN if DEBIAN.exists() else find("rabbitmq-server")]

    def process_env(self):
        folder = self.folder
        return {
            "HOME": str(folder),
            "RABBITMQ_ALLOW_INPUT": "true",
            "RABBITMQ_NODENAME": self.state["node"],
            "RABBITMQ_DIST_PORT": str(self.state["distribution_port"]),
            "ERL_EPMD_PORT": str(self.others["epmd"].state["port"]),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_FLAGS": DISTRIBUTION,
            "ERL_CRASH_DUMP_BYTES": "0",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-noinput {EMULATOR}",
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.data),
            "RABBITMQ_LOG_BASE": str(self.data),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(self.data / "pid"),
        }

    def ready(self):
        return self.ask("aliveness-test/%2F") is not None

    def ask(self, path):
        """The management interface's answer; None where it has none."""
        credentials = base64.b64encode(f"semel:{self.state['password']}".encode()).decode()
        url = f"http://127.0.0.1:{self.state['management_port']}/api/{path}"
        request = urllib.request.Request(url, headers={"Authorization": f"Basic {credentials}"})
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
                return answer.read()
        except OSError:  # which answers of 400 and more are, too
            return None

    def env(self):
        at = f"semel:{self.state['password']}@127.0.0.1"
        return {
            "SEMEL_TEST_RABBITMQ": f"amqp://{at}:{self.state['port']}/%2f",
            "SEMEL_TEST_RABBITMQ_MANAGEMENT": f"http://{at}:{self.state['management_port']}",
        }
