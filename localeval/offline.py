"""Keeps the process off the network, and its libraries quiet. Knows nothing about models or datasets."""

from __future__ import annotations

import logging
import os

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OTEL_SDK_DISABLED": "true",
}
"""What a run sets, whatever the environment says."""
_TELEMETRY = ("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_UPDATE_CHECK", "DO_NOT_TRACK")

_QUIET = {
    "TQDM_DISABLE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TRANSFORMERS_VERBOSITY": "error",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}


def go_offline() -> None:
    """Tells every library that could ask a hub, or report its use, not to. Must run before they are imported.

    Their own progress bars and notices are switched off too, unless the user has set how loud they are.
    """
    os.environ.update(OFFLINE)
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)


def send_no_telemetry() -> None:
    """For the one command that asks hubs: it reports no use to them."""
    os.environ.update({name: OFFLINE[name] for name in _TELEMETRY})
