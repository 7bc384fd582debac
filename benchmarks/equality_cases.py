r"""Cases of `benchmarks.equality`: what is run in both checkouts, as tables.

    name | needs | command lines        {out}: the case's folder, which is compared; &&: then

BUILDERS says what each builder reads and which options it takes, and `_covering` makes as many cases of it as the
longer of the two lists has entries, so that each format and each option of a builder occurs at least once. All other
cases stand in full in the tables of their part. A case of the part `refusals` must fail, and every other must succeed.
"""

import dataclasses
import itertools
import shlex
from collections.abc import Iterable, Iterator

TEXTS = {
    "jsonl": "--input texts/rows.jsonl",
    "json": "--input texts/rows.json",
    "csv": "--input texts/rows.csv",
    "tsv": "--input texts/rows.tsv",
    "parquet": "--input texts/rows.parquet",
    "arrow": "--input texts/arrow",
    "lines": "--input texts/lines.txt --text-per line",
    "separated": r"--input texts/separated.txt --document-separator '\n\n\n\n'",
    "files": "--input texts/files",
    "tar": "--input texts/samples.tar",
    "jsonl.gz": "--input texts/rows.jsonl.gz",
    "jsonl.zst": "--input texts/rows.jsonl.zst",
    "csv.xz": "--input texts/rows.csv.xz",
    "tsv.bz2": "--input texts/rows.tsv.bz2",
}
ROWS = ("jsonl", "json", "csv", "tsv", "parquet", "arrow", "jsonl.gz", "jsonl.zst", "csv.xz", "tsv.bz2")
TITLED = {name: TEXTS[name] for name in ROWS}
TRIPLETS = {name: words.replace("texts/", "triplets/") for name, words in TITLED.items()}
NLI = {name: words.replace("texts/", "labeled/") for name, words in TITLED.items()}
PICTURES = {
    "folders": "--input pictures",
    "list": "--input pictures.tsv",
    "webdataset": "--input pictures.tar",
    "tar": "--input pictures-folders.tar",
}
TONES = {name: words.replace("pictures", "tones") for name, words in PICTURES.items()}
COMMON = {
    "plain": "",
    "dedup": "--dedup",
    "holdout": "--holdout-fraction 0.2",
    "limit": "--limit 50",
    "units": "--unit-bytes 30000 --workers 1",
}
FILTERS = {
    "exclude": "--exclude excluded.txt",
    "words": "--min-words 5 --lowercase",
    "language": "--language en --language-threshold 0.6",
    "all": "--dedup --exclude excluded.txt --holdout-fraction 0.2 --limit 120",
}
NEAR = {"near-dedup": "--near-dedup 0.7", "near-and-dedup": "--near-dedup 0.8 --dedup --holdout-fraction 0.1"}
GROUPS = {"groups": "--holdout-fraction 0.2 --group-field group"}
CLASSES = {"classes": "--classes 2 --per-class 4", "top": "--top-classes 2", "listed": "--class-list classes.txt"}

BUILDERS: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "documents": (
        "documents --tokenizer tokenizer --min-tokens 24",
        TEXTS,
        COMMON | FILTERS | NEAR | {"quality": "--quality c4", "spaces": "--whitespace collapse --max-tokens 200"},
    ),
    "sentences": (
        "sentences --tokenizer tokenizer --augment del-word+reorder",
        TEXTS,
        COMMON | FILTERS | NEAR | {"packed": "--pack 64 --no-dedup", "whole": "--no-split --views 3 --unit word"},
    ),
    "pairs": (
        "pairs --tokenizer tokenizer",
        TITLED,
        COMMON | FILTERS | GROUPS | {"cut": "--max-tokens 40 --long cut", "drop": "--max-tokens 60 --long drop"},
    ),
    "sections": ("pairs --tokenizer tokenizer --structure headings", {"files": TEXTS["files"]}, COMMON | FILTERS),
    "passages": ("pairs --tokenizer tokenizer --structure sentences", TEXTS, COMMON),
    "triplets": (
        "triplets --tokenizer tokenizer",
        TRIPLETS,
        COMMON | FILTERS | {"prompt": "--prompt 'query: ' --prompt 'text: ' --prompt 'text: '"},
    ),
    "nli": ("triplets --tokenizer tokenizer --nli", NLI, COMMON | FILTERS),
    "images": (
        "images --size 40",
        PICTURES,
        COMMON | CLASSES | {"pattern": r"--label-pattern '(\d)\d\.png'"},
    ),
    "audio": ("audio --frames 100", TONES, COMMON | CLASSES | {"split": "--long split"}),
    "embed": (
        "embed --model encoder/model",
        TEXTS,
        COMMON | {"chunks": "--chunk-tokens 40 --chunk-overlap 10 --keep-text", "half": "--vector-dtype float16"},
    ),
    "embed-rows": (
        "embed --model encoder/model --keep-text",
        TITLED,
        {"title": "--title-field", "fields": "--keep-fields id,year,group", "int8": "--vector-dtype int8"}
        | {"title-chunks": "--title-field title --chunk-tokens 48 --keep-fields id", "dedup": "--dedup"},
    ),
    "vocabulary": ("vocabulary --size 600", TEXTS, {"plain": "", "larger": "--size 900"}),
}
"""Builder -> (its command line, formats that it reads, options that it takes)."""

DATASETS = """
tokenizer | | vocabulary --input texts/rows.jsonl --size 1500 --output {out}
sentences | tokenizer | sentences --input texts/rows.jsonl --tokenizer tokenizer --augment del-span --output {out}
documents | sentences | documents --input texts/rows.jsonl --tokenizer sentences/tokenizer --min-tokens 64
    --holdout-fraction 0.2 --output {out}
pairs | sentences | pairs --input texts/rows.jsonl --tokenizer sentences/tokenizer --holdout-fraction 0.2 --output {out}
nli | sentences | triplets --input labeled/rows.jsonl --nli --tokenizer sentences/tokenizer --output {out}
lists | tokenizer | triplets --input lists.jsonl --tokenizer tokenizer --max-positives 1 --max-negatives 1 --output
    {out}
images | | images --input pictures --size 40 --output {out}
audio | | audio --input tones --output {out}
mined | pairs | mine pairs --bm25 3 --negatives 3 --relative-margin 0 --output {out}
mined-by-model | pairs encoder | mine pairs --model encoder/model --negatives 3 --bm25 1 --cache none --output {out}
mined-at-random | pairs encoder | mine pairs --model encoder/model --sampling-strategy random --seed 3 --cache none
    --candidates 100 --range-min 2 --max-score 0.9 --output {out}
mined-of-triplets | nli encoder | mine nli --model encoder/model --negatives 1 --cache none --output {out}
encoder | tokenizer documents | train/run.py --recipe recipes/spans.yaml output={out} --quiet
updated | encoder | embed --input texts/rows.jsonl --model encoder/model --keep-text --keep-fields id --output {out}
    && embed --input changed.jsonl --model encoder/model --keep-text --keep-fields id --output {out} --update
updated-chunks | encoder | embed --input texts/rows.jsonl --model encoder/model --keep-text --chunk-tokens 40 --output
    {out}
    && embed --input changed.jsonl --model encoder/model --keep-text --chunk-tokens 40 --output {out} --update
resumed-dataset | tokenizer | documents --input texts/rows.jsonl --tokenizer tokenizer --min-tokens 24 --output {out}
    && documents --input texts/rows.jsonl --tokenizer tokenizer --min-tokens 24 --output {out}
exported | pairs | shards export pairs {out}
listed | pairs documents | shards ls pairs --json && shards verify documents --json && shards cat pairs --limit 3
own-filter | tokenizer | documents --input texts/rows.jsonl --tokenizer tokenizer --min-tokens 8 --output {out}
    --quality gopher,own:is_long
python-dataset | tokenizer | -c "import clearspan; clearspan.make_dataset('pairs', 'texts/rows.csv', '{out}',
    tokenizer='tokenizer', dedup=True, quiet=True)"
"""

TRAINING = """
spans-mlm | documents | train/run.py --recipe recipes/spans-mlm.yaml output={out} --quiet
static-spans | documents | train/run.py --recipe recipes/static-spans.yaml output={out} --quiet
static-pairs | mined | train/run.py --recipe recipes/static-pairs.yaml output={out} --quiet
simcse | sentences | train/run.py --recipe recipes/simcse.yaml output={out} --quiet
simcse-supervised | nli | train/run.py --recipe recipes/simcse-supervised.yaml output={out} --quiet
clear-stored | sentences | train/run.py --recipe recipes/clear-stored.yaml output={out} --quiet
clear-fly | sentences | train/run.py --recipe recipes/clear-fly.yaml output={out} --quiet
patches-images | sentences images | train/run.py --recipe recipes/images.yaml output={out} --quiet
patches-audio | sentences audio | train/run.py --recipe recipes/audio.yaml output={out} --quiet
alternate | sentences images | train/run.py --recipe recipes/alternate.yaml output={out} --quiet
combined | documents sentences images audio | train/run.py --recipe combined-demo output={out} --quiet
    data.documents.path=documents data.sentences.path=sentences data.images.path=images data.audio.path=audio
    data.documents.batch_size=4 data.sentences.batch_size=4 data.images.batch_size=4 data.audio.batch_size=4
    model.config.hidden_size=48 training.max_steps=3
best | documents | train/run.py --recipe recipes/spans.yaml output={out} --quiet
    data.text.validation=documents/validation
    training.eval_steps=5 training.eval_data=heldout
cached | documents | train/run.py --recipe recipes/spans-mlm.yaml output={out} --quiet training.max_steps=4
    training.gradient_accumulation_steps=2 training.gradient_caching=true
bf16 | documents | train/run.py --recipe recipes/spans-mlm.yaml output={out} --quiet training.max_steps=4
    training.bf16=true
from-folder | encoder pairs mined | train/run.py --recipe pairs output={out} --quiet model.path=encoder/model
    data.text.path=mined data.text.batch_size=16 training.epochs=0 training.max_steps=5
resumed | documents | train/run.py --recipe recipes/spans-mlm.yaml output={out} --quiet training.max_steps=10
    && train/run.py --recipe recipes/spans-mlm.yaml output={out} --quiet training.max_steps=13 --resume
two-ranks | documents | deepspeed --num_accelerators 2 --master_port {port} {checkout}/train/run.py
    --recipe recipes/spans-mlm.yaml output={out} --quiet
two-ranks-resumed | documents | train --num_accelerators 2 --master_port {port} --recipe recipes/simcse.yaml
    output={out}
    data.text.path=sentences training.max_steps=10 --quiet
    && train --num_accelerators 2 --master_port {port} --recipe recipes/simcse.yaml output={out}
    data.text.path=sentences training.max_steps=13 --quiet --resume
last-exported | best | export best {out} --checkpoint last
distilled | encoder documents | distill --model encoder/model --shards documents --dims 16 --random-dims 8 --output
    {out}
python-run | documents | -c "import clearspan, json; run = clearspan.train_model('recipes/static-spans.yaml',
    {'output': '{out}', 'training.max_steps': 5}, quiet=True, num_accelerators=1, master_port={port});
    print(json.dumps(run.metrics()))"
"""

EVALUATIONS = """
eval-retrieval | encoder static-spans | eval --model encoder/model --model static-spans/model --model bm25 --model tfidf
    --model hybrid:static-spans/model --tasks retrieval --data . --cache none --json --output {out}
eval-heldout | encoder documents | eval --model encoder/model --model bm25 --model bow --model hybrid:encoder/model
    --tasks heldout --data documents --cache none --json --output {out}
eval-heldout-pairs | static-pairs pairs | eval --model static-pairs/model --model bm25 --model hybrid:static-pairs/model
    --tasks heldout --data pairs --cache none --json --output {out}
eval-scored | encoder static-pairs | eval --model encoder/model --model static-pairs/model --model tfidf --pairs
    scored.csv
    --cache none --json --output {out}
eval-queries | static-pairs pairs | eval --model static-pairs/model --model hybrid:static-pairs/model --model bm25
    --queries questions.csv --data pairs --hybrid-weight 0.4 --cache none --json --output {out}
eval-cached | encoder | eval --model encoder/model --pairs scored.csv --cache {out}-cache --json --output {out}
    && eval --model encoder/model --pairs scored.csv --cache {out}-cache --json --output {out}
compared | eval-scored | compare eval-scored/encoder eval-scored/static-pairs --json
tables | | tables declutr-2 --json && tables --list
vectors-of-python | encoder static-pairs | -c "import clearspan, hashlib, json; texts =
    open('queries.txt').read().split(chr(10));
    print(json.dumps([hashlib.sha256(clearspan.load_model(m).encode(texts).tobytes()).hexdigest()
    for m in ('encoder/model', 'static-pairs/model')]))"
"""

SEARCHES = """
vectors | encoder | embed --input texts/rows.jsonl --model encoder/model --keep-text --keep-fields id,group,year,title
    --output {out}
vectors-chunks | encoder | embed --input texts/rows.csv --model encoder/model --keep-text --chunk-tokens 40
    --keep-fields id,group,title --output {out}
vectors-int8 | encoder | embed --input texts/rows.jsonl --model encoder/model --keep-text --vector-dtype int8 --output
    {out}
vectors-new | encoder | embed --input changed.jsonl --model encoder/model --keep-text --keep-fields id,group,year,title
    --output {out}
hits | vectors | search vectors --model encoder/model --queries queries.txt --top 20 --json
hits-by-bm25 | vectors | search vectors --model encoder/model --queries queries.txt --hybrid 0 --top 20 --json
hits-hybrid | vectors | search vectors --model encoder/model --queries queries.txt --hybrid --top 20 --json
hits-stemmed | vectors | search vectors --model encoder/model --queries queries.txt --hybrid 0.3 --stemmer english
    --json
hits-where | vectors | search vectors --model encoder/model --queries queries.txt --where "year > 2000 and group !=
    'email'"
    --json && search vectors --model encoder/model "a file" --where "year = 1995 and title != 'x' and year <= 2000"
    --json
hits-where-hybrid | vectors | search vectors --model encoder/model --queries queries.txt --where "year >= 2005"
    --hybrid 0.5
    --json && search vectors --model encoder/model --queries queries.txt --where "year is null" --hybrid 0 --json
hits-of-chunks | vectors-chunks | search vectors-chunks --model encoder/model --queries queries.txt --json
    && search vectors-chunks --model encoder/model --queries queries.txt --hybrid --json
hits-int8 | vectors-int8 | search vectors-int8 --model encoder/model --queries queries.txt --json
hits-of-two | vectors vectors-new | search vectors --also vectors-new --model encoder/model --queries queries.txt --json
    && search vectors --also vectors-new --model encoder/model --queries queries.txt --hybrid 0.5 --where "year < 2010"
    --json
hits-of-updated | updated | search updated --model encoder/model --queries queries.txt --hybrid 0.5 --json
hits-of-faiss | vectors | search vectors --model encoder/model --queries queries.txt --index faiss --json
hits-of-faiss-where | vectors | search vectors "a file" --model encoder/model --where "year > 1990" --index faiss --json
ranks | vectors | search vectors --model encoder/model --queries questions.csv --json
    && search vectors --model encoder/model --queries questions-by-id.csv --hybrid 0.5 --json
all-hits | vectors | search vectors --model encoder/model "open a file" "parse a date" --top 400 --hybrid 0.7 --json
page | vectors | served.py {port}
python-hits | vectors vectors-new | -c "import clearspan, json; c = clearspan.open_collection('vectors',
    'encoder/model',
    also=['vectors-new']); found = c.search(['open a file', 'the end'], top=30, weight=0.4);
    found += [clearspan.search('vectors', 'a file', 'encoder/model', top=5)];
    print(json.dumps([[h.score, h.text, h.fields, h.source, h.record] for hits in found for h in hits], default=str))"
"""

ADAPTATIONS = """
adapt-titles | | adapt --input texts/rows.jsonl --output {out} --quiet --queries questions.csv --stemmer english
    data.text.batch_size=32 training.max_steps=10 training.epochs=0
    && adapt --input texts/rows.jsonl changed.jsonl --output {out} --quiet --queries questions.csv --stemmer english
    data.text.batch_size=32 training.max_steps=10 training.epochs=0 --update
    && search {out} "open a file" "parse a date" --json
adapt-crops | | adapt --input texts/lines.txt --text-per line --output {out} --quiet --chunk-tokens 60
    data.text.batch_size=32 training.max_steps=10 && search {out} "open a file" --json
adapt-model | encoder | adapt --input texts/rows.csv --model encoder/model --output {out} --quiet --group-field group
    --holdout-fraction 0.3 data.text.batch_size=16 training.max_steps=5 training.epochs=0
    && search {out} "open a file" --json
adapt-static | encoder | adapt --input texts/rows.csv --model static:encoder/model --output {out} --quiet
    data.text.batch_size=16 training.max_steps=5 training.epochs=0 && search {out} "open a file" --json
adapt-steps | encoder | adapt --input texts/rows.csv --model encoder/model --output {out} --dry-run
"""

RECIPES = """
recipe-keys | | recipe_keys.py
recipe-list | | train --list
dry-run | documents | train --recipe demo data.text.path=documents output={out} --dry-run
sweep | documents | sweep --recipe demo --grid training.max_steps=1,2 --grid training.seed=1,2 --output {out} --dry-run
    data.text.path=documents
"""

REFUSALS = """
no-command | | trains
no-option | tokenizer | documents --tokenizer tokenizer --input texts/rows.jsonl --output {out} --min-token 3
no-tokenizer | | documents --input texts/rows.jsonl --output {out}
absent-tokenizer | | documents --input texts/rows.jsonl --tokenizer nowhere --output {out}
absent-input | tokenizer | documents --input nowhere.jsonl --tokenizer tokenizer --output {out}
absent-field | tokenizer | documents --input texts/rows.jsonl --tokenizer tokenizer --text-field body --output {out}
negative | tokenizer | documents --input texts/rows.jsonl --tokenizer tokenizer --min-tokens -1 --output {out}
no-number | tokenizer | documents --input texts/rows.jsonl --tokenizer tokenizer --limit many --output {out}
half-a-number | tokenizer | documents --input texts/rows.jsonl --tokenizer tokenizer --limit 1.5 --output {out}
near-is-far | tokenizer | documents --input texts/rows.jsonl --tokenizer tokenizer --near-dedup 0.3 --output {out}
all-held-out | tokenizer | documents --input texts/rows.jsonl --tokenizer tokenizer --holdout-fraction 1 --output {out}
crossed-lengths | tokenizer | documents --input texts/rows.jsonl --tokenizer tokenizer --min-tokens 9 --max-tokens 8
    --output {out}
no-language | tokenizer | documents --input texts/rows.jsonl --tokenizer tokenizer --language xx --output {out}
no-quality | tokenizer | documents --input texts/rows.jsonl --tokenizer tokenizer --quality gophers --output {out}
per-line-of-json | tokenizer | documents --input texts/rows.jsonl --tokenizer tokenizer --text-per line --output {out}
none-left | tokenizer | documents --input texts/rows.jsonl --tokenizer tokenizer --min-tokens 90000 --output {out}
not-empty | tokenizer pairs | documents --input texts/rows.jsonl --tokenizer tokenizer --output pairs
own-input | tokenizer | documents --input texts --tokenizer tokenizer --output texts
pictures-as-texts | tokenizer | documents --input pictures --tokenizer tokenizer --output {out}
texts-as-pictures | | images --input texts/files --output {out}
pictures-as-tones | | audio --input pictures --output {out}
no-pattern | | images --input pictures --label-pattern "(" --output {out}
both-classes | | images --input pictures --classes 2 --top-classes 2 --output {out}
no-step | tokenizer | sentences --input texts/rows.jsonl --tokenizer tokenizer --augment swap --output {out}
no-synonyms | tokenizer | sentences --input texts/rows.jsonl --tokenizer tokenizer --augment subs --output {out}
views-of-nothing | tokenizer | sentences --input texts/rows.jsonl --tokenizer tokenizer --views 3 --output {out}
packed-and-short | tokenizer | sentences --input texts/rows.jsonl --tokenizer tokenizer --pack 2 --output {out}
one-field | tokenizer | pairs --input texts/rows.jsonl --tokenizer tokenizer --fields title --output {out}
fields-of-lines | tokenizer | pairs --input texts/lines.txt --tokenizer tokenizer --output {out}
group-without-holdout | tokenizer | pairs --input texts/rows.jsonl --tokenizer tokenizer --group-field group --output
    {out}
structure-and-fields | tokenizer | pairs --input texts/rows.jsonl --tokenizer tokenizer --fields title,text
    --structure headings --output {out}
no-columns | tokenizer | triplets --input triplets/rows.jsonl --tokenizer tokenizer --columns a,b --output {out}
nli-of-triplets | tokenizer | triplets --input triplets/rows.csv --nli --columns anchor --tokenizer tokenizer --output
    {out}
update-of-documents | tokenizer | documents --input texts/rows.jsonl --tokenizer tokenizer --update --output {out}
absent-model | | embed --input texts/rows.jsonl --model nowhere --output {out}
overlap-without-chunks | encoder | embed --input texts/rows.jsonl --model encoder/model --chunk-overlap 5 --output {out}
kept-nothing | encoder | embed --input texts/rows.jsonl --model encoder/model --keep-fields nothing --output {out}
no-device | encoder | embed --input texts/rows.jsonl --model encoder/model --device tpu --output {out}
small-vocabulary | | vocabulary --input texts/rows.jsonl --size 3 --output {out}
mine-documents | documents | mine documents --bm25 4 --output {out}
mine-without-model | pairs | mine pairs --output {out}
mine-crossed | pairs | mine pairs --bm25 4 --range-min 50 --range-max 40 --output {out}
no-recipe | | train
absent-recipe | | train --recipe dem output={out}
absent-recipe-key | documents | train --recipe demo data.text.path=documents output={out} training.max_step=3
recipe-value | documents | train --recipe demo data.text.path=documents output={out} training.max_steps=some
recipe-below | documents | train --recipe demo data.text.path=documents output={out} optimizer.learning_rate=-1
recipe-without-output | documents | train --recipe demo data.text.path=documents
recipe-without-data | | train --recipe demo output={out}
recipe-of-other-data | images | train --recipe demo data.text.path=images output={out}
trained-already | encoder | train/run.py --recipe recipes/spans.yaml output=encoder
other-resumed | encoder | train/run.py --recipe recipes/spans.yaml output=encoder data.text.batch_size=8 --resume
rank-refuses | documents | train/run.py --recipe recipes/spans.yaml output={out} optimizer.eps=zero
export-of-nothing | | export nowhere {out}
distil-nothing | | distill --output {out}
eval-nothing | | eval --output {out}
eval-absent-task | encoder | eval --model encoder/model --tasks stss --data . --output {out}
eval-absent-model | | eval --model nowhere --pairs scored.csv --output {out}
eval-absent-data | encoder | eval --model encoder/model --tasks retrieval --data nowhere --output {out}
eval-two-names | encoder | eval --model encoder/model --name a --name b --pairs scored.csv --output {out}
eval-heavy | encoder | eval --model hybrid:encoder/model --hybrid-weight 2 --pairs scored.csv --output {out}
eval-pairs-without-scores | encoder | eval --model encoder/model --pairs questions.csv --output {out}
compare-nothing | | compare nowhere nowhere
no-table | | tables declutr-9
search-nothing | vectors | search vectors --model encoder/model
search-absent | encoder | search nowhere "a file" --model encoder/model
search-documents | documents encoder | search documents "a file" --model encoder/model
search-without-model | vectors | search vectors "a file"
search-by-another | vectors static-spans | search vectors "a file" --model static-spans/model
search-none | vectors | search vectors "a file" --model encoder/model --top 0
search-heavy | vectors | search vectors "a file" --model encoder/model --hybrid 1.5
search-empty | vectors | search vectors "" --model encoder/model
where-unfinished | vectors | search vectors "a file" --model encoder/model --where "year >"
where-absent | vectors | search vectors "a file" --model encoder/model --where "size > 3"
where-mixed | vectors | search vectors "a file" --model encoder/model --where "year > 'z'"
hybrid-of-faiss | vectors | search vectors "a file" --model encoder/model --hybrid --index faiss
also-documents | vectors documents | search vectors --also documents "a file" --model encoder/model
no-stemmer | vectors | search vectors "a file" --model encoder/model --hybrid --stemmer klingon
serve-absent | | serve nowhere
serve-port | vectors | serve vectors --model encoder/model --port 99999
adapt-nothing | | adapt --output {out}
adapt-absent | | adapt --input nowhere.csv --output {out}
adapt-crops-by-group | | adapt --input texts/lines.txt --text-per line --group-field group --output {out}
adapt-skip | | adapt --input texts/rows.csv --skip-given --output {out}
adapt-wrong-questions | | adapt --input texts/rows.csv --queries scored.csv --output {out}
adapt-key | | adapt --input texts/rows.csv --output {out} training.max_step=3
sweep-nothing | | sweep --recipe demo --output {out}
shards-nothing | | shards ls nowhere
data-nothing | | data check nowhere
"""


@dataclasses.dataclass(frozen=True)
class Case:
    """Commands that run in both checkouts.

    Attributes:
        part: the name of its table.
        needs: names of the cases whose folders it reads.
        commands: the words of each command, with {out}, {port} and {checkout}.
    """

    name: str
    part: str
    needs: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]


def _rows(part: str, table: str) -> Iterator[Case]:
    """Yield the cases of a table; a line that begins with spaces continues the line before it."""
    for line in table.strip().replace("\n    ", " ").splitlines():
        name, needs, text = (cell.strip() for cell in line.split("|", 2))
        words = shlex.split(text)
        commands = [tuple(group) for is_end, group in itertools.groupby(words, "&&".__eq__) if not is_end]
        yield Case(name, part, tuple(needs.split()), tuple(commands))


def _covering(builder: str) -> Iterator[Case]:
    """Yield cases of a builder in which each of its formats and each of its options occurs at least once."""
    command, formats, options = BUILDERS[builder]
    needs = tuple(case for case, words in NEEDED.items() if words in command)
    for number in range(max(len(formats), len(options))):
        read, option = ([*table.items()][number % len(table)] for table in (formats, options))
        words = shlex.split(f"{command} {read[1]} {option[1]} --output {{out}} --json")
        yield Case(f"{builder}-{read[0]}-{option[0]}", "datasets", needs, (tuple(words),))


NEEDED = {"tokenizer": "--tokenizer tokenizer", "encoder": "--model encoder/model"}
"""Case -> words of a builder's command that read its folder."""
PARTS = {
    "datasets": DATASETS,
    "training": TRAINING,
    "eval": EVALUATIONS,
    "search": SEARCHES,
    "adapt": ADAPTATIONS,
    "recipes": RECIPES,
    "refusals": REFUSALS,
}
CASES: dict[str, Case] = {
    case.name: case
    for case in (
        *itertools.chain.from_iterable(_rows(part, table) for part, table in PARTS.items()),
        *itertools.chain.from_iterable(_covering(builder) for builder in BUILDERS),
    )
}


def selected(names: Iterable[str]) -> list[Case]:
    """Return the cases of these parts, or of these names, with all that they need, in an order in which they run."""
    wanted = {*names}
    ordered: dict[str, Case] = {}

    def add(case: Case) -> None:
        for name in case.needs:
            add(CASES[name])
        ordered.setdefault(case.name, case)

    for case in CASES.values():
        if {case.part, case.name} & wanted:
            add(case)
    return [*ordered.values()]
