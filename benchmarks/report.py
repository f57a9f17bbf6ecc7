"""How long a report takes to write and to open: 10,000 block times, and 200 profiles at once.

Writing is the whole command in a process of its own, by the wall and by its processors; opening is
a browser's load event for the file, in Debian's chromium. Beside that, what one redraw of the live
view takes while a run measures.
"""

from __future__ import annotations

import io
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from stash.cli.show import load_sample
from stash.report.live import Progress
from stash.results import store
from stash.results.profile import Profile, StepResult
from stash.results.recording import Round

REPEATS = 5


def stretched(profile: Profile, blocks: int) -> Profile:
    """The profile with its rounds repeated until it has that many blocks."""
    per_step = blocks // len(profile.steps)

    def stretch(step: StepResult) -> StepResult:
        rounds = len(step.blocks)
        last = max(block.at_seconds for block in step.blocks)
        more = tuple(
            step.blocks[number % rounds].model_copy(
                update={
                    "round": number,
                    "at_seconds": step.blocks[number % rounds].at_seconds
                    + last * (number // rounds),
                }
            )
            for number in range(per_step)
        )
        return step.model_copy(update={"blocks": more})

    steps = {name: stretch(step) for name, step in profile.steps.items()}
    return profile.model_copy(update={"steps": steps})


def write_seconds(profiles: list[str], page: Path) -> tuple[float, float]:
    """By the wall, and of processors."""
    start, busy = time.perf_counter(), children_seconds()
    subprocess.run(
        [sys.executable, "-m", "stash", "report", *profiles, "--force", "-o", str(page)],
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - start, children_seconds() - busy


def children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def open_seconds(page: Path) -> list[float]:
    from playwright.sync_api import sync_playwright

    times = []
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch_persistent_context(
            folder,
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        for _ in range(REPEATS):
            tab = browser.new_page()
            start = time.perf_counter()
            tab.goto(page.as_uri())
            times.append(time.perf_counter() - start)
            tab.close()
        browser.close()
    return times


def measure(name: str, profiles: list[str], folder: Path) -> None:
    page = folder / "report.html"
    runs = [write_seconds(profiles, page) for _ in range(REPEATS)]
    writes, busy = (sorted(times) for times in zip(*runs, strict=True))
    opens = sorted(open_seconds(page))
    size = page.stat().st_size / 1e6
    print(
        f"{name}: written in {writes[REPEATS // 2]:.2f} s ({writes[0]:.2f} to {writes[-1]:.2f}), "
        f"{busy[REPEATS // 2]:.2f} s of processors, "
        f"opened in {opens[REPEATS // 2]:.2f} s ({opens[0]:.2f} to {opens[-1]:.2f}), {size:.2f} MB"
    )


def rounds_of(profile: Profile) -> list[Round]:
    """The rounds that a profile was made from."""
    columns = [step.blocks for step in profile.steps.values()]
    return [
        Round(launch=0, number=number, at_seconds=blocks[0].at_seconds, blocks=blocks)
        for number, blocks in enumerate(zip(*columns, strict=True))
    ]


def redraw_milliseconds(rounds: list[Round]) -> float:
    """Of processors, for one update of the live view, as the middle of five."""
    times = []
    for _ in range(REPEATS + 1):
        screen = Console(file=io.StringIO(), force_terminal=True, width=80)
        with Progress(screen, max_seconds=600, half_width_asked=0.03) as progress:
            start = time.process_time()
            progress.round(rounds)
            times.append(1e3 * (time.process_time() - start))
    return sorted(times[1:])[REPEATS // 2]  # the first finds nothing imported


def main() -> None:
    """Print medians and extremes of five."""
    sample = load_sample()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one = store.save(sample, folder / "one")
        measure("one profile", [str(one)], folder)
        long = store.save(stretched(sample, 10_000), folder / "long")
        measure("10,000 blocks", [str(long)], folder)
        many = [
            str(store.save(sample.model_copy(update={"id": f"{n:08x}"}), folder / "many"))
            for n in range(200)
        ]
        measure("200 profiles", many, folder)
    for profile in (sample, stretched(sample, 10_000)):
        rounds = rounds_of(profile)
        print(f"a redraw after {len(rounds)} rounds: {redraw_milliseconds(rounds):.0f} ms")


if __name__ == "__main__":
    main()
