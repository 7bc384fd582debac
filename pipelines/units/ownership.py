"""Recognize the files that a run wrote to an output folder: nothing else there may be removed or replaced.

A user may have put other files into the folder, under any name. A file belongs to the run if the records of the run
name it:

    plan.json                 is a valid plan, or lies beside a valid manifest
    manifest.json             names the shards
    _done/00003.json          names the hash of the plan, the shards of unit 3, and its lists with their hashes
    tokenizer/, _files/       have the hashes in the plan or the manifest
    _curated/, _staged/       decisions: they carry their own hash, or are marks of the examples of a unit

`own_files` looks at a folder whose run has ended, `may_write` at the names that the work units of a run in progress
give to their files.
"""

import dataclasses
import re
from collections.abc import Collection, Sequence

import zstandard

from clearspan.common.checksummed import strip_checksum
from clearspan.pipelines.units import plan as planning
from clearspan.pipelines.units.changes import STATUS
from clearspan.pipelines.units.curation import VERDICTS
from clearspan.pipelines.units.exchange import BUCKETS
from clearspan.pipelines.units.job import CURATED, DONE, LISTS, RECORDS, ROWS, STAGED, STOPPED, Job, UnitResult
from clearspan.shards import Manifest, held_out, storage
from clearspan.shards.manifest import NAME as MANIFEST
from clearspan.shards.manifest import ManifestError, resources

RESULT = re.compile(rf"({DONE}|{STAGED})/(\d{{5}})\.json")
VERDICTS_NAME = re.compile(rf"{CURATED}/(\d{{5}})\.zst")
ENTRIES_NAME = re.compile(rf"({CURATED}|{STAGED})/{ROWS}")
UNIT = re.compile(r"/(\d{5})\.")
SHARD = re.compile(rf"(?:(?:{STAGED}|{held_out.FOLDER})/)?([a-z]+)-(\d{{5}})-\d{{3}}\.tar")
NO_FILE = (FileNotFoundError, IsADirectoryError)
"""Errors of reading a link that leads to no file."""
OF_RUN = (planning.NAME, MANIFEST, STOPPED, f"{RECORDS}/{STATUS}")
"""Names of files that a run writes once."""


@dataclasses.dataclass
class _Records:
    """Names of the files of a run, from its records in its output folder.

    Attributes:
        known: name of a file that the run wrote -> its SHA-256; None if its name suffices.
        units: the numbers of the work units that have a result or a shard.
        has_shards: whether the run wrote a shard.
    """

    known: dict[str, str | None]
    units: set[int] = dataclasses.field(default_factory=set)
    has_shards: bool = False


def own_files(folder: str, inside: str = "") -> list[str]:
    """Return the names of the files in an output folder that the run wrote to which the folder belongs.

    The names are relative to the folder. Last come the records that name other files: the results, and plan.json. The
    list is empty if no run wrote there.

    Args:
        inside: the beginning of the names to return, such as `_staged/`; "" for all.
    """
    names = storage.tree(folder)
    records = _records(folder, names)
    return [] if records is None else _owned(folder, [name for name in names if name.startswith(inside)], records)


def fruitless(folder: str, plan: bytes) -> list[str]:
    """Return the names of all files in an output folder if one run wrote all of them and wrote no shard; otherwise [].

    The run is the one that wrote plan.json; this name is the last one in the list. The files of others may be hidden:
    their names begin with ".".

    Args:
        folder: the output folder.
        plan: the content of plan.json.
    """
    if not planning.is_plan(plan):
        return []
    names = storage.tree(folder)
    records = _records(folder, names)
    if records is None or records.has_shards:
        return []
    owned = _owned(folder, names, records)
    others = set(names) - set(owned)
    return owned if all(name.startswith(".") for name in others) else []


def may_write(name: str, kind: str, first_shard: int, num_units: int) -> bool:
    """Return whether a run may give a name to a file in its output folder; the plan's resources are not considered.

    Args:
        name: the name, relative to the output folder.
        kind: the kind of dataset, with which the names of its shards begin.
        first_shard: the number in the names of the first unit's shards.
        num_units: the number of work units of the run.
    """
    if match := SHARD.fullmatch(name):
        return match[1] == kind and first_shard <= int(match[2]) < first_shard + num_units
    if match := ENTRIES_NAME.fullmatch(name):
        return int(match["number"]) < max(num_units, BUCKETS)
    if match := UNIT.search(name):
        return int(match[1]) < num_units and name in _names_of(int(match[1]))
    return name in OF_RUN


def _names_of(unit: int) -> list[str]:
    """Return the names that a work unit may give to files, except shards and entries."""
    return [
        *(f"{folder}/{unit:05d}.json" for folder in (DONE, STAGED, RECORDS)),
        *(Job.list_name(folder, unit) for folder in LISTS),
        f"{CURATED}/{unit:05d}.zst",
    ]


def _records(folder: str, names: Collection[str]) -> _Records | None:
    """Read the records of the run in an output folder; return None if no run wrote there.

    Args:
        names: the names of all files in the folder.
    """
    manifest, plan = _manifest(folder), _read(folder, planning.NAME) if planning.NAME in names else b""
    if manifest is None and not planning.is_plan(plan):
        return None
    fingerprint = planning.began(folder) if manifest is None else manifest.fingerprint
    manifests = {"": manifest}
    if fingerprint.get("options", {}).get("holdout_fraction"):
        held = _manifest(held_out.folder_of(folder))
        manifests[f"{held_out.FOLDER}/"] = held if held and held_out.is_held_out(held) else None
    records = _Records({planning.NAME: None, STOPPED: None, f"{RECORDS}/{STATUS}": None})
    for part, each in manifests.items():
        records.known |= {f"{part}{name}": sha256 for name, sha256 in resources(fingerprint).items()}
        if each is not None:
            records.known |= dict.fromkeys(
                f"{part}{name}" for name in (MANIFEST, *(shard.name for shard in each.shards))
            )
            records.units |= {shard.unit for shard in each.shards}
            records.has_shards = True
    unreadable = _add_results(folder, names, planning.sha256_of(plan), records)
    for unit in unreadable & records.units:  # which lists it wrote is not known
        of_lists = (Job.list_name(list_folder, unit) for list_folder in LISTS)
        records.known |= dict.fromkeys([f"{DONE}/{unit:05d}.json", *of_lists])
    records.known |= dict.fromkeys(f"{RECORDS}/{unit:05d}.json" for unit in records.units)
    if records.has_shards:  # also a damaged one
        records.known |= dict.fromkeys(f"{part}{MANIFEST}" for part in manifests)
    return records


def _add_results(folder: str, names: Collection[str], plan: str, records: _Records) -> set[int]:
    """Add the files that results of work units name to the records; return units whose final result cannot be read.

    Args:
        names: the names of all files in the folder.
        plan: the SHA-256 of plan.json, which a result must name.
    """
    unreadable = set()
    for name, match in ((name, RESULT.fullmatch(name)) for name in names):
        if not match:
            continue
        unit = int(match[2])
        try:
            result = UnitResult.from_json(_read(folder, name), plan, unit)
        except (ValueError, *NO_FILE):
            if match[1] == DONE:
                unreadable.add(unit)
            continue
        inside = f"{STAGED}/" if match[1] == STAGED else ""
        shards = [f"{inside}{shard.name}" for shard in result.shards]
        held = [f"{held_out.FOLDER}/{shard.name}" for shard in result.held]
        lists = {file: None if file.startswith(STAGED) else sha256 for file, sha256 in result.files.items()}
        records.known |= dict.fromkeys([name, *shards, *held]) | lists
        records.units.add(unit)
        records.has_shards |= bool(shards or held)
    return unreadable


def _manifest(folder: str) -> Manifest | None:
    try:
        return Manifest.load(folder)
    except ManifestError:
        return None


def _owned(folder: str, names: Sequence[str], records: _Records) -> list[str]:
    are_own = storage.each(folder, lambda name: _is_own(folder, name, records), names)
    owned = [name for name, is_own in zip(names, are_own, strict=True) if is_own]
    return sorted(owned, key=lambda name: (name == planning.NAME, bool(RESULT.fullmatch(name))))


def _is_own(folder: str, name: str, records: _Records) -> bool:
    try:
        if name in records.known:
            sha256 = records.known[name]
            return sha256 is None or storage.sha256(storage.join(folder, *name.split("/"))) == sha256
        if ENTRIES_NAME.fullmatch(name):
            strip_checksum(_read(folder, name))
            return True
        if (match := VERDICTS_NAME.fullmatch(name)) and int(match[1]) in records.units:
            return set(zstandard.decompress(_read(folder, name))) <= VERDICTS
    except (ValueError, zstandard.ZstdError, *NO_FILE):
        pass
    return False


def _read(folder: str, name: str) -> bytes:
    return storage.read_bytes(storage.join(folder, *name.split("/")))
