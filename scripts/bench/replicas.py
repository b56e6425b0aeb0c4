"""What many replicas give: replayed rows of a fixed delay, so that an engine costs nothing and what is left is the way.

    scripts/bench/replicas.py --replicas 1 2 4 8

Each row is a prompt of 300 tokens and a reply of 400 characters. A replica answers one row after another, each in DELAY
seconds; efficiency is the rows a second against those that the replicas could give. With --delay 0 the driver is the
limit, and its rows and blocks a second are what is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from localeval.engines import fleet
from localeval.engines.base import Cluster, EngineConfig, many
from localeval.engines.child import ChildEngine
from localeval.engines.cluster import AUTO
from localeval.engines.fleet import block_size
from localeval.engines.sizing import work_of
from localeval.report.text import table
from localeval.schema import Request


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--rows", type=int, default=16_000, help="in all, however many replicas there are")
    parser.add_argument("--delay", type=float, default=0.01, help="seconds of a row")
    parser.add_argument("--block", type=int, help="requests of a block at the most, instead of what a run takes")
    parser.add_argument("--ray", metavar="ADDRESS", default=AUTO, help="host:port of a cluster's head")
    options = parser.parse_args()
    if options.block:
        fleet.LARGEST_BLOCK = options.block
    requests = [
        Request("quiz", f"default:{n}", array("I", range(n, n + 300)), max_tokens=512, key=f"{n:032d}")
        for n in range(options.rows)
    ]
    with tempfile.TemporaryDirectory() as folder:
        replies = Path(folder) / "replies.jsonl"
        with replies.open("w") as file:
            for request in requests:
                file.write(json.dumps({"sample_id": request.sample_id, "text": "x" * 400}) + "\n")
        config = EngineConfig(replies, 0, work=work_of(requests), engine_args={"delay": options.delay})
        cells = [_measured(number, config, requests, options.delay, options.ray) for number in options.replicas]
    header = ["replicas", "rows", "start s", "seconds", "rows a second", "blocks a second"]
    print(table([*header, "efficiency", "driver's CPU s", "driver MiB"], cells))


def _measured(number: int, config: EngineConfig, requests: Sequence[Request], delay: float, head: str) -> list[str]:
    engine = ChildEngine(many("replay"), {})
    (driver,) = psutil.Process().children()
    try:
        begin = time.perf_counter()
        engine.start(replace(config, cluster=Cluster(head, number)))
        _until_all_are_there(engine, requests, number)
        start = time.perf_counter() - begin
        begin, before = time.perf_counter(), driver.cpu_times()
        answered = sum(1 for _ in engine.generate(requests))
        seconds, after = time.perf_counter() - begin, driver.cpu_times()
        memory = driver.memory_info().rss
    finally:
        engine.close()
    if answered != len(requests):
        sys.exit(f"{answered} of {len(requests)} rows came")
    print(f"{number} replicas: {seconds:.1f} s", file=sys.stderr, flush=True)
    blocks = len(requests) / block_size(number, len(requests)) / seconds
    return [
        str(number),
        f"{answered:,}",
        f"{start:.1f}",
        f"{seconds:.1f}",
        f"{answered / seconds:,.0f}",
        f"{blocks:,.0f}",
        f"{answered * delay / number / seconds:.2f}" if delay else "",
        f"{after.user + after.system - before.user - before.system:.1f}",
        f"{memory / 2**20:,.0f}",
    ]


def _until_all_are_there(engine: ChildEngine, requests: Sequence[Request], number: int) -> None:
    """Starting is not what is measured: rows are asked until every replica has answered."""
    for attempt in range(20):
        for _ in engine.generate(requests[: 20 * number * (attempt + 1)]):
            pass
        time.sleep(1)
        if sum(engine.settings()["replicas"]["engines"].values()) >= number:
            return
    sys.exit(f"not all of the {number} replicas came")


if __name__ == "__main__":
    main()
