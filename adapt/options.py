"""The options of `clearspan adapt`, and values that follow from them and the inputs, such as prompts and models."""

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from clearspan.common.compute import AUTO, Precision
from clearspan.common.encoder import static
from clearspan.common.encoder.prompts import NONE, Prompts, Sides, check_two
from clearspan.common.errors import PipelineError
from clearspan.common.hub import model_folder, within
from clearspan.common.model_folder import model_name
from clearspan.common.model_forms import STATIC
from clearspan.common.options import Flag, Options
from clearspan.common.parsing import normalized_name
from clearspan.common.terminal import UsageError
from clearspan.retrieval.stemming import CHOICES, NO_STEMMER, check_packages

if TYPE_CHECKING:
    from clearspan.adapt.fields import Titles

UNTRAINED = "untrained static"
"""Name, in the verdict, of the static encoder before training; `eval.verdict` defines TRAINED and BM25."""


@dataclass(frozen=True, kw_only=True)
class Adapt(Options):
    """Options of `clearspan adapt`, and values that follow from them and from the inputs."""

    overrides: Annotated[tuple[str, ...], Flag("key=value", positional=True)] = ()
    """Recipe keys to change, e.g. optimizer.learning_rate=2e-5."""
    inputs: Annotated[tuple[str, ...], Flag("GLOB", name="--input", many=True, path=True)]
    """Files, folders, or globs in quotes, with the texts: csv, jsonl, txt, parquet or tars."""
    output: Annotated[Path, Flag("DIR", output=True)]
    """Folder to write: a new or empty one, or the folder of an earlier call, which is continued."""
    fields: Annotated[tuple[str, ...], Flag("A,B", commas=True)] = ()
    """Fields or columns of the title and the text (default: by usual names, e.g. title,text or question,answer)."""
    text_field: Annotated[str | None, Flag("NAME")] = None
    """Field or column of texts without titles; titles in the inputs are then not used (default: text)."""
    text_per: Annotated[Literal["file", "line"], Flag()] = "file"
    """Read each file, or each line, of plain text as one text."""
    encoding: Annotated[str | None, Flag("NAME")] = None
    """Encoding of text files, e.g. cp1252; auto: detect the encoding of each file (default utf-8)."""
    model: Annotated[str | None, Flag("DIR", path=True, resolve=within(STATIC, model_folder))] = None
    """Folder of a sentence-transformers model to adapt, or static:DIR for a static encoder made of the model in DIR; as
    DIR also hf:ORG/NAME[@REVISION], which is fetched from the hub (default: a static encoder from the texts alone).
    """
    prompt_name: Annotated[tuple[str, ...], Flag("NAME", commas=True)] = ()
    """Name of the model's prompt before titles and texts; TITLES,TEXTS: two names; none: no prompt (default: as
    encode_query and encode_document choose).
    """
    recipe: Annotated[str | None, Flag("NAME-or-FILE", path=True)] = None
    """Recipe with a dataset `text`, by name or as a YAML file (default: chosen by the texts)."""
    share: Annotated[float | None, Flag("F"), Ge(0), Le(1)] = None
    """Share of the trained weights in the model that is judged and searched with, the rest being those before training;
    1: the trained model itself (default: 1/2, or 1/4 or 0 if held-out texts rank better with it; with 50 questions or
    more in --queries, the one of 1/4, 1/2 and 1 that they rank best with; 1 for a static encoder).
    """
    queries: Annotated[Path | None, Flag("FILE")] = None
    """File of your own questions, to judge by: csv, tsv or jsonl with the field query, and text (the relevant
    document) or id (the id of the relevant document, as hits show it).
    """
    chunk_tokens: Annotated[int | None, Flag("N"), Ge(8)] = None
    """Judge and embed texts in chunks of whole sentences, of at most N tokens (default: cut texts after the model's
    maximum).
    """
    precision: Precision = AUTO
    """Precision of the transformer; auto: bf16 if the hardware computes in bf16, else fp32."""
    keep_fields: Annotated[tuple[str, ...], Flag("A,B", commas=True)] = ()
    """Fields that hits show, e.g. id,title,url; the first field that is not the title is the id; none: no fields
    (default: title, id and link, by usual names).
    """
    skip_given: Annotated[bool, Flag()] = False
    """With static:DIR, do not judge the model in DIR itself, because embedding all texts with it may take longest."""
    holdout_fraction: Annotated[float, Flag("F"), Gt(0), Lt(1)] = 0.1
    """Fraction of the texts to hold out of training, for the verdict."""
    group_field: Annotated[str | None, Flag("NAME")] = None
    """Hold out all or none of the texts with the same value of this field, e.g. versions of a document; only for texts
    with titles.
    """
    min_tokens: Annotated[int | None, Flag("N"), Ge(1)] = None
    """Drop texts of fewer tokens; only for texts without titles (default 16)."""
    update: Annotated[bool, Flag()] = False
    """Bring a finished DIR up to date with changed inputs: embed new texts, remove deleted ones; the model and the
    verdict stay as they are.
    """
    stemmer: Annotated[str | None, Flag("LANGUAGE", choices=CHOICES)] = None
    """Language whose word endings BM25 ignores, in the verdict and in searches; none to compare whole words (default:
    the language of the texts).
    """
    dry_run: Annotated[bool, Flag()] = False
    """Print the commands of all steps, and run none of them."""
    quiet: Annotated[bool, Flag()] = False
    """Print only the commands and the verdict."""

    def check(self) -> None:
        """Raise UsageError for options that contradict each other or do not fit the texts."""
        if self.queries and not self.queries.is_file():
            raise UsageError(f"`queries` {self.queries}: no such file")
        if self.stemmer not in (None, NO_STEMMER):
            try:
                check_packages(self.stemmer)
            except PipelineError as error:
                raise UsageError(str(error)) from None
        if self.fields and self.option_without_titles:
            raise UsageError(
                f"`fields` and {self.option_without_titles}: texts with titles, and texts without titles: "
                "leave one of them out"
            )
        if self.fields and not len(self.fields) == len(set(map(normalized_name, self.fields))) == 2:
            raise UsageError("`fields` must name two different fields, e.g. title,text")
        if self.titles and self.min_tokens is not None:
            named = (
                "as given" if self.fields else "found by their names: `text_field` NAME takes the texts without titles"
            )
            raise UsageError(f"`min_tokens` has no effect on texts with titles ({named}): leave it out")
        if self.group_field is not None and not self.titles:
            without = (
                f"{self.option_without_titles} takes texts" if self.option_without_titles else "the inputs are texts"
            )
            raise UsageError(f"`group_field` has no effect, since {without} without titles: leave it out")
        if self.skip_given and not (self.model and self.makes_static):
            raise UsageError("`skip_given` has no effect without `model` static:DIR: leave it out")
        try:
            check_two(self.prompt_name)
            self.known_prompts.sides(self.prompt_name)
        except ValueError as error:
            raise UsageError(str(error)) from None
        if self.prompt_name and (self.makes_static or not self.titles):
            without = "a static encoder has" if self.makes_static else "crops of texts without titles have"
            raise UsageError(f"`prompt_name` has no effect, since {without} no prompts: leave it out")

    @property
    def bm25_stemmer(self) -> str | None:
        """The language whose word endings BM25 ignores; None if it compares whole words."""
        return None if self.stemmer == NO_STEMMER else self.stemmer

    @functools.cached_property
    def known_prompts(self) -> Prompts:
        """The prompts of the model that `--model` names; no prompts if there is no `--model`."""
        return Prompts() if self.encoder is None else Prompts.read(self.encoder)

    @property
    def prompts(self) -> Sides:
        """The prompts that training puts before titles, which are the queries, and before texts, the documents.

        There are none if this run makes a static encoder, or if the texts have no titles.
        """
        return Sides() if self.makes_static or not self.titles else self.known_prompts.sides(self.prompt_name)

    @property
    def option_without_titles(self) -> str:
        """The option by which the user chose to read no titles, e.g. `--text-field`; "" if there is no such option."""
        if self.text_field:
            return "`text_field`"
        return "`text_per` line" if self.text_per == "line" else ""

    @functools.cached_property
    def fields_found(self) -> "Titles":
        """The fields of titles and texts that were found in the inputs by their usual names.

        If the user's options say which fields to read, the inputs are not searched, and `names` in the result is None.

        Raises:
            UsageError: some files have titles, and others have none, or have them under different names. Such other
                files are ignored if they have together at most 1 % of all bytes.
        """
        from clearspan.adapt.fields import Titles, find_titles

        return Titles(None) if self.fields or self.option_without_titles else find_titles(self.inputs, self.encoding)

    @property
    def titles(self) -> tuple[str, ...] | None:
        """The names of the fields of title and text, from `--fields` or the inputs; None if texts have no titles."""
        return self.fields or self.fields_found.names

    @property
    def encoder(self) -> Path | None:
        """The folder that `--model` names, without the prefix `static:`; None if there is no `--model`."""
        return None if self.model is None else Path(self.model.removeprefix(STATIC))

    @property
    def makes_static(self) -> bool:
        """Return whether this run makes a static encoder, in the folder `start` of the output, and trains it."""
        return self.model is None or self.model.startswith(STATIC)

    @property
    def trains_static(self) -> bool:
        """Return whether the trained model is a static encoder."""
        return self.makes_static or (self.encoder is not None and static.is_static_folder(self.encoder))

    @property
    def base(self) -> Path:
        """The folder of the model from which training starts."""
        return self.output / "start" if self.makes_static or self.encoder is None else self.encoder

    def precision_of(self, model: Path) -> str | None:
        """Return the value of the option `--precision` for a command that embeds texts with a model.

        It is None, so that the option is left out, if the model is static.

        Args:
            model: the folder of the model.
        """
        made_here = self.makes_static and model == self.base
        return None if made_here or static.is_static_folder(model) else self.precision

    @property
    def exported(self) -> Path:
        """The folder of the model that the training run exported."""
        return self.output / "run" / "model"

    @property
    def interpolates(self) -> bool:
        """Return whether the trained model that is judged has a part of the weights before training.

        A static encoder has none unless `share` says so: what its questions lose by training was not measured.
        """
        return self.share != 1 and (self.share is not None or not self.trains_static)

    @property
    def trained(self) -> Path:
        """The folder of the trained model that is judged."""
        return self.output / "interpolated" / "model" if self.interpolates else self.exported

    @property
    def shares(self) -> Path:
        """The folder of the trained models with other shares, of which the user's questions choose one."""
        return self.output / "interpolated" / "shares"

    @property
    def untrained(self) -> dict[str, Path]:
        """The folders of the models that are compared without training, keyed by the name that the verdict shows.

        These are the static encoder from which training starts, if this run makes it, and the model that `--model`
        names, if `--skip-given` does not leave it out.
        """
        from clearspan.eval.verdict import BM25, TRAINED
        from clearspan.retrieval.comparison import WITH_BM25

        found = {UNTRAINED: self.base} if self.makes_static else {}
        if self.encoder is not None and not self.skip_given:
            name = " ".join(re.sub("[,=]", " ", model_name(self.encoder)).split()) or "the model"
            is_taken = name in (TRAINED, UNTRAINED, BM25) or name.endswith(WITH_BM25)
            found[f"{name} as given" if is_taken else name] = self.encoder
        return found

    @functools.cached_property
    def shown_fields(self) -> tuple[str, ...]:
        """The fields that search results show: those in `--keep-fields`, otherwise the inputs' title, id and link.

        It is empty if the user wrote `--keep-fields none`.
        """
        from clearspan.adapt.fields import find_id_and_link

        if self.keep_fields:
            return () if self.keep_fields == (NONE,) else self.keep_fields
        title = self.titles[:1] if self.titles else ()
        text = self.titles[1] if self.titles else self.text_field
        return (*title, *(name for name in find_id_and_link(self.inputs, self.encoding, text) if name not in title))

    @property
    def id_field(self) -> str | None:
        """The name of the field of a text's id: the first field in `shown_fields` that is not the title.

        None if there is no such field.
        """
        from clearspan.pipelines.builders.kept_fields import split

        names = [split(word)[0] for word in self.shown_fields]
        return next((name for name in names if not self.titles or name != self.titles[0]), None)
