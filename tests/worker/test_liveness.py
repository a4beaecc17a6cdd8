"""A neighbour's death is only ever claimed with proof."""

from __future__ import annotations

import os
import subprocess
import sys

from engine.liveness import is_dead, own_identity


def test_a_living_process_is_not_dead() -> None:
    assert not is_dead(own_identity())


def test_an_ended_process_is_dead() -> None:
    child = subprocess.run(
        [sys.executable, "-c", "from engine.liveness import own_identity; print(own_identity())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert is_dead(child.stdout.strip())


def test_a_reused_pid_does_not_keep_its_predecessor_alive() -> None:
    boot, namespace, pid, started = own_identity().split(" ")
    assert int(pid) == os.getpid()
    assert is_dead(f"{boot} {namespace} {pid} {int(started) - 1}")


def test_a_process_of_an_earlier_boot_is_dead() -> None:
    _, namespace, pid, started = own_identity().split(" ")
    assert is_dead(f"another-boot {namespace} {pid} {started}")


def test_nothing_is_said_of_another_namespace_or_of_nonsense() -> None:
    boot, _, pid, started = own_identity().split(" ")
    assert not is_dead(f"{boot} pid:[1] {pid} {started}")
    assert not is_dead("")
