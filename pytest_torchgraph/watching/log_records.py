"""Split the logs that torch writes with `TORCH_TRACE=DIR` into records, without importing torch.

A record is a line with a prefix and JSON, then its payload: further lines, each after a tab. A
record names the MD5 of its payload, so a log that was cut inside a record is noticed. Lines of
other programs may stand between the records.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

_RECORD = re.compile(rb"(?:\[rank\d+\]:)?[VIWEC]\d{4} [\d:.]+ (\d+) [^\]]*:\d+\] (\{.*)")


class LogRecord(NamedTuple):
    """A record of a log.

    Attributes:
        pid: id of the process.
        metadata: the record itself.
        payload: the accompanying text.
    """

    pid: int
    metadata: dict[str, Any]
    payload: bytes


def is_record(line: bytes) -> bool:
    """Return True if a line begins a record of a log."""
    return _RECORD.match(line) is not None


def log_records(path: Path, damage: list[str]) -> Iterator[LogRecord]:
    """Yield the whole records of a file, plain or compressed by gzip, in order.

    Args:
        path: the file.
        damage: receives a text about each record that is not whole.

    Raises:
        OSError: if the file cannot be read.
    """
    record: LogRecord | None = None
    payload: list[bytes] = []
    for line in chain(_lines(path, damage), [b""]):  # a line that ends the last record
        if line.startswith(b"\t"):
            payload.append(line[1:])
            continue
        if record is not None and (whole := _whole(record, payload, damage)):
            yield whole
        record, payload = None, []
        if (match := _RECORD.match(line)) is not None:
            try:
                metadata = json.loads(match[2])
            except (RecursionError, ValueError):
                damage.append(f"a record is cut: {line[:80].decode('utf-8', 'replace').strip()}")
            else:
                record = LogRecord(int(match[1]), metadata, b"")


def _lines(path: Path, damage: list[str]) -> Iterator[bytes]:
    """Yield the lines of a file, and note if the last of them, or the compressed file, is cut."""
    with open(path, "rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        line = b"\n"
        try:
            for line in gzip.GzipFile(fileobj=file) if compressed else file:
                yield line
        except (EOFError, OSError, zlib.error) as error:
            if not compressed:
                raise
            damage.append(f"the compressed file is cut or damaged ({error})")
        # A record and its payload say themselves whether they are whole.
        if not line.endswith(b"\n") and not line.startswith(b"\t") and not is_record(line):
            damage.append("it ends inside a line")


def _whole(record: LogRecord, lines: list[bytes], damage: list[str]) -> LogRecord | None:
    """Return a record with its payload; `None` if that is not the payload that it names."""
    digest = record.metadata.get("has_payload")
    payload = b"".join(lines).removesuffix(b"\n")
    if digest and hashlib.md5(payload, usedforsecurity=False).hexdigest() != digest:
        damage.append(f"the payload of a record {next(iter(record.metadata))!r:.60} is cut")
        return None
    return record._replace(payload=payload)
