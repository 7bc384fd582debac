"""A byte-level BPE tokenizer learned from one's own text, in RoBERTa's shape: for a domain or language without one.

    texts -> pieces of words, counted -> merges until there are `size` ids -> tokenizer.json and its configuration

The same texts in the same order give the same files. Every byte has an id, so no text is without ids.
"""

from collections.abc import Iterable
from pathlib import Path

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
SMALLEST = 256 + len(SPECIAL)
"""The ids of a tokenizer that merges nothing: every byte's and the special ones."""


def learn_tokenizer(texts: Iterable[str], vocab_size: int, folder: Path) -> int:
    """Writes tokenizer.json and its configuration; a text becomes `<s> text </s>`.

    Returns:
        How many ids it has: fewer than `vocab_size` where the texts hold no more to merge.
    """
    # Here, since only this command needs them, and they take a second.
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")]
    )
    named = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), SPECIAL, strict=True))
    whole = PreTrainedTokenizerFast(tokenizer_object=tokenizer, cls_token="<s>", sep_token="</s>", **named)
    whole.save_pretrained(folder)
    return int(tokenizer.get_vocab_size())
