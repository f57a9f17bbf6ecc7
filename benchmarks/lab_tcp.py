"""How much longer than its closed form does a message take on a lab link? By how TCP paces itself.

Two hosts send each other a message at once and then rest, as workers do that exchange gradients.
Every way of pacing that is asked for has its turn, again and again. Root is needed.

    python benchmarks/lab_tcp.py [--pacing reno bbr] [--turns 3]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from stash.lab import network
from stash.lab.network import Host

RATE, DEPTH = "28mbit", "3ms"
MESSAGES, MESSAGE_BYTES, REST_SECONDS = 12, 2_000_000, 0.4
EXCHANGE = """
import json, socket, sys, threading, time
address, pacing, count, size, rest = sys.argv[1], sys.argv[2].encode(), *map(float, sys.argv[3:6])
end = socket.socket()
end.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, pacing)
if len(sys.argv) > 6:
    end.connect((address, 5000))
else:
    end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    end.bind((address, 5000))
    end.listen()
    print("ready", flush=True)
    end, _ = end.accept()
end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
seconds = []
for _ in range(int(count)):
    end.sendall(b"k")
    end.recv(1)
    began = time.perf_counter()
    sending = threading.Thread(target=end.sendall, args=(bytes(int(size)),))
    sending.start()
    left = int(size)
    while left:
        left -= len(end.recv(min(left, 1 << 20)))
    sending.join()
    seconds.append(time.perf_counter() - began)
    time.sleep(rest)
print(json.dumps(seconds))
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pacing", nargs="+", default=["reno", "bbr"])
    parser.add_argument("--turns", type=int, default=3, help=f"of {MESSAGES} messages each")
    options = parser.parse_args()
    found: dict[str, list[float]] = {pacing: [] for pacing in options.pacing}
    with network.hosts(2, RATE, burst=DEPTH) as (first, second):
        link = first.link
        truth = MESSAGE_BYTES / link.goodput - link.burst_seconds
        for _ in range(options.turns):
            for pacing in options.pacing:
                found[pacing] += exchange(first, second, pacing)
    for pacing, seconds in found.items():
        late = sorted(round(1e3 * (one - truth), 1) for one in seconds)
        told = {"pacing": pacing, "messages": len(late), "closed_form_ms": round(1e3 * truth, 1)}
        print(json.dumps(told | {"median_late_ms": late[len(late) // 2], "most_late_ms": late[-1]}))


def exchange(first: Host, second: Host, pacing: str) -> list[float]:
    """Seconds of every message that two hosts send each other."""
    words = [first.address, pacing, str(MESSAGES), str(MESSAGE_BYTES), str(REST_SECONDS)]
    command = [sys.executable, "-I", "-c", EXCHANGE, *words]
    with subprocess.Popen([*first.inside, *command], stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None and listener.stdout.readline() == "ready\n"
        done = subprocess.run(
            [*second.inside, *command, "connect"], stdout=subprocess.PIPE, check=True
        )
        listener.stdout.read()
    return [float(one) for one in json.loads(done.stdout)]


if __name__ == "__main__":
    main()
