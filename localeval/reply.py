"""What is done to every reply before its task reads it: reasoning is removed, text is composed. In linear time."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple


class Tags(NamedTuple):
    """What opens a reasoning, and what closes it.

    open: ``""`` if nothing does: ``close`` begins the answer, and everything before it is reasoning.
    """

    open: str
    close: str


THINK = Tags("<think>", "</think>")
HARMONY = Tags("<|channel|>analysis", "<|channel|>final")
REASONING_TAGS = (
    THINK,  # DeepSeek-R1, Qwen3, QwQ, GLM, Phi-4-reasoning, MiMo, Nemotron, Hunyuan ...
    Tags("<thinking>", "</thinking>"),
    Tags("<thought>", "</thought>"),  # EXAONE Deep, Marco-o1
    Tags("<reason>", "</reason>"),
    Tags("<reasoning>", "</reasoning>"),
    Tags("<reflection>", "</reflection>"),
    Tags("<scratchpad>", "</scratchpad>"),
    Tags("[THINK]", "[/THINK]"),  # Magistral
    Tags("<seed:think>", "</seed:think>"),  # Seed-OSS
    Tags("<mm:think>", "</mm:think>"),  # MiniMax-M3
    Tags("<ifm|think>", "</ifm|think>"),  # K2 Horizon, by effort
    Tags("<ifm|think_fast>", "</ifm|think_fast>"),
    Tags("<ifm|think_faster>", "</ifm|think_faster>"),
    Tags("<longcat_think>", "</longcat_think>"),
    Tags("◁think▷", "◁/think▷"),  # Kimi-VL
    Tags("<|open|>think<|sep|>", "<|close|>think<|sep|>"),  # Kimi-K3
    Tags("", "<|open|>response<|sep|>"),
    Tags("<|begin_of_thought|>", "<|end_of_thought|>"),  # Sky-T1, OpenThinker
    Tags("", "<|begin_of_solution|>"),
    Tags("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A Reasoning
    Tags("", "<|START_RESPONSE|>"),
    Tags("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
    Tags("<|channel>thought", "<channel|>"),  # Gemma 4
    Tags("<|channel>", "<channel|>"),
    HARMONY,  # gpt-oss
    Tags("<|channel|>commentary", "<|channel|>final"),
    Tags("", "[BEGIN FINAL RESPONSE]"),  # Apriel
)
"""What models put their reasoning between; written in any case."""

_GLUED = Tags("analysis", "assistantfinal")
_IS_GLUED = re.compile(r"\s*(?:assistant)?analysis(?=[^\W_]|[\"“‘(\[{<`])")
"""gpt-oss again, its special tokens dropped: "analysisThe user asks ...assistantfinalANSWER: B"."""
_FIRST_WORDS = (
    Tags("Here is my thought process:", "Here is my response:"),  # Granite 3.2 and 3.3, which say "is" or "'s"
    Tags("Here's my thought process:", "Here's my response:"),
    Tags("Here is my thought process:", "Here's my response:"),
    Tags("Here's my thought process:", "Here is my response:"),
    Tags("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),  # Apriel
)
"""Plain words, which mean it only as the first ones of a reply, or the last ones of its prompt."""

MOST_READ = 16_384
"""So many characters of an answer are read at the most: of a longer one, its first and its last half of them."""
_WORD_AT_END, _WORD_AT_START = re.compile(r"\S{1,64}\Z"), re.compile(r"\S{1,64}")
_LONG = 1_000
_LIGATURES, _MOST_LIGATURES = ("\ufdfa", "\ufdfb"), 1_000
"""Characters that are 18 and 8 letters, and in how many of each these are told apart."""
_MANY_MARKS = re.compile(rb"[^\0][^\0]{29}")
"""By combining class, so many marks on one letter as are kept together: UAX #15, section 13 (stream-safe text)."""

_QUOTES = frozenset("`'\"‘’“”«»")
_TO_MESSAGE = re.compile(r"[^<]*+(?:<\|constrain\|>[^<]*+)?<\|message\|>")
"""The rest of a harmony header, after the channel's name."""
_ANSWER_ENDS = re.compile(
    r"<\|(?:return|end|end_of_solution|END_RESPONSE)\|>|<\|close\|>response<\|sep\|>|\[END FINAL RESPONSE\]"
)
_NAME = r"[\w:.-]{0,40}(?:think|thought|reason|reflect|scratch)[\w:.-]{0,40}"
_SHOWN = re.compile(rf"<\|?{_NAME}\|?>|\[{_NAME}\]|◁{_NAME}▷", re.ASCII | re.IGNORECASE)


def tags_in(template: str) -> tuple[Tags, ...]:
    """The pairs of tags around reasoning that a chat template shows.

    They are the known ones, and any ``<x>`` with ``</x>``, ``[x]`` with ``[/x]``, ``◁x▷`` with ``◁/x▷``, and
    ``<|begin_x|>`` with ``<|end_x|>`` (``start`` does as well as ``begin``), if x holds think, thought, reason ...
    """
    found = [one for one in REASONING_TAGS if one.open and one.open in template and one.close in template]
    if HARMONY.open in template:  # it shows no channel that is the answer's: it asks for one
        found.insert(0, HARMONY)
    for opening in dict.fromkeys(match[0] for match in _SHOWN.finditer(template)):
        closing = [re.sub("(?i)begin|start", end, opening, count=1) for end in ("end", "END")]
        closing += [f"{opening[:1]}/{opening[1:]}", f"{opening[:2]}/{opening[2:]}"]
        close = next((each for each in closing if each != opening and each in template), None)
        if close is not None:
            found.append(Tags(opening, close))
    return tuple(dict.fromkeys(found))


def opened_by(prompt: str, tags: Sequence[Tags] = ()) -> Tags | None:
    """The tags of the reasoning that a prompt opens at its end, so that the reply begins inside it."""
    end = prompt.rstrip().removesuffix("<|message|>").lower()
    every = (*tags, *REASONING_TAGS, *_FIRST_WORDS)
    return next((one for one in every if one.open and end.endswith(one.open.lower())), None)


def without_reasoning(reply: str, reasoning_opened: bool = False, tags: Sequence[Tags] = ()) -> str | None:
    """The part of a reply after its reasoning, or None if the reasoning never ended.

    Everything up to the last end tag is reasoning, whether or not a start tag opened it: many chat templates put the
    start tag into the prompt (``reasoning_opened``), and then a reply without an end tag is reasoning throughout. So is
    one with a start tag that has no end; a start tag in quotes or backticks is only spoken of.

    tags: the model's own, besides ``REASONING_TAGS``; if the prompt opened the reasoning, the first of them did.
    """
    end, still_open = _scan(reply, reasoning_opened, tags)
    if still_open is not None:
        return None
    if not end:
        return reply
    over = _ANSWER_ENDS.search(reply, end)
    return reply[end : over.start() if over else None]


def closing_tag(reply: str, reasoning_opened: bool = False, tags: Sequence[Tags] = ()) -> str | None:
    """What would end the reasoning that a reply has left open, or None if none is open. Arguments as above."""
    still_open = _scan(reply, reasoning_opened, tags)[1]
    if still_open is None:
        return None
    if still_open.close in (HARMONY.close, _GLUED.close):
        return "<|end|><|start|>assistant<|channel|>final<|message|>"
    return still_open.close


def _scan(reply: str, reasoning_opened: bool, tags: Sequence[Tags]) -> tuple[int, Tags | None]:
    """Where the last reasoning of a reply ends (0 if there is none), and what is still open there.

    A start tag within a reasoning of its own kind says nothing new. An end tag closes its own kind with all that was
    opened within; one that nothing has opened closes everything, for models mix up the names of their tags.
    """
    beginning = reply[:200].lstrip()
    first = tuple(one for one in _FIRST_WORDS if beginning.startswith(one.open))
    if _IS_GLUED.match(reply) or (beginning.startswith(_GLUED.open) and _GLUED.close in reply):
        first = (_GLUED,)
    still_open = [tags[0] if tags else THINK] if reasoning_opened else list(first[:1])
    end = 0
    for start, stop, one, closes in _tags_in_order(reply, (*first, *tags)):
        if start < end:
            continue  # a part of the tag before
        if not closes:
            if one not in still_open and not _in_quotes(reply, start, stop):
                still_open.append(one)
            continue
        closes_of = [each.close for each in still_open]
        del still_open[closes_of.index(one.close) if one.close in closes_of else 0 :]
        header = _TO_MESSAGE.match(reply, stop) if one.close == HARMONY.close else None
        end = header.end() if header else stop
    return end, still_open[0] if still_open else None


def _in_quotes(text: str, start: int, stop: int) -> bool:
    return text[start - 1 : start] in _QUOTES and text[stop : stop + 1] in _QUOTES


def _tags_in_order(text: str, more: tuple[Tags, ...]) -> Iterator[tuple[int, int, Tags, bool]]:
    """Each tag in a text: its start and end, whose it is, and whether it closes. Of two in one place the longer first.

    Each is looked for by itself: ``str.find`` takes a text of tags' beginnings, such as ``<<<<``, much faster than a
    pattern of all of them does.
    """
    small = text.lower() if "\u0130" not in text else text.replace("\u0130", "i").lower()  # the one that grows
    kinds, by_initial = _kinds(more)
    found = []
    for initial, tags in by_initial.items():
        for rank, tag in tags if initial in small else ():
            at = small.find(tag)
            while at >= 0:
                found.append(at * len(kinds) + rank)  # one number each: a million are sorted in a moment
                at = small.find(tag, at + len(tag))
    found.sort()
    for each in found:
        at, rank = divmod(each, len(kinds))
        length, one, closes = kinds[rank]
        yield at, at + length, one, closes


@lru_cache(maxsize=64)
def _kinds(more: tuple[Tags, ...]) -> tuple[list[tuple[int, Tags, bool]], dict[str, list[tuple[int, str]]]]:
    """Each tag's length, whose it is, and whether it closes, the longest first; by first character their ranks."""
    whose: dict[str, tuple[Tags, bool]] = {}
    for one in (*more, *REASONING_TAGS):
        whose.setdefault(one.close.lower(), (one, True))
        if one.open:
            whose.setdefault(one.open.lower(), (one, False))
    ranked = sorted(whose, key=len, reverse=True)
    by_initial: dict[str, list[tuple[int, str]]] = {}
    for rank, tag in enumerate(ranked):
        by_initial.setdefault(tag[0], []).append((rank, tag))
    return [(len(tag), *whose[tag]) for tag in ranked], by_initial


def shortened(answer: str, most: int = MOST_READ) -> str:
    """Return what is read of an answer; no word is cut in two, but for one of more than 64 characters."""
    if len(answer) <= most:
        return answer
    half = most // 2
    return _WORD_AT_END.sub("", answer[:half]) + "\n" + _WORD_AT_START.sub("", answer[-half:], count=1)


def composed(text: str) -> str:
    """A text's compatibility composition (NFKC), in time that grows with its length.

    Thousands of the two longest ligatures become U+FFFD. Putting many marks of one letter into order takes the square
    of their number, so that a long text is cut after each 30 of them by a character of its own (U+034F), as Unicode
    advises.
    """
    if len(text) > _LONG and not unicodedata.is_normalized("NFKC", text):
        for ligature in _LIGATURES:
            if text.count(ligature) > _MOST_LIGATURES:
                text = text.replace(ligature, "\ufffd")
        classes = bytes(map(unicodedata.combining, text))
        cuts = [0, *(marks.end() for marks in _MANY_MARKS.finditer(classes)), len(text)]
        text = "\u034f".join(text[start:end] for start, end in pairwise(cuts))
    return unicodedata.normalize("NFKC", text)
