"""A dataset's manifest in words: its tokens by column, and of its options those that tell what its examples are.

Options are the pipelines', whose names are known here and nothing else of them: one that is not there is not spoken of.
"""

from collections.abc import Mapping
from typing import Any

from clearspan.shards.manifest import Manifest

STEP_OPTIONS = {
    "del-word": ("del_word",),
    "del-span": ("del_spans", "del_span"),
    "reorder": ("reorder_pairs", "reorder_span"),
    "subs": ("subs",),
}
"""What of an augmentation's record belongs to a step."""


def tokens(manifest: Manifest) -> str:
    """The tokens in all; those of the examples and of their views, or of each column, apart."""
    total, columns = f"{manifest.totals['tokens']:,}", manifest.column_tokens
    views = sum(number for column, number in columns.items() if column.startswith("view_"))
    if views:
        return f"{total}: {columns['tokens']:,} of the examples, {views:,} of their views"
    if len(columns) > 1:
        return f"{total}: " + ", ".join(f"{column} {number:,}" for column, number in columns.items())
    return total


def options(found: Mapping[str, Any]) -> list[str]:
    """A line each on the examples, the text's preparation, and their views, as far as the options tell."""
    lines = [_examples(found), _labelled(found), _prepared(found)]
    if augmentation := found.get("augmentation"):
        steps = augmentation["steps"].split("+")
        values = [f"{name} {augmentation[name]}" for step in steps for name in STEP_OPTIONS.get(step, ())]
        lines.append(
            f"views {found['views']}: {augmentation['steps']} by {augmentation['unit']} ({', '.join(values)}), "
            f"seed {found['augment_seed']}"
        )
    return [line for line in lines if line]


def _examples(found: Mapping[str, Any]) -> str:
    said = []
    least, most, pack = (found.get(name) for name in ("min_tokens", "max_tokens", "pack"))
    if least is not None:
        said.append(f"{least:,} to {most:,} tokens each" if most else f"at least {least:,} tokens each")
    if pack is not None:
        said.append(f"sentences packed to {pack:,}")
    if "language" in found:
        said.append(f"language {found['language']}" if found["language"] else "each record a sentence")
    return ", ".join(said)


def _labelled(found: Mapping[str, Any]) -> str:
    said = [f"short side at most {found['size']:,} pixels"] if "size" in found else []
    if "frames" in found:
        said.append(f"at most {found['frames']:,} frames each, longer clips {found['long']}")
    if (taken := found.get("taken")) and taken["files"] < taken["of_files"]:
        classes = f"{taken['classes']:,} of {taken['of_classes']:,} classes"
        said.append(f"of {taken['files']:,} of {taken['of_files']:,} files, {classes}")
    return ", ".join(said)


def _prepared(found: Mapping[str, Any]) -> str:
    said = ["whitespace collapsed"] if found.get("whitespace") == "collapse" else []
    said += ["lower case"] if found.get("lowercase") else []
    said += ["a space before each"] if found.get("prefix_space") else []
    said += [f"at least {found['min_words']:,} words"] if found.get("min_words") else []
    said += ["duplicates dropped"] if found.get("dedup") else []
    if excluded := found.get("exclude"):
        said.append(f"{excluded['texts']:,} texts excluded")
    return ", ".join(said)
