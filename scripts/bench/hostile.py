"""Reading replies of 1 MB that are made to be slow to read: milliseconds of processor time by kind and reading path.

    scripts/bench/hostile.py [--size 1000000] [--slow 100] [KIND ...]

Prints a row a kind, the best of three, and those above ``--slow`` once more. Needs no model.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from localeval.grammar import Choice, TaggedSentence
from localeval.report.text import table
from localeval.schema import Completion
from localeval.store import RunFolder, read_predictions
from localeval.tasks.mcq import parse as mcq
from localeval.tasks.ner import parse as ner

SIZE = 1_000_000
ROUNDS = 3
CHOICES = ("Bakelite", "Nylon", "Teflon", "Melamine formaldehyde")
HINDI = ("बेकेलाइट", "नायलॉन", "टेफ्लॉन", "मेलामाइन")
SENTENCE = "Only France and Britain backed Fischler 's proposal , said EU spokesman Nikolaus van der Pas ."
TOKENS = tuple(SENTENCE.split())
ENTITIES = {"PER": "person", "ORG": "organization", "LOC": "location", "MISC": "miscellaneous"}


def kinds() -> dict[str, str]:
    """Name -> what is repeated up to the size."""
    return {
        "<": "<",
        ">": ">",
        "start tags": "<person>",
        "end tags": "</person>",
        "start tags, unknown": "<b>",
        "tags in turn": "<person><location>",
        "tagged letters": "<person>a</person>",
        "crossing tags": "<person>a<location>b</person>c</location>",
        "unclosed tags": "<person a ",
        "tags with white space": "<" + " " * 5000,
        "response tags": "<response>",
        "response blocks": "<response>a</response>",
        "response blocks, empty": "<response></response>",
        "response end tags": "</response>",
        "response, never closed": "<response a ",
        "response, spaces": "<response " + " " * 5000,
        "the sentence": SENTENCE + " ",
        "the sentence in blocks": f"<response>{SENTENCE}</response>\n",
        "the sentence, tagged": SENTENCE.replace("France", "<location>France</location>") + " ",
        "half of the sentence": SENTENCE[: len(SENTENCE) // 2] + " ",
        "a word of it, tagged": "<person>France</person> ",
        "a word of it, tagged, lines": "<person>France</person>\n",
        "the sentence, changed, lines": SENTENCE.replace("backed", "liked") + "\n",
        "the sentence, changed, blocks": f"<response>{SENTENCE.replace('backed', 'liked')}</response>",
        "the sentence, changed, tagged": SENTENCE.replace("France backed", "<location>France</location> liked") + "\n",
        "words of it": "Only France , the EU ",
        "tags with attributes": '<entity type="person">',
        "elements closed": '<entity type="person">a</entity>',
        "escaped tags": "&lt;person&gt;",
        "escaped tags, cut": "&lt;",
        "square tags": "[person]a[/person]",
        "start tags behind words": "a<person> ",
        "types behind tags": "<person>a</person> (person) ",
        "types behind names": "France (location) ",
        "links": "[France](location) ",
        "names and types": "France - location\n",
        "types and names": "location: France, Britain\n",
        "JSON, entities": '{"text": "France", "label": "LOC"}, ',
        "JSON, lines": '{"location": ["France"]}\n',
        "JSON, nested": '{"a": [',
        "BIO, lines": "France B-LOC\n",
        "BIO, slashes": "France/B-LOC ",
        "answer": "answer: ",
        "answer, letters": "answer: A ",
        "answer, lines": "The answer is\n",
        "answer, bold": "**Answer:** **",
        "the ... option": "the " * 10,
        "the option is": "the option is ",
        "correct option": "correct option ",
        "stars": "*",
        "stars, spaces": "** ",
        "underscores": "_",
        "backticks": "`",
        "fences": "```\n",
        "fences in one line": "``` ",
        "spaces": " ",
        "tabs": "\t",
        "newlines": "\n",
        "carriage returns": "\r",
        "lines of spaces": " " * 80 + "\n",
        "one label a line": "A\n",
        "labels, lists": "A) B) ",
        "labels, brackets": "(A) ",
        "labels joined": "A, ",
        "labels, dashes": "A - ",
        "labels, dots": "A. ",
        "options' texts": "A) Bakelite\n",
        "options' texts, markers": "answer: Bakelite ",
        "questions": "Question: ",
        "questions, lines": "Question 1 of 4:\n",
        "Q lines": "Q\n",
        "digits": "1",
        "letters": "A",
        "words": "word ",
        "one word": "x",
        "combining marks": "\u0301",
        "Zalgo": "a" + "\u0301\u0323\u0330" * 10,
        "two marks in disorder": "\u0301\u0323",
        "surrogates": "\ud800",
        "joiners": "\u200d",
        "zero width spaces": "\u200b",
        "ligatures": "\ufdfa",
        "Hindi markers": "उत्तर ",
        "Hindi markers, visarga": "उत्तरः ",
        "Hindi markers, copula": "उत्तर है ",
        "Hindi text": "भारत में ",
        "Chinese markers": "答案",
        "HTML entities": "&amp;",
        "HTML entities, nested": "&amp;amp;",
        "HTML entities, cut": "&am",
        "HTML entities, long": "&" + "a" * 1000,
        "numbers of HTML": "&#" + "1" * 4000 + ";",
        "boxes": r"\boxed{",
        "boxes, closed": r"\boxed{A}",
        "boxes, nested": r"\boxed{\text{",
        "backslashes": "\\",
        "dollars": "$",
        "double quotes": '"',
        "quotes": "'",
        "braces": "{",
        "brackets": "[",
        "parentheses": "(",
        "JSON": '{"answer": ',
        "JSON, arrays": '[{"a":',
        "think": "<think>",
        "think, closed": "<think></think>",
        "think, ended": "</think>",
        "colons": ": ",
        "dots": ".",
        "dots, spaces": ". ",
        "because": " because ",
        "dashes": "- ",
        "bars": "|",
        "BIO": "B-PER ",
    }


def replies(size: int) -> dict[str, str]:
    """Name -> a reply of so many bytes."""
    found = {name: _filled(piece, size) for name, piece in kinds().items()}
    half = size // 2
    found |= {
        "nested tags": _filled("<person>", half) + "France" + _filled("</person>", half),
        "nested tags, in turn": _filled("<person><location>", half) + "France" + _filled("</person></location>", half),
        "starts, then ends of another": _filled("<location>", half) + "a" + _filled("</person>", half),
        "a long answer": "answer: " + _filled("x", size),
        "a long line": "answer: " + _filled("x ", size),
        "a long line of sentences": "answer: " + _filled("Bakelite. ", size),
        "a bold long line": "**" + _filled("x ", size) + "**",
        "a quoted long line": '"' + _filled("x ", size) + '"',
        "wrapped many times": _filled("(", half) + "A" + _filled(")", half),
        "starred many times": _filled("*", half) + "A" + _filled("*", half),
        "the sentence, then spaces": f"<response>{SENTENCE}</response>" + _filled(" ", size),
        "the sentence, letters apart": " ".join(SENTENCE) + _filled(" ", size),
        "a tagged long word": "<response><person>" + _filled("x", size) + "</person></response>",
        "a tagged long text": "<response><person>" + _filled("France and ", size) + "</person></response>",
        "the sentence and a long text": f"<response><person>{SENTENCE}</person> "
        + _filled("xy ", size)
        + "</response>",
        "tags in a marked sentence": "<response>" + _filled("<person>France</person> and ", size) + "</response>",
        "a question, then answers": "A\nQuestion: x\n" + _filled("answer: x\n", size),
        "text, then questions": "x\n" + _filled("Question: x\n", size),
        "lists after nothing": "x\n" + _filled("A) x\nB) y\n", size),
        "lists and answers": "x\n" + _filled("A) x\nB) y\nanswer: x\n", size),
    }
    return found


def _filled(piece: str, size: int) -> str:
    characters = size * len(piece) // len(piece.encode(errors="surrogatepass"))
    return (piece * (characters // len(piece) + 1))[:characters]


def paths(folder: Path) -> Mapping[str, Callable[[str], object]]:
    """Name -> what reads a reply, as a run does."""
    held, letters = TaggedSentence(TOKENS, tuple(ENTITIES.values())), Choice("ABCD", after_reasoning=True)
    thinking = TaggedSentence(TOKENS, tuple(ENTITIES.values()), after_reasoning=True)

    def stored(reply: str) -> object:
        run = RunFolder(folder)
        run.open(set())
        run.append(Completion("default:0", reply, "stop", key="k"))
        run.close()
        rows = list(read_predictions(folder / "predictions.jsonl"))
        (folder / "predictions.jsonl").unlink()
        return rows

    return {
        "mcq": lambda reply: mcq.read(reply, CHOICES),
        "mcq, Hindi": lambda reply: mcq.read(reply, HINDI),
        "ner": lambda reply: ner.read(reply, TOKENS, ENTITIES),
        "ner, lists": lambda reply: ner.read(reply, TOKENS, ENTITIES, "length", lists=True),
        "grammar": lambda reply: (held.accepts(reply), thinking.accepts(reply), letters.accepts(reply)),
        "stored": stored,
    }


def milliseconds(read: Callable[[str], object], reply: str, rounds: int) -> float:
    """The best of some rounds."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        read(reply)
        best = min(best, time.process_time() - start)
    return 1000 * best


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="*", help="only these kinds")
    parser.add_argument("--size", type=int, default=SIZE, help="bytes of a reply")
    parser.add_argument("--slow", type=float, default=100.0, help="milliseconds from which a figure is slow")
    options = parser.parse_args()
    rows, slow = [], []
    with TemporaryDirectory() as place:
        read = paths(Path(place))
        for kind, reply in replies(options.size).items():
            if options.kind and kind not in options.kind:
                continue
            taken = {name: milliseconds(one, reply, ROUNDS) for name, one in read.items()}
            rows.append([kind, *(f"{value:.1f}" for value in taken.values())])
            slow += [f"{kind}, {name}: {value:.1f} ms" for name, value in taken.items() if value > options.slow]
    print(table([f"ms for {options.size:,} bytes", *read], rows))
    print("\n".join([f"\nslower than {options.slow:g} ms: {len(slow)}", *slow]))


if __name__ == "__main__":
    main()
