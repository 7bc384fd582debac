"""A folder's tokenizer: loaded within bounds and without its code; special tokens as its own template puts them."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from clearspan.common.model_folder import EncoderError, check_tokenizer_files
from clearspan.common.terminal import MOST_SAID, one_line
from clearspan.shards.token_ids import vocab_size
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
)


def load_tokenizer(folder: Path) -> Any:
    """The transformers tokenizer of a folder; one with a bare tokenizer.json gets its special tokens by usual names.

    Raises:
        EncoderError: the folder holds none, or its files are not what a tokenizer's are.
    """
    there = check_tokenizer_files(folder)
    try:
        # First by itself: transformers copies a tokenizer id by id, up to the largest that the file names.
        backend = Tokenizer.from_file(str(folder / there[0])) if there[0] == "tokenizer.json" else None
        if backend is not None:
            vocab_size(backend.get_vocab(with_added_tokens=True))
        if backend is None or any((folder / name).is_file() for name in ("tokenizer_config.json", "config.json")):
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            if tokenizer.pad_token is None:  # GPT-2's: nothing here needs one, but who loads the export does
                tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        else:
            known = backend.get_vocab(with_added_tokens=True)
            found = {key: next((name for name in names if name in known), None) for key, names in USUAL.items()}
            tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **{k: v for k, v in found.items() if v})
        vocab_size(tokenizer.get_vocab())
    except Exception as error:  # what tokenizers and transformers raise for odd files is of any type
        raise EncoderError(f"{folder}: no usable tokenizer ({one_line(error, MOST_SAID)})") from None
    return tokenizer


def load_shards_tokenizer(folder: Path) -> Any:
    """The tokenizer beside shards, whose ids `tokenizers` made of its tokenizer.json, as transformers loads it.

    Raises:
        EncoderError: it gives other ids there: transformers makes some tokenizers anew, from their vocabulary and
            class, and a model trained on one would be used with the other.
    """
    tokenizer, plain = load_tokenizer(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    plain.no_truncation()
    plain.no_padding()
    for text in PROBES:
        expected = plain.encode(text, add_special_tokens=False).ids
        if tokenizer(text, add_special_tokens=False)["input_ids"] != expected:
            raise EncoderError(
                f"{folder}: transformers' {type(tokenizer).__name__} gives other ids than tokenizer.json, which made "
                f'the shards, e.g. for {text!r}: make them with "tokenizer_class": "PreTrainedTokenizerFast" in '
                "tokenizer_config.json"
            )
    return tokenizer


def num_ids(tokenizer: Any) -> int:
    """Every id that the tokenizer gives is below it."""
    return vocab_size(tokenizer.get_vocab())


def special_tokens(tokenizer: Any) -> SpecialTokens:
    """What the tokenizer puts around one sequence, by its own template; no text is encoded to find out.

    Raises:
        EncoderError: it has no template that puts a sequence between special tokens.
    """
    if not tokenizer.is_fast:
        raise EncoderError(f"{type(tokenizer).__name__} is not made by a tokenizer.json, which tells special tokens")
    template, pad = tokenizer.backend_tokenizer.post_processor, tokenizer.pad_token_id
    if template is None:
        return SpecialTokens([], [], 0 if pad is None else pad, tokenizer.mask_token_id)
    content = Tokenizer(WordLevel({"content": 0}, "content")).encode("content")
    whole = template.process(content, None, True)
    at = [index for index, special in enumerate(whole.special_tokens_mask) if not special]
    if len(at) != 1:
        raise EncoderError(f"the tokenizer's template holds a sequence {len(at)} times, and must hold it once")
    before, after = whole.ids[: at[0]], whole.ids[at[0] + 1 :]
    return SpecialTokens(before, after, 0 if pad is None else pad, tokenizer.mask_token_id)
