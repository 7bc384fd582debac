"""Sets in the layouts of SentEval, RTE, STS-B in other languages, SNLI, Cranfield and TREC-QA.

    a scene (who, does what, where) -> its sentence in English, German or Chinese; pairs of scenes -> scores and labels

Their texts are of sentences made here and of docstrings. Files, numbers of rows and quirks are those of the published
sets, so that their readers are tested; scores on them say nothing about a model.
"""

import csv
import io
import itertools
import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

WHO = [
    ("a man", "Ein Mann", "一个男人"),
    ("a woman", "Eine Frau", "一个女人"),
    ("a little girl", "Ein kleines Mädchen", "一个小女孩"),
    ("a boy", "Ein Junge", "一个男孩"),
    ("an old farmer", "Ein alter Bauer", "一位老农民"),
    ("a young doctor", "Eine junge Ärztin", "一位年轻的医生"),
    ("the teacher", "Der Lehrer", "老师"),
    ("my neighbor", "Meine Nachbarin", "我的邻居"),
    ("a tall soldier", "Ein großer Soldat", "一名高大的士兵"),
    ("a student", "Eine Studentin", "一名学生"),
    ("the cook", "Der Koch", "厨师"),
    ("a tourist", "Ein Tourist", "一名游客"),
    ("an owl", "Eine Eule", "一只猫头鹰"),
]
DOES = [
    ("is playing the guitar", "spielt Gitarre", "弹吉他"),
    ("is slicing an onion", "schneidet eine Zwiebel", "切洋葱"),
    ("is reading a long letter", "liest einen langen Brief", "读一封长信"),
    ("is riding a white horse", "reitet auf einem weißen Pferd", "骑一匹白马"),
    ("is washing the windows", "putzt die Fenster", "擦窗户"),
    ("is singing an old song", "singt ein altes Lied", "唱一首老歌"),
    ("is painting a picture of the sea", "malt ein Bild vom Meer", "画一幅大海的画"),
    ("is eating bread and cheese", "isst Brot und Käse", "吃面包和奶酪"),
    ("is feeding the dogs", "füttert die Hunde", "喂狗"),
    ("is repairing a bicycle", "repariert ein Fahrrad", "修自行车"),
    ("is waiting for the train", "wartet auf den Zug", "等火车"),
    ("is dancing", "tanzt", "跳舞"),
    ("is drinking tea", "trinkt Tee", "喝茶"),
    ("is carrying a heavy box", "trägt eine schwere Kiste", "搬一个很重的箱子"),
    ("is taking photographs", "macht Fotos", "拍照片"),
    ("is talking with friends", "spricht mit Freunden", "和朋友们聊天"),
    ("is hunting mice", "jagt Mäuse", "捉老鼠"),
    ("is voting for a political party", "wählt eine politische Partei", "投票给一个政党"),
]
WHERE = [
    ("", "", ""),
    ("in the kitchen", "in der Küche", "厨房里"),
    ("on the beach", "am Strand", "海滩上"),
    ("in front of the house", "vor dem Haus", "房子前面"),
    ("at the market", "auf dem Markt", "市场上"),
    ("in the garden", "im Garten", "花园里"),
    ("beside the river", "neben dem Fluss", "河边"),
    ("at school", "in der Schule", "学校里"),
    ("under a big tree", "unter einem großen Baum", "大树下"),
    ("on the street", "auf der Straße", "街上"),
    ("in a small town", "in einer kleinen Stadt", "一个小镇上"),
    ("behind the station", "hinter dem Bahnhof", "车站后面"),
    ("at the museum", "im Museum", "博物馆里"),
    ("in the north of the country", "im Norden des Landes", "这个国家的北方"),
]
WHEN = [
    ("", "", ""),
    ("today", "heute", "今天"),
    ("every morning", "jeden Morgen", "每天早上"),
    ("in summer", "im Sommer", "夏天"),
    ("after dinner", "nach dem Essen", "晚饭后"),
    ("for an hour", "eine Stunde lang", "一个小时以来"),
    ("again", "wieder", "又"),
    ("at night", "nachts", "夜里"),
]
PARTS = (WHO, DOES, WHERE, WHEN)
Scene = tuple[int, int, int, int]
LANGUAGES = ("en", "de", "zh")


def sentence(scene: Scene, language: str) -> str:
    """Return the sentence of a scene."""
    column = LANGUAGES.index(language)
    who, does, where, when = (words[place][column] for words, place in zip(PARTS, scene, strict=True))
    if language == "zh":
        return f"{who}{when}{where and '在'}{where}{does}。"
    if language == "de":
        verb, _, rest = does.partition(" ")
        return " ".join(filter(None, (who, verb, when, where, rest))) + "."
    return " ".join(filter(None, (who[0].upper() + who[1:], does, where, when))) + "."


def scene_of(draws: random.Random) -> Scene:
    """Draw a scene; one of three has neither a place nor a time."""
    who, does, where, when = (draws.randrange(len(words)) for words in PARTS)
    return (who, does, 0, 0) if draws.random() < 1 / 3 else (who, does, where, when)


def tokenized(scene: Scene) -> str:
    """Return a scene's English sentence as SentEval writes it."""
    return sentence(scene, "en")[:-1].lower() + " ."


def scene_pairs(number: int, seed: int) -> list[tuple[Scene, Scene, float]]:
    """Return pairs of scenes and their similarities from 0 to 5 by the parts that are equal."""
    draws, found = random.Random(seed), []
    for _ in range(number):
        one = scene_of(draws)
        keep = draws.random()
        other: Scene = tuple(
            part if draws.random() < keep else draws.randrange(len(words))
            for part, words in zip(one, PARTS, strict=True)
        )
        same = [a == b for a, b in zip(one, other, strict=True)]
        score = sum(weight * equal for weight, equal in zip((1.25, 2, 1, 0.75), same, strict=True))
        found.append((one, other, round(4 * score) / 4))
    return found


def write(path: Path, lines: Iterable[str], start: str = "", end: str = "\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(start + end.join([*lines, ""]), encoding="utf-8", newline="")


def write_stsb(folder: Path, downstream: Path) -> None:
    """Write STS-B in German and Chinese, and in English as SentEval has it."""
    for seed, (split, number) in enumerate({"train": 5749, "dev": 1500, "test": 1379}.items()):
        pairs = scene_pairs(number, seed)
        for language in ("de", "zh"):
            data = io.StringIO()
            rows = ((sentence(one, language), sentence(other, language), score) for one, other, score in pairs)
            csv.writer(data, lineterminator="\n").writerows(rows)
            write(folder / f"stsb-{language}-{split}.csv", [data.getvalue()], end="")
        lines = [
            f"main-captions\tMSRvid\t2012test\t{row:04}\t{score:.3f}\t{tokenized(one)}\t{tokenized(other)}"
            for row, (one, other, score) in enumerate(pairs)
        ]
        write(downstream / "STS" / "STSBenchmark" / f"sts-{split}.csv", lines)


STS = {
    "STS12": {"MSRpar": 750, "MSRvid": 750, "SMTeuroparl": 459, "surprise.OnWN": 750, "surprise.SMTnews": 399},
    "STS14": {"deft-forum": 450, "deft-news": 300, "headlines": 750, "images": 750, "OnWN": 750, "tweet-news": 750},
    "STS16": {
        "answer-answer": 1572,
        "headlines": 1498,
        "plagiarism": 1271,
        "postediting": 3287,
        "question-question": 1555,
    },
}
SCORED = {"answer-answer": 254, "headlines": 249, "plagiarism": 230, "postediting": 244, "question-question": 209}
"""Pairs of STS16 that have a score: the lines of the others are empty."""


def write_sts(downstream: Path) -> None:
    """Write STS12, STS14 and STS16."""
    for year, subsets in STS.items():
        for seed, (subset, number) in enumerate(subsets.items(), start=100 * int(year[3:])):
            pairs, folder = scene_pairs(number, seed), downstream / "STS" / f"{year}-en-test"
            texts = [f"{tokenized(one)}\t{tokenized(other)}" for one, other, _ in pairs]
            write(folder / f"STS.input.{subset}.txt", texts)
            num_scored = SCORED[subset] if year == "STS16" else number
            scored = set(random.Random(seed).sample(range(number), num_scored))
            gold = [f"{score:g}" if row in scored else "" for row, (*_, score) in enumerate(pairs)]
            write(folder / f"STS.gs.{subset}.txt", gold)


def write_sick(downstream: Path) -> None:
    """Write SICK: relatedness from 1 to 5, and a judgment that follows from it."""
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    for seed, (name, number) in enumerate({"train": 4500, "trial": 500, "test_annotated": 4927}.items(), start=10):
        lines = []
        for row, (one, other, score) in enumerate(scene_pairs(number, seed)):
            judgment = "ENTAILMENT" if score >= 4 else "NEUTRAL" if score >= 2 else "CONTRADICTION"
            texts = f"{sentence(one, 'en')[:-1]}\t{sentence(other, 'en')[:-1]}"
            lines.append(f"{row}\t{texts}\t{1 + 0.8 * score:g}\t{judgment}")
        write(downstream / "SICK" / f"SICK_{name}.txt", lines, header)


LABELS = ("entailment", "neutral", "contradiction")
CHANGED = dict(zip(LABELS, (3, 2, 1), strict=True))
"""Label -> the part of a premise that its hypothesis changes."""


def write_nli(folder: Path) -> None:
    """Write SNLI's dev and test sets, lower-cased, and the triplets that SimCSE's file would hold."""
    triplets = ["sent0,sent1,hard_neg"]
    for seed, split in enumerate(("dev", "test"), start=20):
        draws, by_premise = random.Random(seed), {}
        for _ in range(3000):
            premise = scene_of(draws)
            for label in draws.sample(LABELS, draws.choice((2, 3, 3))):
                place = CHANGED[label]
                part = (premise[place] + draws.randrange(1, len(PARTS[place]))) % len(PARTS[place])
                hypothesis = (*premise[:place], part, *premise[place + 1 :])
                by_premise.setdefault(premise, []).append((hypothesis, label))
        lines = []
        for premise, hypotheses in by_premise.items():
            start = tokenized(premise)[:-2]
            lines += [f"{start}\t{tokenized(each)[:-2]}\t{LABELS.index(label)}" for each, label in hypotheses]
            of = {label: [tokenized(each)[:-2] for each, other in hypotheses if other == label] for label in LABELS}
            pairs = zip(of["entailment"], of["contradiction"], strict=False)
            triplets += [f"{start},{positive},{negative}" for positive, negative in pairs]
        write(folder / f"snli_{split}.txt", lines)
    write(folder / "snli_triplets.csv", triplets)


ASKED = {
    "ABBR:exp": "What does the abbreviation {} stand for ?",
    "DESC:def": "What is the meaning of {} ?",
    "ENTY:other": "What kind of {} is the best known ?",
    "HUM:ind": "Who first wrote about {} ?",
    "LOC:other": "Where can one find {} and {} ?",
    "NUM:count": "How many parts does {} have ?",
}
MRPC = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"


def write_classes(downstream: Path, texts: Sequence[str], words: Sequence[str]) -> None:
    """Write MR of sentences of docstrings with and without "the", TREC of questions, and MRPC of scenes."""
    lines = [" ".join(text.lower().replace(".", " .").split()) + " " for text in texts]
    for name, has_the in (("pos", True), ("neg", False)):
        some = itertools.cycle(line for line in lines if (" the " in line) == has_the)
        write(downstream / "MR" / f"rt-polarity.{name}", itertools.islice(some, 5331))
    draws = random.Random(5)
    for name, number in (("train_5500.label", 5452), ("TREC_10.label", 500)):
        questions = []
        for label in draws.choices(list(ASKED), k=number):
            as_if = label if draws.random() < 0.6 else draws.choice(list(ASKED))  # no encoder can know them all
            questions.append(f"{label} {ASKED[as_if].format(*draws.sample(words, 2))}")
        write(downstream / "TREC" / name, questions)
    for seed, (split, number) in enumerate((("train", 4076), ("test", 1725)), start=30):
        rows = [
            f"{int(score >= 3)}\t{2 * row}\t{2 * row + 1}\t{sentence(one, 'en')[:-1]} .\t{sentence(other, 'en')[:-1]} ."
            for row, (one, other, score) in enumerate(scene_pairs(number, seed))
        ]
        write(downstream / "MRPC" / f"msr_paraphrase_{split}.txt", rows, MRPC)


def write_rte(folder: Path) -> None:
    """Write RTE of GLUE, in which a few sentences begin with a quote that nothing ends."""
    for seed, (name, number) in enumerate((("train", 2490), ("dev", 277)), start=40):
        lines = []
        for row, (one, other, score) in enumerate(scene_pairs(number, seed)):
            start = '"' if row % 40 == 7 else ""
            label = "entailment" if score >= 3 else "not_entailment"
            lines.append(f"{row}\t{start}{sentence(one, 'en')}\t{sentence(other, 'en')}\t{label}")
        write(folder / "RTE" / f"{name}.tsv", lines, "index\tsentence1\tsentence2\tlabel\n")


def plain(text: str) -> str:
    """Return a text in lower case and ASCII, with points apart, as Cranfield's."""
    return " ".join(re.sub(r"[^a-z0-9.,()-]+", " ", text.lower()).replace(".", " .").split())


EMPTY = (470, 994)
"""Rows of Cranfield whose abstract is empty."""


def write_cranfield(folder: Path, documented: Sequence[tuple[str, str]]) -> None:
    """Write summaries and descriptions of functions as titles and abstracts, and queries of some of their words."""
    draws, records, queries, judgments = random.Random(6), [], [], []
    for row, pair in enumerate(documented[:1400]):
        title, body = map(plain, pair)
        words = body.split()[:240]
        lines = [" ".join(words[at : at + 12]) for at in range(0, len(words), 12)]
        text = "" if row in EMPTY else "\n".join([title, *lines, ""])
        records.append(f".I {row + 1}\n.T\n{title}\n.A\nsomebody\n.B\ndocstrings\n.W\n{text}")
    asked = draws.sample([row for row in range(1400) if row not in EMPTY], 225)
    for number, row in enumerate(asked, start=1):
        words = [word for word in plain(" ".join(documented[row])).split() if word.isalpha()]
        queries.append(f".I {2 * number - 1:03}\n.W\nwhat is known of {' '.join(words[2:70:11])} .\n")
        near = zip(range(row, row + 8), (1, 2, 3, 3, 4, -1, 3, 4), strict=True)
        judgments += [f"{number} {other % 1400 + 1} {code} " for other, code in near if other % 1400 not in EMPTY]
    write(folder / "cran.all.1400", records, end="")
    write(folder / "cran.qry", queries, end="")
    write(folder / "cranqrel", judgments)


def write_trecqa(folder: Path, texts: Sequence[str]) -> None:
    """Write TREC-QA's test set: 95 questions with 16 answers each, of which none to two are right."""
    draws, answers, data = random.Random(8), iter(texts), io.StringIO()
    table = csv.writer(data, lineterminator="\n")
    table.writerow(("qtext", "label", "atext"))
    for number in range(95):
        num_right = draws.choice((0, 1, 1, 2))
        for label in draws.sample([1] * num_right + [0] * (16 - num_right), 16):
            table.writerow((f"What is said of number {number} ?", label, next(answers)))
    write(folder / "test.csv", [data.getvalue()], end="")
