"""Recognize the files of an earlier run that wrote no shard, for example because of a misspelled field.

When the user runs the corrected command with the same output folder, the files of the earlier run are removed, and no
other files. The content of a file shows that it belongs to the earlier run: plan.json is a valid plan; the result of a
work unit names the hash of this plan; resources, such as the tokenizer, and lists of bad or dropped records have the
hashes that the plan and the results record. For files of decisions, such as verdicts, no hash is recorded; they are
recognized by their names.
"""

import json
import re
from collections.abc import Mapping

from clearspan.pipelines.units import plan as planning
from clearspan.pipelines.units.job import CURATED, DONE, ROWS, STAGED, STOPPED, UnitResult
from clearspan.shards import held_out, storage
from clearspan.shards.manifest import resources

RESULT = re.compile(rf"({DONE}|{STAGED})/(\d{{5}})\.json")
DECISION = re.compile(rf"({CURATED}|{STAGED})/(\d{{5}}\.zst|{ROWS})")


def fruitless(folder: str, plan: bytes) -> list[str]:
    """Return the names of all files in an output folder if one run wrote all of them and wrote no shard; otherwise [].

    The run is the one that wrote plan.json; this name is the last one in the list. Hidden files, whose names begin with
    ".", are ignored.

    Args:
        folder: the output folder.
        plan: the content of plan.json.
    """
    if not planning.is_plan(plan):
        return []
    names = [name for name in storage.tree(folder) if not name.startswith(".")]
    of_plan = resources(json.loads(plan)["fingerprint"])
    known = {f"{part}{name}": sha256 for part in ("", f"{held_out.FOLDER}/") for name, sha256 in of_plan.items()}
    sha256 = planning.sha256_of(plan)
    for name in names:
        if match := RESULT.fullmatch(name):
            try:
                result = UnitResult.from_json(_read(folder, name), sha256, int(match[2]))
            except ValueError:
                return []
            if result.shards or result.held:
                return []
            known |= result.files
    others = (name for name in names if name not in (planning.NAME, STOPPED) and not RESULT.fullmatch(name))
    if not all(_is_own(folder, name, known) for name in others):
        return []
    return sorted(names, key=planning.NAME.__eq__)


def _is_own(folder: str, name: str, known: Mapping[str, str]) -> bool:
    if name in known:
        return storage.sha256(storage.join(folder, *name.split("/"))) == known[name]
    return bool(DECISION.fullmatch(name))


def _read(folder: str, name: str) -> bytes:
    return storage.read_bytes(storage.join(folder, *name.split("/")))
