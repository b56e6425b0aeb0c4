"""The words and patterns that multiple-choice replies are read by. Rules are numbered as in docs/reading-replies.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

# Rule 3. The word for "answer" in MILU's languages, as it stands before a label.
ANSWER_WORDS = ["उत्तर", "উত্তর", "જવાબ", "ઉત્તર", "ಉತ್ತರ", "ഉത്തരം", "ଉତ୍ତର", "ਉੱਤਰ", "ਜਵਾਬ", "பதில்", "விடை", "సమాధానం", "జవాబు"]
COPULAS = ["है", "हैं", "आहे", "হল", "হলো", "হচ্ছে", "છે", "ಆಗಿದೆ", "ആണ്", "ହେଉଛି", "ਹੈ", "ஆகும்", "అనేది", "是", "为"]
OPTION_WORDS = [
    "विकल्प",
    "ऑप्शन",
    "বিকল্প",
    "વિકલ્પ",
    "ವಿಕಲ್ಪ",
    "ಆಯ್ಕೆ",
    "ഓപ്ഷൻ",
    "ବିକଳ୍ପ",
    "ਵਿਕਲਪ",
    "விருப்பம்",
    "ఎంపిక",
    "ఆప్షన్",
    "选项",
]
# Rule 2. The word that opens a new question.
QUESTION_WORDS = [
    "Question",
    "प्रश्न",
    "सवाल",
    "প্রশ্ন",
    "પ્રશ્ન",
    "ಪ್ರಶ್ನೆ",
    "ചോദ്യം",
    "ପ୍ରଶ୍ନ",
    "ਪ੍ਰਸ਼ਨ",
    "ਸਵਾਲ",
    "கேள்வி",
    "வினா",
    "ప్రశ్న",
    "问题",
    "题目",
]
# Rule 5. What joins two labels, and what tells that a label names a distractor.
AND_OR_WORDS = [
    "and",
    "or",
    "और",
    "या",
    "व",
    "आणि",
    "किंवा",
    "এবং",
    "ও",
    "বা",
    "અને",
    "અથવા",
    "ಮತ್ತು",
    "ಅಥವಾ",
    "ഉം",
    "അല്ലെങ്കിൽ",
    "ଏବଂ",
    "କିମ୍ବା",
    "ਅਤੇ",
    "ਜਾਂ",
    "மற்றும்",
    "அல்லது",
    "మరియు",
    "లేదా",
]
WRONG_WORDS = [
    "wrong",
    "incorrect",
    "false",
    "not",
    "गलत",
    "चुकीच",
    "ভুল",
    "ખોટ",
    "ತಪ್ಪ",
    "തെറ്റ",
    "ଭୁଲ",
    "ਗਲਤ",
    "தவற",
    "తప్ప",
]
# Rule 4. No article stands before these: "the answer is A because ..." names option A. "I" is a person before the others.
NEVER_AFTER_ARTICLE = {"because", "since", "as", "due", "but", "not", "rather", "and", "or"}
AFTER_A_PERSON = {
    "think",
    "believe",
    "don",
    "do",
    "can",
    "cannot",
    "am",
    "would",
    "have",
    "need",
    "know",
    "will",
    "m",
    "d",
}

# Letters and vowel signs of the Indic scripts (not their full stop): the signs are no \w in Python's re.
INDIC = "\u0900-\u0963\u0966-\u0d7f"
VISARGA = "\u0903\u0983"  # written for a colon after a word
INVISIBLE = ("\ufeff", "\u200b", "\u2060")
DRESS = r"*_`~#\"'“”‘’«»‹›()\[\]{}<>【】「」『』$\\|"
WRAP = (  # dress that is more than one character: XML, HTML and LaTeX around a word
    r"</?[A-Za-z][\w-]+>|<[bipu]>(?=[^<\n]*</[bipu]>)|</[bipu]>"
    r"|\\(?:boxed|text|textbf|textit|mathrm|mathbf|mathit|bf|rm|it)\b\s*"
)
LIST = 4000  # characters in which a list of options goes on
MOST = "{0,64}"  # no reply puts more between a word and its answer, and a long one must not cost more than its length


def _longest_first(words: Sequence[str]) -> list[str]:
    return sorted(words, key=len, reverse=True)


def _any(words: Sequence[str]) -> str:
    return "|".join(re.escape(word) for word in _longest_first(words))


# A search is several times as fast where a pattern begins with one of a few characters: that is why each word of a
# marker is cut after its first character, and looks back at what stands before it.
_NOT_IN_WORD = r"(?<![^\W_].)"
_FIRST = "".join(sorted({word[0] for word in ANSWER_WORDS}))
_MARKER = rf"""(?-i:[aAtTcCrRbB答{_FIRST}](?=[nNhHoOiIıİeE案{INDIC}]))(?:
        (?<=答)案
      | (?<=a){_NOT_IN_WORD}(?<![<\[]/.)nswer(?![^\W_])(?:\s+to\s+(?:this|the|your)\s+question(?![^\W_]))?
      |%s (?:(?<=c){_NOT_IN_WORD}orrect|(?<=r){_NOT_IN_WORD}ight|(?<=b){_NOT_IN_WORD}est)\s+(?:option|choice)(?=\s*[:=])
      | (?<=[{_FIRST}])(?<![\w{INDIC}].)
        (?:{"|".join(f"(?<={word[0]}){word[1:]}" for word in _longest_first(ANSWER_WORDS))})
        (?=[{VISARGA}]|[^\w{INDIC}]|$))
    """
_OPTION_IS = r"he\b[^.:\n]{0,40}?\b(?:option|choice)\s+is(?![^\W_])"
THE_OPTION_IS = rf"(?<![^\W_])t{_OPTION_IS}"


def marker_pattern(the_option_is: bool) -> str:
    """A marker, ignoring case, verbose. "the" is so frequent that it is left out where no "option" or "choice" stands."""
    return _MARKER % (rf"(?<=t){_NOT_IN_WORD}{_OPTION_IS} |" if the_option_is else "")


MARKER, MARKER_WITHOUT_THE = (re.compile(marker_pattern(one), re.IGNORECASE | re.VERBOSE) for one in (True, False))
OPTION_OR_CHOICE = re.compile(r"(?-i:[oOcC])(?:(?<=o)ption|(?<=c)hoice)", re.IGNORECASE)
NO_MARKER = re.compile(r"(?:[<\[]/[\w-]*|\b(?:wrong|incorrect|false)\s+)$", re.IGNORECASE)
NO_MARKER_WITHIN = re.compile(r"\b(?:wrong|incorrect|other|first|second|third|fourth|last)\b", re.IGNORECASE)
# What may stand between a marker and its label: first what also stands before an option's text, then all of it.
LINK = (
    rf"[\s:={VISARGA}]|[-–—](?=\s|[{DRESS}]{{0,4}}[A-Za-z](?![^\W_]))"
    rf"|(?:{_any(COPULAS)}|{_any(OPTION_WORDS)})(?![{INDIC}])"
    r"|(?<![^\W_])(?:is|(?:would|should|must|will)\s+be|(?:the\s+)?option|(?:the\s+)?choice)(?![^\W_])"
)
# Words that may stand in a gap; a marker that says something is followed by some of them, and then by the answer.
MAY_BE_BETWEEN = rf"(?:(?=[iwsmbtoc{INDIC}\u4e00-\u9fff])|(?<=[</\\]))"
BETWEEN = (
    r"(?=[iwsmbtoc])(?:is|would|should|must|will|be|the|option|choice)(?![^\W_])"
    rf"|(?=[{INDIC}\u4e00-\u9fff])(?-i:{_any([*COPULAS, *OPTION_WORDS])})|(?<=[</])[\w-]++>"
    r"|(?<=\\)(?:boxed|textbf|textit|text|mathrm|mathbf|mathit|bf|rm|it)(?![^\W_])"
)
UNCASED = re.compile(r"[\u0900-\u0dff\u4e00-\u9fff]")
COLON = re.compile(rf"[\s:={VISARGA}]{MOST}")
LEAD = re.compile(rf"(?:{LINK}){MOST}", re.IGNORECASE)
GAP = re.compile(rf"(?:{WRAP}|{LINK}|[{DRESS}]){MOST}", re.IGNORECASE)
QUESTION_LINE = re.compile(
    rf"^[ \t{DRESS}]*+(?:Next[ ])?(?:{_any(QUESTION_WORDS)}|Q(?=\d*[ ]*:))"
    rf"[ \t]*+\#?\d*+(?:[ ]of[ ]\d+)?[ \t{DRESS}]*+(?:[:.\-]|$)",
    re.MULTILINE | re.IGNORECASE | re.VERBOSE,
)
IN_QUESTION_LINES = ["Q", "q", *QUESTION_WORDS[1:]]
WRONG = re.compile(rf"[\s{DRESS}]{MOST}(?:is\s+|was\s+)?(?:{_any(WRONG_WORDS)})", re.IGNORECASE)
RANGE = re.compile(rf"[{DRESS}]*\s+(?:to|through)\s+[{DRESS}]*[A-Z](?![^\W_])")
SENTENCE_END = re.compile(
    rf"""[.!?।;](?=\s|[{DRESS}]|$) | ,?\s+(?:because|since)\b | <(?=[/|A-Za-z]) | "(?=\s*[,}}\]]) | $""",
    re.VERBOSE,
)
OPENING = re.compile(rf"(?:{WRAP}|[\s{DRESS}]){MOST}")
CLOSING = re.compile(rf"(?:{WRAP}|[{DRESS}]){MOST}")
JOINER = re.compile(
    rf"(?P<word>[ \t]*[,/&+;、][ \t]*(?:(?:and|or)\b)?|[ \t]+[-–—](?=[ \t])|[ \t]*(?:(?:{_any(AND_OR_WORDS)})(?![^\W\d_]|[{INDIC}])|和|或))?"
    r"[ \t]*(?:(?:the\s+)?(?:option|choice)\s+)?",
    re.IGNORECASE,
)
ENDS_LABEL = re.compile(rf"(?:{WRAP}|[{DRESS}]){MOST}[ \t]*(?:$|\n|\)|[.:\]]|[–—-](?!\w))")
FENCE_LINE = re.compile(r"^[ \t]*```\w*[ \t]*$", re.MULTILINE)
PUNCTUATION = re.compile(r"(?<!\d)[.,;:!?'\"()]|[.,;:!?'\"()](?!\d)")
UNWRAPPED = re.compile(
    r"""\\(?:boxed|text|textbf|textit|mathrm|mathbf)\s*\{(?P<a>.+)\} | \\\((?P<b>.+)\\\) | \\\[(?P<c>.+)\\\]
      | \$\$(?P<d>.+)\$\$ | \$(?P<e>[^$]+)\$ | (?P<mark>\*\*|__|\*|_|`)(?P<f>.+)(?P=mark)
      | ["“'‘«](?P<g>.+)["”'’»] | \((?P<h>[^()]+)\) | \[(?P<i>[^\[\]]+)\] | \{(?P<j>[^{}]+)\} | <(?P<t>\w+)>(?P<k>.+)</(?P=t)>""",
    re.VERBOSE | re.DOTALL,
)
FIRST_ITEM = re.compile(rf"[{DRESS}]*(?:[).:\]]|\s+[-–—]\s)")
SEPARATOR = re.compile(rf"[{DRESS}]*(?:[).:\]]|\s*[-–—])?[\s{DRESS}]*")
CLOSERS = " *_`~\"'“”‘’«»)]}>$\\|"
VERB = re.compile(
    r"[\s*_)\]]*(?:is|are|was|were|isn't|refers|would|cannot|can't|does|has|not|wrong|incorrect|false)\b", re.I
)


@lru_cache(maxsize=64)
def label(letters: str) -> re.Pattern[str]:
    """A letter that stands alone: no part of a word (B-complex, C's, C++), of initials (A. P. J.) or of a formula."""
    alone = (
        rf"(?![^\W_\u4e00-\u9fff]|[{INDIC}]|_[^\W_])"  # B_1, Bach
        r"(?!['’-]\w|[+#])"
        r"(?!\.[A-Za-z]|\.\s[A-Z]\.)"
        r"(?![ \t]*[=∪∩→⇒×÷^]|[ \t]+[<>][ \t])"
    )
    return re.compile(rf"([{letters}{letters.lower()}]){alone}")


@lru_cache(maxsize=64)
def begins_item(letter: str) -> re.Pattern[str]:
    """A label with its delimiter, wherever it stands: no list is without it."""
    return re.compile(rf"[{letter}{letter.lower()}](?=[{DRESS}\s).:\]])[{DRESS}]*(?:[).:\]]|\s+[-–—]\s)")


@lru_cache(maxsize=64)
def item(letters: str) -> re.Pattern[str]:
    """One option of a list: a label and its delimiter, at the start of a line or after a space."""
    labels = rf"[{letters}{letters.lower()}]"
    return re.compile(
        rf"""^[ \t{DRESS}+•-]*(?P<line>{labels})[{DRESS}]*(?:[).:\]]|\s+[-–—]\s)
          | (?<=\s)[{DRESS}]*(?P<inline>{labels})(?:\)|[.:](?=\s)|(?P<dash>\s[-–—]\s))""",
        re.MULTILINE | re.VERBOSE,
    )
