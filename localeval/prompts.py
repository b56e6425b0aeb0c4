"""Messages -> token ids: the chat template once, one BOS. Knows nothing about tasks or engines."""

from __future__ import annotations

import copy
import functools
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from localeval.remote_code import why_not_run
from localeval.reply import HARMONY, Tags, opened_by, tags_in
from localeval.schema import LocalevalError

BATCH = 512
"""Prompts rendered and tokenised together: enough for the tokenizer's threads, little enough for memory."""
_RAISED_INSIDE = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What a template's own expressions and filters can raise."""
_PADDED = 0.9
"""Of a model's tokens, the part that its tokenizer knows at the least: models are padded to round numbers, by 2% at
the most among those that are known (Phi-2: 50,295 of 51,200)."""


class TemplateRefuses(LocalevalError):
    """A chat template that raises. place: of the message among those that were to be encoded, where that is known."""

    place: int | None = None


class Prompter:
    """A model's tokenizer and chat template.

    thinking: what the template does about reasoning: ``on``, ``off``, or ``none`` where it knows no such switch.
    reasoning_opened: the prompt itself ends in ``<think>`` or the like, so that a reply begins inside the reasoning.
    reasoning_tags: what the model's reasoning stands between: the pair that the prompt has opened, if it has, then the
    user's own, then those that the template shows.
    """

    def __init__(
        self,
        folder: Path,
        *,
        thinking: str | None = None,
        template_args: Mapping[str, Any] | None = None,
        trust_remote_code: bool = False,
        reasoning_tags: Sequence[Tags] = (),
    ) -> None:
        """thinking: ``on``, ``off`` or None for the template's default. reasoning_tags: the user's own.

        Raises LocalevalError.
        """
        self._tokenizer = _load_tokenizer(folder, trust_remote_code)
        self._folder = folder
        self.name = folder.name
        self.has_template = bool(self._tokenizer.chat_template)
        self.warnings: list[str] = []
        args = dict(template_args or {})
        if not self.has_template:
            self.warnings.append(f"{folder.name} has no chat template: it is given the plain prompt")
            if thinking is not None:
                raise LocalevalError(f"--thinking {thinking}: {folder.name} has no chat template to switch it in")
        elif thinking is not None:
            if not self._has_switch(args):
                self.warnings.append(f"--thinking {thinking}: the chat template of {folder.name} has no such switch")
            args["enable_thinking"] = thinking == "on"
        self.template_args: dict[str, Any] = args
        self._shown = tags_in(_source(self._tokenizer.chat_template))
        self._given = tuple(reasoning_tags)
        self._look_at_reasoning()
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is not None:
            backend.no_padding()
            backend.no_truncation()
        self._backend = backend
        self._appended = self._count_appended()

    def _count_appended(self) -> int:
        """How many special tokens the tokenizer puts after a text."""
        bare, whole = (list(next(self._encode(["x"], special))) for special in (False, True))
        ends = (end for end in range(len(whole), 0, -1) if whole[end - len(bare) : end] == bare)
        return len(whole) - next(ends, len(whole))

    def without_thinking(self) -> Prompter:
        """The same, with the template's reasoning switched off where it has a switch."""
        if not self.has_template or not self._has_switch(self.template_args):
            return self
        other = copy.copy(self)
        other.template_args = {**self.template_args, "enable_thinking": False}
        other._look_at_reasoning()
        return other

    def without_template(self) -> Prompter:
        """The same tokenizer for plain text: what a base model is given."""
        other = copy.copy(self)
        other.has_template, other.template_args = False, {}
        other._look_at_reasoning()
        return other

    def _has_switch(self, args: Mapping[str, Any]) -> bool:
        on, off = (self._render(["x"], None, {**args, "enable_thinking": value})[0] for value in (True, False))
        return on != off

    def _look_at_reasoning(self) -> None:
        self.thinking, opened = self._thinking()
        self.reasoning_opened = opened is not None
        self.reasoning_tags = tuple(dict.fromkeys([*([opened] if opened else []), *self._given, *self._shown]))

    def _thinking(self) -> tuple[str, Tags | None]:
        """What the template does about reasoning, and the tags of the one that it opens."""
        if not self.has_template:
            return "none", None
        rendered = self._render(["x"], None, self.template_args)[0]
        opened = opened_by(rendered, (*self._given, *self._shown))
        if opened:
            return "on", opened
        if not self._has_switch(self.template_args):
            return ("on" if HARMONY in self._shown else "none"), None  # those models always reason
        on = self._render(["x"], None, {**self.template_args, "enable_thinking": True})[0]
        return ("on" if rendered == on else "off"), None

    def _render(self, users: Sequence[str], system: str | None, args: Mapping[str, Any]) -> list[str]:
        if not self.has_template:
            return [user if system is None else f"{system}\n\n{user}" for user in users]
        head = [] if system is None else [{"role": "system", "content": system}]
        chats = [[*head, {"role": "user", "content": user}] for user in users]
        import jinja2

        try:
            rendered = self._tokenizer.apply_chat_template(chats, tokenize=False, add_generation_prompt=True, **args)
        except (jinja2.TemplateError, *_RAISED_INSIDE) as error:
            kind = "" if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: "
            raise TemplateRefuses(f"the chat template of {self._folder} refuses the messages: {kind}{error}") from error
        return list(rendered)

    def render(self, users: Sequence[str], system: str | None = None, start: str = "") -> list[str]:
        """The text that each user message becomes. start: as for ``encode``."""
        between = "\n" if start and not self.has_template else ""
        return [f"{text}{between}{start}" for text in self._render(users, system, self.template_args)]

    def rendered(self, users: Iterable[str], system: str | None = None, start: str = "") -> Iterator[str]:
        """The same, of any number of them, one at a time."""
        for batch in _batches(users):
            yield from self.render(batch, system, start)

    def encode(self, users: Iterable[str], system: str | None = None, start: str = "") -> Iterator[array[int]]:
        """The token ids of each message's prompt, in order, 4 bytes an id.

        A chat template writes its own BOS, so none is added; a plain prompt gets the special tokens that the tokenizer
        begins with, and none that it ends with, for a reply is to follow. start: what the reply begins with: it stands
        in the assistant's turn, or in a plain prompt on a new line.
        """
        done = 0
        for batch in _batches(users):
            try:
                texts = self.render(batch, system, start)
            except TemplateRefuses as error:
                error.place = done + self._first_refused(batch, system)
                raise
            done += len(batch)
            for ids in self._encode(texts, special=not self.has_template):
                yield ids if self.has_template else ids[: len(ids) - self._appended]

    def _first_refused(self, users: Sequence[str], system: str | None) -> int:
        for place, user in enumerate(users):
            try:
                self.render([user], system)
            except TemplateRefuses:
                return place
        return 0  # the template tells them apart by more than themselves

    def continuations(self, start: str, texts: Iterable[str]) -> list[tuple[int, ...] | None]:
        """The token ids that each text adds where it follows ``start``.

        None where the tokenizer joins the end of the one with the beginning of the other, so that nothing is added.
        """
        (before,) = self._encode([start], special=False)
        found: list[tuple[int, ...] | None] = []
        for batch in _batches(start + text for text in texts):
            for ids in self._encode(batch, special=False):
                found.append(tuple(ids[len(before) :]) if ids[: len(before)] == before else None)
        return found

    def ids_after(self, start: str, text: str) -> Sequence[int]:
        """The token ids of a text that follows ``start``; of the text alone where the tokenizer joins the two."""
        (found,) = self.continuations(start, [text])
        return next(self._encode([text], special=False)) if found is None else found

    def without_end(self, ids: Sequence[int]) -> Sequence[int]:
        """The same tokens of a reply without the one that ended its turn."""
        special = self._tokenizer.added_tokens_decoder
        ended = ids and (ids[-1] == self.end_token_id or (ids[-1] in special and special[ids[-1]].special))
        return ids[:-1] if ended else ids

    @functools.cached_property
    def vocabulary(self) -> int:
        """One more than the tokenizer's highest token id."""
        return 1 + max(self._tokenizer.get_vocab().values(), default=-1)

    @property
    def end_token_id(self) -> int | None:
        """The token that ends a reply."""
        end: int | None = self._tokenizer.eos_token_id
        return end

    @property
    def special_texts(self) -> list[str]:
        """What the tokenizer takes for a special token wherever it stands."""
        return [str(token) for token in self._tokenizer.added_tokens_decoder.values() if token.special]

    @property
    def reasons_in_special_tokens(self) -> bool:
        """Whether the tags of the model's reasoning hold special tokens, so that a text without those lacks them."""
        tags = [tag for pair in self.reasoning_tags for tag in pair]
        return any(special in tag for special in filter(None, self.special_texts) for tag in tags)

    @property
    def bare_tokenizer(self) -> Any:
        """The ``tokenizers.Tokenizer`` underneath; None for a tokenizer that is written in Python."""
        return self._backend

    def lengths(self, texts: Iterable[str]) -> list[int]:
        """How many tokens each text is, by itself."""
        return [len(ids) for batch in _batches(texts) for ids in self._encode(batch, special=False)]

    def _encode(self, texts: list[str], special: bool) -> Iterator[array[int]]:
        if self._backend is not None:
            for encoding in self._backend.encode_batch_fast(texts, add_special_tokens=special):
                yield array("I", encoding.ids)
        else:
            for ids in self._tokenizer(texts, add_special_tokens=special)["input_ids"]:
                yield array("I", ids)


def _source(template: Any) -> str:
    """The text of a chat template; of several by name, of all of them."""
    return "\n".join(map(str, template.values())) if isinstance(template, Mapping) else str(template or "")


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    source = iter(texts)
    while batch := list(islice(source, BATCH)):
        yield batch


def _load_tokenizer(folder: Path, trust_remote_code: bool) -> Any:
    from transformers import AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError, RecursionError) as error:
        code = "" if trust_remote_code else why_not_run(folder)
        raise LocalevalError(f"{folder}: the tokenizer can't be loaded: {error}{code}") from error


def context_length(folder: Path, trust_remote_code: bool = False) -> int | None:
    """How many tokens the model can attend to, by its config; None where that says nothing."""
    length = getattr(_text_config(folder, trust_remote_code), "max_position_embeddings", None)
    return int(length) if length else None


def vocabulary_of(folder: Path, trust_remote_code: bool = False) -> int | None:
    """How many tokens the model knows, padding included, by its config; None where that says nothing."""
    return _vocabulary_in(_text_config(folder, trust_remote_code))


def _vocabulary_in(config: Any) -> int | None:
    size = getattr(config, "vocab_size", None)
    return size if isinstance(size, int) and size > 0 else None


def misfits(folder: Path, prompter: Prompter, trust_remote_code: bool = False) -> list[str]:
    """What looks as if the tokenizer were another model's, in sentences: it may be meant all the same."""
    found = []
    config = _text_config(folder, trust_remote_code)
    size, known = _vocabulary_in(config), prompter.vocabulary
    if size is not None and known < _PADDED * size:
        found.append(
            f"{folder} knows {size:,} tokens and its tokenizer {known:,}, much fewer than padding explains: is the "
            "tokenizer that of this model?"
        )
    for name in ("bos_token_id", "eos_token_id"):
        said = getattr(config, name, None)
        ids = said if isinstance(said, list) else [said]
        if beyond := [each for each in ids if isinstance(each, int) and each >= known]:
            found.append(
                f"{folder}/config.json: {name} {beyond[0]:,} is no token of its tokenizer, which has {known:,}"
            )
    return found


def _text_config(folder: Path, trust_remote_code: bool) -> Any:
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        code = "" if trust_remote_code else why_not_run(folder)
        raise LocalevalError(f"{folder}: config.json can't be read: {error}{code}") from error
    return config.get_text_config()
