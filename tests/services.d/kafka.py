"""Apache Kafka, one KRaft node that is broker and controller, from the jars that Maven Central has.

For tests that kill the broker, the controller is a process of its own (`Controller`). A node that is both comes back
while the controller still counts its old registration, and leads what it led before; when that registration lapses,
its partitions have no leader for a moment, and Kafka 4.4.0 drops the transaction markers that are due to them
("likely deleted already and hence can be skipped"): what was half committed stays so. A broker that was away for
longer than its session comes back without a lead, and its transactions are whole. So such a test waits that long.

The jars are kept in the user's cache under a name that holds the digest of what they were resolved from: a new
version is a new folder, and a folder is there whole or not at all.
"""

import base64
import hashlib
import os
import re
import shutil
import socket
import struct
import tempfile
import uuid

from packages import cache, exclusive, find
from process import Failed, run, run_or_fail
from service import Service

VERSION = "4.4.0"
JAVA_OLDEST = 17
ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", VERSION),
    ("org.apache.kafka", "kafka-tools", VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.5"),
)
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

BOTH = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
"""
BROKER = """
process.roles=broker
node.id=1
controller.quorum.voters=2@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
"""
CONTROLLER = """
process.roles=controller
node.id=2
controller.quorum.voters=2@127.0.0.1:{port}
listeners=CONTROLLER://127.0.0.1:{port}
"""
CONFIGURATION = """
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}

# One node is its own quorum.
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1

# Small, for two cores.
offsets.topic.num.partitions=10
transaction.state.log.num.partitions=10
num.network.threads=2
num.io.threads=4
log.cleaner.threads=1
log.cleaner.dedupe.buffer.size=4194304

# A killed broker may not come back before its old session lapsed (9 s by default).
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=500

# Nothing appears or vanishes by itself.
auto.create.topics.enable=false
delete.topic.enable=true
log.retention.ms=-1
log.retention.bytes=-1

# Failures show at the pace of a test: lapsed transactions are aborted within a second, and short sessions are allowed.
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
group.consumer.min.session.timeout.ms=1000
group.consumer.min.heartbeat.interval.ms=500
group.consumer.session.timeout.ms=6000
group.consumer.heartbeat.interval.ms=1000
"""

LOGGING = """
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d{ISO8601} %p %c{1} - %m%n
rootLogger.level=INFO
rootLogger.appenderRef.console.ref=console
"""


class Node(Service):
    """A process of Kafka's."""

    def __init__(self, root, state, others):
        super().__init__(root, state, others)
        # A cluster id is a UUID in 22 characters, of which the first may be a hyphen.
        state.setdefault("cluster", base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
        self.settings, self.logging = self.folder / "server.properties", self.folder / "log4j2.properties"

    def roles(self):
        """The part of the configuration that says what this node is, and what it has to be filled with."""
        raise NotImplementedError

    def missing(self):
        lacks = set() if find("java") else {"default-jre-headless"}
        return lacks if jars().exists() or find("mvn") else lacks | {"maven"}

    def prepare(self):
        java_is_new_enough()
        fetch_jars()
        (self.folder / "tmp").mkdir(exist_ok=True)
        self.configure()
        run_or_fail(self.java("kafka.tools.StorageTool", "format", f"--cluster-id={self.state['cluster']}",
                              f"--config={self.settings}", options=["-Xmx128m", "-XX:TieredStopAtLevel=1"]), cwd=self.folder)

    def configure(self):
        text, values = self.roles()
        self.settings.write_text((text + CONFIGURATION).format(data=self.data, **values))
        self.logging.write_text(LOGGING)

    def command(self):
        return self.java("kafka.Kafka", self.settings, options=[*self.heap, "-XX:+ExitOnOutOfMemoryError"])

    def java(self, main, *arguments, options=()):
        # Without its performance file and with its own temporary folder, Java writes nothing outside ours.
        return [find("java"), *options, "-XX:-UsePerfData", f"-Djava.io.tmpdir={self.folder / 'tmp'}",
                f"-Dlog4j2.configurationFile={self.logging}", "-cp", f"{jars()}/*", main, *arguments]


class Controller(Node):
    name = "controller"
    heap = ("-Xms64m", "-Xmx192m")

    def roles(self):
        return CONTROLLER, self.state

    def ready(self):
        """It listens. Whether it is ours, the broker finds out, which knows the cluster's id."""
        try:
            with socket.create_connection(("127.0.0.1", self.state["port"]), timeout=10):
                return True
        except OSError:
            return False

    def env(self):
        return {}


class Kafka(Node):
    name = "kafka"
    ports = ("port", "controller_port")
    heap = ("-Xms256m", "-Xmx512m")

    def __init__(self, root, state, others):
        if "controller" in others:
            state["cluster"] = others["controller"].state["cluster"]
        super().__init__(root, state, others)

    def roles(self):
        if "controller" not in self.others:
            return BOTH, self.state
        return BROKER, {**self.state, "controller_port": self.others["controller"].state["port"]}

    def ready(self):
        """Our own cluster answers, and both coordinators do: asking for them makes the internal topics."""
        try:
            with Connection(self.state["port"]) as broker:
                return broker.cluster() == self.state["cluster"] and all(
                    broker.finds_coordinator(kind) for kind in (Connection.GROUP, Connection.TRANSACTION))
        except (OSError, struct.error):
            return False

    def env(self):
        return {"SEMEL_TEST_KAFKA": f"127.0.0.1:{self.state['port']}"}


class Connection:
    """As much of Kafka's protocol as readiness needs."""

    METADATA, FIND_COORDINATOR = 3, 10
    GROUP, TRANSACTION = 0, 1

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def cluster(self):
        """The cluster's id, once a broker is registered in it."""
        answer = self.ask(self.METADATA, 4, struct.pack(">i?", 0, False))
        answer.number("i")  # throttle time
        brokers = answer.number("i")
        for _ in range(brokers):
            answer.number("i"), answer.string(), answer.number("i"), answer.string()  # id, host, port, rack
        return answer.string() if brokers > 0 else None

    def finds_coordinator(self, kind):
        answer = self.ask(self.FIND_COORDINATOR, 1, pack_string("ready") + struct.pack(">b", kind))
        answer.number("i")  # throttle time
        return answer.number("h") == 0

    def ask(self, kind, version, body):
        request = struct.pack(">hhi", kind, version, 0) + pack_string("semel-tests") + body
        self.socket.sendall(struct.pack(">i", len(request)) + request)
        answer = Answer(self.receive(struct.unpack(">i", self.receive(4))[0]))
        answer.number("i")  # correlation id
        return answer

    def receive(self, length):
        data = b""
        while len(data) < length:
            part = self.socket.recv(length - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return data


class Answer:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        value, = struct.unpack_from(">" + form, self.data, self.at)
        self.at += struct.calcsize(">" + form)
        return value

    def string(self):
        length = self.number("h")
        if length < 0:
            return None
        self.at += length
        return self.data[self.at - length:self.at].decode()


def pack_string(text):
    return struct.pack(">h", len(text)) + text.encode()


def pom():
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        "</dependency>" for group, artifact, version in ARTIFACTS)
    return ("<project><modelVersion>4.0.0</modelVersion><groupId>semel.tests</groupId><artifactId>kafka</artifactId>"
            f"<version>1</version><packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>")


def jars():
    return cache() / f"kafka-{VERSION}-{hashlib.sha256(pom().encode()).hexdigest()[:8]}"


def fetch_jars():
    """Resolves the jars once per user. Maven's own repository stands no two writers, hence the lock."""
    with exclusive(cache() / "kafka.lock"):
        if jars().exists():
            return
        work = tempfile.mkdtemp(prefix="fetch-", dir=cache())
        try:
            with open(os.path.join(work, "pom.xml"), "w") as file:
                file.write(pom())
            run_or_fail([find("mvn"), "-B", "-q", COPY, f"-DoutputDirectory={work}/jars"], cwd=work)
            os.rename(f"{work}/jars", jars())
        finally:
            shutil.rmtree(work, ignore_errors=True)


def java_is_new_enough():
    _, output = run([find("java"), "-version"])
    version = re.search(r'version "(\d+)', output)
    if not version or int(version[1]) < JAVA_OLDEST:
        raise Failed(f"Kafka {VERSION} needs Java {JAVA_OLDEST} or newer, and this is:\n{output}")
