"""STS-B in other languages, by cosine: one task per language in stsb_multi_mt, such as `stsb/de`.

stsb_multi_mt/stsb-<language>-{test,dev}.csv ──> scored as STS-B in eval.tasks.sts
"""

import re
from pathlib import Path

from clearspan.eval.data.pairs import read_pairs
from clearspan.eval.tasks.sts import load_split_task
from clearspan.eval.tasks.task import Family, Loaded, Task

_FILE = re.compile(r"stsb-(.+)-(test|dev)\.csv")


def load(data: Path) -> Loaded:
    """Read every language in `data/stsb_multi_mt`, or in `data` itself if there is no such folder."""
    folder = data / "stsb_multi_mt" if (data / "stsb_multi_mt").is_dir() else data
    languages = sorted({match[1] for path in folder.glob("stsb-*.csv") if (match := _FILE.fullmatch(path.name))})
    if not languages:
        return Loaded([], {"stsb-multilingual": f"no stsb-<language>-test.csv in {folder}"})
    tasks: list[Task] = []
    missing: dict[str, str] = {}
    for language in languages:
        files = {split: folder / f"stsb-{language}-{split}.csv" for split in ("test", "dev")}
        loaded = load_split_task(f"stsb/{language}", read_pairs, files)
        tasks += loaded.tasks
        missing |= loaded.missing
    return Loaded(tasks, missing)


FAMILY = Family(load, "DIR/stsb_multi_mt/stsb-<language>-{test,dev}.csv; by cosine")
