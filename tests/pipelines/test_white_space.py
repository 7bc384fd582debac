"""White space at the ends of a text or a query changes nothing of what is embedded; within it, it stays."""

from pathlib import Path

import pytest

from clearspan.common.terminal import UsageError
from clearspan.pipelines.builders.embedded_texts import Text
from clearspan.retrieval.collection import check_queries


@pytest.mark.guarantee("prompts-of-a-side")
@pytest.mark.parametrize(
    ("title", "text", "embedded"),
    [
        ("", "Owls hunt at night.", "Owls hunt at night."),
        ("", " \n\tOwls  hunt\nat night.\u00a0\u3000\n", "Owls  hunt\nat night."),
        ("Owls", "  Hunters of the night. ", "Owls Hunters of the night."),
        (" Owls ", "Hunters.", "Owls  Hunters."),
        ("Owls", " \n", "Owls"),
        ("", " ", ""),
        ("", "Cafe\u0301\n\nOWLS\u200b\u00ad", "Cafe\u0301\n\nOWLS\u200b\u00ad"),
        ("Owls", "Owls hunt at night.", "Owls Owls hunt at night."),
    ],
)
def test_a_text_is_embedded_after_its_title_without_white_space_at_the_ends(
    title: str, text: str, embedded: str
) -> None:
    assert Text(None, text, title=title).model_input == embedded  # type: ignore[arg-type]


@pytest.mark.guarantee("prompts-of-a-side")
def test_queries_are_read_without_white_space_at_the_ends_one_or_several() -> None:
    assert check_queries("\u3000Do owls\nhunt? \n") == ["Do owls\nhunt?"]
    assert check_queries((" a", "b ", "\tc d\n")) == ["a", "b", "c d"]
    within = ["Cafe\u0301  ﬁn\u00adal", "CAFÉ\u00a0Nº1\u200b", "a", "a", "A\n\n\ta", "\ufeffx\0y"]
    assert check_queries(within) == within, "nothing else is changed, and no query is left out"
    assert [check_queries(text) for text in within] == [[text] for text in within]


@pytest.mark.guarantee("prompts-of-a-side")
@pytest.mark.parametrize(
    ("queries", "message"),
    [
        ([], "no query"),
        ("", "a query must be a text"),
        (["owls", " \n"], "a query must be a text"),
        (["owls", 7], "a query must be a text"),
        ([None], "a query must be a text"),
        ([Path("owls")], "a query must be a text"),
        (["owls", "night\ud800"], "a query must be valid UTF-8"),
    ],
)
def test_what_is_no_query_is_refused_wherever_it_is(queries: list, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_queries(queries)
