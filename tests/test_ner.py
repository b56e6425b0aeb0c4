"""How tagged replies are read. Each expected tag was decided by reading the reply, not by the code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localeval import tags_from_reply
from localeval.schema import Sample, Tally
from localeval.tasks.ner import parse as ner_parse
from localeval.tasks.ner import task as ner

ENTITIES = {"PER": "person", "LOC": "location"}


def test_every_given_case(shared: Path) -> None:
    wrong = []
    cases = [json.loads(line) for line in (shared / "cases" / "ner_replies.jsonl").read_text().splitlines()]
    for case in cases:
        tags = tags_from_reply(case["reply"], case["tokens"], case["entities"], case["finish_reason"])
        if tags != case["tags"]:
            wrong.append((case["note"], case["reply"], tags, case["tags"]))
    assert wrong == []
    assert len(cases) == 23


def test_hard_cases(shared: Path) -> None:
    """By default the two lists are unparsed; with ``lists`` every reply is read."""
    cases = [json.loads(line) for line in (shared / "cases" / "ner_hard.jsonl").read_text().splitlines()]
    assert len(cases) == 29
    wrong: dict[bool, list[str]] = {False: [], True: []}
    for case in cases:
        for lists in wrong:
            reading = ner_parse.read(
                case["reply"], case["tokens"], case["entities"], case["finish_reason"], lists=lists
            )
            if (reading.tags or ["O"] * len(case["tokens"])) != case["tags"]:
                wrong[lists].append(case["id"])
                assert reading.tags is None  # never a wrong number
                assert reading.reason == "other_format"
    assert wrong == {False: ["n019", "n025"], True: []}  # n019 JSON, n025 lines of types: unparsed without --read lists


FOUR = {"PER": "person", "ORG": "organization", "LOC": "location", "MISC": "miscellaneous"}
SARAH = "Sarah Klein joined Siemens in Munich last year ."
TAGS = "B-PER I-PER O B-ORG O B-LOC O O O"
MARKED = (
    "<person>Sarah Klein</person> joined <organization>Siemens</organization> "
    "in <location>Munich</location> last year ."
)
NO_TAGS = "O O O O O O O O O"
UNREAD = None
OWN: list[tuple[str | None, str, str]] = [
    # comments and copies
    (TAGS, SARAH, f"Here it is:\n{MARKED}\n\nI tagged Sarah Klein (person) and Munich (location)."),
    (TAGS, SARAH, f"<response>{MARKED} (Entities: Sarah Klein - person)</response>"),
    (TAGS, SARAH, f"<response>{MARKED}\nNote: last year is a date.</response>"),
    (TAGS, SARAH, f"1. {MARKED}"),
    (TAGS, SARAH, f"{SARAH} -> {MARKED}"),
    (TAGS, SARAH, f"<response>{MARKED}</response><response>{SARAH}</response>"),
    (TAGS, SARAH, f"<response>{SARAH}</response>\n{MARKED}"),
    (TAGS, SARAH, f"<response></response>\n{MARKED}"),
    (TAGS, SARAH, f"<response>Tom Ford left Gucci .</response>\n{MARKED}"),
    (TAGS, SARAH, f"{SARAH.replace('joined', 'has joined')}\n{MARKED.replace('joined', 'has joined')}"),
    ("B-LOC O O", "Japan beat Syria", "<location>Japan</location> beat <location>Syria</location>\n"
        "Correction: <location>Japan</location> beat Syria"),
    ("O O O O O", "It rained on Friday .", "<response>It rained on Friday .</response>\n\nInput: It snowed in Paris on "
        "Friday .\nOutput: <response>It snowed in <location>Paris</location> on Friday .</response>"),
    # changed text
    (TAGS, SARAH, MARKED.removesuffix(" .")),
    (TAGS, SARAH, MARKED.replace(" .", " !")),
    (TAGS, SARAH, MARKED.replace("joined", "has joined").replace("last", "the last")),
    ("B-PER I-PER O B-ORG O O O O O", SARAH, MARKED.replace("Munich", "Berlin")),
    ("O O B-LOC O", "in New York now", "in <location>Old York</location> now"),
    ("B-LOC O B-LOC O", "Gdańsk and Łódź won", "<location>Gdansk</location> and <location>Lodz</location> won"),
    ("O O O O B-PER", "`` Hello '' said Ann", '"Hello" said <person>Ann</person>'),
    ("O O O B-LOC", "2020 – 21 Paris", "2020-21 <location>Paris</location>"),
    ("B-PER O O", "സമീർ അവന്‍ വന്നു", "<person>സമീര്‍</person> അവൻ വന്നു"),
    ("B-PER O O", "മോഹൻ ഇന്നലെ വന്നു", "<person>മോഹന്\u200d</person> ഇന്നലെ വന്നു"),
    ("B-LOC O", "पढ़ोली में", "<location>पढ\u093cोली</location> में"),
    ("O O", "राम गया", "<person>रमा</person> गया"),  # vowel signs are no accents: another name
    ("B-PER I-PER O", "Ann\u200b Lee left", "<person>Ann Lee</person> left"),
    ("O O B-PER", "王 说 张三", "王 说 <person>张三</person>"),
    ("B-LOC O", "İstanbul güzel", "<location>Istanbul</location> guzel"),
    ("B-ORG I-ORG I-ORG O", "AT & T rose", "<organization>AT&amp;T</organization> rose"),
    # tags
    (TAGS, SARAH, MARKED.replace("person", "people").replace("organization", "Organisations")),
    (TAGS, SARAH, MARKED.replace("<person>", '<entity id="1" type="PER">').replace("</person>", "</entity>")),
    (TAGS, SARAH, MARKED.replace("<person>", "<mark data-entity='person'>").replace("</person>", "</mark>")),
    (TAGS, SARAH, MARKED.replace("<", "[").replace(">", "]")),
    (TAGS, SARAH, MARKED.replace("</", "<")),
    (TAGS, SARAH, MARKED.replace("<", "\n<").replace(">", ">\n")),
    (TAGS, SARAH, MARKED.replace("Sarah", "<b>Sarah</b>").replace("joined", "<i>joined</i>")),
    (TAGS, SARAH, MARKED.replace("Sarah", "*Sarah*").replace("joined", "__joined__")),
    ("B-PER O B-PER", "Ann met Bo", "<person>Ann<person> met <person>Bo</person>"),
    ("B-PER O B-PER", "Ann met Bo", "<person>Ann<person> met <person>Bo<person>"),
    ("B-PER O B-PER", "Ann met Bo", "<person>Ann</> met <person>Bo<person/>"),
    ("O O O", "Ann met Bo", "<person>Ann met Bo"),
    ("O O B-PER", "Ann met Bo", "<person>Ann met <person>Bo</person>"),
    ("B-PER I-PER I-PER", "Ann met Bo", "<person>Ann <person>met</person> Bo</person>"),
    ("O O B-PER", "Ann met Bo", '<entity type="dish">Ann</entity> met <entity type="person">Bo</entity>'),
    ("O O O O B-PER", "a < b said Ann", "a &lt; b said <person>Ann</person>"),
    ("O O O B-PER", "a <b> c Ann", "a <b> c <person>Ann</person>"),
    ("O B-PER O", "( Ann )", "( <person>Ann</person> )"),
    ("O O B-PER", "[ person Ann", "[ person <person>Ann</person>"),
    ("O O B-LOC", "Location : Munich", "<response>Location : <location>Munich</location></response>"),
    ("B-PER O O O", "Ann ( person )", "<person>Ann</person> ( person )"),
    # JSON
    (TAGS, SARAH, json.dumps({"sentence": SARAH, "tagged": MARKED})),
    (TAGS, SARAH, '{"response": "' + MARKED.replace("</", "<\\/")),
    (TAGS, SARAH, json.dumps([{"output": MARKED}])),
    (NO_TAGS, SARAH, json.dumps({"response": SARAH})),
    # no entities
    (NO_TAGS, SARAH, f"<response>{SARAH}</response> There are no person, location or organization entities."),
    (NO_TAGS, SARAH, f'The sentence "{SARAH}" has no named entities.'),
    ("O", "Germany", "Germany"),
    ("O O O", "Location : Munich", "<response>Location : Munich</response>"),
    (NO_TAGS, SARAH, f"{SARAH}\n\nPerson: none\nOrganization:\nLocation: -"),
    (TAGS, SARAH, f"<response>{MARKED}</response>\n<response><person>{SARAH}</response>"),  # a copy with no entity
    # other forms
    (UNREAD, SARAH, "Sarah Klein (person) joined Siemens (organization) in Munich (location) last year ."),
    (UNREAD, SARAH, "Sarah Klein <person> joined Siemens <organization> in Munich <location> last year ."),
    (UNREAD, SARAH, "Sarah Klein [PER] joined Siemens [ORG] in Munich [LOC] last year ."),
    (UNREAD, SARAH, "[PER Sarah Klein] joined Siemens in Munich last year ."),
    (UNREAD, SARAH, "<Sarah Klein|person> joined Siemens in Munich last year ."),
    (UNREAD, SARAH, "Sarah Klein joined <organization: Siemens> in Munich last year ."),
    (UNREAD, SARAH, "Sarah_PER Klein_PER joined Siemens_ORG in Munich_LOC last year ."),
    (UNREAD, SARAH, "Sarah B-PER\nKlein I-PER\njoined O\nSiemens B-ORG\nin O\nMunich B-LOC\nlast O\nyear O\n. O"),
    (UNREAD, "It rained heavily on Friday .", "It\tO\nrained\tO\nheavily\tO\non\tO\nFriday\tO\n.\tO"),
    (UNREAD, SARAH, f"{SARAH}\nB-PER I-PER O B-ORG O B-LOC O O O"),
    (UNREAD, SARAH, f"{SARAH}\n\nPerson: Sarah Klein\nOrganization: Siemens\nLocation: Munich"),
    (UNREAD, SARAH, f"<response>{SARAH}\n\n- Sarah Klein: person\n- Siemens: organization</response>"),
    (UNREAD, SARAH, json.dumps({"text": SARAH, "entities": [{"text": "Sarah Klein", "label": "PER"}]})),
    (UNREAD, SARAH, json.dumps({"tokens": SARAH.split(), "tags": TAGS.split()})),
    # names alone, in the tags that were asked for, each of which stands in the sentence once
    ("B-LOC O B-LOC", "Japan beat Syria", "<location>Japan</location>\n<location>Syria</location>"),
    (TAGS, SARAH, "<person>Sarah Klein</person>, <organization>Siemens</organization>, <location>Munich</location>"),
    ("O O B-LOC", "Japan beat Syria", "<response><location>Syria</location></response>"),
    (UNREAD, "Paris beat Paris", "<location>Paris</location>\n<location>Paris</location>"),
    (UNREAD, "Japan beat Syria", "<location>Japan</location>\n<location>Yemen</location>"),
    # the whole sentence with links, or with a tag behind each word
    (TAGS, SARAH, "[Sarah Klein](person) joined [Siemens](organization) in [Munich](location) last year ."),
    ("B-PER O O O", "Ann left town today", "[Ann](PER) left [town](https) today"),
    (TAGS, SARAH, "Sarah/B-PER Klein/I-PER joined/O Siemens/B-ORG in/O Munich/B-LOC last/O year/O ./O"),
    ("B-PER B-PER O", "Ann Bo left", "<response>Ann_B-PER Bo_B-PER left_O</response>"),
    ("B-PER I-PER O", "Ann Bo left", "Ann/B-PER Bo/E-PER left/O"),
    ("O B-PER O", "Ann Bo left", "Ann/B-DATE Bo/S-PER left/O"),
    (UNREAD, "Germany", "Germany is a location."),
    (UNREAD, "Germany", "Germany: location"),
    (UNREAD, SARAH, "Tom Ford left Gucci in Milan last year ."),
    (UNREAD, SARAH, "There are no entities in this sentence."),
]  # fmt: skip


@pytest.mark.parametrize(("tags", "sentence", "reply"), OWN)
def test_replies_as_models_write_them(tags: str | None, sentence: str, reply: str) -> None:
    reading = ner_parse.read(reply, sentence.split(), FOUR)
    assert (reading.tags and " ".join(reading.tags)) == tags
    assert (reading.reason is None) == (reading.tags is not None)


UP_TO_MUNICH = MARKED[: MARKED.index("</location>")]


@pytest.mark.parametrize(
    ("tags", "reply"),
    [
        ("B-PER I-PER O B-ORG O O O O O", f"<response>{UP_TO_MUNICH}"),
        ("B-PER I-PER O B-ORG O O O O O", UP_TO_MUNICH),
        ("B-PER I-PER O O O O O O O", f"Text: {SARAH}\nOutput: {MARKED[: MARKED.index('mens')]}"),
        ("B-PER I-PER O B-ORG O O O O O", f"<response>The answer:\n{MARKED[: MARKED.index('nich')]}"),
        ("B-PER I-PER O B-ORG O O O O O", f"<response>{UP_TO_MUNICH}</loc"),
        (TAGS, f"<response>{MARKED}</resp"),
        (NO_TAGS, "<response>Sarah Klein joined Sie"),
        (TAGS, f"<response>{MARKED}</response>\n<response>{SARAH[:9]}"),
        (TAGS, f"<response>{MARKED}</response>\n<response>{UP_TO_MUNICH}"),
        (UNREAD, "<response>Sa"),
        (UNREAD, "Sarah"),
        (UNREAD, "Let me think. Sarah Klein joined"),
        (UNREAD, "<response>"),
    ],
)
def test_replies_that_were_cut(tags: str | None, reply: str) -> None:
    reading = ner_parse.read(reply, SARAH.split(), FOUR, "length")
    assert (reading.tags and " ".join(reading.tags)) == tags
    assert reading.reason == (None if tags else "cut")


@pytest.mark.parametrize(
    ("reason", "reply"),
    [
        ("reasoning", "<think>Ann left"),
        ("reasoning", "<think>Ann left</think>\n"),
        ("empty", ""),
        ("empty", " \n"),
        ("empty", "<response></response>"),
        ("other_text", "I can't do that."),
        ("other_text", "Bo saw a dog in the park"),
        ("other_format", "[]"),
        ("other_format", '[{"text": "Ann", "la'),
        ("other_format", "- [Ann](person)\n- [town](location)"),
        ("other_format", "Person: Ann\nLocation: none"),
        ("other_format", "Ann - person"),
        ("other_format", "<person>Ann</person>\n<location>Oz</location>\n<person>Ann</person>\n"),
        ("other_format", "Ann B-PER\nleft O\ntown O"),
        ("other_format", "B-PER O O"),
    ],
)
def test_why_a_reply_is_not_read(reason: str, reply: str) -> None:
    reading = ner_parse.read(reply, ["Ann", "left", "town"], ENTITIES)
    assert (reading.tags, reading.reason) == (None, reason)


LISTS: list[tuple[str | None, str, str]] = [
    (TAGS, SARAH, '[{"text": "Sarah Klein", "label": "PER"}, {"text": "Siemens", "type": "organization"}, '
        '{"entity": "Munich", "label": "Location"}]'),
    (TAGS, SARAH, '{"person": ["Sarah Klein"], "organization": "Siemens", "location": ["Munich"], "date": ["Friday"]}'),
    (TAGS, SARAH, '{"entities": [{"text":"Sarah Klein","label":"PER"},{"text":"Siemens","label":"ORG"},'
        '{"text":"Munich","label":"LOC"},{"text":"last year","label":"DATE"}]}'),
    (TAGS, SARAH, '{"Sarah Klein": "PER", "Siemens": "ORG", "Munich": "LOC"}'),
    (TAGS, SARAH, '{"text":"Sarah Klein","label":"PER"}\n{"text":"Siemens","label":"ORG"}\n'
        '{"text":"Munich","label":"LOC"}'),
    (TAGS, SARAH, 'Here is the JSON:\n```json\n{"person": ["Sarah Klein"], "organization": ["Siemens"], '
        '"location": ["Munich"], "miscellaneous": []}\n```\nHope this helps!'),
    (TAGS, SARAH, "- Sarah Klein (person)\n- Siemens (organization)\n- Munich (location)"),
    (TAGS, SARAH, "1. **Sarah Klein** - Person\n2. **Siemens** - Organization\n3. **Munich** - Location"),
    (TAGS, SARAH, "Sarah Klein: person\nSiemens: organization\nMunich: location"),
    (TAGS, SARAH, "Sarah Klein (PER), Siemens (ORG), Munich (LOC)"),
    (TAGS, SARAH, "Here are the person and location entities:\nPersons: Sarah Klein\nOrganizations: Siemens\n"
        "Locations: Munich\nMiscellaneous: None"),
    (TAGS, SARAH, "| Entity | Type |\n|---|---|\n| Sarah Klein | person |\n"
        "| Siemens | organization |\n| Munich | location |"),
    (TAGS, SARAH, "- [Sarah Klein](person)\n- [Siemens](organization)\n- [Munich](location)"),
    (TAGS, SARAH, "sarah klein - PER\nSIEMENS - ORG\nMunich is a location."),
    (TAGS, SARAH, f"{SARAH}\n\nPerson: Sarah Klein\nOrganization: Siemens\nLocation: Munich"),
    (NO_TAGS, SARAH, "[]"),
    (NO_TAGS, SARAH, '{"entities": []}'),
    ("O O B-LOC", "Chinatown , China", "China - location"),
    ("B-ORG I-ORG I-ORG O", "Bank of England said", "Bank of England - ORG\nEngland - LOC"),
    # a name that does not stand in the sentence once, two types, or something that is not understood: nothing is read
    (UNREAD, SARAH, "- Tom Ford (person)\n- Siemens (organization)"),
    (UNREAD, SARAH, "Sarah - person\nSiem - organization"),
    (UNREAD, "Paris beat Paris", "Paris - location"),
    (UNREAD, SARAH, "Siemens - person\nSiemens - organization"),
    (UNREAD, SARAH, "Person:\n- Sarah Klein\nLocation: Munich"),
    (UNREAD, SARAH, '{"person": [{"first": "Sarah"}], "location": ["Munich"]}'),
    (UNREAD, SARAH, '[{"text": "Sarah Klein", "label": "PER"}, {"text": "Siem'),
    (UNREAD, SARAH, "Person: Sarah Klein\nThe organization here is Siemens, and Munich is where it is"),
    (UNREAD, SARAH, "<location>Munich</location>\n<organization>Munich</organization>\n<person>John Smith</person>"),
    (UNREAD, SARAH, "I can't do that."),
]  # fmt: skip


@pytest.mark.parametrize(("tags", "sentence", "reply"), LISTS)
def test_lists_are_read_if_asked_for(tags: str | None, sentence: str, reply: str) -> None:
    assert ner_parse.read(reply, sentence.split(), FOUR).tags is None
    reading = ner_parse.read(reply, sentence.split(), FOUR, lists=True)
    assert (reading.tags and " ".join(reading.tags)) == tags


def test_lists_change_no_usual_reading() -> None:
    for tags, sentence, reply in OWN:
        if tags is not None:
            assert ner_parse.read(reply, sentence.split(), FOUR, lists=True) == ner_parse.read(
                reply, sentence.split(), FOUR
            )


@pytest.mark.parametrize(
    ("reply", "malformed", "text_changed", "invented"),
    [
        (f"<response>{MARKED}</response>", 0, False, []),
        (f"Sure:\n<response>\n{MARKED}\n</response>\nAre <person> and <location> right?", 0, False, []),
        (MARKED.replace(" ", "\n"), 0, False, []),
        (f"**{MARKED}**", 0, False, []),
        (MARKED.upper(), 0, True, []),
        (MARKED.replace("Sarah", "Sárah"), 0, True, []),
        (MARKED.replace("</person>", "<person>"), 1, False, []),
        (MARKED.replace("</person>", "</location>"), 1, False, []),
        (MARKED.replace("joined", "<b>joined</b>"), 2, False, []),
        (MARKED.replace("joined", "<person></person>joined"), 1, False, []),
        (MARKED.replace("joined", "<person>joined"), 1, False, []),
        (MARKED.replace("</location>", "</location> (location)"), 0, False, []),
        (f"{MARKED} <location>Oz</location>", 0, True, [("LOC", "Oz")]),
        (f"{MARKED}\n<location>Oz</location>", 0, False, []),  # a line of its own is no part of the sentence
        (f"{MARKED} Found: <location>Munich</location>", 0, False, []),
        (MARKED.replace("joined", "and <person>Tom Ford</person> joined"), 0, True, [("PER", "Tom Ford")]),
    ],
)
def test_what_is_counted_of_a_reading(
    reply: str, malformed: int, text_changed: bool, invented: list[tuple[str, str]]
) -> None:
    reading = ner_parse.read(reply, SARAH.split(), FOUR)
    assert " ".join(reading.tags or []) == TAGS
    assert (reading.malformed, reading.text_changed, list(reading.invented)) == (malformed, text_changed, invented)


def test_the_middle_of_a_long_reply_is_not_read() -> None:
    far = "x " * 10_000
    for reply in (f"{far}\n{MARKED}", f"{MARKED}\n{far}"):
        assert tags_from_reply(reply, SARAH.split(), FOUR) == TAGS.split()
    assert ner_parse.read(f"{far}\n{MARKED}\n{far}", SARAH.split(), FOUR).tags is None
    many = "Sarah Klein - person\n" * 500 + "Siemens - organization\n" + "Munich - location\n" * 500
    assert ner_parse.read(many, SARAH.split(), FOUR, lists=True).tags is None
    assert ner_parse.read(many[-12_000:], SARAH.split(), FOUR, lists=True).tags is not None


# --- properties ---

repeatable = settings(derandomize=True, database=None, max_examples=300, deadline=None)

comments = st.text(st.characters(exclude_characters="<>&[]{}()◁\n", exclude_categories=["Cs"]), max_size=60)
names = st.sampled_from(
    ["person", "PER", "location", "organization", "b", "city", "entity type='person'", "response", ""]
)
plain_words = st.lists(st.text("abcdeé०क-.", min_size=1, max_size=6), min_size=1, max_size=8)
words = st.lists(st.text("abcdeé०क-.<>", min_size=1, max_size=6), min_size=1, max_size=8)


@repeatable
@given(comments, comments)
def test_comments_change_no_tags(before: str, after: str) -> None:
    for reply in (f"{before}\n{MARKED}\n{after}", f"{before}\n<response>{MARKED}</response>{after}"):
        assert tags_from_reply(reply, SARAH.split(), FOUR) == TAGS.split()


@repeatable
@given(plain_words, st.sampled_from(["\n", " ", " -> ", "</response>\n<response>"]), st.data())
def test_a_plain_copy_first_changes_nothing(tokens: list[str], between: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(tokens) - 1))
    end = data.draw(st.integers(start + 1, len(tokens)))
    marked = " ".join([*tokens[:start], f"<person>{' '.join(tokens[start:end])}</person>", *tokens[end:]])
    plain = " ".join(tokens)
    alone = tags_from_reply(f"<response>{marked}</response>", tokens, FOUR)
    assert tags_from_reply(f"<response>{plain}{between}{marked}</response>", tokens, FOUR) == alone


@repeatable
@given(words, st.data(), st.booleans())
def test_the_number_of_tags_is_that_of_the_tokens(tokens: list[str], data: st.DataObject, lists: bool) -> None:
    """Whatever tags are put in, wherever: there is one IOB2 tag a token, of a declared type, and no I- without a B-."""
    pieces = [data.draw(st.sampled_from(["", "<{}>", "</{}>", "[{}]", "&lt;{}&gt;"])).format(data.draw(names)) + token
              for token in tokens]  # fmt: skip
    reading = ner_parse.read(" ".join(pieces), tokens, FOUR, lists=lists)
    if reading.tags is not None:
        assert len(reading.tags) == len(tokens)
        for before, tag in zip(["O", *reading.tags], reading.tags, strict=False):
            assert tag == "O" or tag[2:] in FOUR
            assert not tag.startswith("I-") or before[2:] == tag[2:]
    else:
        assert reading.reason is not None


@repeatable
@given(words)
def test_a_plain_copy_has_no_entities(tokens: list[str]) -> None:
    assert tags_from_reply(f"<response>{' '.join(tokens)}</response>", tokens, FOUR) == ["O"] * len(tokens)


@pytest.mark.parametrize(
    ("tokens", "reply", "tags"),
    [
        # a changed word carries no tag, and splits its entity
        ("New York City fell", "<location>New Yerk City</location> fell", "B-LOC O B-LOC O"),
        ("in Syria now", "in <location>Syrian</location> now", "O O O"),
        ("Bo saw Ann", "Bo <person>Ann</person>", "O O B-PER"),
        ("Bo saw Ann in town", "Bo really saw <person>Ann</person> in town", "O O B-PER O O"),
        ("Bo saw Ann", "Bo really saw <person>Ann</person> there", "O O B-PER"),  # without "there": 16/22
        ("Bo saw Ann", "Bo will have seen <person>Ann</person>", "O O O"),  # 12/26 and less: "Ann" alone is 6/11
        # folding
        ("the “Louvre” museum", 'the "<location>Louvre</location>" museum', None),
        ("Zoë & Ann", "<person>Zoe\u0308</person> &amp; <person>Ann</person>", "B-PER O B-PER"),
        # nesting and ends
        ("a b c", "<person>a <location>b</person> c</location>", "B-PER I-PER O"),
        ("a b", "a</person> <location>b</location>", "O B-LOC"),
        ("a b", "<person/>a <location>b</location>", "O B-LOC"),
        # a token belongs to a span when more than half of it does
        ("abcd e", "<person>abc</person>d e", "B-PER O"),
        ("abcd e", "<person>ab</person>cd e", "O O"),
        # unknown tags are dropped
        ("a b", "<b>a</b> <city>b</city>", "O O"),
        ("a < b >", "<person>a</person> < b >", "B-PER O O O"),
    ],
)
def test_reading(tokens: str, reply: str, tags: str | None) -> None:
    words = tokens.split() if tags else ["the", "“", "Louvre", "”", "museum"]
    expected = tags.split() if tags else ["O", "O", "B-LOC", "O", "O"]
    assert tags_from_reply(f"<response>{reply}</response>", words, ENTITIES) == expected
    assert tags_from_reply(reply, words, ENTITIES) == expected


@pytest.mark.parametrize(
    ("sentence", "reply", "tags"),
    [
        ("Japan beat Syria", "<organization><location>Japan</location></organization> beat Syria", "B-ORG O O"),
        ("राम ने दिल्ली में सीता से कहा", "<person>रामा</person> ने दिल्ली में सीता से कहा", "O O O O O O O"),
        ("राम ने दिल्ली में सीता से कहा", "<person>राम</person>ा ने दिल्ली में सीता से कहा", "O O O O O O O"),
        ("కమల రామ తో మాట్లాడింది", "కమల <person>రాము</person> తో మాట్లాడింది", "O O O O"),
        ("இங்கே தமிழ நாடு வளரும்", "இங்கே <location>தமிழ் நாடு</location> வளரும்", "O O B-LOC O"),
        ("Jose went home", "<person>José</person> went home", "B-PER O O"),
        ("Jose went home", "<person>Jose\u0301</person> went home", "B-PER O O"),
        ("José went home", "<person>Jose\u0301</person> went home", "B-PER O O"),
        ("Japan beat Syria today", "Japan beat <location>Yemen</location> today", "O O O O"),
        ("a north east wind blew", "a <location>northeast</location> wind blew", "O B-LOC I-LOC O O"),
        ("rose 5 % today", "rose <miscellaneous>6 %</miscellaneous> today", "O O B-MISC O"),
    ],
)
def test_changed_words_of_every_script(sentence: str, reply: str, tags: str) -> None:
    entities = {"PER": "person", "LOC": "location", "ORG": "organization", "MISC": "miscellaneous"}
    assert tags_from_reply(f"<response>{reply}</response>", sentence.split(), entities) == tags.split()


def test_a_replaced_entity_is_invented() -> None:
    reading = ner_parse.read(
        "Japan beat <location>Yemen</location> today", ["Japan", "beat", "Syria", "today"], ENTITIES
    )
    assert [span.label for span in reading.invented] == ["LOC"]


def test_what_is_counted() -> None:
    tokens = ["Ann", "left"]
    plain = ner_parse.read("<response><person>Ann</person> left</response>", tokens, ENTITIES)
    assert (plain.malformed, plain.text_changed, plain.invented) == (0, False, ())
    changed = ner_parse.read("<response><person>ANN</person> left</response>", tokens, ENTITIES)
    assert (changed.tags, changed.text_changed) == (["B-PER", "O"], True)
    broken = ner_parse.read("<response><person>Ann</location> left<person></response>", tokens, ENTITIES)
    assert (broken.tags, broken.malformed) == (["B-PER", "O"], 2)
    unknown = ner_parse.read("<response><b>Ann</b> left</response>", tokens, ENTITIES)
    assert (unknown.tags, unknown.malformed) == (["O", "O"], 2)


def test_an_invented_entity_costs_precision() -> None:
    sample = Sample("default:0", "default", "Ann left town", ("B-PER", "O", "O"), tokens=("Ann", "left", "town"))
    reading = ner_parse.read("<person>Ann</person> left town <location>Oz</location>", sample.tokens, ENTITIES)
    assert [span.label for span in reading.invented] == ["LOC"]
    score = ner.score(sample, reading, ENTITIES)
    assert score.tallies["entity:PER"] == Tally(1, 1, 1)
    assert score.tallies["entity:LOC"] == Tally(0, 1, 0)
    assert dict(score.notes) == {"text_changed": 1, "invented": 1}


@pytest.mark.parametrize(
    "reply", ["", "<response></response>", "I can't do that.", "<think>Ann left town", "<response>"]
)
def test_what_is_no_reading(reply: str) -> None:
    sample = Sample("default:0", "default", "Ann left town", ("B-PER", "O", "O"), tokens=("Ann", "left", "town"))
    reading = ner_parse.read(reply, sample.tokens, ENTITIES)
    assert reading.tags is None
    score = ner.score(sample, reading, ENTITIES)
    assert score.tallies == {"entity:PER": Tally(0, 0, 1), "token": Tally(0, 0, 3)}
    assert score.parsed is None


def test_asking() -> None:
    from localeval.templates import Templates

    templates = Templates("{entities}|{entity_list}|{text}\n", "{text}>{target}", "{shots}#{prompt}")
    types = [ner.EntityType("PER", "person", "people"), ner.EntityType("LOC", "location", "places")]
    sample = Sample("default:0", "default", "Ann Lee left", ("B-PER", "I-PER", "O"), tokens=("Ann", "Lee", "left"))
    assert (
        ner.ask(sample, [], templates, types)
        == "person (people), location (places)|<person>, <location>|Ann Lee left\n"
    )
    shown = "Ann Lee left><response><person>Ann Lee</person> left</response>"
    assert ner.ask(sample, [sample], templates, types).startswith(f"{shown}#person")
