"""What all pages share: templates, style, scripts, what draws charts, and a policy that lets in nothing else.

A page is one file that opens from disk. Knows nothing of runs. Text of strangers goes through autoescape and ``shown``,
data through ``as_json``; neither can become markup or a script, and what steers a terminal or turns the direction of
text is shown as an escape.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from localeval.report.text import interval, number
from localeval.report.vega import vega
from localeval.visible import visible

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_NOT_UTF8 = re.compile("[\ud800-\udfff]")
_IN_A_SCRIPT = re.compile("[<>&\u2028\u2029\ud800-\udfff]")
"""What would end a script element or begin a comment in it, what old JavaScript takes for a line's end, and halves of
surrogate pairs, which UTF-8 has not."""


def render(template: str, values: Mapping[str, Any], scripts: Sequence[str], connect: str = "'none'") -> str:
    """A whole page. template: a file of ``html/`` that extends base.html.j2. scripts: files of ``html/``, in order.

    The page's Content-Security-Policy allows no script but these and Vega, by their digests
    (https://www.w3.org/TR/CSP3/), and requests to ``connect`` alone.
    """
    from markupsafe import Markup

    sources = [vega(), *map(_file, scripts)]
    return (
        _environment()
        .get_template(template)
        .render(
            {
                **values,
                "style": Markup(_file("page.css")),
                "scripts": [Markup(source) for source in sources],
                "script_digests": [b64encode(sha256(source.encode()).digest()).decode() for source in sources],
                "connect": connect,
            }
        )
    )


def as_json(value: Any) -> Markup:
    """A value as the content of ``<script type="application/json">``: JSON that holds no markup."""
    from markupsafe import Markup

    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(_IN_A_SCRIPT.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def shown(value: Any) -> Any:
    """Text as the page has it: control characters and halves of surrogate pairs as escapes; other values unchanged."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return _NOT_UTF8.sub(lambda match: match[0].encode("unicode_escape").decode(), visible(value))


def to_samples(**wanted: str | None) -> str:
    """The address, within the page, of the samples with these properties: see samples.js. None is no such thing."""
    return "#" + urlencode({name: value or "" for name, value in wanted.items()}, errors="surrogatepass")


@cache
def _file(name: str) -> str:
    return (files("localeval.report") / "html" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    page = Environment(
        loader=FunctionLoader(_file),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=shown,
    )
    page.filters |= {"number": number, "interval": interval, "json": as_json}
    page.globals["to_samples"] = to_samples
    return page
