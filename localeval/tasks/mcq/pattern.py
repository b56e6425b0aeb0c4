"""How replies answer by a pattern of the dataset's own (``answer_pattern``), if its prompt asks for a form of its own.

The pattern runs in RE2, through pyarrow: its time grows with the text whatever the pattern, but for patterns of many
states, which ``check`` refuses by trying them.
"""

from __future__ import annotations

import random
import time
import unicodedata
from collections.abc import Sequence

from localeval.reply import Tags, without_reasoning
from localeval.tasks.mcq.letters import letters_of
from localeval.tasks.mcq.parse import Reading

LONGEST = 500
"""Characters of a pattern."""
MOST_READ = 8_192
"""Characters that a pattern is searched in, the last ones of a reply: in a hostile one, each of its matches may look at
all that follows."""
_SECONDS = 0.1
"""What a pattern may take for 2,048 characters that are made to be hard; a usual one takes 0.003 s."""
_EXAMPLE = "'answer is ([A-D])'"
_START, _END = "\ue000", "\ue001"  # of a private area: taken out of the reply before


def check(pattern: str) -> None:
    """Raise ValueError, which says what to do, for a pattern that can't say how replies answer."""
    import pyarrow as pa

    if len(pattern) > LONGEST:
        raise ValueError(f"it has {len(pattern):,} characters; at most {LONGEST} make a pattern")
    try:
        _marked(pattern, "x")
    except pa.ArrowInvalid as error:
        if "0 parenthesized" in str(error):
            raise ValueError(f"{pattern!r} has no group: put the answer's part in brackets, as in {_EXAMPLE}") from None
        raise ValueError(
            f"{str(error).strip()}; the syntax is RE2's, without look-around and references to groups; a working "
            f"one is {_EXAMPLE}"
        ) from None
    if _groups_are_several(pattern):
        raise ValueError(f"{pattern!r} has more than one group: write (?:...) for those that are not the answer")
    if _START in _marked(pattern, ""):
        raise ValueError(f"{pattern!r} matches the empty text: it must ask for a letter or a word at least")
    for length in (256, 1_024, 2_048):
        seconds = _seconds(pattern, length)
        if seconds > _SECONDS:
            raise ValueError(
                f"{pattern!r} takes {seconds:.1f} s for {length:,} characters: leave out repeats of many different "
                "characters, such as .{100} or .*x.*y"
            )


def read(
    pattern: str, reply: str, choices: Sequence[str], reasoning_opened: bool = False, tags: Sequence[Tags] = ()
) -> Reading:
    """Read a reply by a pattern that ``check`` has passed: the group of its last match, a letter or an option's text.

    tags: as in ``without_reasoning``.
    """
    answer = without_reasoning(reply, reasoning_opened, tags)
    if answer is None:
        return Reading(None, "reasoning")
    said = _last_group(pattern, answer[-MOST_READ:])
    letters = letters_of(choices)
    letter = unicodedata.normalize("NFKC", said).upper()
    if len(letter) == 1 and letter in letters:
        return Reading(letter)
    same = [letter for letter, choice in zip(letters, choices, strict=True) if _folded(choice) == _folded(said)]
    return Reading(same[0]) if said and len(same) == 1 else Reading(None, "no_claim")


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _last_group(pattern: str, text: str) -> str:
    """What the group of the last match holds; ``""`` if nothing matches."""
    for mark in (_START, _END):
        text = text.replace(mark, "")
    before, found, _ = _marked(pattern, text).rpartition(_END)
    return before.rpartition(_START)[2] if found else ""


def _marked(pattern: str, text: str, group: int = 1) -> str:
    """A text with each match replaced by its group, between two marks."""
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = text.encode("utf-8", "replace").decode()  # half a surrogate pair has no place in UTF-8
    marked = pc.replace_substring_regex(pa.scalar(whole), pattern=pattern, replacement=f"{_START}\\{group}{_END}")
    return str(marked.as_py())


def _groups_are_several(pattern: str) -> bool:
    import pyarrow as pa

    try:
        _marked(pattern, "x", group=2)
    except pa.ArrowInvalid:
        return False
    return True


def _seconds(pattern: str, length: int) -> float:
    """The most CPU seconds for texts of the pattern's own characters, in an order that repeats nothing.

    In each text one of the characters is missing, so that what the pattern waits for may never come.
    """
    own = sorted(set(filter(str.isalnum, pattern)))
    longest = 0.0
    for missing in ("", *own):
        draw = random.Random(length)
        text = "".join(draw.choices([each for each in [*own, *"AB "] if each != missing], k=length))
        start = time.thread_time()
        _marked(pattern, text)
        longest = max(longest, time.thread_time() - start)
    return longest
