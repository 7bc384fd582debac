"""Write the report of `clearspan adapt`, and its last lines on the terminal: the verdict in words and in bars.

    verdicts, metrics.jsonl of the training, commands ──> write ──> DIR/report.html
    verdicts ───────────────────────────────────────────> lines ──> the terminal

A bar shows the score of one system, with its confidence interval.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path

from clearspan.common import terminal
from clearspan.common.progress import counted
from clearspan.eval.details import Cell, Table
from clearspan.eval.report.figures import Bars, ScoreBar, text_bars
from clearspan.eval.report.html import Section, write_report
from clearspan.eval.report.outcome import cut
from clearspan.eval.verdict import QUERIES, Example, System, Verdict
from clearspan.retrieval.scoring import K1, B
from clearspan.train.curves import NEVER_BETTER, learning_curves, never_better

REPORT = "report.html"
HEADINGS = {"titles": "Held-out titles", "crops": "Crops of held-out texts", "questions": "Your questions"}
DEV = {"titles": "other held-out title", "crops": "other held-out text", "questions": "question"}
"""Task -> noun for one of the queries that choose k1 and b."""
_TITLE = "Which search finds your texts"
_COMPARED = "All of these rank the same texts for the same queries."
MEASURE = "MRR: the mean of 1 / rank of the relevant document, in %: 100 if always first, 50 if always second."
_FIGURES = (
    "In brackets: the 95 % interval, by bootstrap over the queries. The weight of a model with BM25, and BM25's k1 and "
    "b, were chosen on other queries."
)
_CURVE = "The dev score is MRR on the half of the held-out texts that picks the checkpoint; step 0 is before training."
_EXAMPLES = "Queries that the two compared systems answer differently: one that the trained one wins, one it loses."


def write(
    folder: Path,
    verdict: Verdict,
    other: Verdict | None = None,
    *,
    metrics: Path | None = None,
    origin: str = "",
    steps: Mapping[str, str] | None = None,
    remark: str = "",
) -> Path:
    """Write the report; return its path.

    Args:
        folder: the output folder of `clearspan adapt`, DIR, in which report.html is written.
        verdict: the verdict that decides which system is recommended.
        other: a second verdict, on other queries, which the report shows below the first; None if there is none.
        metrics: the metrics.jsonl of the training, for the learning curve; None to leave the curve out.
        origin: a phrase that describes the model in DIR/model; "" if there is no model.
        steps: name -> command line of each step; None to leave the commands out.
        remark: a sentence on an update of the texts to search; "" for none.

    Raises:
        OSError: the file cannot be written.
    """
    curves = learning_curves({"trained": metrics}) if metrics else []
    failed = [f"In training {NEVER_BETTER}."] if metrics and never_better(metrics) else []
    notes = [*([remark] if remark else []), *verdict.notes, *failed]
    text = "\n\n".join([*gains(verdict), scoring(verdict), MEASURE, *notes])
    sections = [Section("Outcome", text, figures=[bars(verdict), *curves])]
    if other:
        text = "\n\n".join([other.sentence, *gains(other), scoring(other), *other.notes])
        sections.append(Section(HEADINGS[other.task], text, figures=[bars(other)]))
    if tables := examples(verdict):
        sections.append(Section("Examples", _EXAMPLES, tables))
    systems = [(system.name, described(system)) for system in verdict.systems]
    sections += [
        Section("What was compared", _COMPARED, [Table(("system", "what it is"), systems)]),
        Section("How to use it", _taken(folder, verdict, origin), commands=_commands(folder)),
        Section("Figures", _FIGURES, [_table(each) for each in (verdict, other) if each], folded=True),
    ]
    if curves:
        sections[-1] = Section("Figures", f"{_FIGURES} {_CURVE}", sections[-1].tables, folded=True)
    if steps:
        each = Table(("step", "command"), list(steps.items()))
        sections.append(Section("Commands", tables=[each], folded=True, note=counted(len(steps), "step")))
    path = folder / REPORT
    write_report(path, _TITLE, sections, f"{verdict.sentence[:1].upper()}{verdict.sentence[1:]}.")
    return path


def lines(verdict: Verdict, other: Verdict | None = None, width: int = 100) -> list[str]:
    """Return lines for the terminal: the outcome, the systems and the notes of each verdict.

    Args:
        verdict: the verdict that decides which system is recommended.
        other: a second verdict, which is shown below the first; None if there is none.
        width: the number of characters in a line. If the bars do not fit into it, each system is a line with its score.
    """
    text: list[str] = []
    for shown in filter(None, (verdict, other)):
        figure = bars(shown)
        drawn = text_bars(figure, width)
        rows = [f"{system.name} {system.mrr:.2f} [{system.low:.1f}, {system.high:.1f}]" for system in shown.systems]
        word = "undecided" if shown.is_undecided else shown.word
        measure = [MEASURE] if shown is verdict else []
        text += [f"{word}: {shown.sentence}", figure.unit, *(drawn or rows), *measure, *gains(shown)]
        text += [scoring(shown), *shown.notes]
    return [terminal.printable(line) for line in text]


def gains(verdict: Verdict) -> list[str]:
    """Return a line on what the winner and the two compared systems find more than BM25; [] if none has a model."""
    names = dict.fromkeys((verdict.winner, verdict.best_trained, verdict.best_untrained))
    found = [f"{name} {gain}" for name in names if (gain := verdict.system(name).gain)]
    return [f"More than BM25 alone, in MRR: {', '.join(found)}."] if found else []


def scoring(verdict: Verdict) -> str:
    """Return a line that says which k1 and b BM25 has in a search, and what chose them."""
    of_bm25 = f"BM25 has k1 {verdict.k1:g} and b {verdict.b:g}"
    if not verdict.num_dev:
        return f"{of_bm25}."
    is_default = (verdict.k1, verdict.b) == (K1, B)
    why = "the defaults: no other pair is surely better" if is_default else "the best pair"
    crossed = ", each half scored by what the other half chose" if verdict.task == "questions" else ""
    return f"{of_bm25}, {why} for {counted(verdict.num_dev, DEV[verdict.task])}{crossed}."


def bars(verdict: Verdict) -> Bars:
    """Return a bar chart with the score and the interval of each system, best first; the winner is highlighted."""
    rows = [
        ScoreBar(system.name, system.mrr, system.low, system.high, _weight(system), system.name == verdict.winner)
        for system in verdict.systems
    ]
    return Bars(rows, f"MRR, %, {_counts(verdict)}")


def described(system: System) -> str:
    """Return a description of a system in one line; for a model combined with BM25, it names both weights."""
    if system.weight is None:
        return system.about
    return f"{system.about} (weight of the model {system.weight:.2g}, of BM25 {1 - system.weight:.2g})"


def _taken(folder: Path, verdict: Verdict, origin: str) -> str:
    kept = f" {folder / 'model'} is {origin}." if origin else ""
    return f"Take {verdict.winner}.{kept} The folder holds all that a search needs:"


def _commands(folder: Path) -> list[str]:
    name = shlex.quote(str(folder))
    return [f'clearspan search {name} "your question"', f"clearspan serve {name}"]


def examples(verdict: Verdict) -> list[Table]:
    """Return a table for one query that the best trained system wins, and a table for one query that it loses.

    The best trained system wins a query if it ranks the relevant document higher than the best untrained system does,
    and loses it if it ranks the document lower. A table shows the query, the relevant document, its two ranks, and any
    other document that one of the two systems ranks first. It is omitted if there is no such query.
    """
    won = [example for example in verdict.examples if _before(example.rank, example.rank_untrained)]
    lost = [example for example in verdict.examples if _before(example.rank_untrained, example.rank)]
    return [
        _example(f"{verdict.best_trained} {word}", verdict, shown[0])
        for word, shown in (("wins", won), ("loses", lost))
        if shown
    ]


def _before(rank: int, other: int) -> bool:
    """Return whether `rank` is better than `other`: 1 is best; 0, of a text that was not ranked, is worst."""
    return rank != other and rank > 0 and (other == 0 or rank < other)


def _example(outcome: str, verdict: Verdict, example: Example) -> Table:
    rows = [("query", cut(example.query)), ("relevant document", cut(example.text))]
    if example.rank != 1:
        rows.append((f"first for {verdict.best_trained}", cut(example.first)))
    if example.rank_untrained != 1:
        rows.append((f"first for {verdict.best_untrained}", cut(example.first_untrained)))
    ranks = [f"rank {rank:,}" if rank else "not ranked" for rank in (example.rank, example.rank_untrained)]
    return Table(("", ""), rows, f"{outcome}: {ranks[0]}; {verdict.best_untrained}: {ranks[1]}")


def _table(verdict: Verdict) -> Table:
    rows = [
        (
            system.name,
            Cell(system.mrr, f"[{system.low:.1f}, {system.high:.1f}]", system.name == verdict.winner),
            str(system.gain or ""),
            _weight(system),
        )
        for system in verdict.systems
    ]
    change = f"{verdict.difference:+.2f} [{verdict.low:+.1f}, {verdict.high:+.1f}]"
    caption = f"{HEADINGS[verdict.task]}: {verdict.best_trained} minus {verdict.best_untrained}: {change}"
    return Table(("system", "MRR", "more than BM25", "weight"), rows, caption)


def _weight(system: System) -> str:
    return "" if system.weight is None else f"weight {system.weight:.2g}"


def _counts(verdict: Verdict) -> str:
    whole = f" of {verdict.num_collection:,}" if verdict.num_collection > verdict.num_texts else ""
    queries = counted(verdict.num_queries, QUERIES[verdict.task])
    return f"{queries} among {verdict.num_texts:,}{whole} texts"
