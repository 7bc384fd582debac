"""The measurements' rows, and the processes that answer with them. Imports no torch."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.cuda_without_gpu import device

PARTS = ("train", "objectives", "embed", "ways", "device")
"""The parts of the measurements, each a process; the longest first."""
HEAD = ("name", "precision", "way", "kernel", "q k v", "waits", "graphs", "casts")
"""Columns of the table. `blind` after a kernel says that rows of queries see no key; waits are named by the function
that waits; casts are those of parameters by autocast, and how many parameters are cast.
"""


@dataclass
class Row:
    """One measurement.

    Attributes:
        name: the architecture or the objective.
        precision: fp32 or bf16.
        way: embed, train, ...
        kernels: the kernels of attention.
        given: the dtypes of q, k and v that packed attention is given, before autocast casts them for SDPA.
        dtypes: the dtypes of q, k and v in the kernel.
        waits: each wait of the host for the device -> how often.
        events: the number of waits for an event.
        graphs: the number of graphs of compiled steps; None where nothing is compiled.
        launches: the number of kernels, at least.
        texts: the number of texts that they are for.
        padding: the number of rows of queries in attention divided by the number of tokens.
        blind: the number of rows of queries that see no key.
        casts: the number of casts of parameters by autocast, and the number of parameters that are cast.
        difference: the largest relative difference from the CPU in fp32.
        refused: why it cannot be done; "" where it can.
    """

    name: str
    precision: str
    way: str
    kernels: list[str] = field(default_factory=list)
    given: list[str] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)
    waits: dict[str, int] = field(default_factory=dict)
    events: int = 0
    graphs: int | None = None
    launches: int = 0
    texts: int = 1
    padding: float = 1.0
    blind: int = 0
    casts: list[int] = field(default_factory=lambda: [0, 0])
    difference: float = 0.0
    refused: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.name, self.precision, self.way

    def cells(self) -> list[str]:
        """Return what a test expects of this measurement, as texts of the columns HEAD."""
        if self.refused:
            return [*self.key, "refused"]
        kernels = ", ".join(self.kernels) or "-"
        functions: Counter[str] = Counter()
        for wait, count in self.waits.items():
            functions[wait.split()[-1]] += count
        waits = ", ".join(f"{count} {name}" for name, count in functions.items()) or "0"
        graphs = "-" if self.graphs is None else str(self.graphs)
        casts = "/".join(map(str, self.casts)) if self.casts[0] else "-"
        given = ", ".join(self.given) or "-"
        return [*self.key, kernels + " blind" * (self.blind > 0), given, waits, graphs, casts]


LIMIT_S = 900
"""Seconds after which the processes are ended: one that hangs would keep the tests waiting."""


class ProbeError(Exception):
    """A process of the measurements failed."""


def measured(folder: Path, parts: Sequence[str] = PARTS) -> dict[tuple[str, str, str], Row]:
    """Return (name, precision, way) -> row of all measurements of some parts.

    Args:
        folder: the folder that keeps the compiled library.

    Raises:
        NoCompilerError: this machine has no C++ compiler.
        ProbeError: a process failed; the message is the end of its output.
    """
    device.build(folder)
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", f"{__package__}.probe"]
    running = {
        part: subprocess.Popen(
            [*command, part, str(folder)],
            cwd=Path(__file__).resolve().parents[2],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for part in parts
    }
    rows: dict[tuple[str, str, str], Row] = {}
    try:
        ends = {part: (*process.communicate(timeout=LIMIT_S), process.returncode) for part, process in running.items()}
    finally:
        for process in running.values():
            process.kill()  # it has ended, unless another one is late
    for part, (out, errors, code) in ends.items():
        if code:
            raise ProbeError(f"{part}: {errors[-4000:]}")
        rows |= {row.key: row for row in (Row(**each) for each in json.loads(out.splitlines()[-1]))}
    return rows
