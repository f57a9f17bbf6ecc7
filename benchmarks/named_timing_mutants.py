"""Named mistakes in timing, in who runs and in the exchange of gradients: wrong times."""

from __future__ import annotations

from named_mutants import LOADING, MEASURE, METHOD, WHO, Patch

EXCHANGE = "tests/engine/test_exchange.py"
SWITCHBOARD = "tests/engine/test_switchboard.py"

TIMING = (
    Patch(
        "the barrier is timed",
        "engine/measure.py",
        "        seconds = yield from self._seconds_of(timed)\n"
        "        return led.seconds_after(begin), seconds",
        "        if step.who is not Who.FIRST:\n            self._gang.barrier()\n"
        "        yield from self._seconds_of(timed)\n"
        "        return led.seconds_after(begin), self._bench.moment().seconds_after(led)",
        "waiting for others to arrive reads as a stall",
        (MEASURE,),
    ),
    Patch(
        "the lead-in is timed",
        "engine/measure.py",
        "return led.seconds_after(begin), seconds",
        "return led.seconds_after(begin), seconds + led.seconds_after(begin)",
        "what is left of the step before reads as this step's",
        (MEASURE,),
    ),
    Patch(
        "no lead-in",
        "engine/measure.py",
        "    replay_lead: int = 1\n",
        "    replay_lead: int = 0\n",
        "the first iteration after a switch is timed",
        (MEASURE,),
    ),
    Patch(
        "heartbeats are timed",
        "engine/measure.py",
        "        for _ in range(iterations):\n            yield\n",
        "        for _ in range(iterations):\n            self._bench.heartbeat('timed')\n"
        "            yield\n",
        "writing files inside the timed part",
        (MEASURE,),
    ),
    Patch(
        "the host's clock is read instead of the device's",
        "engine/measure.py",
        "        start = self._bench.moment()\n        for _ in range(iterations):\n"
        "            yield\n        end = self._bench.moment()\n"
        "        self._bench.synchronize()\n        return end.seconds_after(start)",
        "        start = self._clock()\n        for _ in range(iterations):\n"
        "            yield\n        end = self._clock()\n"
        "        self._bench.synchronize()\n        return end - start",
        "work that is queued is not work that is done",
        (MEASURE,),
    ),
    Patch(
        "the device is not waited for",
        "engine/measure.py",
        "        end = self._bench.moment()\n        self._bench.synchronize()\n",
        "        end = self._bench.moment()\n",
        "a moment is read before it has come",
        (MEASURE,),
    ),
    Patch(
        "the device is synchronised in every iteration",
        "engine/measure.py",
        "        for _ in range(iterations):\n            yield\n",
        "        for _ in range(iterations):\n            yield\n"
        "            self._bench.synchronize()\n",
        "host and device no longer overlap",
        (MEASURE,),
    ),
    Patch(
        "the device runs empty before the timed part",
        "engine/measure.py",
        "        led = self._bench.moment()\n",
        "        self._bench.synchronize()\n        led = self._bench.moment()\n",
        "what a host prepares while its device is busy reads as a stall",
        (MEASURE,),
    ),
    Patch(
        "telemetry is timed",
        "engine/measure.py",
        "        end = self._bench.moment()\n        self._bench.synchronize()\n",
        "        self._bench.stop_telemetry()\n        end = self._bench.moment()\n"
        "        self._bench.synchronize()\n",
        "reading counters inside the timed part",
        (MEASURE,),
    ),
    Patch(
        "block times are those of the lead-in",
        "engine/measure.py",
        "seconds=_known(seconds),",
        "seconds=_known(leads),",
        "columns mixed up on their way to the first worker",
        (MEASURE,),
    ),
    Patch(
        "every round has the same order",
        "engine/measure.py",
        "        self._random.shuffle(order)\n",
        "",
        "what one step leaves behind always hits the same next step",
        (MEASURE,),
    ),
    Patch(
        "every worker draws its own order",
        "engine/measure.py",
        "random.Random(plan.seed * 1000 + plan.launch + 7919 * plan.earlier_rounds)",
        "random.Random(gang.rank + plan.seed * 1000 + plan.launch + 7919 * plan.earlier_rounds)",
        "workers run different steps at once",
        (MEASURE,),
    ),
    Patch(
        "every launch has the same order",
        "engine/measure.py",
        "random.Random(plan.seed * 1000 + plan.launch + 7919 * plan.earlier_rounds)",
        "random.Random(plan.seed)",
        "several launches repeat one draw",
        (MEASURE,),
    ),
    Patch(
        "a step left out of a round",
        "engine/measure.py",
        "        order = list(self._steps)\n",
        "        order = list(self._steps)[: max(1, len(self._steps) - len(self._rounds) % 2)]\n",
        "differences are no longer within a round",
        (MEASURE,),
    ),
    Patch(
        "the run stops as soon as it looks sure",
        "engine/measure.py",
        "if done >= plan.min_rounds and self._gang.rank == 0:",
        "if done >= 2 and self._gang.rank == 0:",
        "two rounds that agree by chance",
        (MEASURE,),
    ),
    Patch(
        "the limit of time is looked at too late",
        "engine/measure.py",
        "plan.max_seconds is not None and next_end > plan.max_seconds",
        "plan.max_seconds is not None and elapsed > plan.max_seconds",
        "the last round runs over the limit",
        (MEASURE,),
    ),
    Patch(
        "warm-up always counts as settled",
        "engine/measure.py",
        "    if len(times) < 2 * WARM_UP_CHUNK:\n        return False\n",
        "    return True\n",
        "first iterations, which are slow, are measured",
        (MEASURE,),
    ),
    Patch(
        "one fast worker is the gang's rate",
        "engine/measure.py",
        "/ max(max(t for _, t in everyone), 1e-9)",
        "/ max(min(t for _, t in everyone), 1e-9)",
        "a gang is as fast as its slowest worker",
        (LOADING,),
    ),
)

WHO_AND_EXCHANGE = (
    Patch(
        "solo with everybody",
        "results/steps.py",
        'Step("solo", Who.FIRST,',
        'Step("solo", Who.ALL,',
        "contention hides in its own base",
        (WHO, MEASURE),
    ),
    Patch(
        "held workers go on",
        "engine/measure.py",
        "running = self._runs(step.who)",
        "running = True",
        "solo is not alone",
        (WHO, MEASURE),
    ),
    Patch(
        "held workers do not catch up",
        "engine/measure.py",
        "held_seconds = yield from self._catch_up(lead, timed)",
        "held_seconds = yield from self._catch_up(0, 0)",
        "workers count iterations differently, and frameworks hang",
        (WHO, MEASURE),
    ),
    Patch(
        "held workers catch up too few",
        "engine/measure.py",
        "held_seconds = yield from self._catch_up(lead, timed)",
        "held_seconds = yield from self._catch_up(0, timed)",
        "the lead-in counts, too",
        (WHO, MEASURE),
    ),
    Patch(
        "held workers catch up beside the timed one",
        "engine/measure.py",
        '        else:\n            self._bench.heartbeat("held", waits_for=lead + timed)\n',
        "        else:\n            held_seconds = yield from self._catch_up(lead, timed)\n"
        "            running = True\n",
        "solo is not alone",
        (WHO, MEASURE),
    ),
    Patch(
        "exchange left on in unsynced",
        "results/steps.py",
        'Step("unsynced", Who.NODE, Feed.REPLAY, False,',
        'Step("unsynced", Who.NODE, Feed.REPLAY, True,',
        "communication reads as zero",
        (METHOD, SWITCHBOARD),
    ),
    Patch(
        "exchange is off in node",
        "results/steps.py",
        'Step("node", Who.NODE, Feed.REPLAY, True,',
        'Step("node", Who.NODE, Feed.REPLAY, False,',
        "communication reads as zero",
        (METHOD, SWITCHBOARD),
    ),
    Patch(
        "exchange is off with real data",
        "results/steps.py",
        'Step("warm", Who.NODE, Feed.WARM, True,',
        'Step("warm", Who.NODE, Feed.WARM, False,',
        "communication is subtracted from prep",
        (METHOD, SWITCHBOARD),
    ),
    Patch(
        "the exchange switch is stuck",
        "engine/switchboard.py",
        "            group.turn(exchange, among)\n",
        "            group.turn(True, among)\n",
        "unsynced and solo exchange gradients",
        (SWITCHBOARD,),
    ),
    Patch(
        "only the first group is switched",
        "engine/switchboard.py",
        "        for group in self._groups:\n",
        "        for group in self._groups[:1]:\n",
        "a framework's second group goes on exchanging",
        (SWITCHBOARD,),
    ),
    Patch(
        "catching up exchanges gradients",
        "engine/switchboard.py",
        "self._turn(Feed.REPLAY, False, ())",
        "self._turn(Feed.REPLAY, True, self._ranks_of(Who.ALL))",
        "one worker waits for others that do not come",
        (SWITCHBOARD,),
    ),
    Patch(
        "the feed switch is stuck",
        "engine/switchboard.py",
        "        self._loaded.switch(feed)\n",
        "",
        "warm and cold replay",
        (SWITCHBOARD,),
    ),
    Patch(
        "weights are trained",
        "engine/switchboard.py",
        "torch.zeros_like(rate) if isinstance(rate, torch.Tensor) else 0.0",
        "rate",
        "hundreds of passes over few batches end in denormals",
        (SWITCHBOARD,),
    ),
    Patch(
        "learning rates are not given back",
        "engine/switchboard.py",
        '                group["lr"] = rate\n',
        "                pass\n",
        "schedules of the script see zeros",
        (SWITCHBOARD,),
    ),
    Patch(
        "an all-reduce that is off still travels",
        "engine/exchange.py",
        "        return self._completed(_listed(tensors))\n\n    def allreduce_coalesced",
        "        return self._inner.allreduce(_listed(tensors))\n\n    def allreduce_coalesced",
        "communication reads as zero, or solo hangs",
        (EXCHANGE,),
    ),
    Patch(
        "a gather that is off fills one slot",
        "engine/exchange.py",
        "        for slots, local in zip(outputs, inputs, strict=True):\n"
        "            for slot in slots:\n",
        "        for slots, local in zip(outputs, inputs, strict=True):\n"
        "            for slot in slots[:1]:\n",
        "the others hold what was in memory before",
        (EXCHANGE,),
    ),
    Patch(
        "workers meet on the group that is measured",
        "engine/gang.py",
        "dist.barrier(self._side)",
        "dist.barrier()",
        "nobody waits while exchange is off",
        (SWITCHBOARD,),
    ),
)
