"""One run: the storm, then fault by fault at lag 0, then the end, where nothing may be missing."""

from __future__ import annotations

import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import psycopg
from confluent_kafka import KafkaException

from contracts.topics import Topics
from tests.torture import poison
from tests.torture.arena import Arena
from tests.torture.checker import Case, Verdict, judge
from tests.torture.evidence import StoreWitness, read_log
from tests.torture.fleet import Fleet, wait_until
from tests.torture.menu import MENU
from tests.torture.plan import FLEETS, Step

RECOVER_S = 240.0
"""Lag must be 0 again within this after a fault has ended (I5), on a machine that others use as well."""
SECOND_LOOK_S = 3.0
BEGUN_S = 20.0
"""A start is over when what waits is no older: the first batches take longest."""
NEARLY = 600
"""Records that a running fleet keeps on their way."""
PROGRESS_S = 2.0
NOISY = "noisy-0"
Say = Callable[[str], None]


@dataclass(slots=True)
class Outcome:
    """What a run measured. ``faults`` by kind as they were carried out, ``recoveries_s`` by kind of drained faults."""

    verdict: Verdict | None = None
    case: Case | None = None
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    recoveries_s: list[tuple[str, float]] = field(default_factory=list)
    not_recovered: list[str] = field(default_factory=list)

    @property
    def times_s(self) -> list[float]:
        return sorted(seconds for _, seconds in self.recoveries_s)


class Run:
    """Carries a plan out on an arena."""

    def __init__(self, arena: Arena, say: Say, patience_s: float = RECOVER_S, losing: bool = False) -> None:
        """``losing``: of mutants, whose lag never returns; the log being taken stands for it."""
        self._arena = arena
        self._losing = losing
        self._patience_s = patience_s
        self._say = say
        self._outcome = Outcome()
        self._begun_s = time.monotonic()
        self._ongoing: set[str] = set()
        self._done = threading.Event()
        self._threads: list[threading.Thread] = []

    def __call__(self, plan: Sequence[Step]) -> Outcome:
        """The whole run; an interrupted one has no verdict."""
        teller = threading.Thread(target=self._tell, name="progress")
        teller.start()
        try:
            self._until_calm("the start", "start")
            self._arena.calibrate()
            self._storm([step for step in plan if not step.drained])
            self._until_calm("the storm is over", "storm")
            for step in plan:
                if step.drained and not self._arena.stop.is_set():
                    self._strike(step)
                    self._until_calm(step.line(), step.fault)
            if not self._arena.stop.is_set():
                self._end()
        except BaseException:
            self._arena.stop.set()
            raise
        finally:
            self._done.set()
            for thread in (*self._threads, teller):
                thread.join()
        self._outcome.seconds = time.monotonic() - self._begun_s
        return self._outcome

    def _storm(self, steps: Sequence[Step]) -> None:
        begun_s = time.monotonic()
        for step in steps:
            self._arena.stop.wait(max(0.0, begun_s + step.at_s - time.monotonic()))
            if self._arena.stop.is_set():
                break
            thread = threading.Thread(target=self._strike, args=(step,), name=step.fault)
            thread.start()
            self._threads.append(thread)
        for thread in self._threads:
            thread.join()

    def _strike(self, step: Step) -> None:
        words = f"{step.fault} {','.join(step.targets)}"
        self._ongoing.add(words)
        self._say(f"{self._at()}  {words}" + (f" for {step.hold_s:.0f} s" if step.hold_s else ""))
        try:
            MENU[step.fault].strike(self._arena, step)
            self._outcome.faults[step.fault] += 1
        except Exception:  # noqa: BLE001 - a harness that stumbles must not end a run in silence
            self._arena.troubles.append(f"{step.line()}: {traceback.format_exc(limit=-3)}")
        self._ongoing.discard(words)

    def _until_calm(self, after: str, kind: str) -> None:
        """Wait for lag 0 and note how long it took."""
        begun_s = time.monotonic()
        calm = self._all_began if kind == "start" else self._calm
        if wait_until(calm, self._patience_s, self._arena.stop):
            if kind != "start":
                self._outcome.recoveries_s.append((kind, time.monotonic() - begun_s))
        elif not self._arena.stop.is_set():
            self._outcome.not_recovered.append(f"after {after}: {self._who_is_missing()}")
            self._say(f"{self._at()}  NOT RECOVERED {self._outcome.not_recovered[-1]}")

    def _calm(self) -> bool:
        return self._arena.log_taken(NEARLY) if self._losing else self._arena.caught_up()

    def _settled(self, everybody: Sequence[Fleet]) -> bool:
        """Nothing is on its way any more."""
        arena = self._arena
        if any(fleet.undrained for fleet in everybody) or not arena.session.supervisor.state().ready:
            return False
        return arena.log_taken(0) if self._losing else arena.history.lag() == 0 and not arena.poison.left

    def _all_began(self) -> bool:
        """Every device has a packet in the store."""
        began = {device for _, device, _ in list(self._arena.history.latencies)}
        begun = began >= set(self._arena.tenants) - {poison.DEVICE}
        return begun and self._arena.history.oldest_wait_s() < BEGUN_S

    def _who_is_missing(self) -> str:
        states = self._arena.session.supervisor.state().services
        away = [name for name, one in states.items() if one.state != "ready"]
        away += [name for name, fleet in self._arena.fleets.items() if fleet.pid is None]
        with self._arena.history.lock:
            waiting = Counter(device for device, _, _ in self._arena.history.waiting)
        return f"not ready {away}, waiting packets {dict(waiting)}, oldest {self._arena.history.oldest_wait_s():.0f} s"

    def _end(self) -> None:
        """Sources stop, everything must be acknowledged and stored, then judge; look twice before condemning."""
        arena = self._arena
        for fleet in (*arena.fleets.values(), *arena.images):
            fleet.order(ended=True)
        everybody = [*arena.fleets.values(), *(image for image in arena.images if image.pid is not None)]
        begun_s = time.monotonic()
        drained = wait_until(lambda: self._settled(everybody), self._patience_s, arena.stop)
        self._outcome.recoveries_s.append(("end", time.monotonic() - begun_s))
        if not drained and not arena.stop.is_set():
            left = [f"{fleet.name} has {fleet.undrained} devices undrained" for fleet in everybody if fleet.undrained]
            self._outcome.not_recovered.append(
                f"at the end: {left}, poison {arena.poison.left}, {self._who_is_missing()}"
            )
        for fleet in everybody:
            fleet.stop()
        for _ in range(3):
            self._outcome.case = gather(arena)
            self._outcome.verdict = judge(self._outcome.case)
            if self._outcome.verdict.innocent or self._losing or arena.stop.wait(SECOND_LOOK_S):
                break

    def _tell(self) -> None:
        while not self._done.wait(PROGRESS_S):
            history, arena, now = self._arena.history, self._arena, ", ".join(sorted(self._ongoing)) or "-"
            self._say(
                f"{self._at()}  accepted {len(history.accepted):>7,}  lag {history.lag():>5,}"
                f"  oldest {history.oldest_wait_s():.0f} s  to send {self._undrained()}  kills {arena.kills}  {now}"
            )

    def _undrained(self) -> int:
        """Devices with something left in their spools, as far as their processes have told."""
        return sum(max(0, fleet.undrained) for fleet in self._arena.fleets.values())

    def _at(self) -> str:
        return f"{time.monotonic() - self._begun_s:6.1f} s"


def gather(arena: Arena) -> Case:
    """Everything for the judge. Raises TimeoutError when the witnesses do not answer."""
    found: list[Case] = []

    def ask() -> bool:
        try:
            found.append(_ask(arena))
        except (psycopg.Error, KafkaException):
            return False
        return True

    if not wait_until(ask, RECOVER_S, arena.stop, 1.0):
        raise TimeoutError("the log and the store did not answer at the end of the run")
    return found[0]


def _ask(arena: Arena) -> Case:
    witness, history = StoreWitness(arena.judge_dsn), arena.history
    try:
        records, letters = read_log(arena.stack.bootstrap, Topics(arena.stack.settings.topic_prefix))
        with history.lock:
            accepted = {identity: frozenset(digests) for identity, digests in history.accepted.items()}
            acked, rejected = frozenset(history.acked), frozenset(history.rejected)
            moved, heartbeats = frozenset(history.moved), dict(history.heartbeats)
            movers = frozenset(history.movers)
        promised = {one for tap in arena.taps.values() for one in set(tap.promised) if one[0] != NOISY}
        return Case(
            tenants=arena.tenants,
            accepted=accepted,
            moved=moved,
            movers=movers,
            heartbeats=heartbeats,
            acked=acked,
            rejected=rejected,
            poison=dict(arena.poison.sent),
            promised=frozenset(promised),
            out_of_order=tuple(line for tap in arena.taps.values() for line in tap.out_of_order),
            log=tuple(records),
            letters=frozenset(letters),
            stored=tuple(witness.stored()),
            gaps=tuple(witness.gaps()),
            aside=tuple(witness.aside()),
            taken=witness.taken(),
            ledger=tuple(witness.ledger()),
            latest_wrong=tuple(witness.latest_wrong(set(arena.tenants) - {poison.DEVICE})),
            windows_wrong=tuple(witness.windows_wrong(set(arena.tenants) - {poison.DEVICE})),
        )
    finally:
        witness.close()


def noisy_others_ms(arena: Arena) -> int | None:
    """p95 of what the other devices waited for the store while one was at a thousand times its rate."""
    spans, others = arena.noisy_spans, set(FLEETS) - {"noisy"}
    waits = sorted(
        latency
        for since_s, device, latency in arena.history.latencies
        if device.rpartition("-")[0] in others and any(begin <= since_s <= end for begin, end in spans)
    )
    return round(waits[int(0.95 * (len(waits) - 1))] * 1_000) if waits else None
