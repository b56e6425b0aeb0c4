"""Keeps the process off the network. Knows nothing about models or datasets."""

from __future__ import annotations

import os

_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
}


def go_offline() -> None:
    """Tells every library that could ask a hub, or report its use, not to. Must run before they are imported."""
    os.environ.update(_OFFLINE)
