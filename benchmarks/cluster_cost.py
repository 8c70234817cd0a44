"""A model of what a kernel costs on a cluster: bytes moved, and how many workers are worth having.

The time of a block is measured, bandwidths and the time of a task are given, and nothing is assumed to overlap, so that
a real cluster does better. `python benchmarks/scale.py --only cost` fills it in; docs/scale.md has the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from notsodeep.scale.blocks import Grid


@dataclass(frozen=True)
class Machine:
    """The speeds of a cluster.

    Attributes:
        pair_seconds: seconds for one pair of samples on one worker, the inner product apart.
        multiply_seconds: seconds for one product and sum on one worker, in the inner products.
        network: bytes per second into one worker.
        disk: bytes per second into the file system, all workers together.
        task_seconds: time of the scheduler for one task, one after the other.
        start_seconds: seconds until the workers are there and have loaded their libraries.
    """

    pair_seconds: float
    multiply_seconds: float
    network: float = 1.25e9
    disk: float = 5e9
    task_seconds: float = 1e-3
    start_seconds: float = 10.0


@dataclass(frozen=True)
class Cost:
    """The cost of one run.

    Attributes:
        n: number of samples.
        workers: number of workers.
        block: rows and columns of a block.
        blocks: number of blocks.
        bytes_in: samples read for one block.
        bytes_out: bytes of one block on the disk.
        stored: bytes of all blocks.
        seconds: from start to end.
        alone: seconds of one worker for the arithmetic alone.
        efficiency: alone/(workers · seconds).
        limit: what takes the most time beside the arithmetic.
    """

    n: int
    workers: int
    block: int
    blocks: int
    bytes_in: int
    bytes_out: int
    stored: int
    seconds: float
    alone: float
    efficiency: float
    limit: str


def cost_of(n: int, p: int, workers: int, machine: Machine, *, block: int = 4096, item: int = 4) -> Cost:
    """The cost of the lower half of an n × n kernel of samples in p dimensions.

    Args:
        n: number of samples.
        p: number of features.
        workers: number of workers.
        machine: the speeds of the cluster.
        block: rows and columns of a block.
        item: bytes of a stored number.
    """
    grid = Grid(n, n, min(block, n), symmetric=True)
    side = grid.block
    bytes_in, bytes_out = 2 * side * p * 8, side * side * item
    arithmetic = side * side * (machine.pair_seconds + p * machine.multiply_seconds)
    rounds = -(-grid.count // workers)
    # All write to one file system; each reads through its own network.
    parts = {
        "reading samples": rounds * bytes_in / machine.network,
        "writing blocks": grid.count * bytes_out / min(machine.disk, workers * machine.network),
        "uneven shares": (rounds - grid.count / workers) * arithmetic,
        "starting": machine.start_seconds + n * p * 8 / machine.network,
    }
    alone = grid.count * arithmetic
    working = alone / workers + sum(parts.values())
    # The scheduler hands out tasks while the workers work.
    scheduling = grid.count * machine.task_seconds
    seconds = max(working, scheduling)
    limit = "scheduler" if scheduling > working else max(parts, key=lambda name: parts[name])
    stored = grid.count * bytes_out
    return Cost(
        n,
        workers,
        side,
        grid.count,
        bytes_in,
        bytes_out,
        stored,
        seconds,
        alone,
        alone / (workers * seconds),
        limit,
    )


def best_block(
    n: int,
    p: int,
    workers: int,
    machine: Machine,
    *,
    sizes: tuple[int, ...] = (1024, 2048, 4096, 8192),
    item: int = 4,
) -> Cost:
    """The cost with the block size, of those given, that takes the least time."""
    return min(
        (cost_of(n, p, workers, machine, block=size, item=item) for size in sizes), key=lambda c: c.seconds
    )
