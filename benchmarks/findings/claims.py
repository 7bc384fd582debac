"""The papers' findings, read from claims.yaml, and the groups of scores that they are about."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from benchmarks.findings.systems import PRETRAINED
from benchmarks.findings.verdicts import Score

FILE: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("claims.yaml").read_text(encoding="utf-8"))
STS: dict[Score, str] = {
    ("STS12", "spearman_all"): "STS12",
    ("STS14", "spearman_all"): "STS14",
    ("STS16", "spearman_all"): "STS16",
    ("STSBenchmark", "spearman"): "STS-B",
    ("SICKRelatedness", "spearman"): "SICK-R",
}
"""(task, metric) of `results.json` -> its column in the table of scores."""
RETRIEVAL: dict[Score, str] = {("heldout/documents", "mrr"): "held-out MRR"}
TRANSFER: tuple[Score, ...] = tuple(
    (task, "acc") for task in ("MR", "CR", "SUBJ", "MPQA", "SST2", "SST5", "TREC", "MRPC", "SICKEntailment")
)
GROUPS: dict[str, tuple[Score, ...]] = {
    "STS": tuple(STS),
    "transfer": TRANSFER,
    "STS + transfer": (*STS, *TRANSFER),
    "GLUE": (),
}
"""Name -> the scores of an average, which is over those that were scored. GLUE is not: its fine-tuning takes hours."""
SEPARATE = ("STS", "transfer")
"""Groups on which every pair of systems is compared, whatever the paper's scores: one may gain what the other loses."""


@dataclass(frozen=True)
class Claim:
    """A paper's finding.

    Attributes:
        source: section or table.
        better, worse: names of systems; the difference is better - worse.
        group: a key of GROUPS.
        margin: None: `better` is better. A number: the two differ by no more than so many points.
    """

    paper: str
    source: str
    text: str
    better: str
    worse: str
    group: str
    margin: float | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.better, self.worse, self.group

    def on(self, group: str) -> "Claim":
        """Return the same comparison on other scores."""
        return replace(self, group=group)


def read(section: str) -> list[Claim]:
    """Return the findings of a section of the file, `claims` or `controls`."""
    return [Claim(paper, **fields) for paper, rows in FILE[section].items() for fields in rows]


def from_base(name: str) -> Claim:
    """Return the comparison of a system with the base encoder."""
    return Claim("", "", f"{name} > {PRETRAINED}", name, PRETRAINED, "STS")


CLAIMS, CONTROLS = read("claims"), read("controls")


def needs_transfer(name: str) -> bool:
    """Return whether a finding about a system is on SentEval's transfer tasks, which take most of an evaluation."""
    return any(name in claim.key and "transfer" in claim.group for claim in (*CLAIMS, *CONTROLS))
