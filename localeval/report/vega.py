"""Vega, Vega-Lite and Vega-Embed as one script, which defines ``vegaEmbed``.

Making it takes over a second, so it is kept in localeval's cache; what is kept there and is not whole is made again.
"""

from __future__ import annotations

import importlib.metadata
from contextlib import suppress
from functools import cache
from hashlib import sha256

from localeval.identity import cache_folder, keep


@cache
def vega() -> str:
    """About 0.9 MB of JavaScript; always the same for one version of vl-convert."""
    kept = cache_folder() / "vega" / f"{importlib.metadata.version('vl-convert-python')}.js"
    with suppress(OSError, UnicodeDecodeError):
        digest, _, script = kept.read_bytes().decode().partition("\n")
        if sha256(script.encode()).hexdigest() == digest:  # a power cut may have left a part of it
            return script
    import vl_convert

    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    keep(kept, f"{sha256(script.encode()).hexdigest()}\n{script}".encode())
    return script
