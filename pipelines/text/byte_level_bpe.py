"""Learn a byte-level BPE tokenizer like RoBERTa's from texts, for a domain or language without a tokenizer.

    texts -> counted word pieces -> merges until there are `vocab_size` ids -> tokenizer.json and its configuration

The same texts in the same order give the same files. Every byte has an id, so that every text can be tokenized.
"""

from collections.abc import Iterable
from pathlib import Path

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
SMALLEST = 256 + len(SPECIAL)
"""Number of ids of a tokenizer without merges: one for each byte, and the special tokens."""


def learn_tokenizer(texts: Iterable[str], vocab_size: int, folder: Path) -> int:
    """Learn a tokenizer, and write its tokenizer.json and configuration to a folder. The tokenizer encodes a text as
    `<s> text </s>`.

    Args:
        vocab_size: maximum number of ids.

    Returns:
        The number of ids. It is less than `vocab_size` if the texts have nothing more to merge.

    Raises:
        OSError: the files cannot be written.
    """
    # Imported here: only this command needs them, and they take a second.
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")]
    )
    roles = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), SPECIAL, strict=True))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, cls_token="<s>", sep_token="</s>", **roles)
    try:
        fast.save_pretrained(folder)
    except Exception as error:  # tokenizers raises no more specific type, even for a full disk
        raise OSError(f"{folder}: the tokenizer cannot be written ({error})") from None
    return int(tokenizer.get_vocab_size())
