"""Ranks on several machines: the network that they use, what they must have in common, and which one is lost.

    MASTER_ADDR -> the interface that leads there -> a rank opens ports on its address in that network only
    each rank   -> a count every BEAT_S seconds   -> the store of rank 0 -> all counts -> each rank

A rank whose count stands still for SILENCE_S seconds is lost, and so is rank 0 if its store does not answer. Every
other rank then ends with one line, which names the machine. Collective operations alone would notice a machine that was
cut off after half an hour, and would not name it. Ranks of one machine need none of this: their launcher ends them.
"""

import contextlib
import hashlib
import ipaddress
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from torch.distributed import TCPStore  # type: ignore[attr-defined, unused-ignore]  # no stubs export it

from clearspan.common import terminal
from clearspan.common.answers import Failure, continue_with, report
from clearspan.train.config.options import RecipeError
from clearspan.train.engine.signals import PREFIX, reports

JOIN_S = 300
"""The time, in seconds, that a rank waits at the start for the ranks of other machines."""
SILENCE_S = 60
"""The time, in seconds, after which a rank that does not answer is lost."""
BEAT_S = 2.0
"""The time, in seconds, between two signs of life of a rank."""
PROBE_S = 10
"""The time, in seconds, that a connection to another machine may take at the start."""
TORCHRUN = "TORCHELASTIC_USE_AGENT_STORE"
"""Environment variable by which torchrun says that it serves the store at MASTER_PORT itself."""
FAILED = "failed"
"""The store's key of the first failure: JSON of (the rank's place, the line, the exit code)."""


class MachineError(OSError):
    """The machines cannot train together: one does not know or reach another, or has not come, or is lost."""


class Place(NamedTuple):
    """A rank's place: its number, the name of its machine, and its address in the network of the ranks."""

    rank: int
    host: str
    address: str

    def __str__(self) -> str:
        return f"{self.host} ({self.address}, rank {self.rank})"


def own_place(master: str, port: int, rank: int) -> tuple[str, Place]:
    """Return (the address of rank 0's machine, the place of this rank in the network that leads there).

    Args:
        master: name or address of rank 0's machine.
        port: the port of rank 0's store.
        rank: the number of this rank.

    Raises:
        MachineError: this machine does not know the name, has no way there, or takes it for a name of its own.
    """
    host, use = socket.gethostname(), "give `master_addr` the address of the first machine in the network of the ranks"
    try:
        known = socket.getaddrinfo(master, port, type=socket.SOCK_DGRAM)
        family, *_, found = min(known, key=lambda each: each[0] != socket.AF_INET)  # which all ranks choose alike
        address = str(found[0])
        with socket.socket(family, socket.SOCK_DGRAM) as probe:  # sends nothing
            probe.connect(found)
            own = str(probe.getsockname()[0])
    except OSError as error:
        raise MachineError(f"{host} knows no way to {master}, where rank 0 is ({error.strerror}): {use}") from None
    if ipaddress.ip_address(address).is_loopback:
        raise MachineError(f"{master} is {address} on {host}, where no other machine can reach it: {use}")
    if rank == 0 and address != own:
        raise MachineError(f"rank 0 is on {host}, and {master} ({address}) is another machine: {use}")
    return address, Place(rank, host, own)


def interface(address: str) -> str:
    """Return the name of this machine's network interface that has an address."""
    for name, entries in psutil.net_if_addrs().items():
        if any(entry.address.partition("%")[0] == address for entry in entries):
            return str(name)
    raise MachineError(f"{socket.gethostname()} has no interface with the address {address}")


def meet(url: str, *, timeout: timedelta, **options: Any) -> Iterator[tuple[TCPStore, int, int]]:
    """Connect the ranks of several machines; yield (store, rank, number of ranks). torch calls this rendezvous handler.

    Rank 0 listens on its address in the network of the ranks only; so do gloo and NCCL on each rank. When all ranks
    have come, each connects to a port of each other once, as gloo will; then each watches the others.

    Args:
        url, options: ignored; torch passes them.
        timeout: the maximum time that a collective operation waits.

    Raises:
        MachineError: a rank has not come within JOIN_S seconds, or cannot be reached.
    """
    rank, ranks, port = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    address, place = own_place(os.environ["MASTER_ADDR"], port, rank)
    name = interface(place.address)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={name}")
    number = None
    if rank == 0 and os.environ.get(TORCHRUN) != "True":
        try:
            number = socket.create_server((address, port), family=_family(address), backlog=1024).detach()
        except OSError as error:
            reason = f"{place} cannot listen on port {port} ({os.strerror(error.errno or 0)})"
            raise MachineError(f"{reason}: choose another with `master_port`, on all machines") from None
        unsafe = "without encryption or passwords: use a trusted network only"
        terminal.notice(f"listening on port {port} of {address} for the other machines, {unsafe}")
    store = _connected(place, address, port, ranks, number)
    try:
        places = _roll_call(store, place, ranks)
        _probe(store, place, places)
    except MachineError as error:
        with contextlib.suppress(RuntimeError):  # rank 0 may be the one that has ended
            store.compare_set(FAILED, "", json.dumps([place, str(error), 1]))
        raise
    _watch.begin(_connected(place, address, port, ranks), place, places)
    store.set_timeout(timeout)
    yield store, rank, ranks


def _connected(place: Place, address: str, port: int, ranks: int, listener: int | None = None) -> TCPStore:
    """Return a connection to rank 0's store, which `listener` serves if it is given; wait at most JOIN_S seconds."""
    # In a thread: torch would wait for ever for another program that listens on the port and does not answer.
    made: list[TCPStore] = []

    def connect() -> None:
        patience, served = timedelta(seconds=JOIN_S), listener is not None
        with contextlib.suppress(RuntimeError):
            made.append(
                TCPStore(address, port, ranks, served, patience, wait_for_workers=False, master_listen_fd=listener)
            )

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(JOIN_S)
    if not made:
        reason = f"{place} could not reach rank 0 on port {port} of {address} within {JOIN_S:g} s"
        raise MachineError(f"{reason}: start all machines, and open their ports for each other")
    return made[0]


def _roll_call(store: TCPStore, place: Place, ranks: int) -> list[Place]:
    """Return the places of all ranks, when they have come; raise MachineError if one has not within JOIN_S seconds."""
    store.set(f"beat/{place.rank}", "0")
    store.set(f"place/{place.rank}", json.dumps(place))
    missing = _wait(store, [f"place/{rank}" for rank in range(ranks)], JOIN_S)
    if missing:
        numbers = ", ".join(key.partition("/")[2] for key in missing)
        came = f"of {ranks} ranks, those of number {numbers} have not come to {place} within {JOIN_S:g} s"
        if place.rank:
            came = f"of {ranks} ranks, those of number {numbers} have not come within {JOIN_S:g} s"
        raise MachineError(f"{came}: start all machines, and open port {os.environ['MASTER_PORT']} of rank 0 for them")
    return [Place(*json.loads(store.get(f"place/{rank}"))) for rank in range(ranks)]


def _probe(store: TCPStore, place: Place, places: list[Place]) -> None:
    """Connect once to a free port of each rank of other machines; raise MachineError if one cannot be reached."""
    keys = [f"probe/{other.rank}" for other in places]
    with socket.create_server((place.address, 0), family=_family(place.address), backlog=1024) as listener:
        store.set(keys[place.rank], str(listener.getsockname()[1]))
        _meet_all(store, keys)
        for other in [each for each in places if each.address != place.address]:
            port = int(store.get(keys[other.rank]))
            try:
                socket.create_connection((other.address, port), PROBE_S).close()
            except OSError as error:
                reason = f"{place} cannot reach port {port} of {other} ({error.strerror or error})"
                raise MachineError(
                    f"{reason}: ranks listen on any free port: open all ports of the machines for each other"
                ) from None
        store.set(f"probed/{place.rank}", "1")
        _meet_all(store, [f"probed/{other.rank}" for other in places])


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET


def _meet_all(store: TCPStore, keys: list[str]) -> None:
    """Wait until all ranks have set their key; raise MachineError if one has not within JOIN_S seconds."""
    if missing := _wait(store, keys, JOIN_S):
        numbers = ", ".join(key.partition("/")[2] for key in missing)
        raise MachineError(f"ranks of number {numbers} came and then did not answer for {JOIN_S:g} s: see their output")


def _wait(store: TCPStore, keys: list[str], seconds: float) -> list[str]:
    """Wait until the store has all keys; return those that it lacks then; raise MachineError if a rank has failed."""
    end = time.monotonic() + seconds
    try:
        while missing := [key for key in keys if not store.check([key])]:
            if store.check([FAILED]):
                raise MachineError(_reported(store))
            if time.monotonic() > end:
                return missing
            time.sleep(0.1)
    except RuntimeError:
        raise MachineError("the machine of rank 0 ended before training began: its output gives the reason") from None
    return []


def _reported(store: TCPStore) -> str:
    """Return the line of the first failure, with the place of the rank that failed."""
    place, line, _ = json.loads(store.get(FAILED))
    return f"{Place(*place)} ended: {line}"


class Watch:
    """Signs of life of all ranks, sent and read by threads of this process. One process has one watch."""

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._seen: dict[int, tuple[bytes, float]] = {}
        self._answered = 0.0
        self._broken: float | None = None
        self._failure = ""
        self._ended = threading.Event()
        self._reporting = threading.Lock()
        self._reports_itself = False

    def begin(self, store: TCPStore, place: Place, places: list[Place]) -> None:
        """Start to send and to read signs of life.

        Args:
            store: a connection to the store that nothing else uses.
            place: the place of this rank.
            places: the places of all ranks.
        """
        now = time.monotonic()
        self._store, self._place, self._places, self._answered = store, place, places, now
        self._seen = {other.rank: (b"", now) for other in places if other != place}
        for work in (self._beat, self._guard):
            threading.Thread(target=work, daemon=True).start()

    def _beat(self) -> None:
        count, keys = 0, [f"beat/{rank}" for rank in self._seen]
        try:
            while not self._ended.wait(BEAT_S):
                count += 1
                self._store.set(f"beat/{self._place.rank}", str(count))
                values, now = self._store.multi_get(keys), time.monotonic()
                self._answered = now
                for rank, value in zip(self._seen, values, strict=True):
                    if value != self._seen[rank][0]:
                        self._seen[rank] = value, now
                if not self._failure and self._store.check([FAILED]):
                    self._failure = _reported(self._store)
                    self._store.set(f"read/{self._place.rank}", "1")
        except RuntimeError:
            self._broken = time.monotonic()

    def _guard(self) -> None:
        """End this process when a rank is lost or has failed, unless its main thread notices by itself."""
        since = 0.0
        while not self._ended.wait(0.5):
            problem = self.lost(SILENCE_S)
            told = self._failure or (self._broken and self._ended_line(self._places[0]))
            since = since or (time.monotonic() if told else 0.0)
            if since and time.monotonic() > since + 5 * BEAT_S:
                problem = str(told)
            if problem and not self._ended.is_set():
                if not self._reporting.acquire(blocking=False):
                    return
                self._tell(problem, 1)
                if reports():
                    report(Failure(PREFIX, problem))
                os._exit(1)

    def _take_over(self) -> None:
        """Let the main thread report why this process ends; if the other thread does so, wait for the end."""
        if not self._reports_itself:
            self._reporting.acquire()
            self._reports_itself = True

    def lost(self, patience: float) -> str:
        """Return a line that names the machines that have not answered for so many seconds; "" if all have."""
        lost = self._silent(patience) and self._silent(3 * BEAT_S)  # a machine's ranks are not lost at the same moment
        silent = [self._places[rank] for rank in lost]
        if self._place.rank and time.monotonic() - self._answered > patience:
            silent = self._places[:1]  # through its store, this rank would have heard of the others
        if not silent:
            return ""
        names = " and ".join(str(place) for place in silent)
        return f"no answer from {names} for {patience:g} s: see whether it runs and can be reached; {_AGAIN}"

    def _ended_line(self, place: Place) -> str:
        return f"{place} ended, or is cut off: its output gives the reason; {_AGAIN}"

    def explain(self) -> str:
        """Return why a rank of another machine cannot be reached, in one line; "" if all ranks answer.

        This takes up to five beats, until a rank that does not answer is known.
        """
        self._take_over()
        end = time.monotonic() + 5 * BEAT_S
        while self._places and time.monotonic() < end:
            if self._failure:
                return self._failure
            silent = self._silent(3 * BEAT_S)
            if self._broken or silent:
                return self._ended_line(self._places[0 if self._broken else silent[0]])
            time.sleep(0.1)
        return ""

    def tell(self, problem: str, code: int) -> None:
        """Tell all ranks that this one ends, and why; on rank 0, wait until those that still answer have read it.

        Args:
            problem: one line; "" if another rank has told it.
            code: the exit code of this rank.
        """
        self._take_over()
        self._tell(problem, code)

    def _tell(self, problem: str, code: int) -> None:
        is_cut_off = self._broken or time.monotonic() - self._answered > 3 * BEAT_S
        if not self._places or (self._place.rank and is_cut_off):
            return
        failure = json.dumps([self._place, problem, code])

        def work() -> None:
            with contextlib.suppress(RuntimeError):
                if problem:
                    self._store.compare_set(FAILED, "", failure)
                if self._place.rank == 0:
                    self._wait_for_readers()

        thread = threading.Thread(target=work, daemon=True)  # which a machine that is cut off would hold
        thread.start()
        thread.join(5 * BEAT_S)

    def _wait_for_readers(self) -> None:
        while unread := [rank for rank in self._seen if not self._store.check([f"read/{rank}"])]:
            if {*unread} <= {*self._silent(3 * BEAT_S)}:
                return
            time.sleep(0.1)

    def _silent(self, patience: float) -> list[int]:
        """Return the ranks whose counts have stood still for so many seconds."""
        now = time.monotonic()
        return [rank for rank, (_, seen) in self._seen.items() if now - seen > patience]

    def end(self) -> None:
        """Stop to watch: this rank is about to end, or its training is done."""
        self._ended.set()


_AGAIN = continue_with("resume", "run it again, with --resume if a checkpoint is there")
_watch = Watch()
explain, tell, end = _watch.explain, _watch.tell, _watch.end


def check_same(facts: Mapping[str, Any], gathered: Callable[[Any], list[Any]], what: str) -> None:
    """Raise RecipeError, on every rank, if a fact differs between the machines; every rank must call this function.

    Args:
        facts: name -> value, which JSON can represent; {} on a rank that need not be compared.
        gathered: a function that returns the values of all ranks (`train.engine.ranks.gathered`).
        what: what to do if they differ.
    """
    places = _watch._places
    every: list[Mapping[str, Any]] = gathered(dict(facts))
    for place, other in zip(places, every, strict=False):
        for name in [*every[0], *other] if other else ():
            first, value = (found.get(name, "nothing") for found in (every[0], other))
            if first != value:
                values = "" if len(f"{first}{value}") > 80 else f": {value}, and {first}"
                raise RecipeError(f"{name} differs between {place} and {places[0]}{values}: {what}")


def versions() -> dict[str, str]:
    """Return what this machine trains with: versions of packages, and a hash of the sources of this one."""
    root, hashed = Path(__file__).resolve().parents[2], hashlib.sha256()
    for room in ("common", "shards", "train"):
        for path in sorted((root / room).rglob("*.py")):
            hashed.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    packages = ("clearspan", "torch", "transformers", "tokenizers", "deepspeed")
    installed = {}
    for name in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):  # such as a checkout on PYTHONPATH
            installed[f"the version of {name}"] = metadata.version(name)
    return {**installed, "the code of clearspan": hashed.hexdigest()}


def several() -> bool:
    """Return whether the ranks of this process are on several machines."""
    return bool(_watch._places)


__all__ = ["MachineError", "check_same", "end", "explain", "meet", "several", "tell", "versions"]
