"""A manifest in words: tokens by column, and the options that describe the examples.

The options are those of the pipelines in the fingerprint; only their names are known here, and absent ones are skipped.
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
"""The augmentation options that belong to each step."""


def tokens(manifest: Manifest) -> str:
    """Return the number of tokens, in total and for examples and views, or for each column."""
    total, columns = f"{manifest.totals['tokens']:,}", manifest.column_tokens
    views = sum(number for column, number in columns.items() if column.startswith("view_"))
    if views:
        return f"{total}: {columns['tokens']:,} of the examples, {views:,} of their views"
    if len(columns) > 1:
        return f"{total}: " + ", ".join(f"{column} {number:,}" for column, number in columns.items())
    return total


def options(settings: Mapping[str, Any]) -> list[str]:
    """Return lines about the examples, the preparation of text, and views, from a fingerprint's options."""
    lines = [_examples(settings), _labelled(settings), _embedded(settings), _prepared(settings)]
    if augmentation := settings.get("augmentation"):
        steps = augmentation["steps"].split("+")
        values = [f"{name} {augmentation[name]}" for step in steps for name in STEP_OPTIONS.get(step, ())]
        lines.append(
            f"views {settings['views']}: {augmentation['steps']} by {augmentation['unit']} ({', '.join(values)}), "
            f"seed {settings['augment_seed']}"
        )
    return [line for line in lines if line]


def _examples(settings: Mapping[str, Any]) -> str:
    parts = []
    least, most, pack = (settings.get(name) for name in ("min_tokens", "max_tokens", "pack"))
    if least is not None:
        parts.append(f"{least:,} to {most:,} tokens each" if most else f"at least {least:,} tokens each")
    if pack is not None:
        parts.append(f"sentences packed to {pack:,}")
    if "language" in settings:
        parts.append(f"language {settings['language']}" if settings["language"] else "each record a sentence")
    return ", ".join(parts)


def _labelled(settings: Mapping[str, Any]) -> str:
    parts = [f"short side at most {settings['size']:,} pixels"] if "size" in settings else []
    if "frames" in settings:
        parts.append(f"at most {settings['frames']:,} frames each, longer clips {settings['long']}")
    if (taken := settings.get("taken")) and taken["files"] < taken["of_files"]:
        classes = f"{taken['classes']:,} of {taken['of_classes']:,} classes"
        parts.append(f"of {taken['files']:,} of {taken['of_files']:,} files, {classes}")
    return ", ".join(parts)


def _embedded(settings: Mapping[str, Any]) -> str:
    if "model" not in settings:
        return ""
    prompt = f", prompt {settings['prompt_name']!r}" if settings.get("prompt_name") else ""
    return f"{settings['dtype']} of the model {settings['model'][:16]}{prompt}"


def _prepared(settings: Mapping[str, Any]) -> str:
    parts = ["whitespace collapsed"] if settings.get("whitespace") == "collapse" else []
    parts += ["lower case"] if settings.get("lowercase") else []
    parts += ["a space before each"] if settings.get("prefix_space") else []
    parts += [f"at least {settings['min_words']:,} words"] if settings.get("min_words") else []
    parts += ["duplicates dropped"] if settings.get("dedup") else []
    if excluded := settings.get("exclude"):
        parts.append(f"{excluded['texts']:,} texts excluded")
    return ", ".join(parts)
