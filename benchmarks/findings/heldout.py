"""Held-out retrieval: two crops of each held-out document that do not overlap; given one, find the other.

validation shards -> tokens -> a short crop of the first half (query), a longer one of the second half (document)
                  -> retrieval/heldout in BEIR's layout
"""

import json
from pathlib import Path

from clearspan.common.files import write_text
from clearspan.shards import Dataset
from clearspan.train.model.tokenizer import load_shards_tokenizer

QUERY_TOKENS, DOCUMENT_TOKENS = 32, 64


def write_collection(validation: Path, folder: Path) -> int:
    """Write the collection of a folder of held-out shards of documents; return its number of pairs."""
    dataset = Dataset(validation)
    tokenizer = load_shards_tokenizer(dataset.local_tokenizer())
    corpus, queries, judged = [], [], ["query-id\tcorpus-id\tscore"]
    documents = (tokens for batch in dataset for tokens in batch["tokens"].to_pylist())
    for number, tokens in enumerate(documents):
        half = len(tokens) // 2
        query, document = tokens[:half][-QUERY_TOKENS:], tokens[half + QUERY_TOKENS :][:DOCUMENT_TOKENS]
        queries.append(json.dumps({"_id": f"q{number}", "text": tokenizer.decode(query)}))
        corpus.append(json.dumps({"_id": f"d{number}", "text": tokenizer.decode(document)}))
        judged.append(f"q{number}\td{number}\t1")
    for name, lines in (("corpus.jsonl", corpus), ("queries.jsonl", queries), ("qrels/test.tsv", judged)):
        write_text(folder / name, "\n".join(lines) + "\n")
    return len(queries)
