"""Pictures and clips to shards: this pipeline, a plain loop and `datasets`; memory; where the workers' time goes.

    python -m benchmarks.modalities --images PHOTOGRAPHS --clips FLAC

One run on one machine. The input is made of the user's files, in folders of a class each: photographs enlarged
(Lanczos, JPEG of quality 90) to 500x375, 1024x768 and 2000x1500, and as they are; clips as they are; each several
times, under other names. This pipeline runs with two processes: its time is its whole command's, and what is said to be
past start-up is that less the same command's on two files. The plain loop is one process: Pillow (upright, RGB, short
side 256, bilinear, quality 95), or for clips the functions that the pipeline itself uses, and webdataset's ShardWriter.
`datasets` loads a folder, does the same in map with two processes, and saves; its audiofolder needs torchcodec, so that
of clips it is given the paths, and the same functions. The peers' time is from after their imports, on their part of
the same input. Memory is the largest resident size seen of the command's first process and of any other, with an input
and with ten times as much. Needs the extra `benchmarks`.
"""

import argparse
import io
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from benchmarks.pipelines import IMPORTED, Watched
from benchmarks.report import command, machine, tell

PROCESSES = 2
TIMES = 10
"""How much more input the run for memory has."""
SIZE = 256
FRAMES = 1024
DISTINCT = 240
"""So many different photographs are enlarged to a size."""
INPUTS = {
    "500x375": ("images", (500, 375), 3000, 2400),
    "1024x768": ("images", (1024, 768), 0, 2000),
    "2000x1500": ("images", (2000, 1500), 0, 600),
    "as they are": ("images", None, 0, 3000),
    "clips": ("audio", None, 600, 600),
}
"""Of each input: the kind, the size, how many files the small run for memory has (0: none), and the peers' part.

The pipeline's own run has ten times the small one's files, or four times the peers'."""


def wanted(name: str) -> int:
    """How many files the pipeline is given."""
    _, _, least, part = INPUTS[name]
    return TIMES * least if least else 4 * part


def enlarged(path: Path, size: tuple[int, int]) -> bytes:
    """A photograph of this size, lying on its side where it was upright."""
    picture = Image.open(path).convert("RGB")
    if picture.width < picture.height:
        picture = picture.transpose(Image.Transpose.ROTATE_90)
    stream = io.BytesIO()
    picture.resize(size, Image.Resampling.LANCZOS).save(stream, "JPEG", quality=90)
    return stream.getvalue()


def make(name: str, given: Path, folder: Path) -> None:
    """Writes an input's files, a folder a class: copies, since the pipeline takes a file of two names once."""
    _, size, _, _ = INPUTS[name]
    files = sorted(path for path in given.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".flac", ".wav"))
    if not files:
        raise SystemExit(f"benchmark: {given}: holds no .jpg, .jpeg, .flac or .wav")
    files = files[:: max(1, len(files) // DISTINCT)][:DISTINCT] if size else files
    made = [enlarged(path, size) if size else path.read_bytes() for path in files]
    for number in range(wanted(name)):
        path = files[number % len(files)]
        target = folder / "all" / path.parent.name / f"{number:06d}{path.suffix.lower()}"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(made[number % len(files)])


def part(folder: Path, number: int) -> Path:
    """A folder of the first `number` of an input's files, in the order of their names."""
    target = folder / f"{number}"
    for path in sorted((folder / "all").rglob("*.*"), key=lambda path: path.name)[:number]:
        (target / path.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target / path.parent.name / path.name)
    return target


def pipeline(kind: str, folder: Path, output: Path, *options: str) -> tuple[Watched, dict[str, Any]]:
    """This project's command."""
    shutil.rmtree(output, ignore_errors=True)
    words = ["--input", str(folder), "--output", str(output), "--workers", str(PROCESSES), "--json", "--quiet"]
    run = Watched(sys.executable, "-m", "pipelines", kind, *words, *options)
    summary = json.loads(run.output)
    assert summary["kept"] == sum(1 for _ in folder.rglob("*.*")), summary
    return run, summary


def by_pillow(picture: Image.Image) -> bytes:
    """What most scripts do to a picture."""
    picture = ImageOps.exif_transpose(picture).convert("RGB")
    scale = min(1.0, SIZE / min(picture.size))
    target = (round(picture.width * scale), round(picture.height * scale))
    stream = io.BytesIO()
    picture.resize(target, Image.Resampling.BILINEAR).save(stream, "JPEG", quality=95)
    return stream.getvalue()


def as_npy(data: bytes) -> bytes:
    """A clip's log-mel frames as an .npy."""
    import numpy as np

    from clearspan.pipelines.media.clips import spectrograms

    stream = io.BytesIO()
    np.save(stream, next(spectrograms(data, FRAMES, "cut")), allow_pickle=False)
    return stream.getvalue()


def plain_loop(kind: str, folder: Path, output: Path) -> float:
    """A loop over the files, and webdataset's writer. Returns seconds."""
    from webdataset import ShardWriter

    numbers = {path.name: number for number, path in enumerate(sorted(folder.iterdir()))}
    if kind == "audio":
        as_npy(next(folder.rglob("*.*")).read_bytes())  # imports what it uses
    IMPORTED["cpu"] = time.process_time()
    start = time.perf_counter()
    with ShardWriter(str(output / "%05d.tar"), maxsize=128e6, verbose=0) as shards:
        for path in sorted(folder.rglob("*.*")):
            label = numbers[path.parent.name]
            if kind == "images":
                with Image.open(path) as picture:
                    made = {"jpg": by_pillow(picture)}
            else:
                made = {"npy": as_npy(path.read_bytes())}
            shards.write({"__key__": path.stem, "cls": label, **made})
    return time.perf_counter() - start


def with_datasets(kind: str, folder: Path, output: Path) -> float:
    """`datasets`: load the folder, map, save. Returns seconds, all caches empty."""
    import datasets

    datasets.disable_progress_bars()
    start = time.perf_counter()
    if kind == "images":
        data = datasets.load_dataset(
            "imagefolder", data_dir=str(folder), split="train", cache_dir=str(output / "cache")
        )
        features = datasets.Features({"image": datasets.Image(), "label": data.features["label"]})

        def function(row: dict[str, Any]) -> dict[str, Any]:
            return {"image": {"bytes": by_pillow(row["image"]), "path": None}}

    else:
        files = sorted(map(str, folder.rglob("*.*")))
        names = sorted({Path(file).parent.name for file in files})
        data = datasets.Dataset.from_dict({"file": files, "label": [Path(file).parent.name for file in files]})
        data = data.cast_column("label", datasets.ClassLabel(names=names))
        features = datasets.Features({"frames": datasets.Value("binary"), "label": data.features["label"]})

        def function(row: dict[str, Any]) -> dict[str, Any]:
            return {"frames": as_npy(Path(row["file"]).read_bytes())}

    drop = [name for name in data.column_names if name not in features]
    data = data.map(function, num_proc=PROCESSES, remove_columns=drop, features=features)
    data.save_to_disk(str(output / "saved"), num_proc=PROCESSES)
    return time.perf_counter() - start


CONTENDERS = {"plain loop": plain_loop, "datasets": with_datasets}


def row(number: int, seconds: float, run: Watched) -> dict[str, float]:
    return {
        "files": number,
        "seconds": round(seconds, 2),
        "per_s": round(number / seconds, 1),
        "first_process_mb": round(run.first_bytes / 1e6),
        "other_process_mb": round(run.other_bytes / 1e6),
    }


def measure(arguments: argparse.Namespace, work: Path) -> dict[str, Any]:
    """All of it, in turn, a line of progress each."""

    def say(text: str) -> None:
        print(f"[{time.perf_counter() - began:5.0f} s] {text}", file=sys.stderr, flush=True)

    began = time.perf_counter()
    start_up: dict[str, Watched] = {}
    found: dict[str, Any] = {}
    for name in arguments.inputs:
        kind, _, least, peers = INPUTS[name]
        folder, number = work / name, wanted(name)
        say(f"{name}: making {number:,} files")
        make(name, arguments.images if kind == "images" else arguments.clips, folder)
        rows: dict[str, dict[str, float]] = {}
        if kind not in start_up:
            start_up[kind] = pipeline(kind, part(folder, PROCESSES), work / "out", "--unit-bytes", "1")[0]
        if least:
            say(f"{name}: this pipeline, {least:,}")
            run, _ = pipeline(kind, part(folder, least), work / "out")
            rows["clearspan, a tenth"] = row(least, run.seconds, run)
        say(f"{name}: this pipeline, {number:,}")
        run, summary = pipeline(kind, folder / "all", work / "out")
        rows["clearspan"] = row(number, run.seconds, run)
        steady = number / (run.seconds - start_up[kind].seconds)
        steady_cpu = number / (run.cpu_seconds - start_up[kind].cpu_seconds)
        some = part(folder, peers)
        for contender in CONTENDERS:
            say(f"{name}: {contender}, {peers:,}")
            output = work / "peer"
            shutil.rmtree(output, ignore_errors=True)
            output.mkdir()
            words = ["--contender", contender, kind, str(some), str(output)]
            other = Watched(sys.executable, "-m", "benchmarks.modalities", *words)
            seconds, cpu_seconds = map(float, other.output.split()[-2:])
            rows[contender] = row(peers, seconds, other)
            if contender == "plain loop":
                plain_per_cpu_s = peers / cpu_seconds
        stages = summary["run"]["worker_seconds"]
        mean_bytes = sum(path.stat().st_size for path in (folder / "all").rglob("*.*")) / number
        found[name] = {
            "kind": kind,
            "mean_bytes": round(mean_bytes),
            "rows": rows,
            "start_up_seconds": round(start_up[kind].seconds, 2),
            "past_start_up_per_s": round(steady, 1),
            **{f"times_{key}": ratio(rows["clearspan"]["per_s"], rows[peer]) for peer, key in KEYS.items()},
            **{f"times_{key}_past_start_up": ratio(steady, rows[peer]) for peer, key in KEYS.items()},
            "times_plain_loop_per_cpu_second": round(steady_cpu / plain_per_cpu_s, 2),
            "worker_seconds": stages,
            "share_outside_decode": round(1 - stages["decode"] / sum(stages.values()), 3),
            "mb_per_s_and_process": round(number * mean_bytes / 1e6 / sum(stages.values()), 1),
        }
        shutil.rmtree(folder)
    note = f"photographs enlarged by Lanczos (quality 90) from {DISTINCT} or fewer; files repeat; of clips datasets "
    note += "was given the paths and this project's functions, since its audiofolder needs torchcodec"
    return {"machine": machine(), "processes": PROCESSES, "note": note, "inputs": found}


KEYS = {"plain loop": "plain_loop", "datasets": "datasets"}


def ratio(per_s: float, peer: dict[str, float]) -> float:
    return round(per_s / peer["per_s"], 2)


def table(result: dict[str, Any]) -> str:
    """What is printed, and quoted in the README."""
    return "\n".join(_lines(result))


def _lines(result: dict[str, Any]) -> Iterator[str]:
    cores = f"{result['machine']['cores']} cores of {result['machine']['cpu']}"
    yield f"{cores}, {PROCESSES} processes (the plain loop: one)"
    yield result["note"]
    for name, one in result["inputs"].items():
        per_s = {"images": "pictures/s", "audio": "clips/s"}[one["kind"]]
        yield ""
        title = f"{name}, {one['mean_bytes'] / 1e3:,.0f} kB"
        yield f"{title:<22} {'files':>7} {'seconds':>8} {per_s:>11} {'first MB':>9} {'worker MB':>10}"
        for who, v in one["rows"].items():
            yield (
                f"{who:<22} {v['files']:>7,} {v['seconds']:>8.2f} {v['per_s']:>11,.1f} {v['first_process_mb']:>9,.0f} "
                f"{v['other_process_mb']:>10,.0f}"
            )
        yield (
            f"  {one['times_plain_loop']} x the plain loop, {one['times_datasets']} x datasets; past "
            f"{one['start_up_seconds']} s of start-up {one['past_start_up_per_s']:,.0f} {per_s}: "
            f"{one['times_plain_loop_past_start_up']} x and {one['times_datasets_past_start_up']} x; "
            f"a processor second {one['times_plain_loop_per_cpu_second']} x the plain loop"
        )
        total = sum(one["worker_seconds"].values())
        shares = ", ".join(f"{stage} {100 * time / total:.0f} %" for stage, time in one["worker_seconds"].items())
        yield f"  worker time: {shares}; a process {one['mb_per_s_and_process']:.1f} MB/s"


def main() -> None:
    parser = command(__doc__, "modalities")
    parser.add_argument("--images", type=Path, help="a folder of JPEGs, in folders of a class each")
    parser.add_argument("--clips", type=Path, help="a folder of FLAC or WAV, in folders of a class each")
    parser.add_argument("--inputs", nargs="+", choices=INPUTS, default=list(INPUTS), help="of these alone")
    parser.add_argument("--work", type=Path, metavar="DIR", help="where to work (default: a temporary folder)")
    parser.add_argument("--contender", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contender:
        name, kind, *paths = arguments.contender
        print(CONTENDERS[name](kind, *map(Path, paths)), time.process_time() - IMPORTED.get("cpu", 0.0))
        return
    if not (arguments.images and arguments.clips):
        parser.error("--images and --clips are required")
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        result = measure(arguments, Path(work))
    tell(result, table, arguments.output)


if __name__ == "__main__":
    main()
