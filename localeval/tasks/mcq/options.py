"""The options of a row, found by their own texts in a reply."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from localeval.tasks.mcq.languages import Node, add_phrase, and_words, particles
from localeval.tasks.mcq.letters import letters_of
from localeval.tasks.mcq.tokens import Token, key_of, plain, tokenize


@dataclass(frozen=True, slots=True)
class Options:
    """letters: ``ABCD``. root: a tree of the options' words; what two options share leads nowhere.

    strict: whether punctuation counts, for without it two options are one.
    """

    letters: str
    root: Node
    strict: bool

    def match(self, keys: Sequence[str], at: int) -> tuple[str, int] | None:
        """Return the letter of the longest option's text that begins at a token, and the token after its end.

        keys: of each token of the reply, what it adds to the spelling of a text (``key_of``).
        """
        node, found = self.root, None
        while at < len(keys):
            key = keys[at]
            at += 1
            if key:
                following = node.next.get(key)
                if following is None:
                    if found is None and key[0] > "\u0590":  # scripts whose words take particles and copulas
                        found = self._before_particle(node, key, at)
                    break
                node = following
                if node.value is not None:
                    found = node.value, at
        return found

    @staticmethod
    def _before_particle(node: Node, key: str, at: int) -> tuple[str, int] | None:
        """Return the option's text that a word is, before the particle or the copula that ends it."""
        for size in range(len(key) - 1, 1, -1):
            following = node.next.get(key[:size])
            if following is not None and following.value is not None and key[size:] in particles():
                return following.value, at
        return None


@lru_cache(maxsize=4096)
def options_of(choices: tuple[str, ...]) -> Options:
    """Return the options of a row. Raises ValueError for fewer than 2 or more than 26."""
    letters = letters_of(choices)
    spelled = [spelling(choice, False) for choice in choices]
    strict = len(set(spelled)) < len(set(choices))
    if strict:
        spelled = [spelling(choice, True) for choice in choices]
    uses = Counter(spelled)
    root = Node()
    written = [spelling(_SEPARATOR.sub("", choice), strict) for choice in choices]  # "1.500" as "1500"
    if len({*spelled, *written}) == len({*spelled}) + sum(a != b for a, b in zip(spelled, written, strict=True)):
        for letter, keys in zip(letters, written, strict=True):
            if keys and keys not in uses:
                add_phrase(root, keys, letter)
    for letter, keys in zip(letters, spelled, strict=True):
        is_letter = len(keys) == 1 and len(keys[0]) == 1 and keys[0].isalpha()  # it would be taken for a label
        if keys and uses[keys] == 1 and not is_letter:
            add_phrase(root, keys, letter)
    return Options(letters, root, strict)


_SEPARATOR = re.compile(r"(?<=\d)[ .,'\u00a0\u202f](?=\d{3}(?!\d))")
"""What stands between thousands."""


@lru_cache(maxsize=8192)
def spelling(text: str, strict: bool) -> tuple[str, ...]:
    """Return the words, numbers and signs of a text, without case; strict: with its punctuation."""
    return tuple(key for key in keys_of(tokenize(plain(text)), strict) if key)


def keys_of(tokens: Sequence[Token], strict: bool) -> list[str]:
    """Return what each token adds to the spelling of an option's text; every word for "and" is one."""
    keys = [key_of(tokens, at, strict) for at in range(len(tokens))]
    return ["and" if key in and_words() else key for key in keys]
