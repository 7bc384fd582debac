"""The manifest of a dataset: its shards, the fingerprint of inputs and options, and the counts of the input records.

The manifest is written last and is the commit point: a folder without `manifest.json` is not a dataset, and a tar that
the manifest does not list is not part of the dataset. The manifest holds the hash of its own content and the hashes of
all files that determine the dataset's token ids or affect training on the dataset.

Resources are other files that are needed to read the shards or to make more shards. If a kind has token ids, its
tokenizer is in `tokenizer/`, and the fingerprint lists the tokenizer's files under `tokenizer`. All other resources,
such as the synonyms from which views are made, or the class names, are in `_files/`, and the fingerprint's options list
them under `files`.
"""

import dataclasses
import functools
import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from clearspan.common import plugins
from clearspan.common.checksummed import build, dump_checksummed, has_type, load_checksummed
from clearspan.shards import lengths, moments, storage
from clearspan.shards.schema import KINDS, LABEL, Schema, add_up

NAME = "manifest.json"
FORMAT = "clearspan-shards"
VERSION = 3
TOKENIZER_FOLDER = "tokenizer"
FILES_FOLDER = "_files"
SHARD_NAME = re.compile(r"[a-z]+-\d{5}-\d{3}\.tar")
SHA256 = re.compile("[0-9a-f]{64}")
NUMBER = re.compile(r"0|[1-9]\d{0,17}")
"""Pattern of a class number, and of the lower edge of a bin in a histogram of lengths."""
FIELDS: dict[str, Any] = {
    "version": int,
    "kind": str,
    "fingerprint": dict,
    "shards": list,
    "totals": dict[str, int],
    "statistics": dict[str, float],
    "counts": dict,
}
"""The types of the manifest's fields; only `statistics` may be absent."""
MAX_REASONS = 50
"""Maximum number of reasons, or of other names of counts, that a line for the user names."""
RESOURCE = re.compile(rf"({TOKENIZER_FOLDER}|{FILES_FOLDER})/[A-Za-z0-9][\w.-]*")


class ManifestError(ValueError):
    """The manifest is missing or cannot be read by this version. The message names the file and what to do."""


@dataclasses.dataclass(frozen=True)
class ShardInfo:
    """Entry of a shard in the manifest: size and hash of the tar, and the figures of its contents (`shards.contents`).

    Attributes:
        name: file name of the tar.
        tokens: number of tokens in all columns of token ids; 0 for a kind without token ids.
        unit: number of the work unit that wrote the shard.
        batches: number of record batches.
        lengths: for each column of lists, a histogram of the lengths of its lists: the lower edge of a bin, as a string
            -> number of examples (`shards.lengths`).
        classes: number of examples by class number (as a string); empty for a kind without classes.
        moments: number, sum and sum of squares of all values in the kind's `statistics` column (`shards.moments`);
            empty for a kind without such a column.
        column_tokens: number of tokens in each column of token ids, by column name.
    """

    name: str
    bytes: int
    sha256: str
    examples: int
    tokens: int
    unit: int
    batches: int
    lengths: dict[str, dict[str, int]] = dataclasses.field(hash=False)
    classes: dict[str, int] = dataclasses.field(hash=False)
    moments: dict[str, int] = dataclasses.field(hash=False)
    column_tokens: dict[str, int] = dataclasses.field(hash=False)

    @property
    def kind(self) -> Schema:
        """The kind of the shard's examples, from the shard's name; raises KeyError if there is no such kind."""
        return KINDS[self.name.partition("-")[0]]


@dataclasses.dataclass(frozen=True)
class TokenizerInfo:
    """The tokenizer that made the token ids of a dataset.

    Attributes:
        sha256: hash of tokenizer.json.
        vocab_size: number of token ids; every id is less than this number.
        files: file name -> sha256, for each file of the tokenizer.
    """

    sha256: str
    vocab_size: int
    files: dict[str, str]


def resources(fingerprint: Mapping[str, Any]) -> dict[str, str]:
    """Return the hashes of the resources that a fingerprint names: path in the dataset's folder -> sha256."""
    tokenizer = fingerprint.get("tokenizer") or {"files": {}}
    named = {TOKENIZER_FOLDER: tokenizer["files"], FILES_FOLDER: fingerprint.get("options", {}).get("files", {})}
    return {f"{folder}/{name}": sha256 for folder, files in named.items() for name, sha256 in files.items()}


@dataclasses.dataclass(frozen=True)
class Reconciliation:
    """Counts of input records, which must add up: read = kept + sum(filtered) + bad.

    Attributes:
        read: number of records in the inputs. If a record is split into several texts, each of them is counted.
        kept: number of records that became examples of the dataset.
        filtered: number of valid records that were left out, by reason.
        bad: number of records that could not be read.
    """

    read: int
    kept: int
    filtered: dict[str, int]
    bad: int

    def __str__(self) -> str:
        """Return a line such as "read 5 = kept 3, 1 short_tokens, bad 1"."""
        filtered = "".join(f", {each}" for each in numbered(self.filtered))
        return f"read {self.read:,} = kept {self.kept:,}{filtered}, bad {self.bad:,}"


def numbered(counts: Mapping[str, int]) -> list[str]:
    """Return a phrase for each reason, with the number of records that it applies to, e.g. "5 short_tokens".

    If there are more than 50 reasons, only the 50 most frequent ones have a phrase; a last phrase counts all others.

    Args:
        counts: number of records by reason.
    """
    named = (
        dict(sorted(counts.items(), key=lambda item: -item[1])[:MAX_REASONS]) if len(counts) > MAX_REASONS else counts
    )
    words = [f"{number:,} {reason}" for reason, number in named.items()]
    if others := len(counts) - len(named):
        words.append(f"{sum(counts.values()) - sum(named.values()):,} for {others:,} other reasons")
    return words


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Content of a `manifest.json`.

    Attributes:
        kind: name of the kind of dataset.
        fingerprint: everything that determined the data: inputs, options, versions.
        counts: the fields of `Reconciliation`: how many input records were read, kept, filtered and bad.
    """

    kind: str
    fingerprint: dict[str, Any]
    shards: list[ShardInfo]
    counts: dict[str, Any]

    @property
    def totals(self) -> dict[str, int]:
        """The sums of examples, tokens and bytes over all shards."""
        return {name: sum(getattr(shard, name) for shard in self.shards) for name in ("examples", "tokens", "bytes")}

    @property
    def tokenizer(self) -> TokenizerInfo | None:
        """The tokenizer that made the token ids, from the fingerprint; None for a dataset without token ids."""
        known = self.fingerprint.get("tokenizer")
        return None if known is None else build(TokenizerInfo, known)

    @property
    def resources(self) -> dict[str, str]:
        """The hashes of the resources: path in the dataset's folder -> sha256."""
        return resources(self.fingerprint)

    @property
    def prompts(self) -> dict[str, str]:
        """The prompt before each text of a column, by column name. The token ids of the column include the prompt."""
        prompts = self.fingerprint.get("options", {}).get("prompts", {})
        return {str(column): str(prompt) for column, prompt in prompts.items()}

    @property
    def classes(self) -> dict[int, int]:
        """The number of examples of each class, in the order of class numbers; empty for a kind without classes."""
        total: dict[str, int] = functools.reduce(add_up, (shard.classes for shard in self.shards), {})
        return dict(sorted((int(number), count) for number, count in total.items()))

    @property
    def statistics(self) -> dict[str, float]:
        """The mean (`mean`) and standard deviation (`std`) of all values in the kind's `statistics` column; empty for a
        kind without such a column.
        """
        sums: dict[str, int] = functools.reduce(add_up, (shard.moments for shard in self.shards), {})
        return moments.statistics(sums)

    @property
    def derived(self) -> dict[str, Any]:
        """The fields of `manifest.json` that are computed from the shards' entries: `totals`, and `statistics` if it is
        not empty.
        """
        fields = {"totals": self.totals, "statistics": self.statistics}
        return {name: value for name, value in fields.items() if value}

    @property
    def lengths(self) -> lengths.Histograms:
        """The histogram of example lengths in each column of lists, over all shards."""
        return lengths.add(shard.lengths for shard in self.shards)

    @property
    def column_tokens(self) -> dict[str, int]:
        """The number of tokens in each column of token ids, over all shards."""
        return functools.reduce(add_up, (shard.column_tokens for shard in self.shards), {})

    def to_json(self) -> bytes:
        """Return the content of `manifest.json`; equal manifests give equal bytes."""
        record = {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "fingerprint": self.fingerprint,
            "shards": [dataclasses.asdict(shard) for shard in self.shards],
            "totals": self.totals,
            "counts": self.counts,
        }
        return dump_checksummed(record | self.derived, indent=1)

    def wids_index(self, base: str = "") -> dict[str, Any]:
        """Return the list of shards in webdataset's `wids-shard-index-v1` format, for its indexed readers.

        Args:
            base: folder or URL of the shards, with which each path in the list begins; "" to list only file names.
        """
        shards = [
            {
                "url": storage.join(base, shard.name) if base else shard.name,
                "nsamples": shard.examples if shard.kind.layout.row_is_sample else shard.batches,
                "filesize": shard.bytes,
            }
            for shard in self.shards
        ]
        return {"__kind__": "wids-shard-index-v1", "wids_version": 1, "name": self.kind, "shardlist": shards}

    def save(self, folder: str) -> None:
        """Write `folder/manifest.json`, unless the file has this content already."""
        storage.publish_if_changed(self.to_json(), storage.join(folder, NAME))

    @classmethod
    def load(cls, folder: str) -> "Manifest":
        """Read and check `folder/manifest.json`.

        Raises:
            ManifestError: the file is missing, damaged or of another version; it lists a file whose name is not
                valid for a file of a dataset; a field has the wrong type; or two fields contradict each other.
        """
        path = storage.join(folder, NAME)
        if not storage.exists(path):
            raise ManifestError(f"{folder}: no {NAME}: not a dataset, or its pipeline has not finished (run it again)")
        try:
            record = load_checksummed(storage.read_bytes(path))
            version = (record["format"], record["version"])
            if version != (FORMAT, VERSION):
                raise ManifestError(f"{path}: format {version[0]} version {version[1]}, not {FORMAT} {VERSION}")
            for name, expected in FIELDS.items():
                if (name in record or name != "statistics") and not has_type(record[name], expected):
                    raise ValueError(f"{name} has the wrong type: {json.dumps(record[name])[:60]}")
            shards = [build(ShardInfo, shard) for shard in record["shards"]]
            manifest = cls(record["kind"], record["fingerprint"], shards, record["counts"])
            manifest._check_names(path)
            manifest._check_figures(record)
        except ManifestError:
            raise
        except (ValueError, KeyError, TypeError, ArithmeticError) as error:
            reason = f"missing field {error}" if isinstance(error, KeyError) else error
            raise ManifestError(f"{path}: not a manifest, or damaged ({reason}); run the pipeline again") from None
        return manifest

    def _check_names(self, path: str) -> None:
        """Check the kind, the tokenizer and all file names, so that no name can lead out of the dataset's folder.

        Args:
            path: the path of the manifest, for error messages.

        Raises:
            ManifestError: the kind is unknown, the tokenizer is missing, a shard is listed twice, or a name is not
                valid.
            ValueError: the fingerprint's options have the wrong type, or the tokenizer's hash is not the hash that is
                listed for its tokenizer.json.
        """
        if self.kind not in KINDS:
            try:
                plugins.load_extensions()  # an extension may register the kind
            except plugins.PluginError as error:
                raise ManifestError(f"{path}: kind {self.kind!r} is not built in: {error}") from None
        if self.kind not in KINDS:
            raise ManifestError(
                f"{path}: kind {self.kind!r} is not one of {', '.join(KINDS)}: if a module of yours registers it, set "
                f"{plugins.VARIABLE} to the module's name"
            )
        options = self.fingerprint.get("options", {})
        if not isinstance(options, dict) or not has_type(options.get("files", {}), dict[str, str]):
            raise ValueError("options of its fingerprint have the wrong type")
        tokenizer = self.tokenizer
        if KINDS[self.kind].has_tokens and tokenizer is None:
            raise ManifestError(f"{path}: {self.kind} hold token ids, but its fingerprint names no tokenizer")
        for shard in self.shards:
            if not SHARD_NAME.fullmatch(shard.name) or shard.name.partition("-")[0] != self.kind:
                raise ManifestError(f"{path}: {shard.name!r} is not the name of a shard of {self.kind}")
            if int(shard.name.split("-")[1]) != shard.unit:
                raise ManifestError(f"{path}: {shard.name}: its name does not belong to unit {shard.unit}")
            if not SHA256.fullmatch(shard.sha256):  # the hash becomes the shard's name in the cache
                raise ManifestError(f"{path}: {shard.name}: {shard.sha256!r:.80} is not a sha256")
        for name in self.resources:
            if not RESOURCE.fullmatch(name):
                raise ManifestError(f"{path}: {name!r} is not the name of a file beside the shards")
        if tokenizer is not None and tokenizer.files.get("tokenizer.json") != tokenizer.sha256:
            raise ValueError("the sha256 of its tokenizer differs from the sha256 of tokenizer.json")
        listed = Counter(shard.name for shard in self.shards)
        if twice := [name for name, times in listed.items() if times > 1]:
            raise ManifestError(f"{path}: {twice[0]} is listed twice; run the pipeline again")

    def _check_figures(self, record: Mapping[str, Any]) -> None:
        """Raise ValueError if figures of the manifest, or `record`'s totals and statistics, contradict each other."""
        is_labeled = any(column.startswith(f"{LABEL}:") for column in KINDS[self.kind].columns)
        for shard in self.shards:
            histograms = list(shard.lengths.values())
            if is_labeled or shard.classes:
                histograms.append(shard.classes)
            for histogram in histograms:
                if not all(NUMBER.fullmatch(number) and count > 0 for number, count in histogram.items()):
                    raise ValueError(f"{shard.name}: its lengths or classes are not numbers of examples")
                if sum(histogram.values()) != shard.examples:
                    raise ValueError(f"{shard.name}: its lengths or classes do not fit {shard.examples} examples")
            if sum(shard.column_tokens.values()) != shard.tokens:
                raise ValueError(f"{shard.name}: the tokens of its columns are not {shard.tokens} in all")
        for name in ("totals", "statistics"):
            if record.get(name) != self.derived.get(name):
                raise ValueError(f"{name} do not match the shards: {json.dumps(record.get(name))[:80]}")
        counts = build(Reconciliation, self.counts)
        examples = self.totals["examples"]
        if counts.read != counts.kept + sum(counts.filtered.values()) + counts.bad:
            raise ValueError(f"read {counts.read} is not the sum of kept, filtered and bad")
        if min(counts.kept, counts.bad, *counts.filtered.values()) < 0:
            raise ValueError("counts are not numbers of records")
        if counts.kept != examples:
            raise ValueError(f"{counts.kept} kept, but its shards hold {examples} examples")
