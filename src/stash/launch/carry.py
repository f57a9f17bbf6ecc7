"""Carries a profile through a log: where nodes share no folder with the user, their logs come back.

    python -m stash.launch.carry stash profile ... --json

Every line says which part of how many it is, so that prefixes of a platform and lines of other
nodes in between do no harm.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import zlib

from stash.errors import StashError
from stash.results.document import MAX_FILE_BYTES
from stash.results.profile import Profile

LINE_BYTES = 3000  # of the compressed document; platforms cut lines of 16 KiB and more
_LINE = re.compile(r"stash-profile (\d{1,6})/(\d{1,6}) ([A-Za-z0-9+/=]+)\s*$", re.MULTILINE)


def pack(document: str) -> list[str]:
    """The document as lines for a log."""
    packed = zlib.compress(document.encode(), 9)
    parts = [packed[at : at + LINE_BYTES] for at in range(0, len(packed), LINE_BYTES)]
    return [
        f"stash-profile {number}/{len(parts)} {base64.b64encode(part).decode()}"
        for number, part in enumerate(parts, 1)
    ]


def unpack(log: str) -> Profile:
    """The last profile that went through a log, checked like any other document."""
    found: dict[int, dict[int, str]] = {}
    latest = 0
    for number, count, text in _LINE.findall(log):
        if int(number) == 1:
            found[int(count)] = {}  # a job that was started anew tells its profile anew
        found.setdefault(int(count), {})[int(number)] = text
        latest = int(count)
    parts = found.get(latest, {})
    if not parts:
        raise StashError(
            "There is no profile in this log. Its last lines tell how far the job came."
        )
    missing = latest - len(parts)
    if missing:
        raise StashError(
            f"The log holds {len(parts)} of {latest} parts of the profile: it was cut. "
            "Fetch the whole log, such as with `kubectl logs --tail=-1`."
        )
    return Profile.from_json(_inflated(parts), source="the profile in the log")


def _inflated(parts: dict[int, str]) -> bytes:
    """A log is written by others: damaged or endless data is an error, not a full memory."""
    inflater = zlib.decompressobj()
    try:
        packed = b"".join(base64.b64decode(parts[n], validate=True) for n in sorted(parts))
        document = inflater.decompress(packed, MAX_FILE_BYTES)
    except (binascii.Error, zlib.error):
        raise StashError("The profile in this log is damaged.") from None
    if not inflater.eof:
        raise StashError("The profile in this log is damaged, or larger than any profile.")
    return document


def main() -> None:
    """Run a command and pass on what it prints; what is no profile passes unchanged."""
    code, told = _run(sys.argv[1:])
    if b'"stash.profile/' in told[:200]:
        told = "\n".join(pack(told.decode())).encode() + b"\n"
    sys.stdout.buffer.write(told)
    sys.stdout.flush()
    sys.exit(code)


def _run(command: list[str]) -> tuple[int, bytes]:
    """A command's exit code and output. SIGTERM is for the command, which then tells its rounds."""
    output: list[bytes] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        signal.signal(signal.SIGTERM, lambda number, frame: _end(running))
        pipe = running.stdout
        assert pipe is not None
        reading = threading.Thread(target=lambda: output.append(pipe.read()))
        reading.start()
        running.returncode = _exit_code(running.pid)
        reading.join()
    return running.returncode, output[0]


def _end(running: subprocess.Popen[bytes]) -> None:
    if running.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(running.pid, signal.SIGTERM)


def _exit_code(process: int) -> int:
    """Of a child, as a shell has it. The first process of a container also buries all orphans."""
    while True:
        ended, status = os.wait()
        if ended == process:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    main()
