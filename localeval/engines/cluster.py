"""A Ray cluster: the connection to it, its nodes, and whether they have what a replica needs. Knows no requests."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from localeval.engines.base import Cluster, EngineConfig
from localeval.engines.fleet import Node
from localeval.engines.replica import Needed, look, packages
from localeval.identity import file_digest, file_digests, model_files
from localeval.progress import say
from localeval.schema import LocalevalError, RunFailed

AUTO = "auto"
"""The address of the cluster that RAY_ADDRESS names or this machine belongs to; where there is none, of a new one."""
REACHED = 10.0
"""Seconds in which an address must answer."""
LOOKED = 3600.0
"""Seconds in which each node must have read its files."""
REPORTS = 10.0
"""Seconds between words about what is waited for."""
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
_GIST = 300


def load_ray() -> None:
    """Imports Ray, its reports of use switched off."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    import ray.data  # noqa: F401


def connect(cluster: Cluster) -> None:
    """Connects this process to a cluster; where AUTO finds none, starts one of this machine alone.

    A cluster that is started here has room for the replicas that are asked for, whatever its cores.
    Raises LocalevalError with the reason where that fails.
    """
    load_ray()
    import ray

    address: str | None = cluster.address
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if cluster.address != AUTO:
        _reach(cluster.address)
    elif there := _cluster_of_this_machine():
        _reach(there)
        address = None  # Ray finds the same one, and then switches to its token by itself
    else:
        address = "local"
        cores = max(len(os.sched_getaffinity(0)), cluster.number or 0)
        options |= {"num_cpus": cores, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    with _captured() as printed:
        try:
            ray.init(address=address, **options)
        except (Exception, SystemExit) as error:  # Ray ends the process where a cluster's head does not answer
            said = printed.read_text(errors="replace").strip().splitlines()
            more = f"; Ray said last: {said[-1]}" if said else ""
            if "InvalidAuthToken" in f"{error}{more}":
                more += ". Set RAY_AUTH_MODE=token, and bring the head's ~/.ray/auth_token here"
            raise LocalevalError(
                f"--ray {cluster.address}: no cluster can be reached or started: {error}{more}"
            ) from error


def disconnect() -> None:
    """Ends the connection, and with it all that this program has on the cluster; a cluster that it started ends too."""
    import ray

    ray.shutdown()


def _cluster_of_this_machine() -> str | None:
    """The head of the cluster that RAY_ADDRESS names, or that ``ray start`` has made this machine a node of.

    Ray's own "auto" would also take the cluster that another program has started for itself.
    """
    from ray._private.utils import read_ray_address

    address = os.environ.get("RAY_ADDRESS") or read_ray_address()
    return None if address in (None, "", "auto", "local") else address


def _reach(address: str) -> None:
    """Ray itself waits for minutes, and then ends the process."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=REACHED):
            return
    except (OSError, ValueError, OverflowError) as error:
        raise LocalevalError(
            f"--ray {address}: nobody answers there ({error}). Expected host:port of a cluster's head, as 'ray start "
            "--head --port=6379' names it; without an address, the cluster of RAY_ADDRESS or of the last 'ray start' "
            "on this machine is taken ('ray stop' forgets it), else a new one is started"
        ) from error


@contextlib.contextmanager
def _captured() -> Iterator[Path]:
    """What Ray's own threads print goes into a file."""
    with tempfile.NamedTemporaryFile(prefix="localeval-ray-") as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield Path(file.name)
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def nodes() -> list[Node]:
    """The machines that are there now."""
    import ray

    return [
        Node(
            each["NodeID"],
            f"{each['NodeManagerHostname']} ({each['NodeName']})",  # its address, if it was given no name
            each["Resources"].get("CPU", 0.0),
            each["Resources"].get("GPU", 0.0),
        )
        for each in sorted(ray.nodes(), key=lambda each: str(each["NodeID"]))
        if each["Alive"]
    ]


def needed_of(kind: str, config: EngineConfig) -> Needed:
    """What a node must have to answer as this one would."""
    if kind == "replay":
        return Needed({config.folder: file_digest(config.folder)}, {"localeval": packages()["localeval"]})
    folders = dict.fromkeys(folder for folder in (config.folder, config.tokenizer, config.adapter) if folder)
    files = [file for folder in folders for file in model_files(folder)]
    return Needed(dict(zip(files, file_digests(files), strict=True)), packages())


def check_nodes(asked: Sequence[Node], needed: Needed) -> None:
    """Has every node look for what it needs. Raises LocalevalError that names those that lack something, and what."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    looking = ray.remote(num_cpus=0, max_retries=0)(look)
    there = {
        looking.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)).remote(needed): node
        for node in asked
    }
    lacking, left, start = [], list(there), time.monotonic()
    while left:
        done, left = ray.wait(left, timeout=REPORTS)
        for one in done:
            try:
                lacks = ray.get(one)
            except ray.exceptions.RayError as error:
                lacks = [f"can't look at its files, with the same localeval as here: {gist(error)}"]
            lacking += [f"  {there[one].name}: {line}" for line in lacks]
        if left and not done:
            names = ", ".join(there[one].name for one in left[:3]) + (" ..." if len(left) > 3 else "")
            if time.monotonic() - start > LOOKED:
                raise RunFailed(f"{len(left)} nodes have not looked at their files in {LOOKED:.0f} s: {names}")
            say(f"ray: {len(left)} of {len(there)} nodes are reading their files: {names}")
    if lacking:
        raise LocalevalError(
            "not every node has what a replica needs (paths and packages must be the same everywhere):\n"
            + "\n".join(sorted(lacking))
            + "\nbring it there, or put it on a file system that all nodes mount"
        )


def gist(error: BaseException) -> str:
    """Ray's errors hold whole traces of other processes: where it was, and the last line, which says what it is."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    where = ", ".join(line for line in lines if line.startswith(("ip: ", "pid: ")))
    last = lines[-1] if lines else type(error).__name__
    last = last if len(last) <= _GIST else f"{last[:_GIST]} ..."
    return f"({where}) {last}" if where else last
