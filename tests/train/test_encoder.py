"""The packed encoder against transformers' own padded forward, and its folders against sentence-transformers."""

import copy
import dataclasses
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    ModernBertConfig,
    MPNetConfig,
    PretrainedConfig,
    RobertaConfig,
)

from clearspan.common.encoder import packed_pooling
from clearspan.common.encoder.attention import PACKED_ATTENTION, ScoreOptions, packed_attention, padded_attention
from clearspan.common.encoder.packing import Packed, pack_ids
from clearspan.common.encoder.pooling_names import TRAINED
from clearspan.common.model_folder import EncoderError
from clearspan.train.export import save_model
from clearspan.train.model.encoder import TrainableEncoder
from clearspan.train.model.packing import Patches, Sequences, SpecialTokens, TokenSlices, pack
from clearspan.train.model.tokenizer import load_tokenizer
from clearspan.train.start.build_encoder import add_embeddings

SIZE = {
    "vocab_size": 500,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
CONFIGS = {
    "roberta": RobertaConfig(**SIZE, max_position_embeddings=514, type_vocab_size=1),
    "bert": BertConfig(**SIZE),
    "distilbert": DistilBertConfig(vocab_size=500, dim=64, n_layers=3, n_heads=4, hidden_dim=128),
    "electra": ElectraConfig(**SIZE, embedding_size=32),
    "mpnet": MPNetConfig(**SIZE, pad_token_id=1, max_position_embeddings=514),
    "modernbert": ModernBertConfig(
        **SIZE, pad_token_id=1, bos_token_id=0, eos_token_id=2, cls_token_id=0, sep_token_id=2, local_attention=32
    ),
}
LENGTHS = [97, 3, 64, 31, 32, 1, 200]


def models(config: PretrainedConfig) -> tuple[TrainableEncoder, torch.nn.Module]:
    """The same weights packed, and as transformers runs them."""
    torch.manual_seed(0)
    packed = AutoModelForMaskedLM.from_config(copy.deepcopy(config), attn_implementation=PACKED_ATTENTION)
    padded = AutoModelForMaskedLM.from_config(copy.deepcopy(config), attn_implementation="eager")
    padded.load_state_dict(packed.state_dict())
    return TrainableEncoder(packed).eval(), padded.eval()


def sequences() -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(5, 500, (length,), generator=generator).tolist() for length in LENGTHS]


def padded_hidden(model: torch.nn.Module, ids: list[list[int]]) -> torch.Tensor:
    """Hidden states of the real tokens, flat, from one padded batch."""
    width = max(map(len, ids))
    batch = torch.tensor([row + [1] * (width - len(row)) for row in ids])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in ids])
    states = model.base_model(input_ids=batch, attention_mask=mask).last_hidden_state
    return states[mask.bool()]


@pytest.mark.guarantee("packed-equals-padded")
@pytest.mark.parametrize("name", CONFIGS)
def test_packed_equals_padded_forward_and_gradients(name: str) -> None:
    encoder, model = models(CONFIGS[name])
    ids = sequences()
    packed, padded = encoder(pack_ids(ids)), padded_hidden(model, ids)
    torch.testing.assert_close(packed, padded, atol=1e-5, rtol=1e-5)
    weights = torch.randn(packed.shape, generator=torch.Generator().manual_seed(2)) / len(packed)
    (packed * weights).sum().backward()
    (padded * weights).sum().backward()
    reached = 0
    for (key, ours), (_, theirs) in zip(encoder.model.named_parameters(), model.named_parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None), key
        if ours.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-4, msg=lambda m, k=key: f"{k}: {m}")
            reached += bool(ours.grad.abs().sum() > 0)
    assert reached >= 15


@pytest.mark.guarantee("packed-equals-padded")
@pytest.mark.parametrize("name", ["roberta", "bert", "distilbert", "mpnet", "modernbert"])
def test_patches_beside_text_equal_a_padded_forward_over_embeddings(name: str) -> None:
    """Three pictures of five patches each, then the texts: states, and gradients of what was written."""
    encoder, model = models(CONFIGS[name])
    encoder.check_patches(5)
    pictures = torch.randn(3, 5, 64, generator=torch.Generator().manual_seed(2)).requires_grad_()
    again = pictures.detach().clone().requires_grad_()
    ids = [[1] * 5] * 3 + sequences()
    patches = Sequences(Patches("pictures", pictures, 5), torch.zeros(3, dtype=torch.long))
    texts = [torch.tensor(row) for row in sequences()]
    lengths = torch.tensor(LENGTHS)
    slices = TokenSlices(torch.cat(texts), lengths.cumsum(0) - lengths, lengths)
    packed = pack([Sequences(slices, torch.zeros_like(lengths)), patches], SpecialTokens([], [], 1, None))
    ours = encoder(packed, pictures.flatten(0, 1))

    def write(module: torch.nn.Module, inputs: object, output: torch.Tensor) -> torch.Tensor:
        first = torch.cat([again, output[:3, 5:]], dim=1)
        return torch.cat([first, output[3:]])

    with model.base_model.embeddings.register_forward_hook(write):
        theirs = padded_hidden(model, ids)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    for states in (ours, theirs):
        (states * torch.linspace(-1, 1, 64)).sum().backward()
    torch.testing.assert_close(pictures.grad, again.grad, atol=1e-5, rtol=1e-4)
    assert torch.equal(ours, encoder(packed, pictures.flatten(0, 1))), "the hook of one forward stays for no other"
    assert not torch.equal(ours, encoder(packed))


def test_a_model_whose_embeddings_are_narrower_takes_no_patches() -> None:
    with pytest.raises(EncoderError, match="not as wide as its layers"):
        models(CONFIGS["electra"])[0].check_patches(5)


@pytest.mark.guarantee("packed-equals-padded")
@pytest.mark.parametrize("window", [None, 32])
def test_padded_attention_equals_attention_by_sequence(window: int | None) -> None:
    """What fp32 on CUDA runs, empty sequences of a budget included."""
    known = pack_ids(sequences())
    packed = dataclasses.replace(known, lengths=None, cu_seqlens=torch.cat([known.cu_seqlens, known.cu_seqlens[-1:]]))
    q, k, v = torch.randn(3, 1, 2, len(packed.ids), 8, generator=torch.Generator().manual_seed(0))
    expected, _ = packed_attention(torch.nn.Identity(), q, k, v, None, sliding_window=window, packed=known)
    found = padded_attention(q, k, v, packed, 0.0, ScoreOptions(None, window))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_mlm_head_equals_the_models_own_logits(name: str) -> None:
    encoder, model = models(CONFIGS[name])
    (ids, *_) = sequences()
    hidden = encoder(pack_ids([ids]))
    in_two = encoder.mlm_decoder(encoder.mlm_states(hidden))
    ours = encoder.mlm_logits(hidden)
    torch.testing.assert_close(ours, model(input_ids=torch.tensor([ids])).logits[0], atol=1e-5, rtol=1e-5)
    assert torch.equal(in_two, ours)


@pytest.mark.parametrize("name", CONFIGS)
def test_added_embeddings_leave_the_model_as_it_was_and_reach_its_head_and_its_export(
    name: str, tokenizer_folder: Path, tmp_path: Path
) -> None:
    """One row more, as for [DEL]: the head stays tied to the embeddings, and transformers loads the exported folder,
    with the head as the variant `mlm`."""
    encoder, model = models(CONFIGS[name])
    add_embeddings(encoder.model, 501, seed=3)
    (ids, *_) = sequences()
    logits = encoder.mlm_logits(encoder(pack_ids([ids])))
    torch.testing.assert_close(logits[:, :500], model(input_ids=torch.tensor([ids])).logits[0], atol=1e-5, rtol=1e-5)
    assert logits.shape[1] == 501
    head, embeddings = encoder.model.get_output_embeddings(), encoder.model.get_input_embeddings()
    assert head.weight is embeddings.weight and head.bias.shape == (501,) and head.bias[500] == 0
    assert [tuple(p.shape) for p in encoder.model.parameters() if 501 in p.shape].count((501,)) == 1
    assert 0 < embeddings.weight[500].std() < 0.05
    save_model(encoder, load_tokenizer(tokenizer_folder), tmp_path / "model", "")
    loaded, info = AutoModel.from_pretrained(tmp_path / "model", output_loading_info=True)
    with_new = torch.tensor([[*ids[:20], 500]])
    hidden = loaded.eval()(input_ids=with_new).last_hidden_state[0]
    torch.testing.assert_close(hidden, encoder(pack_ids(with_new.tolist())), atol=1e-5, rtol=1e-5)
    loaded, masked = AutoModelForMaskedLM.from_pretrained(tmp_path / "model", variant="mlm", output_loading_info=True)
    logits = encoder.mlm_logits(encoder(pack_ids(with_new.tolist())))
    torch.testing.assert_close(loaded.eval()(input_ids=with_new).logits[0], logits, atol=1e-5, rtol=1e-5)
    assert not info["unexpected_keys"] and not any(masked.values())


@pytest.mark.guarantee("encoders-of-any-class")
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_pooling_equals_pooling_each_sequence(pooling: str) -> None:
    encoder, _ = models(CONFIGS["roberta"])
    encoder.pooling = pooling
    packed = pack_ids(sequences())
    hidden = encoder(packed)
    parts = hidden.split(LENGTHS)
    expected = torch.stack([part.mean(0) if pooling == "mean" else part[0] for part in parts])
    torch.testing.assert_close(encoder.pool(hidden, packed), expected)


def test_another_pooling_is_a_function_and_a_line_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the mean of the first and the last state; tests/common/test_former.py holds the table to recipes."""

    def ends(hidden: torch.Tensor, packed: Packed, skipped: int, weights: torch.Tensor | None) -> torch.Tensor:
        return (packed_pooling.first(hidden, packed, skipped) + packed_pooling.last(hidden, packed, skipped)) / 2

    config = CONFIGS["roberta"]
    with pytest.raises(EncoderError, match="pooling 'ends' is not one of mean, cls, lasttoken, weighted"):
        TrainableEncoder(AutoModel.from_config(config, attn_implementation=PACKED_ATTENTION), "ends")
    monkeypatch.setitem(packed_pooling.FUNCTIONS, "ends", ends)
    monkeypatch.setattr("clearspan.train.model.encoder.TRAINED", (*TRAINED, "ends"))
    encoder = TrainableEncoder(AutoModel.from_config(config, attn_implementation=PACKED_ATTENTION), "ends").eval()
    packed = pack_ids(sequences())
    hidden = encoder(packed)
    expected = torch.stack([(part[0] + part[-1]) / 2 for part in hidden.split(LENGTHS)])
    torch.testing.assert_close(encoder.pool(hidden, packed), expected)


def test_positions_start_where_the_model_expects_them() -> None:
    assert {name: models(config)[0].first_position for name, config in CONFIGS.items()} == {
        "roberta": 2,
        "bert": 0,
        "distilbert": 0,
        "electra": 0,
        "mpnet": 2,
        "modernbert": 0,
    }
    assert models(CONFIGS["roberta"])[0].max_tokens == 512
