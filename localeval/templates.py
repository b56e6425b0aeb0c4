"""Prompt templates: text with ``{places}``. Pure; the words are the dataset's, not ours."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass

from localeval.nearest import nearest

_PLACE = re.compile(r"\{([A-Za-z_]\w*)\}")


@dataclass(frozen=True, slots=True)
class Templates:
    """prompt: one sample. shot: one example. shots_prompt: ``{shots}`` and ``{prompt}`` together.

    cloze: a question that an option's text is to follow (MCQ).
    """

    prompt: str
    shot: str
    shots_prompt: str
    cloze: str = ""


def places(template: str) -> list[str]:
    """The names of a template's places, as often as they stand in it."""
    return _PLACE.findall(template)


def fill(template: str, values: Mapping[str, str]) -> str:
    """Replaces each place once; what is filled in is not looked at again, and braces of other kinds are text."""
    return _PLACE.sub(lambda match: values.get(match[1], match[0]), template)


def check(name: str, template: str, known: Set[str], needed: Set[str]) -> None:
    """Raises ValueError for a place that nothing fills, or a needed one that is missing."""
    for place in places(template):
        if place not in known:
            hint = nearest(place, known)
            raise ValueError(f"{name}: nothing fills {{{place}}}{hint}; known: {', '.join(sorted(known))}")
    for place in sorted(needed - set(places(template))):
        raise ValueError(f"{name}: {{{place}}} must stand in it")
