"""Images and clips to shards: this pipeline, a plain loop and `datasets`; memory; the stages of the workers' time.

    python -m benchmarks.modalities --images PHOTOGRAPHS --clips FLAC

One run on one machine. The input is made from the user's files, one folder a class: photographs enlarged (Lanczos, JPEG
of quality 90) to 500x375, 1024x768 and 2000x1500, and unchanged; clips unchanged; each several times, under different
names. This pipeline runs with two processes. Its time is that of its whole command; the time after start-up is that
minus the time of the same command on two files. The plain loop is one process: Pillow (upright, RGB, shorter side 256,
bilinear, quality 95), or for clips the pipeline's own functions, and webdataset's ShardWriter. `datasets` loads a
folder, does the same in map with two processes, and saves; since its audiofolder needs torchcodec, it gets the paths of
clips, and the same functions. The peers' time starts after their imports, and is for a part of the same input. Memory
is the peak resident size of the command's first process and of any other, with an input and with ten times as much.
Needs the extra `benchmarks`.
"""

import argparse
import io
import shutil
import time
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from benchmarks.processes import COLUMNS, NUM_PROCESSES, Process, contender, imported, main, pipeline, progress, shares
from benchmarks.report import columns, command, machine

TIMES = 10
"""The run for memory has this many times the input."""
SIZE = 256
FRAMES = 1024
DISTINCT = 240
"""The number of different photographs that are enlarged to a size."""
INPUTS = {
    "500x375": ("images", (500, 375), 3000, 2400),
    "1024x768": ("images", (1024, 768), 0, 2000),
    "2000x1500": ("images", (2000, 1500), 0, 600),
    "as they are": ("images", None, 0, 3000),
    "clips": ("audio", None, 600, 600),
}
"""For each input: the kind, the size, the files of the small run for memory (0: none), and the files for the peers.

The pipeline's main run has ten times the files of the small run, or four times those of the peers."""
PEERS = {"plain loop": "plain_loop", "datasets": "datasets"}
"""The peers, and their names in the keys of the result."""


def num_files(name: str) -> int:
    """Return the number of files of the pipeline's main run."""
    _, _, small, peers = INPUTS[name]
    return TIMES * small if small else 4 * peers


def enlarged(path: Path, size: tuple[int, int]) -> bytes:
    """Return a photograph in a landscape size; a portrait photograph is rotated."""
    picture = Image.open(path).convert("RGB")
    if picture.width < picture.height:
        picture = picture.transpose(Image.Transpose.ROTATE_90)
    stream = io.BytesIO()
    picture.resize(size, Image.Resampling.LANCZOS).save(stream, "JPEG", quality=90)
    return stream.getvalue()


def make(name: str, source: Path, folder: Path) -> None:
    """Write the files of an input, one folder a class; no links, since the pipeline reads a linked file once."""
    _, size, _, _ = INPUTS[name]
    files = sorted(path for path in source.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".flac", ".wav"))
    if not files:
        raise SystemExit(f"benchmark: {source}: holds no .jpg, .jpeg, .flac or .wav")
    files = files[:: max(1, len(files) // DISTINCT)][:DISTINCT] if size else files
    contents = [enlarged(path, size) if size else path.read_bytes() for path in files]
    for number in range(num_files(name)):
        path = files[number % len(files)]
        target = folder / "all" / path.parent.name / f"{number:06d}{path.suffix.lower()}"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(contents[number % len(files)])


def part(folder: Path, number: int) -> Path:
    """Return a folder with the first `number` files of an input, by name."""
    target = folder / f"{number}"
    for path in sorted((folder / "all").rglob("*.*"), key=lambda path: path.name)[:number]:
        (target / path.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target / path.parent.name / path.name)
    return target


def by_pillow(picture: Image.Image) -> bytes:
    """Return a picture as a JPEG of the usual size, by the usual steps."""
    picture = ImageOps.exif_transpose(picture).convert("RGB")
    scale = min(1.0, SIZE / min(picture.size))
    target = (round(picture.width * scale), round(picture.height * scale))
    stream = io.BytesIO()
    picture.resize(target, Image.Resampling.BILINEAR).save(stream, "JPEG", quality=95)
    return stream.getvalue()


def as_npy(data: bytes) -> bytes:
    """Return the log-mel frames of a clip as an .npy file."""
    import numpy as np

    from clearspan.pipelines.media.clips import spectrograms

    stream = io.BytesIO()
    np.save(stream, next(spectrograms(data, FRAMES, "cut")), allow_pickle=False)
    return stream.getvalue()


def plain_loop(output: Path, kind: str, files: str) -> float:
    """Loop over the files, with webdataset's writer. Return the seconds."""
    from webdataset import ShardWriter

    folder = Path(files)
    labels = {path.name: number for number, path in enumerate(sorted(folder.iterdir()))}
    if kind == "audio":
        as_npy(next(folder.rglob("*.*")).read_bytes())  # for its imports
    imported()
    start = time.perf_counter()
    with ShardWriter(str(output / "%05d.tar"), maxsize=128e6, verbose=0) as shards:
        for path in sorted(folder.rglob("*.*")):
            if kind == "images":
                with Image.open(path) as picture:
                    sample = {"jpg": by_pillow(picture)}
            else:
                sample = {"npy": as_npy(path.read_bytes())}
            shards.write({"__key__": path.stem, "cls": labels[path.parent.name], **sample})
    return time.perf_counter() - start


def with_datasets(output: Path, kind: str, files: str) -> float:
    """Load the folder, map and save with `datasets`, all caches empty. Return the seconds."""
    import datasets

    datasets.disable_progress_bars()
    start = time.perf_counter()
    if kind == "images":
        data = datasets.load_dataset("imagefolder", data_dir=files, split="train", cache_dir=str(output / "cache"))
        features = datasets.Features({"image": datasets.Image(), "label": data.features["label"]})

        def function(row: dict[str, Any]) -> dict[str, Any]:
            return {"image": {"bytes": by_pillow(row["image"]), "path": None}}

    else:
        paths = sorted(map(str, Path(files).rglob("*.*")))
        labels = [Path(path).parent.name for path in paths]
        data = datasets.Dataset.from_dict({"file": paths, "label": labels})
        data = data.cast_column("label", datasets.ClassLabel(names=sorted(set(labels))))
        features = datasets.Features({"frames": datasets.Value("binary"), "label": data.features["label"]})

        def function(row: dict[str, Any]) -> dict[str, Any]:
            return {"frames": as_npy(Path(row["file"]).read_bytes())}

    drop = [name for name in data.column_names if name not in features]
    data = data.map(function, num_proc=NUM_PROCESSES, remove_columns=drop, features=features)
    data.save_to_disk(str(output / "saved"), num_proc=NUM_PROCESSES)
    return time.perf_counter() - start


CONTENDERS = {"plain loop": plain_loop, "datasets": with_datasets}


def ours(kind: str, folder: Path, output: Path, *options: str) -> tuple[Process, dict[str, Any]]:
    """Run the pipeline, and check that it keeps every file."""
    process, summary = pipeline(kind, [folder], output, *options)
    assert summary["kept"] == sum(1 for _ in folder.rglob("*.*")), summary
    return process, summary


def row(number: int, seconds: float, process: Process) -> dict[str, float]:
    rates = {"files": number, "seconds": round(seconds, 2), "per_s": round(number / seconds, 1)}
    return {**rates, **process.memory()}


def ratio(per_s: float, peer: dict[str, float]) -> float:
    return round(per_s / peer["per_s"], 2)


def measure(arguments: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Run everything in turn, with a line of progress each."""
    start = time.perf_counter()
    start_up: dict[str, Process] = {}
    inputs: dict[str, Any] = {}
    for name in arguments.inputs:
        kind, _, small, peers = INPUTS[name]
        folder, number, output = work / name, num_files(name), work / "output"
        progress(start, f"{name}: making {number:,} files")
        make(name, arguments.images if kind == "images" else arguments.clips, folder)
        rows: dict[str, dict[str, float]] = {}
        if kind not in start_up:
            start_up[kind], _ = ours(kind, part(folder, NUM_PROCESSES), output, "--unit-bytes", "1")
        if small:
            progress(start, f"{name}: this pipeline, {small:,}")
            process, _ = ours(kind, part(folder, small), output)
            rows["clearspan, a tenth"] = row(small, process.seconds, process)
        progress(start, f"{name}: this pipeline, {number:,}")
        process, summary = ours(kind, folder / "all", output)
        rows["clearspan"] = row(number, process.seconds, process)
        steady = number / (process.seconds - start_up[kind].seconds)
        steady_cpu = number / (process.cpu_seconds - start_up[kind].cpu_seconds)
        peers_part = part(folder, peers)
        for peer in CONTENDERS:
            progress(start, f"{name}: {peer}, {peers:,}")
            other, seconds, cpu_seconds = contender("modalities", peer, work / "peer", kind, peers_part)
            rows[peer] = row(peers, seconds, other)
            if peer == "plain loop":
                plain_per_cpu_s = peers / cpu_seconds
        stages = summary["run"]["worker_seconds"]
        mean_bytes = sum(path.stat().st_size for path in (folder / "all").rglob("*.*")) / number
        inputs[name] = {
            "kind": kind,
            "mean_bytes": round(mean_bytes),
            "rows": rows,
            "start_up_seconds": round(start_up[kind].seconds, 2),
            "past_start_up_per_s": round(steady, 1),
            **{f"times_{key}": ratio(rows["clearspan"]["per_s"], rows[peer]) for peer, key in PEERS.items()},
            **{f"times_{key}_past_start_up": ratio(steady, rows[peer]) for peer, key in PEERS.items()},
            "times_plain_loop_per_cpu_second": round(steady_cpu / plain_per_cpu_s, 2),
            "worker_seconds": stages,
            "share_outside_decode": round(1 - stages["decode"] / sum(stages.values()), 3),
            "mb_per_s_and_process": round(number * mean_bytes / 1e6 / sum(stages.values()), 1),
        }
        shutil.rmtree(folder)
    note = f"photographs enlarged by Lanczos (quality 90) from {DISTINCT} or fewer; files repeat; for clips, datasets "
    note += "gets the paths and this project's functions, since its audiofolder needs torchcodec"
    return {"machine": machine(), "processes": NUM_PROCESSES, "note": note, "inputs": inputs}


def table(result: dict[str, Any]) -> str:
    """Return the text that is printed."""
    cores = f"{result['machine']['cores']} cores of {result['machine']['cpu']}"
    lines = [f"{cores}, {NUM_PROCESSES} processes (plain loop: one)", result["note"]]
    for name, v in result["inputs"].items():
        per_s = {"images": "images/s", "audio": "clips/s"}[v["kind"]]
        forms = {"files": "", "seconds": ".2f", "per_s": ".1f", "first_process_mb": ".0f", "other_process_mb": ".0f"}
        rows = [[who, *(f"{row[key]:,{form}}" for key, form in forms.items())] for who, row in v["rows"].items()]
        lines += [
            "",
            columns([f"{name}, {v['mean_bytes'] / 1e3:,.0f} kB", "files", "seconds", per_s, *COLUMNS], rows),
            f"  {v['times_plain_loop']} x the plain loop, {v['times_datasets']} x datasets; after "
            f"{v['start_up_seconds']} s of start-up {v['past_start_up_per_s']:,.0f} {per_s}: "
            f"{v['times_plain_loop_past_start_up']} x and {v['times_datasets_past_start_up']} x; "
            f"per processor second {v['times_plain_loop_per_cpu_second']} x the plain loop",
            f"  worker time: {shares(v['worker_seconds'])}; {v['mb_per_s_and_process']:.1f} MB/s a process",
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = command(__doc__, "modalities")
    parser.add_argument("--images", type=Path, help="a folder of JPEGs, in one folder a class")
    parser.add_argument("--clips", type=Path, help="a folder of FLAC or WAV, in one folder a class")
    parser.add_argument("--inputs", nargs="+", choices=INPUTS, default=list(INPUTS), help="only these inputs")
    main(parser, CONTENDERS, measure, table, ("images", "clips"))
