"""Load tokenizers from folders without running code from there, and read their special tokens."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from clearspan.common.model_folder import EncoderError, check_tokenizer_files, refusing
from clearspan.common.token_ids import vocab_size
from clearspan.train.model.packing import SpecialTokens

USUAL = {
    "pad_token": ("<pad>", "[PAD]"),
    "mask_token": ("<mask>", "[MASK]"),
    "cls_token": ("<s>", "[CLS]"),
    "sep_token": ("</s>", "[SEP]"),
    "unk_token": ("<unk>", "[UNK]"),
}
PROBES = (
    "The Police ARE calling, don't they? They've said 1,234.5 times: naïve café, ÀÉÎ.",
    "  two  spaces,\ta tab\nand a line ",
    "日本語のテキスト 한국어 Ελλάδα Привет हिन्दी العربية 🙂",
    "a <s> b</s> [MASK] c [SEP] d<|endoftext|>",
)


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer of a folder with transformers.

    If the folder holds tokenizer.json, but neither tokenizer_config.json nor config.json, the special tokens are found
    by their usual names, such as [CLS].

    Raises:
        EncoderError: the folder holds no tokenizer, or the files of the tokenizer cannot be read.
    """
    files = check_tokenizer_files(folder)
    with refusing(f"{folder}: no usable tokenizer"):
        # Check the size first: transformers copies a tokenizer id by id, up to the largest id in the file.
        backend = Tokenizer.from_file(str(folder / files[0])) if files[0] == "tokenizer.json" else None
        if backend is not None:
            vocab_size(backend.get_vocab(with_added_tokens=True))
        if backend is None or any((folder / name).is_file() for name in ("tokenizer_config.json", "config.json")):
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            if tokenizer.pad_token is None:  # e.g. GPT-2's; users of the export need a padding token
                tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        else:
            known = backend.get_vocab(with_added_tokens=True)
            special = {key: next((name for name in names if name in known), None) for key, names in USUAL.items()}
            tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **{k: v for k, v in special.items() if v})
        vocab_size(tokenizer.get_vocab())
    return tokenizer


def load_shards_tokenizer(folder: Path) -> Any:
    """Load the tokenizer of shards with transformers, and check that it gives the ids that the pipeline wrote.

    The pipeline reads tokenizer.json with `tokenizers`, but transformers rebuilds some tokenizers from their vocabulary
    and class. If the two gave different ids, a model would be trained with one tokenizer and used with the other. The
    ids are compared on some texts that are difficult to tokenize.

    Raises:
        EncoderError: the ids differ, or the folder holds no tokenizer that can be read.
    """
    tokenizer, plain = load_tokenizer(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    plain.no_truncation()
    plain.no_padding()
    plain.encode_special_tokens = True
    for text in PROBES:
        expected = plain.encode(text, add_special_tokens=False).ids
        if tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"] != expected:
            raise EncoderError(
                f"{folder}: transformers' {type(tokenizer).__name__} gives other ids than tokenizer.json, which made "
                f'the shards, e.g. for {text!r}: make the shards with "tokenizer_class": "PreTrainedTokenizerFast" in '
                "tokenizer_config.json"
            )
    return tokenizer


def num_ids(tokenizer: Any) -> int:
    """Return the number of embeddings that a tokenizer needs: all of its ids are below this number."""
    return vocab_size(tokenizer.get_vocab())


def special_tokens(tokenizer: Any) -> SpecialTokens:
    """Return the special tokens around one sequence, read from the tokenizer's template without encoding a text.

    Raises:
        EncoderError: the tokenizer has no tokenizer.json, or its template does not contain the sequence exactly once.
    """
    if not tokenizer.is_fast:
        raise EncoderError(
            f"{type(tokenizer).__name__} is not made from a tokenizer.json, which is needed to find the special tokens"
        )
    template, pad = tokenizer.backend_tokenizer.post_processor, tokenizer.pad_token_id
    if template is None:
        return SpecialTokens([], [], 0 if pad is None else pad, tokenizer.mask_token_id)
    content = Tokenizer(WordLevel({"content": 0}, "content")).encode("content")
    whole = template.process(content, None, True)
    at = [index for index, special in enumerate(whole.special_tokens_mask) if not special]
    if len(at) != 1:
        raise EncoderError(
            f"the template of the tokenizer's post-processor must hold a sequence once, not {len(at)} times"
        )
    before, after = whole.ids[: at[0]], whole.ids[at[0] + 1 :]
    return SpecialTokens(before, after, 0 if pad is None else pad, tokenizer.mask_token_id)
