"""The manifest: which shards a dataset has, what shaped them, how the input adds up. Written last: the commit.

A folder without `manifest.json` is no dataset; a tar that the manifest does not name does not exist. The manifest holds
the hash of its own content, and the hashes of all that decides a dataset's ids and training.

What shaped the shards, and is needed to read them or to make more, lies in files beside them: its resources. A kind of
token ids has its tokenizer in `tokenizer/`, which the fingerprint names under `tokenizer`; all other resources, such as
the synonyms of views or a table of classes, are in `_files/`, and the fingerprint's options name them under `files`.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any

from clearspan.common import plugins
from clearspan.shards import lengths, moments, storage
from clearspan.shards.schema import KINDS, Kind, add_up
from clearspan.shards.sealed import build, seal, unseal

NAME = "manifest.json"
FORMAT = "clearspan-shards"
VERSION = 3
OLDER = (2,)
"""Versions that are read too. In version 2 a shard's `lengths` are those of its first column of tokens. They are used
for documents alone, which have no other column."""
TOKENIZER_FOLDER = "tokenizer"
FILES_FOLDER = "_files"
SHARD_NAME = re.compile(r"[a-z]+-\d{5}-\d{3}\.tar")
RESOURCE = re.compile(rf"({TOKENIZER_FOLDER}|{FILES_FOLDER})/[A-Za-z0-9][\w.-]*")


class ManifestError(ValueError):
    """There is no manifest, or it is not what this version reads. The message names the file and the mend."""


@dataclasses.dataclass(frozen=True)
class ShardInfo:
    """One tar: its size and hash as published, and its contents (`shards.contents`).

    `lengths` counts its examples by length in each ragged column (`shards.lengths`), `column_tokens` the tokens in each
    column of them, whose sum is `tokens`, `classes` the examples by the number of their class, and `moments` sums up
    the values of its spectrograms (`shards.moments`).
    """

    name: str
    bytes: int
    sha256: str
    examples: int
    tokens: int
    unit: int
    batches: int
    lengths: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict, hash=False)
    classes: dict[str, int] = dataclasses.field(default_factory=dict, hash=False)
    moments: dict[str, int] = dataclasses.field(default_factory=dict, hash=False)
    column_tokens: dict[str, int] = dataclasses.field(default_factory=dict, hash=False)

    @property
    def kind(self) -> Kind:
        """What its examples are, which its name says. Raises KeyError for no known kind."""
        return KINDS[self.name.partition("-")[0]]


OPTIONAL = tuple(field.name for field in dataclasses.fields(ShardInfo) if field.default_factory is dict)
"""The figures that a manifest of an earlier version may lack, of all of its shards."""


@dataclasses.dataclass(frozen=True)
class TokenizerInfo:
    """The tokenizer that made the ids, all of them below `vocab_size`: the sha256 of its tokenizer.json, and of each of
    its files by name.
    """

    sha256: str
    vocab_size: int
    files: dict[str, str]


def resources(fingerprint: Mapping[str, Any]) -> dict[str, str]:
    """The sha256 of each resource that a fingerprint names, by its path in the dataset's folder."""
    tokenizer = fingerprint.get("tokenizer") or {"files": {}}
    named = {TOKENIZER_FOLDER: tokenizer["files"], FILES_FOLDER: fingerprint.get("options", {}).get("files", {})}
    return {f"{folder}/{name}": sha256 for folder, files in named.items() for name, sha256 in files.items()}


def _as_now(shard: dict[str, Any], version: int) -> dict[str, Any]:
    """A shard's entry in a manifest of that version, as this one has it."""
    if version == VERSION or not shard.get("lengths"):
        return shard
    return {**shard, "lengths": {"tokens": shard["lengths"]} if shard["name"].startswith("documents-") else {}}


@dataclasses.dataclass(frozen=True)
class Manifest:
    """A dataset's table of contents.

    `fingerprint` holds everything that shaped the data; `counts` reconciles: read = kept + sum(filtered) + bad.
    """

    kind: str
    fingerprint: dict[str, Any]
    shards: list[ShardInfo]
    counts: dict[str, Any]

    @property
    def totals(self) -> dict[str, int]:
        return {name: sum(getattr(shard, name) for shard in self.shards) for name in ("examples", "tokens", "bytes")}

    @property
    def tokenizer(self) -> TokenizerInfo | None:
        """What the fingerprint says of the tokenizer; None for a dataset without token ids."""
        known = self.fingerprint.get("tokenizer")
        return None if known is None else build(TokenizerInfo, known)

    @property
    def resources(self) -> dict[str, str]:
        """The sha256 of each file beside the shards that is needed to read them or to make more, by path."""
        return resources(self.fingerprint)

    @property
    def classes(self) -> dict[int, int]:
        """Examples by the number of their class, in order; empty for a kind without classes."""
        total: dict[str, int] = functools.reduce(add_up, (shard.classes for shard in self.shards), {})
        return dict(sorted((int(number), count) for number, count in total.items()))

    @property
    def statistics(self) -> dict[str, float]:
        """The mean and standard deviation of the values of all spectrograms; empty where there are none."""
        statistics: dict[str, float] = self.derived["statistics"]
        return statistics

    @property
    def lengths(self) -> lengths.Histograms:
        """Examples by length in each ragged column; empty where the shards do not tell."""
        return lengths.add(shard.lengths for shard in self.shards)

    @property
    def column_tokens(self) -> dict[str, int]:
        """The tokens in each column of them; empty where the shards do not tell."""
        return functools.reduce(add_up, (shard.column_tokens for shard in self.shards), {})

    @property
    def derived(self) -> dict[str, Any]:
        """The fields of the file that follow from its shards' entries; an empty one is not written."""
        sums: dict[str, int] = functools.reduce(add_up, (shard.moments for shard in self.shards), {})
        return {"totals": self.totals, "statistics": moments.statistics(sums)}

    def to_json(self) -> bytes:
        """The file's bytes; the same content gives the same bytes."""
        record = {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "fingerprint": self.fingerprint,
            "shards": [dataclasses.asdict(shard) for shard in self.shards],
            "totals": self.totals,
            "counts": self.counts,
        }
        return seal(record | {name: value for name, value in self.derived.items() if value}, indent=1)

    def wids_index(self, base: str = "") -> dict[str, Any]:
        """The list of shards in webdataset's `wids-shard-index-v1` form, for its indexed readers."""
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
        storage.keep(self.to_json(), storage.join(folder, NAME))

    @classmethod
    def load(cls, folder: str) -> "Manifest":
        """Reads and checks `folder/manifest.json`.

        Raises:
            ManifestError: it is missing, unreadable, of another version, or its sums do not add up.
        """
        path = storage.join(folder, NAME)
        if not storage.exists(path):
            raise ManifestError(f"{folder}: no {NAME}: not a dataset, or its pipeline has not finished (run it again)")
        try:
            record = unseal(storage.read_bytes(path))
            found = (record["format"], record["version"])
            if found not in {(FORMAT, version) for version in (*OLDER, VERSION)}:
                raise ManifestError(f"{path}: format {found[0]} version {found[1]}, not {FORMAT} {VERSION}")
            shards = [build(ShardInfo, _as_now(shard, found[1])) for shard in record["shards"]]
            manifest = cls(record["kind"], record["fingerprint"], shards, record["counts"])
            manifest._check(path, record)
        except ManifestError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"it lacks {error}" if isinstance(error, KeyError) else error
            raise ManifestError(f"{path}: not a manifest, or damaged ({reason}); run the pipeline again") from None
        return manifest

    def _check(self, path: str, record: Mapping[str, Any]) -> None:
        if self.kind not in KINDS:
            try:
                plugins.load_extensions()  # one of them may register the kind
            except plugins.PluginError as error:
                raise ManifestError(f"{path}: kind {self.kind!r} is not built in: {error}") from None
        if self.kind not in KINDS:
            raise ManifestError(
                f"{path}: kind {self.kind!r} is not one of {', '.join(KINDS)}: if a module of yours registers it, set "
                f"{plugins.VARIABLE} to the module's name"
            )
        if KINDS[self.kind].has_tokens and self.tokenizer is None:
            raise ManifestError(f"{path}: {self.kind} hold token ids, but its fingerprint names no tokenizer")
        names = [shard.name for shard in self.shards]
        for shard in self.shards:
            if not SHARD_NAME.fullmatch(shard.name) or shard.kind.name != self.kind:
                raise ManifestError(f"{path}: {shard.name!r} is not the name of a shard of {self.kind}")
            if int(shard.name.split("-")[1]) != shard.unit:
                raise ManifestError(f"{path}: {shard.name}: its unit is not {shard.unit}")
            if any(sum(histogram.values()) != shard.examples for histogram in shard.lengths.values()):
                raise ManifestError(f"{path}: {shard.name}: its lengths are not those of {shard.examples} examples")
            if shard.classes and sum(shard.classes.values()) != shard.examples:
                raise ManifestError(f"{path}: {shard.name}: its classes are not those of {shard.examples} examples")
            if shard.column_tokens and sum(shard.column_tokens.values()) != shard.tokens:
                raise ManifestError(f"{path}: {shard.name}: its columns' tokens are not {shard.tokens} in all")
        for field in OPTIONAL:
            if len({bool(getattr(shard, field)) for shard in self.shards}) > 1:
                raise ManifestError(f"{path}: some of its shards lack {field}, others do not: run the pipeline again")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ManifestError(f"{path}: {twice} is listed twice; run the pipeline again")
        for name in self.resources:
            if not RESOURCE.fullmatch(name):
                raise ManifestError(f"{path}: {name!r} is not the name of a file beside the shards")
        for name, value in self.derived.items():
            if record.get(name, {}) != value:
                raise ManifestError(f"{path}: {name} {record.get(name)} are not the sum over its shards {value}")
        kept = self.counts["kept"]
        if self.counts["read"] != kept + sum(self.counts["filtered"].values()) + self.counts["bad"]:
            raise ManifestError(f"{path}: read {self.counts['read']} is not kept + filtered + bad")
        if kept != self.totals["examples"]:
            raise ManifestError(f"{path}: {kept} kept, but its shards hold {self.totals['examples']}")
