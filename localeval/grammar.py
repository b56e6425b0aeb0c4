"""What a constrained reply may be: values, made from a sample; each gives an ``outlines`` term and its own check.

Pure; knows nothing about models, tokenizers or engines. ``term`` is what an engine is told, ``accepts`` is written
without it, so that a reply can be checked against its grammar after generation.

The grammars of sentences are parametric ones of llguidance (its docs/parametric.md): a rule carries a number, here
position * 256 + the open type, so that the number of rules does not grow with the sentence or the types. Measured
against other forms in docs/decisions/0007-grammars.md.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outlines.types.dsl import Term

ANSWER = "ANSWER: "
OPEN, CLOSE = "<response>", "</response>"
END_OF_REASONING = "</think>"

_MAX_TYPES = 256
# llguidance takes 2,000 items in a row of its parser, and its last row holds four for each token that is tagged alone.
_MAX_TOKENS = 480
_TYPE, _POSITION = "[0:8]", "[8:24]"
_POSITION_BITS = "0xffff00"
# What a model says before its answer is free up to the first end tag; then the answer, after white space.
_REASONING = f'start: thought SPACE answer\nthought[suffix="{END_OF_REASONING}"]: /(?s:.*)/\nSPACE: /\\s{{0,8}}/\n'


@dataclass(frozen=True, slots=True)
class Choice:
    """Exactly ``ANSWER: X``, X one of the letters. after_reasoning: free text up to ``</think>`` goes before it."""

    letters: str
    after_reasoning: bool = False

    def term(self) -> Term:
        """One of a few texts: the same pattern for all rows of so many options."""
        from outlines.types import CFG
        from outlines.types.dsl import either

        if not self.after_reasoning:
            term: Term = ANSWER + either(*self.letters)
            return term
        letters = " | ".join(_literal(letter) for letter in self.letters)
        return CFG(f"{_REASONING}answer: {_literal(ANSWER)} ({letters})")

    @property
    def texts(self) -> list[str]:
        """Every answer there is."""
        return [f"{ANSWER}{letter}" for letter in self.letters]

    def accepts(self, text: str) -> bool:
        """Whether a whole reply is in the grammar."""
        answer = _after_reasoning(text) if self.after_reasoning else text
        return answer in self.texts

    @property
    def longest(self) -> int:
        """The most bytes that an answer has, reasoning left out."""
        return len(ANSWER) + 1


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """``<response>``, the tokens joined by one space and copied character for character, ``</response>``.

    A run of whole tokens may stand in a tag: ``<person>John Smith</person>``. Tags are never nested and never empty;
    every tag is closed. tags: the names that may stand in one. after_reasoning: as in ``Choice``.
    """

    tokens: tuple[str, ...]
    tags: tuple[str, ...]
    after_reasoning: bool = False

    def __post_init__(self) -> None:
        if not self.tokens or not all(self.tokens):
            raise ValueError("a sentence has tokens, and none of them is empty")
        if len(self.tokens) > _MAX_TOKENS or not 1 <= len(self.tags) <= _MAX_TYPES:
            raise ValueError(
                f"a grammar takes up to {_MAX_TOKENS} tokens and 1 to {_MAX_TYPES} tags, "
                f"not {len(self.tokens):,} and {len(self.tags)}"
            )
        " ".join(self.tokens).encode()  # half a surrogate pair is an error here, and not in the engine

    def term(self) -> Term:
        """The grammar of this one sentence; its size is that of the sentence and the tag names together."""
        from outlines.types import CFG

        return CFG(self.definition())

    def definition(self) -> str:
        """The grammar in llguidance's Lark syntax.

        outside, inside: what may follow before the token at the rule's position; after, gap: what may follow it.
        """
        last = len(self.tokens) - 1
        words = (f"{_literal(token)} %if eq({_POSITION}, {index})" for index, token in enumerate(self.tokens))
        opened = (f"{_literal(f'<{tag}>')} inside::bit_or({kind})" for kind, tag in enumerate(self.tags))
        closed = (
            f"{_literal(f'</{tag}>')} after::bit_and({_POSITION_BITS}) %if eq({_TYPE}, {kind})"
            for kind, tag in enumerate(self.tags)
        )
        rules = [
            f"answer: {_literal(OPEN)} outside::0",
            _rule("outside::_", "word::_ after::_", *opened),
            _rule("inside::_", "word::_ gap::_"),
            _rule("gap::_", f'" " inside::incr({_POSITION}) %if lt({_POSITION}, {last})', *closed),
            _rule(
                "after::_",
                f'" " outside::incr({_POSITION}) %if lt({_POSITION}, {last})',
                f"{_literal(CLOSE)} %if eq({_POSITION}, {last})",
            ),
            _rule("word::_", *words),
        ]
        return (_REASONING if self.after_reasoning else "start: answer\n") + "\n".join(rules)

    def accepts(self, text: str) -> bool:
        """Whether a whole reply is in the grammar.

        The ways to read the text so far are walked together, one token at a time: a token may itself look like a tag,
        and then there are several.
        """
        answer = _after_reasoning(text) if self.after_reasoning else text
        if answer is None or not answer.startswith(OPEN):
            return False
        states: set[tuple[int, str]] = {(len(OPEN), "")}  # where the next token begins, and the tag that is open
        for index, token in enumerate(self.tokens):
            if index:
                states = {(at + 1, tag) for at, tag in states if answer.startswith(" ", at)}
            states |= {
                (at + len(tag) + 2, tag)
                for at, inside in states
                if not inside
                for tag in self.tags
                if answer.startswith(f"<{tag}>", at)
            }
            states = {(at + len(token), tag) for at, tag in states if answer.startswith(token, at)}
            states |= {(at + len(tag) + 3, "") for at, tag in states if tag and answer.startswith(f"</{tag}>", at)}
        return any(not tag and answer[at:] == CLOSE for at, tag in states)

    @property
    def longest(self) -> int:
        """The most bytes that an answer has: every token tagged alone, by the longest name; reasoning left out."""
        tags = 5 + 2 * max(len(tag.encode()) for tag in self.tags)  # <t></t>
        tokens = sum(len(token.encode()) for token in self.tokens)
        return len(OPEN) + len(CLOSE) + tokens + len(self.tokens) - 1 + tags * len(self.tokens)


def _rule(name: str, *alternatives: str) -> str:
    return f"{name}: " + "\n | ".join(alternatives)


_CONTROL = re.compile(r"[\x7f-\x9f]")  # JSON leaves these as they are, and llguidance takes none of them bare


def _literal(text: str) -> str:
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False))


def _after_reasoning(text: str) -> str | None:
    """What follows the first ``</think>`` and a little white space; None where there is none."""
    _, found, answer = text.partition(END_OF_REASONING)
    space = re.match(r"\s{0,8}", answer)
    return answer[space.end() :] if found and space else None
