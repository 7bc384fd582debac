"""Make the stand-in for published corpora: `python -m tests.corpora FOLDER`."""

import random
import re
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.docstrings import Module, summary_and_body
from benchmarks.docstrings import modules as read_modules
from tests.corpora import docstrings, media, pairs


def write_texts(folder: Path, modules: list[Module]) -> None:
    tokenizer = docstrings.write_tokenizers(modules, folder / "tokenizers")
    docstrings.write_documents(modules, tokenizer, folder / "text" / "openwebtext_sample.jsonl")


def write_sets(folder: Path, modules: list[Module]) -> None:
    docstrings.write_articles(modules, folder / "text" / "wikitext2_articles.jsonl")
    pages = sorted(modules, key=lambda module: -len(module.text))[:240]
    docstrings.write_lines(folder / "text" / "peps.jsonl", [{"id": each.name, "text": each.text} for each in pages])
    texts = docstrings.sentences(modules)
    draws = random.Random(7)
    scenes = list(dict.fromkeys(pairs.sentence(pairs.scene_of(draws), "en") for _ in texts))
    lines = [line for number, text in enumerate(texts) for line in (text, *scenes[number // 4 :][: number % 4 == 0])]
    pairs.write(folder / "sentences" / "wiki1m_head_11914.txt", lines[:11_914])
    words = [word for word, _ in Counter(re.findall(r"\b[a-z]{3,}\b", " ".join(texts))).most_common()]
    docstrings.write_synonyms(words, folder / "synonyms")
    downstream = folder / "senteval" / "downstream"
    pairs.write_stsb(folder / "stsb_multi_mt", downstream)
    pairs.write_sts(downstream)
    pairs.write_sick(downstream)
    pairs.write_nli(folder / "nli")
    pairs.write_classes(downstream, texts, words[:2000])
    pairs.write_rte(folder / "glue")
    documented = {}
    for module in modules:
        documented |= dict(filter(None, map(summary_and_body, module.docstrings)))
    pairs.write_cranfield(folder / "retrieval" / "cranfield", list(documented.items()))
    pairs.write_trecqa(folder / "retrieval" / "trecqa_wang", texts)


def main(folder: Path) -> None:
    with ProcessPoolExecutor() as pool:
        media_made = [
            pool.submit(media.write_folders, folder / "images" / "caltech60"),
            pool.submit(media.write_tars, folder / "images" / "tinyimagenet60"),
            pool.submit(media.write_clips, folder / "audio"),
        ]
        modules = read_modules(docstrings.PACKAGES)
        made = [pool.submit(write_sets, folder, modules), *media_made]
        write_texts(folder, modules)
        for each in made:
            each.result()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
