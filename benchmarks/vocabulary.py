"""A byte-level BPE tokenizer learned from one's own text, in RoBERTa's shape: for a domain or language without one."""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def learn_tokenizer(texts: Iterable[str], vocab_size: int, folder: Path) -> None:
    """Writes tokenizer.json and its configuration; a text becomes `<s> text </s>`."""
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
