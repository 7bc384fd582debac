"""The order of examples: a pure function of seed, epoch and position."""

from pathlib import Path

import numpy as np
import pytest
import torch

from clearspan.common.ragged import Ragged
from clearspan.shards import Dataset, ShardError
from clearspan.train.data.batch import Batch, Columns, Rows, TokenLists
from clearspan.train.data.stream import ExampleStream, StreamError, StreamState
from tests.train.conftest import VOCABULARY, write_dataset


def stream(folder: Path, rank: int = 0, ranks: int = 1, **changes) -> ExampleStream:
    settings = {"batch_size": 8, "seed": 3, "shuffle_shards": 2}
    return ExampleStream("text", Dataset(folder), **{**settings, **changes}, rank=rank, ranks=ranks)


def plain(rows: Rows) -> dict[str, Columns]:
    """The shards' columns as they are."""
    return {"one": rows.columns}


def tokens(batch: Batch) -> TokenLists:
    return batch.of("one").lists("tokens")


def take(source: ExampleStream, count: int, state: StreamState | None = None) -> list[tuple[Batch, StreamState]]:
    batches = source.batches(state or StreamState(), ["tokens"], plain)
    return [next(batches) for _ in range(count)]


def ids(batches: list[tuple[Batch, StreamState]]) -> list[int]:
    return [i for batch, _ in batches for i in batch.ids.tolist()]


def test_an_epoch_holds_every_document_once_then_another_order_begins(dataset_folder: Path) -> None:
    source = stream(dataset_folder, batch_size=1)
    n = source.dataset.num_examples
    assert len(source.dataset.shards) >= 5, "the test wants several windows"
    drawn = take(source, 2 * n)
    first, second = ids(drawn[:n]), ids(drawn[n:])
    assert len(set(first)) == n and set(first) == set(second) and first != second
    assert [batch.epochs.item() for batch, _ in drawn] == [0] * n + [1] * n


@pytest.mark.guarantee("ranks-as-one")
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ranks_share_out_the_same_batches(dataset_folder: Path, ranks: int) -> None:
    whole = take(stream(dataset_folder), 12)
    parts = [take(stream(dataset_folder, rank, ranks), 12) for rank in range(ranks)]
    for step, (batch, state) in enumerate(whole):
        shared = [part[step] for part in parts]
        assert torch.equal(batch.ids, torch.cat([b.ids for b, _ in shared]))
        assert torch.equal(tokens(batch).values, torch.cat([tokens(b).values for b, _ in shared]))
        assert {s for _, s in shared} == {state}


@pytest.mark.guarantee("ranks-as-one")
@pytest.mark.parametrize("ranks", [1, 2])
def test_micro_batches_share_out_the_examples_of_a_step_before_ranks_do(dataset_folder: Path, ranks: int) -> None:
    whole = take(stream(dataset_folder), 5)
    parts = [take(stream(dataset_folder, rank, ranks, micro_batches=4), 20) for rank in range(ranks)]
    for step, (batch, state) in enumerate(whole):
        found = list(zip(*(part[4 * step : 4 * step + 4] for part in parts), strict=True))
        shared = [own for micro_batch in found for own, _ in micro_batch]
        assert torch.equal(batch.ids, torch.cat([own.ids for own in shared]))
        assert torch.equal(tokens(batch).values, torch.cat([tokens(own).values for own in shared]))
        assert {after for micro_batch in found for _, after in micro_batch} == {state}


def test_what_goes_to_the_device_is_what_is_made_of_the_columns_that_were_asked_for(sentences_folder: Path) -> None:
    source = stream(sentences_folder)
    asked = []

    def backwards(rows: Rows) -> dict[str, Columns]:
        asked.append((rows.dataset, list(rows.columns), rows.ids.tolist(), rows.epoch))
        view = rows.ragged("view_1")
        made = {"backwards": Ragged.of([row[::-1] for row in view], np.uint16), "numbers": np.arange(len(view))}
        return {"one": made, "two": {"same": made["numbers"]}}

    batch, _ = next(source.batches(StreamState(4, 0), ["view_1"], backwards))
    assert list(batch.columns) == ["one/backwards", "one/numbers", "two/same"]
    assert asked == [("text", ["view_1"], batch.ids.tolist(), 4)]
    assert batch.of("one").lists("backwards").values.dtype == torch.int32
    assert batch.of("two").values("same") is batch.of("one").values("numbers")


@pytest.mark.guarantee("bit-equal-resume")
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("shuffle_shards", [2, 50], ids=["several windows", "one window"])
def test_any_state_continues_as_if_never_stopped(dataset_folder: Path, skip: bool, shuffle_shards: int) -> None:
    settings = {"min_tokens": 400, "skip_short": True} if skip else {}
    settings["shuffle_shards"] = shuffle_shards
    whole = take(stream(dataset_folder, **settings), 30)
    assert whole[-1][1].epoch > 0
    for stop in (1, 7, 16, 29):
        rest = take(stream(dataset_folder, **settings), 30 - stop, whole[stop - 1][1])
        assert ids(rest) == ids(whole[stop:])
        assert [state for _, state in rest] == [state for _, state in whole[stop:]]


@pytest.mark.guarantee("bit-equal-resume")
def test_a_resume_reads_no_window_before_its_own(dataset_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = stream(dataset_folder, batch_size=1, shuffle_shards=1)
    n = source.dataset.num_examples
    read: list[str] = []
    original = Dataset.batches
    monkeypatch.setattr(Dataset, "batches", lambda self, shard: (read.append(shard.name), original(self, shard))[1])
    take(source, 1, StreamState(0, n - 1))
    assert len(read) == 1


def test_short_documents_are_an_error_or_left_out_and_counted(dataset_folder: Path, documents: list[list[int]]) -> None:
    """As an error before the first step: a run would come to it after hours."""
    with pytest.raises(StreamError, match=r"document \d+ has \d+ tokens, the spans need 400: .*short_documents"):
        stream(dataset_folder, min_tokens=400)
    long = sum(len(ids) >= 400 for ids in documents)
    source = stream(dataset_folder, min_tokens=400, skip_short=True, batch_size=2)
    assert source.num_short == len(documents) - long and source.steps_per_epoch == long // 2
    drawn = take(source, source.steps_per_epoch)
    assert all(tokens(batch).lengths.min() >= 400 for batch, _ in drawn)
    assert len(set(ids(drawn))) == long // 2 * 2


def test_shards_are_read_for_short_documents_only_where_the_manifest_does_not_tell(
    dataset_folder: Path, documents: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    batches = Dataset.batches
    monkeypatch.setattr(Dataset, "batches", lambda self, shard: read.append(shard.name) or batches(self, shard))
    shortest = min(map(len, documents))
    for skips in (False, True):
        assert stream(dataset_folder, min_tokens=90, skip_short=skips).num_short == 0 and not read
    assert stream(dataset_folder, min_tokens=shortest).num_short == 0
    assert 0 < len(read) < len(Dataset(dataset_folder).shards)


def test_what_cannot_be_batched_is_refused_with_the_key(
    dataset_folder: Path, documents: list[list[int]], tokenizer_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(StreamError, match=r"data\.text\.batch_size 8 .*3 ranks"):
        stream(dataset_folder, ranks=3)
    with pytest.raises(StreamError, match="2 ranks x training"):
        stream(dataset_folder, ranks=2, micro_batches=8)
    with pytest.raises(StreamError, match="fewer than"):
        stream(write_dataset(tmp_path / "few", documents[:4], tokenizer_folder))


def test_a_token_that_the_tokenizer_lacks_is_an_error_that_names_the_shard(
    documents: list[list[int]], tokenizer_folder: Path, tmp_path: Path
) -> None:
    for length in (VOCABULARY, VOCABULARY + 1):
        odd = [[*documents[0][:-1], length - 1], *documents[1:12]]
        folder = write_dataset(tmp_path / str(length), odd, tokenizer_folder)
        if length == VOCABULARY:
            take(stream(folder), 1)
            continue
        with pytest.raises(ShardError, match=f"documents-00000-000.tar: token id {length - 1:,} is outside"):
            take(stream(folder), 1)


def test_prefetching_gives_the_same_batches_and_passes_errors_on(dataset_folder: Path) -> None:
    source = stream(dataset_folder)
    ahead = source.prefetched(StreamState(), ["tokens"], plain)
    assert ids([next(ahead) for _ in range(5)]) == ids(take(source, 5))
    source.min_tokens = 100_000
    failing = source.prefetched(StreamState(), ["tokens"], plain)
    with pytest.raises(StreamError):
        next(failing)


def test_a_share_is_nested_and_about_as_large_as_asked_for(dataset_folder: Path) -> None:
    """What a smaller one has, a larger one has too, whatever the seed."""
    everyone = Dataset(dataset_folder).num_examples
    chosen = {}
    for share in (0.2, 0.4, 0.7, 1.0):
        source = stream(dataset_folder, batch_size=4, share=share, seed=int(10 * share))
        drawn = take(source, source.steps_per_epoch)
        assert {state.epoch for _, state in drawn} == {0}
        chosen[share] = {*ids(drawn), *ids(take(source, 3 * source.steps_per_epoch))}
        assert source.num_examples == len(chosen[share])
        assert abs(source.num_examples / everyone - share) < 3 * (share * (1 - share) / everyone) ** 0.5 + 1e-9
    assert chosen[0.2] < chosen[0.4] < chosen[0.7] < chosen[1.0]


@pytest.mark.guarantee("ranks-as-one")
def test_epochs_are_of_the_share_and_a_resume_goes_on_in_it(dataset_folder: Path) -> None:
    source = stream(dataset_folder, batch_size=4, share=0.4)
    count = 2 * source.steps_per_epoch + 2
    whole = take(source, count)
    assert whole[source.steps_per_epoch][1].epoch == 1 and whole[-1][1].epoch == 2
    for stopped in (1, source.steps_per_epoch, count - 1):
        again = take(stream(dataset_folder, batch_size=4, share=0.4), count - stopped, whole[stopped - 1][1])
        assert ids(again) == ids(whole[stopped:])
    parts = [take(stream(dataset_folder, rank, 2, batch_size=4, share=0.4), count) for rank in range(2)]
    for (batch, _), *halves in zip(whole, *parts, strict=True):
        assert batch.ids.tolist() == [i for half, _ in halves for i in half.ids.tolist()]


def test_a_share_too_small_for_a_step_is_refused(dataset_folder: Path) -> None:
    with pytest.raises(StreamError, match=r"share of 0\.001 are fewer than"):
        stream(dataset_folder, share=0.001)


@pytest.mark.guarantee("ranks-as-one")
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_step_that_is_contrasted_whole_is_cut_for_the_ranks_first(dataset_folder: Path, ranks: int) -> None:
    whole = take(stream(dataset_folder, batch_size=16), 3)
    options = {"batch_size": 16, "micro_batches": 4, "whole": True}
    parts = [take(stream(dataset_folder, rank, ranks, **options), 12) for rank in range(ranks)]
    for step, (batch, _) in enumerate(whole):
        shared = [own for part in parts for own, _ in part[4 * step : 4 * step + 4]]
        assert torch.equal(batch.ids, torch.cat([own.ids for own in shared]))
        assert torch.equal(tokens(batch).values, torch.cat([tokens(own).values for own in shared]))


@pytest.mark.guarantee("ranks-as-one")
@pytest.mark.parametrize(
    ("changes", "together"), [({}, 8), ({"micro_batches": 2}, 4), ({"micro_batches": 2, "whole": True}, 8)]
)
def test_a_peer_is_any_other_example_of_what_is_contrasted_on_any_number_of_ranks(
    sentences_folder: Path, changes: dict[str, int], together: int
) -> None:
    def peers(rank: int, ranks: int) -> tuple[dict[int, list[int]], dict[int, list[list[int]]]]:
        drawn: dict[int, list[int]] = {}
        texts: dict[int, list[list[int]]] = {}

        def draw(rows: Rows) -> dict[str, Columns]:
            assert rows.peer is not None and rows.dataset == "text" and rows.epoch == 0
            assert list(rows.columns) == ["tokens", "view_1"]
            for row, number in enumerate(rows.ids.tolist()):
                found = [rows.peer(row, (place + 0.5) / (together - 1)) for place in range(together - 1)]
                found += [rows.peer(row, 0.0), rows.peer(row, 1 - 2**-53)]
                drawn[number] = [each["id"] for each in found]
                texts.update((each["id"], [each[name].tolist() for name in ("tokens", "view_1")]) for each in found)
            return plain(rows)

        source = stream(sentences_folder, rank, ranks, **changes)
        next(source.batches(StreamState(), ["tokens", "view_1"], draw))
        return drawn, texts

    alone, texts = peers(0, 1)
    halves = [peers(rank, 2) for rank in range(2)]
    assert {**halves[0][0], **halves[1][0]} == alone
    assert {**halves[0][1], **halves[1][1]} == texts
    numbers = list(alone)
    for first in range(0, 8, together):
        group = numbers[first : first + together]
        for place, number in enumerate(group):
            assert alone[number] == [*group[place + 1 :], *group[:place], alone[number][0], alone[number][-3]]
    for batch in Dataset(sentences_folder):
        for row in batch.to_pylist():
            assert texts.get(row["id"], [row["tokens"], row["view_1"]]) == [row["tokens"], row["view_1"]]


@pytest.mark.guarantee("bit-equal-resume")
@pytest.mark.parametrize("shuffle_shards", [1, 2, 3])
def test_from_any_position_an_epoch_goes_on_with_the_rest_of_its_order(
    dataset_folder: Path, shuffle_shards: int
) -> None:
    source = stream(dataset_folder, shuffle_shards=shuffle_shards)

    def order(position: int, epoch: int = 2) -> list[int]:
        windows = source._windows(epoch, position, ["tokens"])
        return [number for rows, window in windows for number in window.ids[rows].tolist()]

    whole = order(0)
    examples = [number for batch in source.dataset for number in batch.column("id").to_pylist()]
    assert sorted(whole) == sorted(examples) and whole != examples != order(0, 3) != whole
    sizes = [len(rows) for rows, _ in source._windows(2, 0, ["tokens"])]
    assert len(sizes) == -(-len(source.dataset.shards) // shuffle_shards) > 1
    ends = np.cumsum(sizes).tolist()
    for position in (1, sizes[0] - 1, sizes[0], sizes[0] + 1, ends[-2] - 1, ends[-2], ends[-1] - 1, ends[-1]):
        assert order(position) == whole[position:]


@pytest.mark.guarantee("bit-equal-resume")
@pytest.mark.parametrize("settings", [{}, {"min_tokens": 400, "skip_short": True}, {"share": 0.5}])
@pytest.mark.exhaustive
def test_any_state_continues_as_if_never_stopped_at_every_step(dataset_folder: Path, settings: dict) -> None:
    settings = {**settings, "batch_size": 4}
    whole = take(stream(dataset_folder, **settings), 30)
    for stop in range(1, 30):
        rest = take(stream(dataset_folder, **settings), 30 - stop, whole[stop - 1][1])
        assert ids(rest) == ids(whole[stop:])
