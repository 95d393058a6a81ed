"""Real services for the live tests: Apache Kafka, PostgreSQL, PgBouncer, RabbitMQ and NATS, on any Debian machine.

The live tests are about crashes and lost answers, so they need the real servers, and the means to kill them and bring
them back with the same data on the same port. This is all there is to it:

- All state is under one folder, DIR. All listeners are on 127.0.0.1, on ports drawn for this folder. So any number of
  runs go side by side, and a folder is a whole installation.
- Commands on one folder take turns (DIR/lock). None leaves anything behind in memory: the next command reads what it
  needs from DIR/state.json (ports, secrets) and DIR/*/process (see process.py).
- Whoever asks gets an answer only when the services answer themselves: PostgreSQL a query, PgBouncer a query through
  it, Kafka a metadata request with this cluster's own id and both coordinators, RabbitMQ its aliveness test, NATS a
  question after its health. Nothing sleeps and hopes.
- `up` is all or nothing, `down` always ends with no process left. With --owner they end with their owner, too, even if
  that is killed: see watchdog.py.
- What the machine lacks is installed (packages.py); where nothing is lacking, no package manager is touched.

Not handled: two machines sharing one folder, and systems without /proc.
"""

import argparse
import concurrent.futures
import json
import os
import shlex
import signal
import sys
import tempfile
import threading
import traceback
from pathlib import Path

import packages
import process
import schemathesis
from kafka import Controller, Kafka
from nats import Nats
from pgbouncer import PgBouncer
from postgres import Postgres
from process import Cancelled, Failed
from rabbitmq import Epmd, RabbitMQ
from watchdog import Watchdog, wait_for_end_of

KINDS = {kind.name: kind for kind in (Controller, Kafka, Postgres, PgBouncer, Epmd, RabbitMQ, Nats)}
USUAL = ("kafka", "postgres", "pgbouncer", "rabbitmq", "nats")
NEEDS = {"pgbouncer": {"postgres"}, "rabbitmq": {"epmd"}}
CHAINS = (("controller", "kafka"), ("postgres", "pgbouncer"), ("epmd", "rabbitmq"), ("nats",))  # each one after another


def say(text):
    print(f"tests/services: {text}", file=sys.stderr, flush=True)


class Installation:
    """The services of one folder."""

    def __init__(self, root: Path):
        self.root = root
        try:
            self.state = json.loads((root / "state.json").read_text())
        except FileNotFoundError:
            self.state = {}
        self.services = {}
        for name in KINDS:
            if name in self.state:
                self.add(name)

    def add(self, name):
        if name not in self.services:
            self.services[name] = KINDS[name](self.root, self.state.setdefault(name, {}), self.services)
        return self.services[name]

    def named(self, name):
        if name not in self.services:
            raise Failed(f"{self.root} has no {name}")
        return self.services[name]

    def up(self, names):
        wanted = [self.add(name) for name in KINDS if name in with_needs(names)]
        packages.install(lambda: set().union(*(service.missing() for service in wanted)), say)
        self.save()  # before the first process: whoever comes after a kill -9 must know what to look for
        try:
            in_parallel([[service.start for service in wanted if service.name in chain] for chain in CHAINS])
            self.save()
        except BaseException:
            self.down()
            raise

    def down(self):
        for service in reversed(self.services.values()):
            service.stop(hard=True)
        self.save()

    def forget(self):
        for service in self.services.values():
            service.forget()
        self.state.clear()
        self.save()

    def save(self):
        """Ports and secrets for the next command; and for a shell, DIR/env: there only while something runs."""
        write(self.root / "state.json", json.dumps(self.state, indent=2) + "\n")
        env = self.root / "env"
        if any(service.process.pid() for service in self.services.values()):
            write(env, self.exports())
        else:
            env.unlink(missing_ok=True)

    def exports(self):
        """What runs, and where."""
        variables = {"SEMEL_TEST_SERVICES": str(self.root)}
        for service in self.services.values():
            pid = service.process.pid()
            if pid is not None:
                variables.update(service.env())
                variables[f"SEMEL_TEST_{service.name.upper()}_PID"] = str(pid)
        return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def with_needs(names):
    return set(names).union(*(NEEDS.get(name, set()) for name in names))


def in_parallel(chains):
    """Runs each chain of steps in a thread of its own; the first failure calls the others off."""
    with concurrent.futures.ThreadPoolExecutor() as threads:
        runs = [threads.submit(lambda steps=steps: [step() for step in steps]) for steps in chains]
        try:
            done, _ = concurrent.futures.wait(runs, return_when=concurrent.futures.FIRST_EXCEPTION)
            for run in done:
                run.result()
        except BaseException:
            process.cancelled.set()
            raise


def write(path, text):
    """Whole or not at all, for readers that hold no lock."""
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.replace(path)


def make_folder(given):
    if given is None:
        root = Path(tempfile.mkdtemp(prefix="semel-tests-"))
    else:
        root = Path(given).resolve()
        root.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        root.chmod(root.stat().st_mode | 0o711)  # the servers' own user must get through to its folder
    return root


def up(options):
    root = make_folder(options.dir)
    names = [name for name in KINDS if getattr(options, name)] or list(USUAL)
    with packages.exclusive(root / "lock"):
        installation, watchdog = Installation(root), Watchdog(root)
        if options.owner:
            watchdog.start(options.owner)
            threading.Thread(target=give_up_without, args=[options.owner, watchdog], daemon=True).start()
        try:
            installation.up(names)
        except BaseException:
            watchdog.stop()
            raise
        print(installation.exports(), end="")


def give_up_without(owner, watchdog):
    """Nobody needs what is still starting; the watchdog waits until it is called off, and deletes what there is."""
    wait_for_end_of(owner)
    watchdog.needed = True
    os.kill(os.getpid(), signal.SIGTERM)


def down(options):
    with packages.exclusive(options.dir / "lock"):
        Installation(options.dir).down()
        Watchdog(options.dir).stop()


def start(options):
    with packages.exclusive(options.dir / "lock"):
        installation = Installation(options.dir)
        installation.named(options.service).start()
        installation.save()


def stop(options):
    with packages.exclusive(options.dir / "lock"):
        installation = Installation(options.dir)
        installation.named(options.service).stop(options.hard)
        installation.save()


def restart(options):
    stop(options)
    start(options)


def status(options):
    for service in Installation(options.dir).services.values():
        pid = service.process.pid()
        print(service.name, f"runs as {pid}" if pid else "is stopped", f"port {service.state.get('port')}")


def where(_):
    print(schemathesis.program(say))


def watch(options):
    wait_for_end_of(options.owner)
    with packages.exclusive(options.dir / "lock"):
        say(f"process {options.owner} is gone: stopping its services")
        installation = Installation(options.dir)
        installation.down()
        installation.forget()


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tests/services", description="real services for the live tests")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(action, help, service=False):
        added = commands.add_parser(action.__name__, help=help)
        added.set_defaults(action=action)
        if action is up:
            added.add_argument("dir", nargs="?", metavar="DIR", help="where everything is kept (a new temporary folder)")
        else:
            added.add_argument("dir", type=existing_folder, metavar="DIR", help="the folder that `up` was given or made")
        if service:
            added.add_argument("service", choices=list(KINDS))
        return added

    starts = command(up, "start services (all, or the named ones), print and write DIR/env once all answer")
    for name in KINDS:
        starts.add_argument(f"--{name}", action="store_true")
    starts.add_argument("--owner", type=int, metavar="PID", help="end them and delete their data when this process ends")
    command(down, "end everything that runs in DIR, at once; the data stays")
    command(start, "start one service again, on its port and with its data", service=True)
    for action, help in ((stop, "stop one service"), (restart, "stop one service and start it again")):
        hard = command(action, help, service=True)
        hard.add_argument("--hard", action="store_true", help="as a crash: nothing is written, nobody is told")
    command(status, "say what runs")
    tool = commands.add_parser("schemathesis", help="say where schemathesis is, and install it where it is not")
    tool.set_defaults(action=where)
    command(watch, "the watchdog; started by up").add_argument("--owner", type=int, required=True)
    return parser.parse_args(arguments)


def existing_folder(text):
    folder = Path(text).resolve()
    if not folder.is_dir():
        raise argparse.ArgumentTypeError(f"no such folder: {text}")
    return folder


def interrupted(number, _):
    """The first signal calls everything off; later ones must not break off the cleaning up, which has its own limits."""
    if not process.cancelled.is_set():
        process.cancelled.set()
        raise Cancelled


def main():
    options = parse(sys.argv[1:])
    if options.action is not watch:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN if options.action is down else interrupted)
    try:
        options.action(options)
    except Failed as failure:
        say(failure)
        sys.exit(1)
    except Cancelled:
        say("interrupted")
        sys.exit(130)
    except Exception:
        traceback.print_exc()
        sys.exit(1)


main()
