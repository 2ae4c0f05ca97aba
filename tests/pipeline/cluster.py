"""A small cluster on this machine: a master and two workers, as real as any, on hosts of their own.

`127.0.0.1` and `127.0.0.2` are two hosts to Spark, which never runs two attempts of a task at once
on the same one.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socket import socket
from typing import Any

import pyspark

from omnigraph.pipeline.spark.java import find_java

HOSTS = ("127.0.0.1", "127.0.0.2")
START_SECONDS_MAX = 120
SPARK_HOME = Path(pyspark.__file__).parent


@contextmanager
def running_cluster(folder: Path) -> Iterator[str]:
    """The address of a master with two workers of one core each."""
    port, page = _free_port(), _free_port()
    master = f"spark://{HOSTS[0]}:{port}"
    with ExitStack() as stack:
        stack.enter_context(
            _running(
                folder / "master.log",
                "org.apache.spark.deploy.master.Master",
                *("--host", HOSTS[0], "--port", str(port), "--webui-port", str(page)),
            )
        )
        _await(page, workers=0)
        for host in HOSTS:
            stack.enter_context(
                _running(
                    folder / f"worker-{host}.log",
                    "org.apache.spark.deploy.worker.Worker",
                    *("--host", host, "--cores", "1", "--memory", "600m", "--webui-port", "0"),
                    *("--work-dir", str(folder / host), master),
                )
            )
        _await(page, workers=len(HOSTS))
        yield master


@contextmanager
def _running(log: Path, program: str, *arguments: str) -> Iterator[None]:
    java = find_java(os.environ)
    environment = {
        **os.environ,
        "JAVA_HOME": str(java.executable.resolve().parents[1]),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    command = [str(SPARK_HOME / "bin" / "spark-class"), program, *arguments]
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def _await(page: int, workers: int) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        state = _state(page)
        if state is not None and state["aliveworkers"] >= workers:
            return
        time.sleep(0.1)
    raise TimeoutError(f"the cluster did not come up: {_state(page)}")


def _state(page: int) -> Any:
    try:
        with urllib.request.urlopen(f"http://{HOSTS[0]}:{page}/json/", timeout=5) as answer:
            return json.load(answer)
    except OSError:
        return None


def _free_port() -> int:
    with socket() as probe:
        probe.bind((HOSTS[0], 0))
        port: int = probe.getsockname()[1]
        return port
