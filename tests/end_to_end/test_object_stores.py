"""The whole way on gs:// and s3://: input, output, the commands on shards, and the trainer's stream."""

import contextlib
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from apache_beam.io.filesystem import FileSystem

from clearspan.pipelines.__main__ import main as pipelines_main
from clearspan.shards import Dataset, ShardError, storage, verify
from clearspan.shards.__main__ import main as shards_main
from clearspan.train.data.stream import ExampleStream, StreamState
from tests.end_to_end.conftest import AWS

OPTIONS = ["--min-tokens", "512", "--unit-bytes", "100000"]


def words(source: str | Path, target: str | Path, tokenizer: str | Path, *more: str) -> list[str]:
    return ["documents", "--input", f"{source}/*.jsonl", "--output", str(target), "--tokenizer", str(tokenizer), *more]


def tree(folder: str | Path) -> dict[str, bytes]:
    """Every file of a dataset, by its name under the folder, except for the times of the inputs."""
    start = len(str(folder)) + 1
    paths = list(storage.find(f"{folder}/**"))
    return {path[start:]: storage.read_bytes(path) for path in paths}


def upload(folder: Path, target: str) -> None:
    for path in filter(Path.is_file, folder.rglob("*")):
        storage.publish_file(path, storage.join(target, path.relative_to(folder).as_posix()))


@pytest.fixture(scope="module")
def finished(corpus: Path, roberta_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of the corpus, made on a disk."""
    folder = tmp_path_factory.mktemp("local") / "out"
    assert pipelines_main(words(corpus, folder, roberta_tokenizer, *OPTIONS)) == 0
    return folder


@pytest.fixture
def published(bucket: str, finished: Path) -> str:
    """The same dataset in a bucket."""
    for name, data in tree(finished).items():
        storage.publish_bytes(data, f"{bucket}/data/{name}")
    return f"{bucket}/data"


@pytest.mark.guarantee("object-stores")
@pytest.mark.exhaustive
def test_from_bucket_to_bucket_every_byte_is_as_on_a_disk(
    bucket: str, corpus: Path, finished: Path, roberta_tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    upload(corpus, f"{bucket}/corpus/2026")
    upload(roberta_tokenizer, f"{bucket}/tokenizer")
    command = words(f"{bucket}/corpus/2026", f"{bucket}/data/train", f"{bucket}/tokenizer", *OPTIONS)
    assert pipelines_main(command) == 0
    assert tree(f"{bucket}/data/train") == tree(finished)
    capsys.readouterr()
    assert pipelines_main(command) == 0
    assert "was already finished" in capsys.readouterr().out


def batches(folder: str | Path, count: int) -> list[list[list[int]]]:
    stream = ExampleStream("text", Dataset(folder), 2, seed=1, shuffle_shards=2)
    taken = take(stream.prefetched(StreamState(), ["tokens"], lambda rows: {"all": rows.columns}), count)
    return [[batch.ids.tolist(), batch.of("all").lists("tokens").values.tolist()] for batch, _ in taken]


def take(items, count: int) -> list:
    taken = [next(items) for _ in range(count)]
    items.close()
    return taken


@pytest.mark.guarantee("object-stores")
def test_a_bucket_is_read_once_through_the_cache(published: str, finished: Path, tmp_path: Path) -> None:
    expected, tokenizer = batches(finished, 20), tree(finished / "tokenizer")
    assert batches(published, 20) == expected and verify(published) == []
    assert tree(Dataset(published).local_tokenizer()) == tokenizer
    shards = Dataset(published).shards
    assert {path.name for path in (tmp_path / "cache").glob("*.tar")} == {f"{shard.sha256}.tar" for shard in shards}
    for name in (*(shard.name for shard in shards), "tokenizer/tokenizer.json"):
        storage.remove(f"{published}/{name}")
    assert batches(published, 20) == expected and tree(Dataset(published).local_tokenizer()) == tokenizer


@pytest.mark.guarantee("damaged-shard")
@pytest.mark.slow
def test_a_damaged_download_is_not_trained_on_and_not_kept(published: str, tmp_path: Path) -> None:
    shard = Dataset(published).shards[0]
    storage.publish_bytes(b"not the shard", f"{published}/{shard.name}")
    with pytest.raises(ShardError, match=rf"{published}: {shard.name}: 13 bytes where the manifest says"):
        batches(published, 20)
    assert not (tmp_path / "cache" / f"{shard.sha256}.tar").exists()


@pytest.mark.guarantee("kept-things-checked")
@pytest.mark.slow
def test_a_copy_that_is_damaged_after_the_download_is_named_and_downloaded_again(
    published: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = Dataset(published)
    expected, tokenizer = batches(published, 20), dataset.local_tokenizer()
    copies = [tmp_path / "cache" / f"{dataset.shards[0].sha256}.tar", tokenizer / "tokenizer.json"]
    for copy in copies:
        whole = copy.read_bytes()
        for damaged in (whole[:-100], whole[:600] + bytes([whole[600] ^ 1]) + whole[601:]):
            copy.write_bytes(damaged)
            assert batches(published, 20) == expected and dataset.local_tokenizer() == tokenizer
            assert copy.read_bytes() == whole
            assert f"{copy}: damaged in the cache: made again\n" in capsys.readouterr().err


HIDDEN = ("._a.txt", ".DS_Store", "Thumbs.db", "b/desktop.ini", "b/._c.txt", "__MACOSX/a.txt", ".git/d.txt")


@pytest.mark.guarantee("object-stores")
def test_paths_behave_alike_on_a_disk_and_on_an_object_store(bucket: str, tmp_path: Path) -> None:
    for folder in (str(tmp_path / "run[1]"), f"{bucket}/run[1]/"):
        path = storage.join(folder, "a.tar")
        assert storage.list_files(folder) == [] and not storage.exists(path)
        storage.remove(path)
        storage.publish_bytes(b"12345", path)
        storage.publish_bytes(b"1", storage.join(folder, "_done", "00000.json"))
        storage.publish_bytes(b"", storage.join(folder, "_done", "empty"))
        assert storage.file_sizes(folder) == {"a.tar": 5} and storage.size(path) == 5
        assert storage.exists(path) and storage.read_bytes(path) == b"12345"
        whole = f"{folder.rstrip('/')}/"
        assert [status.bytes for status in storage.find(whole).values()] == [5]
        storage.publish_bytes(b"123", storage.join(folder, "b.tar"))
        assert [status.bytes for status in storage.find(whole).values()] == [5, 3]
        storage.publish_bytes(b"1234", storage.join(folder, "b.tar"))
        assert [status.bytes for status in storage.find(whole).values()] == [5, 4]
        storage.remove(storage.join(folder, "b.tar"))
        assert list(storage.find(whole)) == [path]
        assert storage.tree(folder) == ["_done/00000.json", "_done/empty", "a.tar"]
        assert storage.read_bytes(storage.join(folder, "_done", "empty")) == b""
        storage.remove(path)
        assert storage.list_files(folder) == []


@pytest.mark.guarantee("object-stores")
def test_folders_and_globs_hold_no_hidden_names_unless_they_are_named(bucket: str, tmp_path: Path) -> None:
    for folder in (str(tmp_path / ".set"), f"{bucket}/.set"):
        for name in ("a.txt", "b/c.txt", *HIDDEN):
            storage.publish_bytes(b"1", storage.join(folder, name))
        both = [storage.join(folder, "a.txt"), storage.join(folder, "b/c.txt")]
        assert list(storage.find(f"{folder}/")) == list(storage.find(f"{folder}/**")) == both
        for name in HIDDEN:
            assert list(storage.find(storage.join(folder, name))) == [storage.join(folder, name)]
        assert list(storage.find(f"{folder}/.g*/*")) == [storage.join(folder, ".git/d.txt")]


class Listed:
    """A store that holds these objects, and finds them by patterns as Beam does."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def match(self, patterns: list[str]) -> list[SimpleNamespace]:
        (pattern,) = patterns
        found = re.compile(FileSystem.translate_pattern(pattern + "*" * pattern.endswith("/")))
        names = [f"gs://owls/{name}" for name in self.names if found.match(f"gs://owls/{name}")]
        entries = [SimpleNamespace(path=name, size_in_bytes=3, last_updated_in_seconds=1) for name in names]
        return [SimpleNamespace(metadata_list=entries)]


@pytest.mark.guarantee("object-stores")
@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("**/c.txt", ["a/b/c.txt", "a/c.txt", "c.txt"]),
        ("a/**/c.txt", ["a/b/c.txt", "a/c.txt"]),
        ("a/**/**/c.txt", ["a/b/c.txt", "a/c.txt"]),
        ("**/b/**/c.txt", ["a/b/c.txt"]),
        ("**/*c.txt", ["a/b/c.txt", "a/bc.txt", "a/c.txt", "c.txt"]),
        ("**/?c.txt", ["a/bc.txt"]),
        ("**/C.*", ["C.txt", "a/b/C.TXT"]),
        ("d/**/*.csv", sorted([*(f"d/{number}.csv" for number in range(3000)), "d/c.C.csv"])),
        ("**c.txt", ["a/b/c.txt", "a/bc.txt", "a/c.txt", "c.txt"]),
        ("a/**", ["a/b/C.TXT", "a/b/c.txt", "a/bc.txt", "a/c.txt", "a/c.txt2"]),
        ("a/", ["a/b/C.TXT", "a/b/c.txt", "a/bc.txt", "a/c.txt", "a/c.txt2"]),
        ("a/*", ["a/bc.txt", "a/c.txt", "a/c.txt2"]),
        ("a/c.txt", ["a/c.txt"]),
        ("c.txt", ["c.txt"]),
    ],
)
def test_any_number_of_folders_is_also_none(pattern: str, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    names_of_all = [
        "a/b/c.txt",
        "a/b/C.TXT",
        "a/bc.txt",
        "a/c.txt",
        "a/c.txt2",
        "C.txt",
        "c.txt",
        "c.txt2",
        "d/c.C.csv",
    ]
    listed = Listed([f"d/{number}.csv" for number in range(3000)] + names_of_all)
    monkeypatch.setattr(storage, "_beam", lambda: listed)
    assert list(storage.find(f"gs://owls/{pattern}")) == [f"gs://owls/{name}" for name in names]


LAID_OUT = (
    "a/bc.txt",
    "a/c.txt",
    "a/d.jsonl",
    "a/deep/e.txt",
    "b.txt",
    "b.txt2",
    "run1/y.txt",
    "run[1]/s2.txt",
    "run[1]/s[2].txt",
)
LEFTOVERS = ("_SUCCESS", "_temporary/0/part.txt", "a/_z.txt")


@pytest.mark.guarantee("object-stores")
def test_a_folder_or_glob_means_the_same_files_in_a_bucket_as_on_a_disk(bucket: str, tmp_path: Path) -> None:
    folders = [str(tmp_path / "set"), f"{bucket}/set"]
    for folder in folders:
        for name in (*LAID_OUT, *LEFTOVERS, "a/.g.txt", ".hidden/f.txt"):
            storage.publish_bytes(name.encode(), storage.join(folder, name))
    storage.publish_bytes(b" ", f"{bucket}/set/empty/")  # as some consoles make for a folder
    expected: dict[str, tuple[list[str], int]] = {
        "": ([*LAID_OUT], 3),
        "**": ([*LAID_OUT], 3),
        "**/*.txt": ([name for name in LAID_OUT if name.endswith(".txt")], 2),
        "**/c.txt": (["a/c.txt"], 0),
        "a/**/**/*.txt": (["a/bc.txt", "a/c.txt", "a/deep/e.txt"], 1),
        "**/deep/**/e.txt": (["a/deep/e.txt"], 0),
        "a/": (["a/bc.txt", "a/c.txt", "a/d.jsonl", "a/deep/e.txt"], 1),
        "*/*.txt": (["a/bc.txt", "a/c.txt", "run1/y.txt", "run[1]/s2.txt", "run[1]/s[2].txt"], 1),
        "[ab]/*.txt": (["a/bc.txt", "a/c.txt"], 1),
        "[a-b].txt": (["b.txt"], 0),
        "run[1]/": (["run[1]/s2.txt", "run[1]/s[2].txt"], 0),
        "run[1]/*.txt": (["run[1]/s2.txt", "run[1]/s[2].txt"], 0),
        "run[1]/s[2].txt": (["run[1]/s[2].txt"], 0),
        "b.txt": (["b.txt"], 0),
        "_temporary/": (["_temporary/0/part.txt"], 0),
        "_SUCCESS": (["_SUCCESS"], 0),
        ".hidden/*": ([".hidden/f.txt"], 0),
    }
    for folder in folders:
        for pattern, (names, num_left_out) in expected.items():
            left_out: set[str] = set()
            files = storage.find(f"{folder}/{pattern}", left_out)
            assert list(files) == list(storage.find(f"{folder}/{pattern}")), "without the set too"
            assert [path.removeprefix(f"{folder}/") for path in files] == names, (folder, pattern)
            assert [status.bytes for status in files.values()] == [len(name) for name in names]
            assert len(left_out) == num_left_out and not left_out & files.keys()
    storage.publish_bytes(b"1", f"{bucket}/left/_b.txt")
    storage.publish_bytes(b"1", f"{bucket}/left/_a.txt")
    for pattern, complaint in (
        ("left/", "only files below names that begin with _, e.g. {}/left/_a.txt, which"),
        ("absent/", "{}/absent/: no files in it"),
        ("*.csv", "{}/*.csv: no such file"),
        ("set/empty/", "{}/set/empty/: no files in it"),
    ):
        with pytest.raises(FileNotFoundError, match=re.escape(complaint.format(bucket))):
            storage.find(f"{bucket}/{pattern}")


@pytest.mark.guarantee("object-stores")
@pytest.mark.parametrize("name", ["a.tar", "b.jsonl.zst", "c.txt.gz", "d.bz2"])
def test_the_bytes_of_an_object_are_those_of_the_file_whatever_its_name(bucket: str, tmp_path: Path, name: str) -> None:
    data = bytes(range(256)) * 5
    (tmp_path / "local").write_bytes(data)
    storage.publish_bytes(data, f"{bucket}/{name}")
    storage.publish_file(tmp_path / "local", f"{bucket}/files/{name}")
    assert (tmp_path / "local").exists(), "it is copied"
    (tmp_path / "empty").touch()
    storage.publish_file(tmp_path / "empty", f"{bucket}/empty/{name}")
    assert storage.read_bytes(f"{bucket}/empty/{name}") == b""
    storage.remove(f"{bucket}/empty/{name}")
    assert storage.read_bytes(f"{bucket}/{name}") == data
    for place in (f"{bucket}/{name}", f"{bucket}/files/{name}"):  # other bytes of the same size, and then the first
        storage.publish_bytes(data[::-1], place)
        assert storage.read_bytes(place) == data[::-1]
    storage.publish_if_changed(data, f"{bucket}/{name}")
    storage.publish_file(tmp_path / "local", f"{bucket}/files/{name}")
    for path in (f"{bucket}/{name}", f"{bucket}/files/{name}"):
        assert storage.read_bytes(path) == data and storage.size(path) == len(data)
        with storage.open_input(path) as stream:
            assert stream.read(3) == data[:3]
            assert storage.read_at(stream, 300, 20) == data[300:320] and stream.tell() == 3
            assert stream.read() == data[3:]
            assert stream.seek(-2, 2) == len(data) - 2 and stream.read() == data[-2:]
    assert storage.tree(bucket) == sorted([name, f"files/{name}"])


@pytest.mark.guarantee("object-stores")
@pytest.mark.parametrize("stopped", [KeyboardInterrupt, MemoryError, OSError])
def test_an_upload_that_is_stopped_leaves_no_object_and_says_why(
    bucket: str, stopped: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{bucket}/a.tar"
    raised = stopped if stopped is KeyboardInterrupt else storage.StoreError
    with pytest.raises(raised) as caught, storage._upload(path) as stream:
        stream.write(b"half")
        raise stopped("by somebody")
    assert "by somebody" in str(caught.value) and not storage.exists(path)
    monkeypatch.setattr(storage, "_delete", lambda path: 1 / 0)
    with pytest.raises(raised, match="by somebody"), storage._upload(path) as stream:
        stream.write(b"half")
        raise stopped("by somebody")


def test_a_bucket_that_is_not_there_is_one_line(
    bucket: str, corpus: Path, roberta_tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = bucket.replace("clearspan-test", "clearspan-absent")
    assert pipelines_main(words(corpus, f"{absent}/out", roberta_tokenizer)) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("pipelines: ") and f"{absent}/out" in shown and shown.count("\n") == 1


@pytest.mark.guarantee("object-stores")
def test_an_upload_that_fails_leaves_no_object(bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def cut_short(source, target, _: int) -> None:
        target.write(source.read(10))
        raise OSError("the disk went away")

    (tmp_path / "a.tar").write_bytes(bytes(100))
    monkeypatch.setattr(shutil, "copyfileobj", cut_short)
    with pytest.raises(OSError, match=f"{bucket}/a.tar: .*the disk went away"):
        storage.publish_file(tmp_path / "a.tar", f"{bucket}/a.tar")
    assert not storage.exists(f"{bucket}/a.tar")


@pytest.mark.guarantee("object-stores")
def test_an_upload_that_fails_once_leaves_the_whole_object_or_none(
    bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    copy, failed = shutil.copyfileobj, []

    def cut_short_once(source, target, size: int) -> None:
        if not failed:
            failed.append(target.write(source.read(10)))
            raise OSError("the network went away")
        copy(source, target, size)

    path, data = f"{bucket}/a.tar", bytes(range(100))
    (tmp_path / "a.tar").write_bytes(data)
    monkeypatch.setattr(shutil, "copyfileobj", cut_short_once)
    with contextlib.suppress(OSError):
        storage.publish_file(tmp_path / "a.tar", path)
    assert failed and (storage.read_bytes(path) == data if storage.exists(path) else storage.tree(bucket) == [])
    storage.publish_file(tmp_path / "a.tar", path)
    assert storage.read_bytes(path) == data


@pytest.mark.exhaustive
def test_beams_options_reach_the_driver_and_its_worker_processes(
    amazon, corpus: Path, finished: Path, roberta_tokenizer: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    amazon()
    upload(corpus, "s3://clearspan-test/corpus")
    for name in (*AWS, "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    store = [f"--s3_endpoint_url={amazon.url}", "--s3_access_key_id=key", "--s3_secret_access_key=secret"]
    store.append("--s3_region_name=us-east-1")
    target = "s3://clearspan-test/out"
    command = words("s3://clearspan-test/corpus", target, roberta_tokenizer, *OPTIONS, "--workers", "2", *store)
    assert pipelines_main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shards"] == len(Dataset(finished).shards)
    assert tree(target) == tree(finished)
    assert shards_main(["verify", target]) == 0


@pytest.fixture(scope="module")
def zoo(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders of three photographs each."""
    folder = tmp_path_factory.mktemp("pictures") / "zoo"
    for name in ("ant", "barrel", "bass"):
        (folder / name).mkdir(parents=True)
        for path in sorted((shared_data / "images" / "caltech60" / name).iterdir())[:3]:
            shutil.copy(path, folder / name)
    return folder


def of_pictures(source: str | Path, target: str | Path) -> list[str]:
    return ["images", "--input", str(source), "--output", str(target), "--unit-bytes", "50000", "--workers", "1"]


@pytest.fixture(scope="module")
def of_zoo(zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of the photographs, made on a disk."""
    folder = tmp_path_factory.mktemp("local-pictures") / "out"
    assert pipelines_main(of_pictures(zoo, folder)) == 0
    return folder


@pytest.mark.exhaustive
def test_class_folders_in_a_bucket_give_every_byte_that_they_give_on_a_disk(
    bucket: str, zoo: Path, of_zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    upload(zoo, f"{bucket}/zoo")
    target = f"{bucket}/data/zoo"
    assert pipelines_main(of_pictures(f"{bucket}/zoo/", target)) == 0
    assert tree(target) == tree(of_zoo) and len(Dataset(target).shards) > 1
    capsys.readouterr()
    assert shards_main(["verify", target]) == 0
    assert shards_main(["ls", target]) == 0
    assert "classes 3, of 3 examples each" in capsys.readouterr().out


@pytest.mark.exhaustive
@pytest.mark.guarantee("changed-input")
def test_an_object_is_compared_by_its_checksum_when_it_was_written_again(
    bucket: str, zoo: Path, of_zoo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    upload(zoo, f"{bucket}/zoo")
    command = of_pictures(f"{bucket}/zoo/", f"{bucket}/data/zoo")
    assert pipelines_main(command) == 0
    picture = sorted((zoo / "barrel").iterdir())[1]
    place = f"{bucket}/zoo/barrel/{picture.name}"
    storage.publish_file(picture, place)
    capsys.readouterr()
    assert pipelines_main(command) == 0 and "was already finished" in capsys.readouterr().out
    data = picture.read_bytes()
    storage.publish_bytes(data[:-9] + bytes(byte ^ 1 for byte in data[-9:]), place)
    assert pipelines_main(command) == 1
    assert f"{place}: has changed since the run was planned" in capsys.readouterr().err
    assert tree(f"{bucket}/data/zoo") == tree(of_zoo)
