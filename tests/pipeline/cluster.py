"""A small cluster on this machine: a master and two workers, which run executors as real as any.

`127.0.0.1` and `127.0.0.2` are two hosts to Spark, which never runs two attempts of a task at once
on the same one. The master and the workers share a JVM: only executors are processes of their own,
and a JVM takes seconds to start.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socket import socket
from typing import Any

from omnigraph.pipeline.spark.gateway import JVM_OPTIONS, start_jvm
from omnigraph.pipeline.spark.java import find_java

HOSTS = ("127.0.0.1", "127.0.0.2")
START_SECONDS_MAX = 120
WORKER_CORES = 1
WORKER_MEGABYTES = 600
CONF = {
    "spark.driver.memory": "384m",
    "spark.log.level": "ERROR",
    JVM_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@contextmanager
def running_cluster(folder: Path) -> Iterator[str]:
    """The address of a master with two workers of one core each."""
    with ExitStack() as stack:
        running = start_jvm(find_java(os.environ), CONF)
        stack.callback(running.stop)
        jvm = running.gateway.jvm
        deploy, conf = jvm.org.apache.spark.deploy, jvm.org.apache.spark.SparkConf(False)
        port, page = _free_port(), _free_port()
        master = f"spark://{HOSTS[0]}:{port}"
        deploy.master.Master.startRpcEnvAndEndpoint(HOSTS[0], port, page, conf)
        masters = running.gateway.new_array(jvm.java.lang.String, 1)
        masters[0] = master
        for number, host in enumerate(HOSTS):
            deploy.worker.Worker.startRpcEnvAndEndpoint(
                *(host, 0, 0, WORKER_CORES, WORKER_MEGABYTES, masters, str(folder / host)),
                *(jvm.scala.Option.apply(number), conf, jvm.scala.Option.empty()),
            )
        _await(page, workers=len(HOSTS))
        yield master


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
    except (OSError, ValueError):  # not there yet, or there before it has its pages
        return None


def _free_port() -> int:
    with socket() as probe:
        probe.bind((HOSTS[0], 0))
        port: int = probe.getsockname()[1]
        return port
