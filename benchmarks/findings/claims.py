"""The papers' findings, as comparisons of two systems on a group of scores, and what this benchmark cannot measure.

Each claim is the paper's, whatever comes out here. The scores are those of the paper's table as far as their data is
there: SentEval's downstream tasks for DeCLUTR, GLUE for CLEAR's Table 1, STS by cosine for the others. CLEAR's on STS
are compared twice: for systems that contrast [CLS], as the paper's do, and for systems that contrast means.
"""

from dataclasses import dataclass

from benchmarks.findings.systems import AUGMENTATIONS, POOLS

Score = tuple[str, str]
"""(task, metric) of `results.json`."""

STS: tuple[Score, ...] = (
    ("STS12", "spearman_all"),
    ("STS14", "spearman_all"),
    ("STS16", "spearman_all"),
    ("STSBenchmark", "spearman"),
    ("SICKRelatedness", "spearman"),
)
TRANSFER: tuple[Score, ...] = tuple(
    (task, "acc") for task in ("MR", "CR", "SUBJ", "MPQA", "SST2", "SST5", "TREC", "MRPC", "SICKEntailment")
)
GLUE: tuple[Score, ...] = (("glue/RTE", "accuracy"), ("glue/MRPC", "mean"))
RETRIEVAL: tuple[Score, ...] = (("heldout/documents", "mrr"),)
GROUPS: dict[str, tuple[Score, ...]] = {
    "STS": STS,
    "transfer": TRANSFER,
    "STS + transfer": STS + TRANSFER,
    "GLUE": GLUE,
    "held-out retrieval": RETRIEVAL,
}
"""Name -> the scores of an average, which is over those that were scored."""
COLUMNS = ("STS", "transfer", "GLUE", "held-out retrieval")
"""The averages of the table."""


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


ALONE = "mlm-sentences"
CLEAR_STS = (
    ("Table 2, mean", "MLM + del-word is better than MLM only", "clear-del-word", ALONE),
    ("Table 2, mean", "MLM + del-span is better than MLM only", "clear-del-span", ALONE),
    ("Table 2, mean", "MLM + subs + del-span is better than MLM only", "clear-subs+del-span", ALONE),
    ("Table 2, mean", "del-word is better than del-span", "clear-del-word", "clear-del-span"),
    ("Table 2, mean", "substitution before del-span is better than del-span", "clear-subs+del-span", "clear-del-span"),
    ("4.2", "substitution alone is too easy: del-word is better", "clear-del-word", "clear-subs"),
    ("4.2", "reordering alone is too easy: del-word is better", "clear-del-word", "clear-reorder"),
)
"""CLEAR's findings on STS: source, text, and the names of the two systems that contrast [CLS]."""
CLAIMS = (
    Claim(
        "DeCLUTR", "Table 2", "spans + MLM improve the pretrained encoder", "declutr", "pretrained", "STS + transfer"
    ),
    Claim("DeCLUTR", "Table 2", "spans + MLM are better than GloVe", "declutr", "glove", "STS + transfer"),
    Claim("DeCLUTR", "5.3, Figure 3", "spans + MLM are better than MLM only", "declutr", "mlm", "STS + transfer"),
    Claim(
        *("DeCLUTR", "5.3, Figure 3", "spans + MLM are better than spans only"),
        *("declutr", "declutr-spans-only", "STS + transfer"),
    ),
    Claim(
        *("DeCLUTR", "5.2, Figure 2 a", "2 anchors are better than 1, with as many spans"),
        *("declutr", "declutr-1-anchor", "STS + transfer"),
    ),
    Claim(
        *("DeCLUTR", "5.2, Figure 2 b", "2 positives for an anchor have minimal impact"),
        *("declutr-2-positives", "declutr", "STS + transfer"),
        margin=1.0,
    ),
    Claim(
        *("DeCLUTR", "5.2, Figure 2 c", "positives anywhere are better than adjacent ones only"),
        *("declutr", "declutr-adjacent", "STS + transfer"),
    ),
    Claim(
        *("DeCLUTR", "5.2, Figure 2 c", "positives anywhere are better than subsumed ones only"),
        *("declutr", "declutr-subsuming", "STS + transfer"),
    ),
    Claim("CLEAR", "Table 1", "MLM + del-word is better than MLM only", "clear-del-word", "mlm-sentences", "GLUE"),
    Claim("CLEAR", "Table 1", "MLM + del-span is better than MLM only", "clear-del-span", "mlm-sentences", "GLUE"),
    Claim(
        *("CLEAR", "Table 1", "MLM + subs + del-span is better than MLM only"),
        *("clear-subs+del-span", "mlm-sentences", "GLUE"),
    ),
    *(
        Claim(
            *("CLEAR", source, f"{text}, contrasting {contrasted}"),
            *(better + suffix, worse if worse == ALONE else worse + suffix, "STS"),
        )
        for suffix, (_, contrasted) in POOLS.items()
        for source, text, better, worse in CLEAR_STS
    ),
    Claim(
        *("SimCSE", "Table 5", "unsupervised SimCSE is better than the pretrained encoder"),
        *("simcse", "pretrained", "STS"),
    ),
    Claim("SimCSE", "Table 5", "unsupervised SimCSE is better than GloVe", "simcse", "glove", "STS"),
    Claim("SimCSE", "Table 5", "supervised SimCSE is better than unsupervised", "simcse-sup", "simcse", "STS"),
    Claim(
        *("SimCSE", "Table 1", "dropout alone is better than deleting 10 % of the words"),
        *("simcse", "simcse-deleted", "STS"),
    ),
    Claim("SimCSE", "Table 1", "dropout alone is better than crops of 90 %", "simcse", "simcse-cropped", "STS"),
    Claim("NonLing-CSE", "Table 1", "VisualCSE is better than SimCSE", "visualcse", "simcse", "STS"),
    Claim("NonLing-CSE", "Table 2", "AudioCSE is better than SimCSE", "audiocse", "simcse", "STS"),
    Claim(
        *("NonLing-CSE", "Table 4", "images without labels (SimCLR) are better than none"),
        *("visualcse-simclr", "simcse", "STS"),
    ),
    Claim(
        *("NonLing-CSE", "Table G.1", "clips without labels (SimCLR) are better than none"),
        *("audiocse-simclr", "simcse", "STS"),
    ),
    Claim(
        *("NonLing-CSE", "4.4, Table 4", "SupCon and SimCLR differ little, on images"),
        *("visualcse", "visualcse-simclr", "STS"),
        margin=1.0,
    ),
    Claim(
        *("NonLing-CSE", "Table G.1", "SupCon and SimCLR differ little, on clips"),
        *("audiocse", "audiocse-simclr", "STS"),
        margin=1.0,
    ),
    Claim("NonLing-CSE", "Table E.1", "VisualCSE is better than SimCSE", "visualcse", "simcse", "transfer"),
    Claim("NonLing-CSE", "Table E.1", "AudioCSE is better than SimCSE", "audiocse", "simcse", "transfer"),
)
CONTROLS = (
    Claim(
        *("DeCLUTR", "5.3, Figure 3", "a tenth of MLM's loss beside the spans, in place of all of it"),
        *("declutr-light-mlm", "declutr", "STS + transfer"),
    ),
    Claim(
        *("DeCLUTR", "5.3, Figure 3", "a tenth of MLM's loss beside the spans, in place of none"),
        *("declutr-light-mlm", "declutr-spans-only", "STS + transfer"),
    ),
    *(
        Claim(
            *("CLEAR", "3.2", f"{name}: contrasting means, in place of [CLS]"),
            *(f"clear-{name}-mean", f"clear-{name}", "STS"),
        )
        for name in AUGMENTATIONS
    ),
    *(
        Claim(
            *("CLEAR", "3.1", f"one token deleted, in place of del-span, contrasting {contrasted}"),
            *(f"clear-1-token{suffix}", f"clear-del-span{suffix}", "STS"),
        )
        for suffix, (_, contrasted) in POOLS.items()
    ),
    *(
        Claim(
            *("CLEAR", "4.2", f"reorder, which keeps all words, in place of {name}, contrasting means"),
            *("clear-reorder-mean", f"clear-{name}-mean", "STS"),
        )
        for name in ("del-word", "del-span", "subs")
    ),
)
"""Pairs of systems that differ in one thing: they say why a finding comes out as it does here."""
COMPARED = (*CLAIMS, *CONTROLS)
REASONS = {
    "better than spans only": (
        "DeCLUTR's MLM costs a part of what spans alone gain, and a tenth of its loss costs as much as all of it: its "
        "weight is not the reason, which no run here has found"
    ),
    "contrasting [CLS]": (
        "CLEAR's systems that contrast [CLS] are scored by the mean of the tokens, which the contrast does not train: "
        "contrasting means gives back a part (del-span {clear-del-span-mean} for {clear-del-span})"
    ),
    "contrasting means": (
        "At this scale STS rewards common words (tf-idf {tfidf}, the untrained encoder {untrained}), and CLEAR's views "
        "teach the encoder to pass over the words that they delete or replace: reordering, which keeps all words, has "
        "{clear-reorder-mean}, substitution {clear-subs-mean}"
    ),
}
"""Words of findings -> why they come out opposite, with STS averages of systems by their names."""


def needs_transfer(name: str) -> bool:
    """Return whether a finding about a system is on SentEval's transfer tasks, which take most of an evaluation."""
    return any(name in (claim.better, claim.worse) and set(TRANSFER) <= set(GROUPS[claim.group]) for claim in COMPARED)


NOT_MEASURED = {
    "DeCLUTR, Figure 3: larger models and more documents are better": "there is one encoder and one corpus",
    "DeCLUTR, Table 3: probing tasks": "their data takes hours of classifiers for each model",
    "DeCLUTR (v1), Figure S1: a projection head helps little, a memory bank hurts": "no time; `train.sweep` has both",
    "CLEAR, Table 2: the [CLS] rows": "all systems are scored by the mean",
    "CLEAR, Table 3: doubling the batch or the MLM loss does not explain the gain": (
        "at equal tokens MLM only has a batch of twice as many sentences, which is this control"
    ),
    "CLEAR, Table 1: the other tasks of GLUE, and pairs of steps with reordering": "no time",
    "SimCSE, Tables 2 to 7: other losses, pooling, dropout and data": "no time",
    "NonLing-CSE, Table 3: five seeds vary less than SimCSE's": "three seeds do not measure a deviation",
    "NonLing-CSE, Table 5: other languages": "the corpora are English",
    "NonLing-CSE, Table 6: beside supervised SimCSE": "no time",
    "NonLing-CSE, Figures 2 and 3, Table H.1: fractions of NLI, noise in it, CIFAR": "no time, no data",
}
"""Finding -> the reason why it has no verdict."""
