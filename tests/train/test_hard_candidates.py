"""The texts that held-out titles must be told from during training include those that BM25 confuses with theirs."""

from pydoc_data.topics import topics

import numpy as np

from clearspan.eval.data.retrieval import Collection
from clearspan.train.selection.hard_candidates import fewer, with_hard_candidates

PARTS = [" ".join(part.split()) for _, text in sorted(topics.items()) for part in text.split("\n\n")]
ROWS = [(part[:40], part[40:]) for part in dict.fromkeys(PARTS) if len(part) > 200][:60]


def collection(rows: list[tuple[str, str]]) -> Collection:
    ones = [np.ones(1, np.int64) for _ in rows]
    places = [np.array([place]) for place in range(len(rows))]
    return Collection([text for _, text in rows], [title for title, _ in rows], places, ones)


def test_each_title_gets_the_texts_with_its_words_and_no_text_twice() -> None:
    held, others = ROWS[:10], [text for _, text in ROWS[10:]]
    title, text = held[0]
    near = f"{title} is what this passage of ours is about"
    extended = with_hard_candidates(collection(held), [*others, near, f" {text.upper()}"], 2)
    assert extended.documents[:10] == [text for _, text in held]
    added = extended.documents[10:]
    assert near in added and len(set(added)) == len(added) and 2 <= len(added) <= 20
    assert not any(each.strip().lower() == text.lower() for each in added)  # the right one, written otherwise
    assert extended.queries == [title for title, _ in held]


def test_texts_without_a_word_of_the_titles_are_no_candidates() -> None:
    held = collection(ROWS[:3])
    assert with_hard_candidates(held, ["12 34", "zzz qqq"], 5).documents == held.documents
    assert with_hard_candidates(held, [], 5).documents == held.documents


def test_fewer_titles_keep_their_texts() -> None:
    few = fewer(collection(ROWS[:20]), 5)
    assert few.documents == [text for _, text in ROWS[:5]] and few.queries == [title for title, _ in ROWS[:5]]
    assert [each.tolist() for each in few.relevant] == [[0], [1], [2], [3], [4]]
