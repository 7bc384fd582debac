"""Rows with several hard negatives and positives: the loss, what a step draws, rows that have fewer, caching, ranks."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
import torch.nn.functional as F
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from clearspan.common.ragged import Ragged
from clearspan.shards import Dataset, keyed, verify
from clearspan.shards.schema import KINDS
from clearspan.train.config.options import RecipeError
from clearspan.train.data.batch import Batch, TokenLists
from clearspan.train.data.several import drawn
from clearspan.train.data.stream import ExampleStream, StreamState
from clearspan.train.model.encoded import Encoded, SequenceVectors
from clearspan.train.model.losses import info_nce
from clearspan.train.model.packing import SpecialTokens, TokenSlices
from clearspan.train.objectives import Setting
from clearspan.train.objectives.simcse import Context, SimCSE, SimcseConfig
from tests.train.conftest import publish, text_id
from tests.train.ranks import run_on_ranks
from tests.train.test_gradient_caching import EXAMPLES, cached_step, whole_step
from tests.train.test_learner import learner_and_batch
from tests.train.test_losses import pairs
from tests.train.test_simcse import overrides, write_triplets

POSITIVES, NEGATIVES = 2, 4
BLOCKS = ("tokens", "positive", "negative", "negative_1")


def write_several(folder: Path, sentences: list[list[int]], tokenizer: Path) -> Path:
    """Rows of a sentence, one or two positives, and none to four hard negatives, the next sentences each."""
    optional = ["positive_1", "negative", *(f"negative_{number}" for number in range(1, NEGATIVES))]
    fields = KINDS["triplets"].schema(pa.uint16(), optional)
    width = 1 + POSITIVES + NEGATIVES
    rows = [sentences[start : start + width] for start in range(0, len(sentences) - width, width)]
    for number, row in enumerate(rows):
        row[2:3] = [row[2]] if number % 2 else [[]]
        row[3 + number % 5 :] = [[]] * (NEGATIVES - number % 5)
    batches = []
    for start in range(0, len(rows), 32):
        part = rows[start : start + 32]
        lists = [pa.array([row[column] for row in part], fields.field("tokens").type) for column in range(width)]
        ids = pa.array([text_id([token for text in row for token in text]) for row in part])
        batches.append(pa.RecordBatch.from_arrays([ids, *lists], schema=fields))
    return publish(folder, "triplets", batches, tokenizer, 20_000)


@pytest.fixture(scope="module")
def folder(sentences: list[list[int]], tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_several(tmp_path_factory.mktemp("several") / "rows", sentences, tokenizer_folder)


def test_the_columns_are_declared_verified_and_counted(folder: Path) -> None:
    assert verify(folder) == []
    lengths = Dataset(folder).manifest.lengths
    assert list(lengths)[:4] == ["tokens", "positive", "positive_1", "negative"] and len(lengths) == 7
    total = Dataset(folder).num_examples
    assert lengths["negative"]["0"] == -(-total // 5) and "0" not in lengths["positive"]
    wrong = KINDS["triplets"].schema(pa.uint16(), ["negative", "negative_2"])
    with pytest.raises(ValueError, match="are not the columns of triplets"):
        KINDS["triplets"].check(wrong)


@pytest.mark.guarantee("ranks-as-one")
@pytest.mark.guarantee("several-negatives")
@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_loss_is_that_of_sentence_transformers_on_tuples(count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    blocks = [torch.randn(6, 8, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(2 + count)]
    theirs = MultipleNegativesRankingLoss(None, scale=20.0).compute_loss_from_embeddings(blocks, None)
    ours = info_nce(blocks[0], blocks[1], 0.05, blocks[2:])
    torch.testing.assert_close(ours, theirs)
    of_theirs, of_ours = (torch.autograd.grad(loss, blocks) for loss in (theirs, ours))
    torch.testing.assert_close(of_ours, of_theirs)


@pytest.mark.guarantee("several-negatives")
@pytest.mark.parametrize("mask_equal", [False, True])
@pytest.mark.parametrize("halves", [False, True])
def test_each_batch_has_the_loss_and_the_gradients_of_the_texts_that_it_has(mask_equal: bool, halves: bool) -> None:
    """One batch after the other, of one size, with autocast to halves or without; the first one lacks no text."""
    setting = Setting("own", "text", 7, 4, 100, 8, SpecialTokens([], [], 0, None), dataset=None)  # type: ignore[arg-type]
    config = SimcseConfig(negatives=2, mask_equal=mask_equal)
    objective = SimCSE(config, setting, ("tokens", "positive", "negative", "negative_1"))
    keys = torch.arange(30).reshape(6, 5) if mask_equal else None
    theirs = MultipleNegativesRankingLoss(None, scale=20.0)
    for number, lacking in enumerate([[], [(0, 0), (0, 1)], [(2, 1), (5, 0), (4, 0)], [(1, 0)], []]):
        generator = torch.Generator().manual_seed(number)
        blocks = [torch.randn(6, 8, generator=generator).requires_grad_() for _ in range(4)]
        absent = torch.zeros(6, 2, dtype=torch.int64)
        for place in lacking:
            absent[place] = 1
        places = {f"own/{name}": slice(6 * place, 6 * place + 6) for place, name in enumerate(objective.blocks)}
        vectors = SequenceVectors(torch.cat(blocks), torch.cat(blocks), places)
        with torch.autocast("cpu", torch.bfloat16, enabled=halves):
            ours, _ = objective.loss(Encoded(vectors, "own", measured=False), Context(keys, absent))
        anchors, *others = (F.normalize(block, dim=1) for block in blocks)
        present = [torch.ones(6, dtype=torch.bool), *(absent == 0).T]
        candidates = torch.cat([other[is_there] for other, is_there in zip(others, present, strict=True)])
        expected = F.cross_entropy(anchors @ candidates.T / 0.05, torch.arange(6))
        if not lacking:
            torch.testing.assert_close(expected, theirs.compute_loss_from_embeddings(blocks, None))
        torch.testing.assert_close(ours, expected)
        torch.testing.assert_close(torch.autograd.grad(ours, blocks), torch.autograd.grad(expected, blocks))


@pytest.mark.guarantee("ranks-as-one")
@pytest.mark.guarantee("several-negatives")
def test_with_one_negative_the_loss_is_that_of_earlier_versions_to_the_bit() -> None:
    (anchors, positives), (negatives, _) = pairs(8), pairs(8, seed=1)
    blocks = [F.normalize(each, dim=1) for each in (anchors, positives, negatives)]
    hard = blocks[0] @ blocks[2].T / 0.05 + 0.7 * torch.eye(8)
    before = F.cross_entropy(torch.cat([blocks[0] @ blocks[1].T / 0.05, hard], 1), torch.arange(8))
    none = torch.zeros(8, 16, dtype=torch.bool)
    assert torch.equal(info_nce(anchors, positives, 0.05, [negatives], 0.7, none), before)


def several_on_a_rank(rank: int, ranks: int) -> list[torch.Tensor]:
    (anchors, positives), (first, second) = pairs(8), pairs(8, seed=1)
    part = slice(rank * 8 // ranks, (rank + 1) * 8 // ranks)
    same = torch.zeros(8, 24, dtype=torch.bool)
    same[:, [9, 17, 20]] = True
    loss = info_nce(anchors[part], positives[part], 0.05, [first[part], second[part]], 0.7, same[part])
    loss.backward()
    return [loss.detach(), anchors.grad, positives.grad, first.grad, second.grad]


@pytest.mark.guarantee("ranks-as-one")
@pytest.mark.slow
def test_two_ranks_give_the_loss_and_gradients_of_one_with_several_negatives() -> None:
    one, two = several_on_a_rank(0, 1), run_on_ranks(several_on_a_rank, 2)
    for index, expected in enumerate(one):
        torch.testing.assert_close((two[0][index] + two[1][index]) / 2, expected, atol=1e-6, rtol=1e-5)
    assert not one[3][1].any() and not one[4][4].any() and one[3][0].any()


def columns_of(*rows: list[int]) -> list[Ragged]:
    """Columns in which row r has texts of the numbers rows[r]."""
    width = max(map(len, rows))
    return [Ragged.of([np.array(row[place : place + 1]) for row in rows], np.int64) for place in range(width)]


@pytest.mark.guarantee("several-negatives")
def test_drawn_texts_are_different_ones_of_the_row_by_its_key_alone() -> None:
    rows = [[1, 2, 3, 4], [5, 6], [], [7, 8, 9], *([*range(10, 14)] for _ in range(200))]
    keys = keyed.mix(3, np.arange(len(rows)))
    taken = drawn(columns_of(*rows), keys, 2)
    found = [[text.tolist() for text in row if len(text)] for row in zip(*taken, strict=True)]
    for row, texts in zip(rows, found, strict=True):
        numbers = [text[0] for text in texts]
        assert len(set(numbers)) == len(numbers) == min(2, len(row)) and set(numbers) <= set(row)
    counts = np.bincount([text[0] for row in found[4:] for text in row])[10:]
    assert counts.min() > 70  # of 100 each
    alone = drawn(columns_of(*rows[3:]), keys[3:], 2)
    assert [list(map(list, column)) for column in alone] == [list(map(list, column))[3:] for column in taken]
    whole = columns_of(*rows)
    assert all(one is other for one, other in zip(drawn(whole, keys, 4), whole, strict=True))


@pytest.mark.guarantee("several-negatives")
@pytest.mark.parametrize(
    "blocks", [("tokens",), ("tokens", "positive"), ("tokens", "positive", "negative", "negative_1")]
)
def test_a_request_has_the_texts_of_each_block_their_own_keys_and_the_negatives_that_are_absent(
    blocks: tuple[str, ...],
) -> None:
    texts = {
        "tokens": [[1, 2, 3, 4, 5], [6, 7], [8, 9, 10]],
        "positive": [[11, 12], [13, 14, 15, 16, 17, 18], [19]],
        "negative": [[20, 21], [], [22, 23, 24, 25, 26, 27]],
        "negative_1": [[], [], [28]],
    }
    columns = {name: Ragged.of([np.array(row, np.int64) for row in texts[name]], np.int32) for name in blocks}
    ids, special = torch.tensor([101, 102, 103]), SpecialTokens([], [], 0, None)
    setting = Setting("own", "text", 7, 4, 100, 8, special, dataset=None)  # type: ignore[arg-type]
    objective = SimCSE(SimcseConfig(negatives=2, mask_equal=True), setting, blocks)
    batch = Batch({name: TokenLists.of(column) for name, column in columns.items()}, ids, torch.tensor([5, 5, 6]))
    request = objective.request(batch)

    expected = {"positive": texts["tokens"], **{name: texts[name] for name in blocks}}
    assert set(request.sequences) == {"tokens", *expected}
    for name, sequences in request.sequences.items():
        of = sequences.content
        assert isinstance(of, TokenSlices)
        rows = [of.tokens[start : start + length].tolist() for start, length in zip(of.starts, of.lengths, strict=True)]
        assert rows == [row[:4] for row in expected[name]], "cut to the setting's capacity"
    keys = torch.cat([sequences.keys for sequences in request.sequences.values()])
    assert len(keys.unique()) == len(keys) == 3 * len(request.sequences)
    context = request.context
    assert context.keys is not None and context.keys.shape == (3, 1 + len(blocks))
    assert context.keys[:, 0].tolist() == ids.tolist()
    absent = [[int(not row) for row in texts[name]] for name in blocks[2:]]
    assert context.absent.T.tolist() == absent and context.absent.shape == (3, len(absent))


def mask_of(keys: torch.Tensor | None, absent: torch.Tensor) -> torch.Tensor | None:
    simcse = object.__new__(SimCSE)
    simcse.negatives = tuple(f"negative_{number}" for number in range(absent.shape[1]))
    return simcse._false_negatives(Context(keys, absent))


@pytest.mark.guarantee("several-negatives")
@pytest.mark.parametrize("negatives", [0, 1, 3])
@pytest.mark.parametrize("positives", [0, 1, 2])
def test_what_is_equal_to_a_row_or_absent_is_masked_for_it_and_nothing_else(negatives: int, positives: int) -> None:
    """As the definition: keys are an id, a sentence, positives and hard negatives."""
    draws = np.random.default_rng(10 * negatives + positives)
    keys = torch.tensor(draws.integers(0, 8, (7, 2 + positives + negatives)))
    keys[:, 0] = torch.tensor([0, 1, 2, 0, 4, 5, 6])  # ids, which are no texts
    keys[:, 1:] += 100
    absent = torch.tensor(draws.integers(0, 2, (7, negatives)))
    texts = [set(row[1 : 2 + positives]) for row in keys.tolist()]
    ids = keys[:, 0].tolist()
    blocks = [[[ids[i] == ids[j] or bool(texts[i] & texts[j]) for j in range(7)] for i in range(7)]]
    for place in range(negatives):
        hard = keys[:, 2 + positives + place].tolist()
        blocks.append([[hard[j] in texts[i] or bool(absent[j, place]) for j in range(7)] for i in range(7)])
    mask = mask_of(keys, absent)
    assert mask is not None and mask.tolist() == [[*itertools.chain(*(block[i] for block in blocks))] for i in range(7)]


@pytest.mark.guarantee("several-negatives")
def test_without_keys_only_absent_negatives_are_masked() -> None:
    absent = torch.tensor([[0, 1], [0, 0], [1, 1]])
    row = [False] * 3 + [False, False, True] + [True, False, True]
    mask = mask_of(None, absent)
    assert mask is not None and mask.dtype == torch.bool and mask.tolist() == [row] * 3
    assert mask_of(None, absent[:, :0]) is None
    simcse = object.__new__(SimCSE)
    simcse.negatives = ("negative",)
    assert simcse._false_negatives(None) is None


@pytest.mark.guarantee("several-negatives")
def test_contexts_are_joined_in_their_order_with_keys_or_without() -> None:
    simcse = object.__new__(SimCSE)
    parts = [(torch.full((rows, 3), rows), torch.full((rows, 2), -rows)) for rows in (2, 1, 3)]
    joined = simcse.joined([Context(*part) for part in parts])
    assert joined.keys is not None and joined.keys.tolist() == [[2] * 3] * 2 + [[1] * 3] + [[3] * 3] * 3
    assert joined.absent.tolist() == [[-2] * 2] * 2 + [[-1] * 2] + [[-3] * 2] * 3
    without = simcse.joined([Context(None, absent) for _, absent in parts])
    assert without.keys is None and torch.equal(without.absent, joined.absent)


def of_run(folder: Path, *more: str) -> list[str]:
    return overrides(folder, "model.pooling=mean", *more)


@pytest.mark.guarantee("several-negatives")
@pytest.mark.slow
@pytest.mark.parametrize("mask_equal", ["true", "false"])
@pytest.mark.parametrize("negatives", [0, 1, 3, 4])
def test_a_step_is_the_loss_over_the_texts_that_it_has(folder: Path, negatives: int, mask_equal: str) -> None:
    """Each text embedded by the learner, and a loss over the columns that are there, in plain PyTorch."""
    words = [f"objectives.simcse.negatives={negatives}", f"objectives.simcse.mask_equal={mask_equal}"]
    learner, batches, _ = learner_and_batch(of_run(folder, *words))
    (simcse,) = learner.of_turn("all")
    prepared = learner.prepare(batches, "all")
    forward = learner._encode(prepared)
    blocks = {name.partition("/")[2]: forward.pooled[part] for name, part in forward.blocks.items()}
    assert list(blocks) == ["tokens", "positive", "negative", "negative_1", "negative_2", "negative_3"][: 2 + negatives]
    anchors, *others = (F.normalize(block.float(), dim=1) for block in blocks.values())
    batch = batches["text"].of("simcse")
    present = [batch.lists(name).lengths > 0 for name in list(blocks)[1:]]
    assert negatives < 2 or not torch.stack(present).all()
    columns = torch.cat([other[is_there] for other, is_there in zip(others, present, strict=True)])
    expected = F.cross_entropy(anchors @ columns.T / 0.05, torch.arange(len(anchors)))
    torch.testing.assert_close(learner(batches)[0], expected, atol=1e-5, rtol=1e-5)
    assert simcse.workload().sequences == 2 + negatives
    held = sum(len(batch.lists(name).values) for name in blocks) / len(anchors)
    assert 0.5 * held < simcse.workload().mean_tokens < 2 * held


@pytest.mark.guarantee("several-negatives")
@pytest.mark.slow
def test_all_positives_of_a_row_are_no_negatives(
    sentences: list[list[int]], tokenizer_folder: Path, tmp_path: Path
) -> None:
    """The text of another row that equals the positive which this step did not draw is left out."""
    rows = [list(row) for row in sentences[:40]]
    fields = KINDS["triplets"].schema(pa.uint16(), ["positive_1"])
    lists = [[rows[3 * n + c] for n in range(8)] for c in range(3)]
    lists[1][1] = lists[2][0]  # the second positive of row 0 is the first of row 1
    lists[2][2] = []
    lists[2][5] = []
    arrays = [pa.array(column, fields.field("tokens").type) for column in lists]
    batch = pa.RecordBatch.from_arrays([pa.array(range(8)), *arrays], schema=fields)
    path = publish(tmp_path / "rows", "triplets", [batch], tokenizer_folder, 20_000)
    learner, batches, _ = learner_and_batch(of_run(path, "objectives.simcse.mask_equal=true"))
    (simcse,) = learner.of_turn("all")
    context = simcse.request(batches["text"].of("simcse")).context
    same, ids = simcse._false_negatives(context), batches["text"].ids.tolist()
    found = {(ids[i], ids[j]) for i, j in same.nonzero().tolist() if i != j}
    assert found == {(0, 1), (1, 0)}


@pytest.mark.slow
def test_an_epoch_draws_anew_and_a_stopped_run_draws_the_same(folder: Path) -> None:
    learner, _, _ = learner_and_batch(of_run(folder))
    stream = ExampleStream("text", Dataset(folder), 8, 0, 4)

    def negatives(epoch: int) -> dict[int, list[int]]:
        source = stream.batches(StreamState(epoch, 0), learner.columns("text"), learner.collate)
        found = {}
        for _ in range(stream.steps_per_epoch):
            batch, _ = next(source)
            lists = batch.of("simcse").lists("negative")
            ends = lists.offsets.tolist()
            for row, number in enumerate(batch.ids.tolist()):
                found[number] = lists.values[ends[row] : ends[row + 1]].tolist()
        return found

    first, again, second = negatives(0), negatives(0), negatives(1)
    shared = first.keys() & second.keys()
    assert first == again and sum(first[number] != second[number] for number in shared) > len(shared) // 4


@pytest.mark.guarantee("several-negatives")
@pytest.mark.slow
def test_cached_gradients_are_those_of_one_forward(folder: Path, tiny: list[str]) -> None:
    words = ["objectives.simcse.negatives=2", "objectives.simcse.mask_equal=true", f"data.text.batch_size={EXAMPLES}"]
    given = of_run(folder, *words)
    (loss, gradients), (whole_loss, whole) = cached_step(given), whole_step(given)
    torch.testing.assert_close(loss["simcse/loss"].float(), whole_loss["simcse/loss"], atol=1e-5, rtol=1e-5)
    for name, gradient in whole.items():
        torch.testing.assert_close(gradients[name], gradient, atol=1e-5, rtol=1e-3)


@pytest.mark.guarantee("several-negatives")
@pytest.mark.slow
def test_a_held_out_part_without_negatives_is_scored_by_the_texts_of_the_batch(
    folder: Path, sentences: list[list[int]], tokenizer_folder: Path, tmp_path: Path
) -> None:
    """As that of a mined dataset, which is the one of its source."""
    held = write_triplets(tmp_path / "held", sentences, tokenizer_folder, 2)
    learner, _, _ = learner_and_batch(of_run(folder, "objectives.simcse.negatives=2"))
    stream = ExampleStream("text", Dataset(held), 8, 0, 4)
    batch, _ = next(stream.batches(StreamState(), learner.columns("text"), learner.collate))
    loss, _ = learner({"text": batch})
    alone, _, _ = learner_and_batch(of_run(folder, "objectives.simcse.negatives=0"))
    alone.load_state_dict(learner.state_dict())
    plain, _ = next(stream.batches(StreamState(), alone.columns("text"), alone.collate))
    torch.testing.assert_close(loss, alone({"text": plain})[0], atol=1e-6, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["negatives=0", "hard_negative_weight=0.5"], "has no effect with negatives: 0"),
        (["negatives=2", "positives=dropout"], "negatives 2 .*positives: dropout"),
        (["negatives=-1"], "objectives.simcse.negatives"),
    ],
)
def test_options_without_effect_are_refused(folder: Path, words: list[str], reason: str) -> None:
    with pytest.raises(RecipeError, match=reason):
        learner_and_batch(of_run(folder, *(f"objectives.simcse.{word}" for word in words)))


@pytest.mark.slow
def test_rows_without_and_options_above_what_is_there_are_told(folder: Path) -> None:
    learner, _, _ = learner_and_batch(of_run(folder, "objectives.simcse.negatives=6"))
    (simcse,) = learner.of_turn("all")
    total = Dataset(folder).num_examples
    assert simcse.notes(1.0) == [
        "objectives.simcse: negatives 6, and a row of the shards has 4",
        f"objectives.simcse: {-(-total // 5):,} rows have no hard negative: they are told from the batch's texts alone",
    ]
    assert dataclasses.asdict(simcse.config)["negatives"] == 6
