"""A private NATS server with JetStream. Its name, drawn at random, tells it from another run's."""

import json
import secrets
import urllib.request

from packages import find
from service import Service

CONFIGURATION = """
server_name: {name}
listen: "127.0.0.1:{port}"
http: "127.0.0.1:{monitor_port}"
jetstream {{ store_dir: "{data}", max_file_store: 4GB, max_memory_store: 256MB }}
authorization {{ user: semel, password: {password} }}
"""


class Nats(Service):
    name = "nats"
    ports = ("port", "monitor_port")
    soft_patience_s = 15

    def __init__(self, root, state, others):
        super().__init__(root, state, others)
        state.setdefault("password", "p" + secrets.token_hex(12))
        state.setdefault("name", f"semel-{secrets.token_hex(4)}")

    def missing(self):
        return set() if find("nats-server") else {"nats-server"}

    def prepare(self):
        self.data.mkdir()

    def configure(self):
        (self.folder / "nats.conf").write_text(CONFIGURATION.format(data=self.data, **self.state))

    def command(self):
        return [find("nats-server"), "-c", self.folder / "nats.conf"]

    def ready(self):
        """Our own server says that it and its streams are well."""
        try:
            return self.ask("varz")["server_name"] == self.state["name"] and self.ask("healthz")["status"] == "ok"
        except (OSError, ValueError, KeyError):
            return False

    def ask(self, path):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self.state['monitor_port']}/{path}", timeout=10) as answer:
            return json.load(answer)

    def env(self):
        return {"SEMEL_TEST_NATS": f"nats://semel:{self.state['password']}@127.0.0.1:{self.state['port']}"}
