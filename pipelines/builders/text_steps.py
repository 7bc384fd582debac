"""The part that every builder of texts has: the options of the steps between a text and its token ids.

    text -> filters (words, ...) -> prepared (spaces, letter case) -> tokenizer -> without excluded texts

The tokenizer and the excluded texts are stored in the dataset's folder (`resources`), where workers read them.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from clearspan.common import same_text
from clearspan.common.hub import hub_record, tokenizer_folder
from clearspan.common.options import Flag, Options
from clearspan.pipelines.builders import BuildPlan
from clearspan.pipelines.builders.text_inputs import FileOptions
from clearspan.pipelines.text.exclude import Excluded, read_texts
from clearspan.pipelines.text.filters import Filter, Languages, MinWords
from clearspan.pipelines.text.minhash import LOWEST
from clearspan.pipelines.text.segmentation import normalize
from clearspan.pipelines.text.tokenization import (
    BACKENDS,
    Tokenization,
    TokenizerFiles,
    read_tokenizer,
    with_prefix_space,
    with_special_token,
)
from clearspan.shards.manifest import FILES_FOLDER

EXCLUDED = f"{FILES_FOLDER}/excluded.u64"
EXCLUDED_TEXTS = f"{FILES_FOLDER}/excluded.jsonl"
"""Paths of the hashes of the excluded texts (EXCLUDED), and of the beginnings of these texts (EXCLUDED_TEXTS)."""
MAX_TOKENS = 510
"""Default maximum for sentences, which is 512 with the two special tokens of RoBERTa or BERT."""
Whitespace = Annotated[Literal["keep", "collapse"], Flag()]
NearDedup = Annotated[float | None, Flag("S"), Ge(LOWEST), Le(1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSteps(Options):
    """Options of the steps between a text and its token ids. `lowercase`, `prefix_space` and `min_words`, with the
    builder's `whitespace`, reproduce DeCLUTR's published preparation.
    """

    tokenizer: Annotated[str, Flag("PATH", required=True, path=True, resolve=tokenizer_folder)] = ""
    """Tokenizer.json, the folder that holds it, e.g. a model's, or hf:ORG/NAME[@REVISION], which is fetched from the
    hub.
    """
    lowercase: Annotated[bool, Flag()] = False
    """Lower-case the text."""
    prefix_space: Annotated[bool, Flag()] = False
    """Put a space before each text, like the tokenizer option add_prefix_space."""
    min_words: Annotated[int | None, Flag("N"), Ge(1)] = None
    """Drop texts of fewer words, counted by whitespace."""
    exclude: Annotated[tuple[str, ...], Flag("FILE", many=True, path=True)] = ()
    """Drop examples that contain a text of these files or folders, such as evaluation data."""
    tokenization: Annotated[str, Flag(choices=BACKENDS)] = "auto"
    """Tokenizers: use that library alone; auto: use a faster implementation where its ids are the same."""

    def filters(self, *others: Filter | None) -> tuple[Filter, ...]:
        """Return the filters in the order in which they are applied: the filter of words, then the others.

        Args:
            others: the filters of other parts; None for a filter that is not asked for.
        """
        words = None if self.min_words is None else MinWords(self.min_words)
        return tuple(each for each in (words, *others) if each is not None)

    def reasons(self, filters: Sequence[Filter]) -> tuple[str, ...]:
        """Return the reasons for which these filters, or an excluded text, may drop an example."""
        excluded = ("excluded",) if self.exclude else ()
        return (*(reason for each in filters for reason in each.reasons), *excluded)

    def prepared(self, text: str, whitespace: str) -> str:
        """Return a text as it is tokenized: with single spaces and in lower case, if the options say so.

        Args:
            whitespace: "keep" or "collapse".
        """
        if whitespace == "collapse":
            text = normalize(text)
        return text.lower() if self.lowercase else text

    def resources(self, special_tokens: Sequence[str] = (), are_sentences: bool = False) -> dict[str, bytes]:
        """Return the tokenizer's files and, if the user excludes texts, a file with the hashes of these texts and a
        file with their beginnings, as {path: content}.

        Args:
            special_tokens: special tokens that are added to the tokenizer if it lacks them.
            are_sentences: whether each text of an example is a sentence. In that case, even short sentences of the
                excluded texts are searched for in the examples.

        Raises:
            PipelineError: the tokenizer or a file of excluded texts is missing or unusable.
        """
        tokenizer = read_tokenizer(self.tokenizer)
        for token in special_tokens:
            tokenizer = with_special_token(tokenizer, token)
        if self.prefix_space:
            tokenizer = with_prefix_space(tokenizer)
        files = tokenizer.resources
        if self.exclude:
            excluded = Excluded.of(read_texts(self.exclude), are_sentences)
            files |= {EXCLUDED: excluded.to_bytes(), EXCLUDED_TEXTS: excluded.heads}
        return files

    def described(
        self, files: FileOptions, plan: BuildPlan, whitespace: str, languages: Languages | None
    ) -> dict[str, Any]:
        """Return the options that determine a dataset's content, by name, for its fingerprint."""
        own: dict[str, Any] = {
            **files.described(),
            **({"same_text": same_text.VERSION} if plan.compares else {}),
            "whitespace": whitespace,
            "lowercase": self.lowercase,
            "prefix_space": self.prefix_space,
            "min_words": self.min_words,
        }
        return own | ({"languages": languages.described()} if languages else {})

    def fingerprint(self, known: Mapping[str, Any], resources: Mapping[str, bytes]) -> dict[str, Any]:
        """Return a fingerprint with entries for the tokenizer and the excluded texts.

        Args:
            known: the fingerprint without these entries.
            resources: the contents of the dataset's resource files, by path.
        """
        excluded = excluded_of(resources)
        options = {**known["options"], "exclude": excluded.options() if excluded else None}
        tokenizer = dataclasses.asdict(TokenizerFiles.of(resources).info)
        return {"tokenizer": tokenizer, **known, "options": options, **hub_record(tokenizer=self.tokenizer)}

    def loaded(self, resources: Mapping[str, bytes], prompts: tuple[str, ...] = ()) -> Tokenization:
        """Build the object that tokenizes texts.

        Args:
            resources: the contents of the dataset's resource files, by path, which include the tokenizer's files.
            prompts: the prompts that are put before the texts, one for each column; empty for texts without prompts.
        """
        return Tokenization(TokenizerFiles.main(resources), backend=self.tokenization, prompts=prompts)


def excluded_of(resources: Mapping[str, bytes]) -> Excluded | None:
    """Return the excluded texts, read from the dataset's resource files; None if there are none.

    Args:
        resources: the contents of these files, by path.
    """
    if EXCLUDED not in resources:
        return None
    return Excluded.from_bytes(resources[EXCLUDED], resources[EXCLUDED_TEXTS])


def excluded_lines(fingerprint: Mapping[str, Any]) -> list[str]:
    """Return a line for the summary of a run, with the number of excluded texts; [] if there are none.

    Args:
        fingerprint: the fingerprint of the dataset.
    """
    excluded = fingerprint["options"]["exclude"]
    if not excluded:
        return []
    without = f"; {excluded['without_words']:,} without words" if excluded["without_words"] else ""
    return [f"{excluded['texts']:,} texts excluded{without}"]
