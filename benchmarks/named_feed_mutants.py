"""Named mistakes in feeds, page cache and emulated devices: wrong times."""

from __future__ import annotations

from named_mutants import FEED, LOADING, MEASURE, METHOD, TWIN, Patch

BUCKETS = "tests/workloads/test_buckets.py"
EMULATED = "tests/engine/test_emulated.py"
OPENS = "tests/engine/test_opens.py"
PAGECACHE = "tests/engine/test_pagecache.py"

FEEDS = (
    Patch(
        "loader blocks start with a full queue",
        "engine/measure.py",
        "        if step.feed is Feed.COLD and running:\n"
        "            self._pipeline.empty_page_cache()\n",
        "        if step.feed is Feed.COLD and running:\n"
        "            self._pipeline.empty_page_cache()\n"
        "        if step.feed.is_real and running:\n            self._pipeline.open()\n"
        "            self._gang.barrier()\n",
        "batches made before the block hide a stall",
        (LOADING,),
    ),
    Patch(
        "the loader goes on from block to block",
        "engine/feed.py",
        "        self._live = self.source.open()\n\n    def drain(self) -> int:\n",
        "        self._live = self._live or self.source.open()\n"
        "\n"
        "    def drain(self) -> int:\n"
        "        return 0\n",
        "its queue is full when a block starts, and windows differ",
        (FEED,),
    ),
    Patch(
        "loaders pause before they are timed",
        "engine/measure.py",
        "        led = self._bench.moment()\n",
        "        led = self._bench.moment()\n"
        "        if step.feed.is_real:\n            self._gang.barrier()\n",
        "a pause fills the queue",
        (LOADING,),
    ),
    Patch(
        "workers wait for each other between lead-in and timed part",
        "engine/measure.py",
        "        led = self._bench.moment()\n",
        "        led = self._bench.moment()\n"
        "        if not step.feed.is_real and step.who is not Who.FIRST:\n"
        "            self._gang.barrier()\n",
        "they leave a barrier one after the other, and the first waits for the last",
        (MEASURE,),
    ),
    Patch(
        "the tail is not drained",
        "engine/measure.py",
        '        self._bench.set(STEP_BY_NAME["node"])\n        self._pipeline.drain()\n'
        "        read_after",
        '        self._bench.set(STEP_BY_NAME["node"])\n        read_after',
        "loader workers are busy in the next block",
        (LOADING,),
    ),
    Patch(
        "a drained loader keeps its batches",
        "engine/feed.py",
        "        if not self.source.is_endless:\n            for _ in self._live:",
        "        if False:\n            for _ in self._live:",
        "loader workers are busy in the next block",
        (FEED,),
    ),
    Patch(
        "warm is really cold",
        "engine/measure.py",
        "        if step.feed is Feed.COLD and running:\n",
        "        if step.feed.is_real and running:\n",
        "fetch reads as zero",
        (MEASURE,),
    ),
    Patch(
        "cold is really warm",
        "engine/measure.py",
        "        if step.feed is Feed.COLD and running:\n"
        "            self._pipeline.empty_page_cache()\n",
        "",
        "fetch reads as zero",
        (MEASURE,),
    ),
    Patch(
        "cold in the table is warm",
        "results/steps.py",
        'Step("cold", Who.NODE, Feed.COLD, True,',
        'Step("cold", Who.NODE, Feed.WARM, True,',
        "fetch reads as zero",
        (METHOD, MEASURE),
    ),
    Patch(
        "files are evicted before they are written back",
        "engine/pagecache.py",
        "                    os.fdatasync(descriptor)\n",
        "                    pass\n",
        "fresh files stay in memory",
        (PAGECACHE,),
    ),
    Patch(
        "nothing is evicted",
        "engine/pagecache.py",
        "os.POSIX_FADV_DONTNEED)",
        "os.POSIX_FADV_NORMAL)",
        "cold is warm",
        (PAGECACHE,),
    ),
    Patch(
        "read calls pass for bytes from storage",
        "engine/pagecache.py",
        'line.startswith("read_bytes:")',
        'line.startswith("rchar:")',
        "cold is proven by what memory delivered",
        (PAGECACHE,),
    ),
    Patch(
        "bytes that loader workers read are not counted",
        "engine/pagecache.py",
        "processes = [own, *own.children(recursive=True)]",
        "processes = [own]",
        "cold cannot be proven",
        (PAGECACHE,),
    ),
    Patch(
        "replay is of other batches than warm and cold",
        "engine/feed.py",
        "timed = batches[first : first + self.window.timed * self._per_iteration]",
        "timed = batches[: self.window.timed * self._per_iteration]",
        "compute differs between the steps of a difference",
        (FEED,),
    ),
    Patch(
        "every block visits new samples",
        "engine/sources.py",
        "        if len(self._epoch_indices) < count and not self._epoch_is_whole:\n",
        "        if True:\n",
        "shuffling changes what warm and cold read",
        (FEED,),
    ),
    Patch(
        "the twin has no loader workers",
        "engine/sources.py",
        '"num_workers": mine.num_workers,',
        '"num_workers": min(1, mine.num_workers),',
        "preprocessing is slower than the script's own",
        (TWIN,),
    ),
    Patch(
        "the twin works further ahead",
        "engine/sources.py",
        'settings["prefetch_factor"] = mine.prefetch_factor\n',
        'settings["prefetch_factor"] = 8 * (mine.prefetch_factor or 2)\n',
        "a longer queue than the script's own hides stalls",
        (TWIN,),
    ),
    Patch(
        "opens are noted in loaders that are measured",
        "engine/feed.py",
        "persistent=True, opens=None)\n\n    @property\n    def _window_batches",
        "persistent=True, opens=opens)\n\n    @property\n    def _window_batches",
        "the hook slows every open",
        (TWIN,),
    ),
    Patch(
        "files opened for writing count as data",
        "engine/opens.py",
        "flags & os.O_ACCMODE == os.O_RDONLY",
        "True",
        "a log is evicted and counted as read",
        (OPENS,),
    ),
)

EMULATION = (
    Patch(
        "an emulated device is always done",
        "workloads/emulated.py",
        "        self.wait_until(self._free_at, exactly=True)\n",
        "        self.wait_until(0.0, exactly=True)\n",
        "blocks end before their work",
        (EMULATED,),
    ),
    Patch(
        "long sleeps add up",
        "workloads/emulated.py",
        "        start = self.done_at()\n",
        "        start = self.now()\n",
        "queued work runs at once",
        (EMULATED,),
    ),
    Patch(
        "an idle device starts in the past",
        "workloads/emulated.py",
        "        start = self.done_at()\n",
        "        start = self._free_at\n",
        "waiting for data costs nothing",
        (EMULATED,),
    ),
    Patch(
        "a host goes on late",
        "workloads/emulated.py",
        "watched = WATCHED_SECONDS if exactly else 0.0",
        "watched = 0.0",
        "an iteration that waits for data carries what a sleep is late by",
        (EMULATED,),
    ),
    Patch(
        "gradients are ready at once",
        "workloads/emulated.py",
        "        ready = self._backward_started + self.planned_ready_seconds[position]\n",
        "        ready = self._backward_started\n",
        "nothing of an exchange is hidden by compute, or all of it",
        (EMULATED,),
    ),
    Patch(
        "a message per layer on emulated devices",
        "workloads/train.py",
        "first, others = (cap * name.byte_scale for cap in BUCKET_CAPS_MIB)",
        "first, others = (cap * 1e-6 for cap in BUCKET_CAPS_MIB)",
        "buckets must shrink with the bytes, not vanish",
        (BUCKETS,),
    ),
)
