"""Families of encoders from a folder to an export: packed (MPNet, T5, Qwen 3) and padded (DeBERTa v2, Gemma 2).

Each is trained on pairs, and loaded by other libraries; its loss is sentence-transformers' on the same batch.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import FNetConfig, MPNetConfig

from clearspan.common.encoder import padded
from clearspan.common.encoder.attention import PACKED_ATTENTION
from clearspan.common.encoder.library import load_with_library
from clearspan.common.encoder.packing import pack_ids
from clearspan.common.model_folder import EncoderError
from clearspan.train import runtimes
from clearspan.train.config.options import ALL
from clearspan.train.model.encoder import TrainableEncoder
from tests.train.families import CONFIGS, PADDED, SIZE, TEXTS, overrides, random_model
from tests.train.ranks import train_alone
from tests.train.test_encoder import padded_hidden, sequences
from tests.train.test_learner import learner_and_batch


@pytest.mark.slow
@pytest.mark.guarantee("encoders-of-any-class")
@pytest.mark.parametrize("name", CONFIGS)
def test_the_loss_and_the_gradients_are_those_of_sentence_transformers(
    name: str, family_folder: Path, family_pairs: Path
) -> None:
    keys = overrides(family_folder, family_pairs, "objectives.pairs.mask_equal=false")
    learner, batches, recipe = learner_and_batch(keys, recipe="pairs")
    assert bool(learner.encoder.padded_because) == (name in PADDED)
    loss, _ = learner.eval()(batches)
    loss.backward()
    theirs = SentenceTransformer(str(family_folder), device="cpu").eval()
    prepared = learner.prepare(batches, ALL)
    rows = prepared.packed.ids.split(prepared.packed.cu_seqlens.diff().tolist())
    features = []
    for part in prepared.blocks.values():
        ids = torch.nn.utils.rnn.pad_sequence(rows[part], batch_first=True, padding_value=1)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows[part]], batch_first=True)
        features.append({"input_ids": ids, "attention_mask": mask})
    scale = 1 / recipe.objectives["pairs"].temperature  # type: ignore[attr-defined]
    expected = MultipleNegativesRankingLoss(theirs, scale=scale)(features, None)
    expected.backward()
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=1e-5)
    ours, reached = dict(learner.encoder.base.named_parameters()), 0
    for key, weight in theirs[0].model.named_parameters():
        if weight.grad is not None:
            torch.testing.assert_close(ours[key].grad, weight.grad, atol=2e-5, rtol=1e-3, msg=lambda m, k=key: k + m)
            reached += 1
    assert reached >= 15


@pytest.mark.exhaustive
@pytest.mark.guarantee("encoders-of-any-class")
@pytest.mark.parametrize("name", CONFIGS)
def test_a_family_is_trained_and_its_export_loads_elsewhere(name: str, family_folder: Path, family_pairs: Path) -> None:
    run = family_folder.parent / "run"
    done = train_alone(*overrides(family_folder, family_pairs, f"output={run}"), recipe="pairs")
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "padded" in line]
    assert len(lines) == (name in PADDED)
    if name in PADDED:
        assert PADDED[name] in lines[0] and "% of the tokens of its first batch are padding" in lines[0]
    assert np.isfinite([json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]).all()
    theirs = SentenceTransformer(str(run / "model"), device="cpu", local_files_only=True)
    expected = theirs.encode(TEXTS)
    np.testing.assert_allclose(load_with_library(run / "model").encode(TEXTS), expected, atol=1e-5)
    assert not np.allclose(expected, SentenceTransformer(str(family_folder), device="cpu").encode(TEXTS), atol=1e-3)
    config = transformers.AutoConfig.from_pretrained(run / "model")
    chosen = transformers.T5EncoderModel if name == "t5" else transformers.AutoModel
    plain = chosen.from_pretrained(run / "model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(run / "model")
    alone = [plain(**tokenizer(text, truncation=True, return_tensors="pt")).last_hidden_state[0] for text in TEXTS]
    np.testing.assert_allclose(torch.stack([each.mean(0) for each in alone]).detach(), expected, atol=1e-5)
    assert config._attn_implementation_internal != PACKED_ATTENTION


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CONFIGS)
def test_a_family_is_written_for_other_runtimes_with_the_same_vectors(name: str, family_folder: Path) -> None:
    for package in ("onnx", "onnxscript", "onnxruntime", "openvino"):
        pytest.importorskip(package)
    expected = SentenceTransformer(str(family_folder), device="cpu").encode(TEXTS)
    modules = list(load_with_library(family_folder).modules)
    runtimes.write_onnx(modules[0], family_folder / "model.onnx")
    runtimes.write_openvino(family_folder / "model.onnx", family_folder / "model.xml")
    for file in ("model.onnx", "model.xml"):
        vectors = runtimes.embed(modules, runtimes.runner(family_folder / file), TEXTS)
        np.testing.assert_allclose(vectors, expected, atol=1e-5)


@pytest.mark.guarantee("packed-equals-padded")
@pytest.mark.parametrize("name", PADDED)
def test_states_and_gradients_of_padded_groups_are_those_of_one_padded_batch(name: str) -> None:
    encoder, model = TrainableEncoder(random_model(CONFIGS[name])).eval(), random_model(CONFIGS[name]).eval()
    model.set_attn_implementation("eager")
    assert PADDED[name] in encoder.padded_because and "\n" not in encoder.padded_because
    ids = sequences()
    ours, theirs = encoder(pack_ids(ids)), padded_hidden(model, ids)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(2)) / len(ours)
    (ours * weights).sum().backward()
    (theirs * weights).sum().backward()
    for (key, mine), (_, other) in zip(encoder.model.named_parameters(), model.named_parameters(), strict=True):
        assert (mine.grad is None) == (other.grad is None), key
        if mine.grad is not None:
            torch.testing.assert_close(mine.grad, other.grad, atol=2e-5, rtol=1e-3, msg=lambda m, k=key: f"{k}: {m}")


@pytest.mark.guarantee("packed-equals-padded")
def test_activation_checkpointing_changes_no_gradient_of_t5() -> None:
    """Its first layer, which computes the bias of all, is computed again for the batch of its own forward pass."""
    gradients = []
    for checkpoints in (False, True):
        encoder = TrainableEncoder(random_model(CONFIGS["t5"])).train()
        if checkpoints:
            encoder.checkpoint_activations()
        states = encoder(pack_ids(sequences()))
        with torch.no_grad():
            encoder(pack_ids([[5, 6, 7]]))
        states.square().sum().backward()
        gradients.append([p.grad for p in encoder.base.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0])


def test_mpnet_drops_attention_weights_in_training_alone() -> None:
    config = MPNetConfig(**SIZE, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5, max_position_embeddings=514)
    encoder, batch = TrainableEncoder(random_model(config)), pack_ids(sequences())
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(encoder.train()(batch))
    assert torch.equal(drawn[0], drawn[1]) and not torch.allclose(drawn[0], drawn[2], atol=1e-3)
    assert torch.equal(encoder.eval()(batch), encoder(batch))


def test_padded_groups_hold_every_sequence_once_and_little_padding() -> None:
    lengths = [97, 3, 0, 64, 31, 32, 1, 200, 4, 30]
    groups = padded.groups(lengths)
    assert sorted(row for group in groups for row in group) == [row for row in range(10) if lengths[row]]
    assert padded.rows_with_padding(lengths) == sum(lengths) + 3 + 1  # 30, 31 as 32; 3 has a group of its own
    assert sum(lengths) <= padded.rows_with_padding([7] * 5 + lengths) - 35


@pytest.mark.guarantee("encoders-of-any-class")
def test_a_model_that_mixes_padding_into_its_states_is_refused_in_one_line() -> None:
    """FNet's Fourier transform is of all tokens, padding too."""
    config = FNetConfig(vocab_size=500, hidden_size=32, num_hidden_layers=2, intermediate_size=64)
    with pytest.raises(
        EncoderError, match=r"'fnet' cannot run packed: .*, nor padded: the states of a padded"
    ) as raised:
        TrainableEncoder(random_model(config))
    assert "\n" not in str(raised.value)


def test_patches_are_refused_by_a_model_that_is_padded() -> None:
    with pytest.raises(EncoderError, match=r"cannot run packed.*patches train without padding only"):
        TrainableEncoder(random_model(CONFIGS["deberta-v2"])).check_patches(5)


def test_the_last_layers_of_mpnet_leave_the_biases_of_all_layers_alone() -> None:
    encoder = TrainableEncoder(random_model(CONFIGS["mpnet"]))
    encoder.freeze("last-1")
    trained = {name.split(".")[2] for name, p in encoder.base.named_parameters() if p.requires_grad}
    assert trained == {"1"} and encoder.has_position_bias
