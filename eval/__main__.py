"""Score sentence encoders with the published protocols; print a summary, and write `results.json` and `report.html`.

examples:
  clearspan eval --model runs/demo/model --tasks sts,transfer,probing --data data --output runs/demo/eval
  clearspan eval --model BEFORE --model runs/mine/model --model tfidf --model bm25 --tasks heldout
      --data SHARDS --output runs/mine/heldout
  clearspan eval --model hybrid:runs/mine/model --model bm25 --queries questions.csv --data SHARDS
      --output runs/mine/own

models (--model):
  DIR                a folder that sentence-transformers loads, or a plain Hugging Face folder (see --pooling); or
                     hf:ORG/NAME[@REVISION], also in hybrid:, a model that is fetched from the Hugging Face hub
  FILE               word vectors in the format of GloVe, fastText or word2vec, or JSON; a text is the mean of its words
  bow, tfidf, bm25   baselines that compare words (bow: bag of words), fitted on the texts of each task
  hybrid:DIR         the model in DIR combined with BM25; it ranks documents (heldout, retrieval)
  module:function    a Python function that takes a list of n texts and returns an array (n, dim), from an installed
                     module or a module in the working folder

tasks (--tasks), and the place of their files in DIR, the folder given with --data:
{families}
  module:name        your own task: a class that implements clearspan.eval.tasks.task.Task, called with DIR
If the files of a task are missing, the task is skipped, and the output says so; all other tasks run. Files are compared
with the published files: if the contents differ, there is a warning; if rows are missing, the exit code is 1 after all
tasks are scored, unless --allow-missing is given.

protocols (--protocol):
  full  the papers' settings: SentEval's defaults (10 folds, Adam); GLUE as the median of five seeds
  fast  settings for prototyping: SentEval's own (5 folds, RMSprop); GLUE with one seed and fewer epochs

pooling of a plain Hugging Face folder (--pooling):
  mean        the mean over the tokens of the last layer
  cls         the first token, [CLS], of the last layer: unsupervised SimCSE
  pooler      [CLS] through the model's own head: BERT's pooler, supervised SimCSE
  first-last  the mean over the tokens of the first and the last layer

prompts (--prompt-name):
  Models such as E5 and BGE name prompts in config_sentence_transformers.json. In retrieval and heldout, queries are
  embedded with the model's prompt `query`, and documents with the prompt `document`. In all other tasks, texts are
  embedded with the model's default prompt, if it has one. For E5's published scores on these tasks, set --prompt-name
  query. If the prompt for documents has another name, set e.g. --prompt-name query,passage

cache (--cache):
  Embeddings are cached under a fingerprint of everything that affects them. Embeddings by a Python function are not
  cached.

exit codes:
  0    the models are scored, even if tasks were skipped because their files are missing
  1    a file has fewer rows than the published one (without --allow-missing), or the work failed, e.g. because a file
       is malformed, a folder holds no model, or there is nothing to score
  2    wrong usage
  130  interrupted

related commands:
  clearspan data check DIR            check the data, and show where to obtain the rest
  clearspan compare A B               test which differences between two evaluations exceed noise
  clearspan tables NAME RESULTS...    print a paper's table with your own models in it
"""

import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from clearspan.cli.command import Command, Errors, Result
from clearspan.common import terminal
from clearspan.common.errors import PipelineError
from clearspan.common.records import DataError
from clearspan.common.terminal import as_printed
from clearspan.eval.files import json_text
from clearspan.eval.report.sections import terminal_summary
from clearspan.eval.report.summary import ScoreSummary
from clearspan.eval.request import EvalOptions
from clearspan.eval.results import Scored
from clearspan.eval.run import EvaluationError, score_models
from clearspan.eval.tasks.registry import FAMILIES

_FAMILIES = "\n".join(f"  {word:<18} {family.description}" for word, family in FAMILIES.items())
_DESCRIPTION = str(__doc__).replace("{families}", _FAMILIES)


@dataclass(frozen=True)
class EvalResult(Result):
    """Result of `clearspan eval`: the scores of each model.

    Attributes:
        scored: the evaluations of the models, in the order of `--model`.
        failure: a line for the user that names the data files that have fewer rows than the published file; "" if there
            are none, or with `--allow-missing`.
    """

    scored: Sequence[Scored]
    failure: str = ""

    def __str__(self) -> str:
        return as_printed(terminal_summary(ScoreSummary(self.scored), terminal.width()))

    def to_json(self) -> str:
        first, *others = [each.results.to_json() for each in self.scored]
        return json_text([json.loads(each) for each in (first, *others)]) if others else first


@dataclass(frozen=True, kw_only=True)
class Evaluate(EvalOptions, Command):
    """The command `eval`: scores models on tasks, and writes results and report."""

    description: ClassVar[str] = _DESCRIPTION
    expected: ClassVar[Errors] = (DataError, OSError, EvaluationError, PipelineError)

    def run(self) -> EvalResult:
        """Evaluate the models, and write the results and the report.

        The exit code in the result is 1 if a data file has fewer rows than the published file, unless the user gave
        `--allow-missing`.
        """
        try:
            # Keeps text that a library or the model's own code prints out of the results.
            with contextlib.redirect_stdout(sys.stderr):
                scored = score_models(self)
        except EvaluationError as error:
            for name, reason in error.skipped.items():
                print(terminal.printable(f"skipped {name}: {reason}"), file=sys.stderr)
            raise
        truncated = "" if self.allow_missing else ", ".join(scored[0].results.truncated.values())
        if not truncated:
            return EvalResult(scored)
        failure = f"truncated data: {truncated}: restore the files, or accept them with `allow_missing`"
        return EvalResult(scored, terminal.printable(failure))


main = Evaluate.main


if __name__ == "__main__":
    sys.exit(main())
